"""What the cells of a site cost: GPU-minutes and the site's units, estimated for what would run, measured for what ran.

Estimates are modelled (see ``estimate``); measured minutes are the wall times that the stages wrote into their status
files. A site's bill also counts the start of a job, so it is a little higher.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from gpustudy.base.status import read_status
from gpustudy.launch.requests import Requests
from gpustudy.study.charges import per_hour, units
from gpustudy.study.models import Rate, Site
from gpustudy.study.states import DAMAGED, CellState, StageState, Survey

_SECONDS_PER_MINUTE = 60
_MINUTES_PER_HOUR = 60


@dataclass(frozen=True)
class CellCost:
    """Time and units of one cell.

    Attributes:
        cell: ``GPU/CONFIG/rN``.
        stages: the stages that would run.
        estimated_minutes: GPU-minutes of these stages, modelled.
        estimated_units: the site's units for them, modelled; None where the site states no rate.
        measured_stages: the stages that ran.
        measured_minutes: GPU-minutes that they took.
        measured_estimate_minutes: what the model says of these same stages.
        measured_units: the site's units for the measured minutes.
    """

    cell: str
    stages: tuple[str, ...]
    estimated_minutes: float
    estimated_units: float | None
    measured_stages: tuple[str, ...]
    measured_minutes: float
    measured_estimate_minutes: float
    measured_units: float | None


@dataclass(frozen=True)
class SiteCost:
    """Cost of all cells of one site.

    Attributes:
        site: name of the site.
        rate: what it charges; None where it states nothing.
        at_once: cells that may run at the same time.
        cells: every cell that would run or ran.
        total: all of them together, under the name ``total``.
    """

    site: str
    rate: Rate | None
    at_once: int
    cells: tuple[CellCost, ...]
    total: CellCost

    def as_json(self) -> dict[str, Any]:
        """Return everything for ``--json``; estimates are marked as modelled."""
        return {
            "site": self.site,
            "rate": self.rate.model_dump(mode="json") if self.rate else None,
            "at_once": self.at_once,
            "origin": {"estimated": "modelled", "measured": "measured"},
            "cells": [asdict(cell) for cell in self.cells],
            "total": asdict(self.total),
        }


def site_cost(seen: Survey, requests: Requests) -> SiteCost:
    """Return what the cells of the site from which the study is seen cost."""
    site = seen.study.sites[seen.site]
    cells = tuple(cost for state in seen.cells if state.gpu in site.gpus for cost in _cell_cost(state, site, requests))
    at_once = site.slurm.max_running if site.slurm else site.gpus_per_node or 1
    return SiteCost(seen.site, site.rate, at_once, cells, _total(site, cells))


def _cell_cost(state: CellState, site: Site, requests: Requests) -> Iterator[CellCost]:
    """Yield the cost of a cell, unless nothing of it would run and nothing of it is here."""
    waiting = [stage for stage in state.stages if _waits(stage)]
    ran = [stage for stage in state.stages if stage.raw is not None and stage.state != DAMAGED]
    if not waiting and not ran:
        return
    minutes = _estimate(state, waiting, requests)
    seconds = sum(read_status(stage.raw).seconds for stage in ran if stage.raw is not None)
    measured = seconds / _SECONDS_PER_MINUTE
    yield CellCost(
        cell=str(state.cell),
        stages=tuple(stage.stage for stage in waiting),
        estimated_minutes=minutes,
        estimated_units=units(site, minutes),
        measured_stages=tuple(stage.stage for stage in ran),
        measured_minutes=measured,
        measured_estimate_minutes=_estimate(state, ran, requests),
        measured_units=units(site, measured),
    )


def _waits(stage: StageState) -> bool:
    return stage.raw is None and stage.metrics is None and stage.state != DAMAGED


def _estimate(state: CellState, stages: Iterable[StageState], requests: Requests) -> float:
    """Return the modelled minutes of some stages of a cell."""
    return sum(requests.estimate(state.gpu, stage.stage).seconds for stage in stages) / _SECONDS_PER_MINUTE


def _total(site: Site, cells: tuple[CellCost, ...]) -> CellCost:
    """Return the sum over all cells; one long job is charged its least once, not per cell."""
    estimated = _units_of(site, [cell.estimated_units for cell in cells], any(cell.stages for cell in cells))
    measured = _units_of(site, [cell.measured_units for cell in cells], any(cell.measured_stages for cell in cells))
    return CellCost(
        cell="total",
        stages=tuple(dict.fromkeys(stage for cell in cells for stage in cell.stages)),
        estimated_minutes=sum(cell.estimated_minutes for cell in cells),
        estimated_units=estimated,
        measured_stages=tuple(dict.fromkeys(stage for cell in cells for stage in cell.measured_stages)),
        measured_minutes=sum(cell.measured_minutes for cell in cells),
        measured_estimate_minutes=sum(cell.measured_estimate_minutes for cell in cells),
        measured_units=measured,
    )


def _units_of(site: Site, of_cells: list[float | None], any_job: bool) -> float | None:
    if site.rate is None:
        return None
    summed = sum(found for found in of_cells if found is not None)
    if site.executor == "slurm" or not any_job:
        return summed
    least = per_hour(site.rate) * site.rate.minimum_minutes / _MINUTES_PER_HOUR
    return max(summed, least, site.rate.minimum_units)


def table(cost: SiteCost) -> list[str]:
    """Return the cost as lines of text: a row per cell, the total, and what the numbers rest on."""
    unit = cost.rate.unit if cost.rate else ""
    head = ["cell", "would run", "GPU-min*", f"{unit}*", "ran", "its GPU-min*", "measured", f"measured {unit}"]
    rows = [head, *(_row(cell) for cell in (*cost.cells, cost.total))]
    if cost.rate is None:
        rows = [[text for index, text in enumerate(row) if index not in (3, 7)] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [f"Cost at site {cost.site}:", *lines, *_basis_lines(), *_duration_lines(cost), *_rate_lines(cost.rate)]


def _row(cell: CellCost) -> list[str]:
    return [
        cell.cell,
        " ".join(cell.stages) or "-",
        f"{cell.estimated_minutes:.0f}" if cell.stages else "-",
        _number(cell.estimated_units) if cell.stages else "-",
        " ".join(cell.measured_stages) or "-",
        f"{cell.measured_estimate_minutes:.0f}" if cell.measured_stages else "-",
        f"{cell.measured_minutes:.1f}" if cell.measured_stages else "-",
        _number(cell.measured_units) if cell.measured_stages else "-",
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _basis_lines() -> Iterator[str]:
    yield "* modelled: the workload's operations by formula over a share of the device's float32 peak;"
    yield "  a scheduler is asked for twice the minutes, rounded up."


def _duration_lines(cost: SiteCost) -> Iterator[str]:
    """Yield how long the whole would run: what a job that holds all of it is to ask for, at least."""
    waiting = [cell.estimated_minutes for cell in cost.cells if cell.stages]
    if not waiting:
        return
    hours = max(max(waiting), sum(waiting) / cost.at_once) / _MINUTES_PER_HOUR
    yield f"{cost.at_once} at a time: about {hours:.1f} hours in all (modelled), queues left out."


def _rate_lines(rate: Rate | None) -> Iterator[str]:
    if rate is None:
        yield "This site states no rate."
        return
    per = "GPU" if rate.per_gpu_hour is not None else "node"
    least = [f"{rate.minimum_units:g} {rate.unit}"] if rate.minimum_units else []
    least += [f"{rate.minimum_minutes} minutes"] if rate.minimum_minutes else []
    more = f", at least {' and '.join(least)} per job" if least else ""
    yield f"Rate: {per_hour(rate):g} {rate.unit} per {per}-hour{more} ({rate.source}; read {rate.date})."
