"""Nsight Compute files -> the tables counters, counter_values, rules and priority, and rows of cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpustudy.base.errors import UserError
from gpustudy.metrics.catalogue import Catalogue, load_catalogue
from gpustudy.metrics.cells import Row, cell_row
from gpustudy.metrics.classes import classify
from gpustudy.metrics.ncu.batch import Batch, Launch, Rule
from gpustudy.metrics.ncu.evaluate import HAS_VALUE, Evaluated, doubtful_texts, evaluate, reason_texts
from gpustudy.metrics.ncu.source import Source, open_source
from gpustudy.metrics.ncu.strata import Strata, read_strata
from gpustudy.metrics.ncu.stream import TableStream, value_columns
from gpustudy.metrics.ncu.totals import STAGE, total_rows
from gpustudy.metrics.priority import NO_ESTIMATE, RECOMPUTED, REPORT, Estimate, scores
from gpustudy.metrics.rule_formulas import recompute
from gpustudy.metrics.schemas import TABLES, Identity, write_table

TABLE_FILES = {name: f"{name}.parquet" for name in ("counters", "counter_values", "rules", "priority")}

_DURATION = "duration_ns"
_PROPERTY = "estimated_speedup_pct"
_PHASES = ("forward", "backward", "optimiser", "data")
_OTHER = "other"


@dataclass
class Collected:
    """What is kept of one report after its batches went by: launches and quantities, not the values of all metrics."""

    report: str
    identity: Identity
    ncu_version: str | None
    launches: list[Launch] = field(default_factory=list)
    evaluated: list[Evaluated] = field(default_factory=list)
    estimates: list[Estimate] = field(default_factory=list)

    @property
    def classes(self) -> list[str]:
        """The kernel class of each launch."""
        return [classify(launch.name) for launch in self.launches]


class Tables:
    """Writes the tables of one or several reports into a directory."""

    def __init__(self, out: Path, catalogue: Catalogue) -> None:
        self._out, self._catalogue = out, catalogue
        self._stack = ExitStack()
        self._values = self._stack.enter_context(TableStream(out / TABLE_FILES["counter_values"], "counter_values"))
        self._rules = self._stack.enter_context(TableStream(out / TABLE_FILES["rules"], "rules"))
        self._collected: list[Collected] = []

    def __enter__(self) -> Tables:
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def add(
        self,
        source: Source,
        identity_of: Callable[[Launch], Identity],
        metrics: Sequence[str] | None,
        on_launches: Callable[[int], None] = lambda done: None,
    ) -> Collected:
        """Read one report through and write its values and rules.

        Args:
            source: the file.
            identity_of: gives the identity of its rows from its first launch.
            metrics: what to read and keep; None for all.
            on_launches: is told how many launches were read so far.
        """
        collected: Collected | None = None
        for batch in source.batches(metrics):
            if collected is None:
                identity = identity_of(batch.launches[0])
                collected = Collected(source.path.name, identity, source.session.ncu_version)
                self._collected.append(collected)
            evaluated = evaluate(batch, self._catalogue)
            self._values.write(value_columns(batch, collected.report), len(batch.columns.value), collected.identity)
            self._add_rules(batch, evaluated, collected)
            collected.launches += batch.launches
            collected.evaluated.append(evaluated)
            on_launches(len(collected.launches))
        if collected is None:
            raise UserError(f"{source.path} holds no launches: check ncu's log.")
        return collected

    def finish(
        self,
        phases: Callable[[Collected], list[str]],
        weights: Callable[[Collected], list[float]] | None = None,
    ) -> dict[str, int]:
        """Write counters and priority; return the rows of each table.

        Args:
            phases: gives the phase of each launch of a report.
            weights: gives the launches of a step that each stands for; None: each for itself.
        """
        counters: dict[str, list[Any]] = {}
        for collected in self._collected:
            for name, column in _counter_columns(collected, self._catalogue, phases(collected)).items():
                counters.setdefault(name, []).extend(column)
        extra = self._catalogue.columns()
        rows = {"counters": write_table(self._out / TABLE_FILES["counters"], "counters", counters, extra=extra)}
        priorities = [row for collected in self._collected for row in _priority_rows(collected, weights)]
        rows["priority"] = write_table(self._out / TABLE_FILES["priority"], "priority", priorities)
        return rows | {"counter_values": self._values.rows, "rules": self._rules.rows}

    def _add_rules(self, batch: Batch, evaluated: Evaluated, collected: Collected) -> None:
        """Write the rule results; where a launch's carry no estimate, also what the published formulas give."""
        names = [quantity.name for quantity in self._catalogue.quantities]
        durations, promised = (evaluated.values[:, names.index(name)].tolist() for name in (_DURATION, _PROPERTY))
        given: dict[int, list[Rule]] = {launch.position: [] for launch in batch.launches}
        for rule in batch.rules:
            given[rule.position].append(rule)
        rows: list[dict[str, Any]] = []
        for index, launch in enumerate(batch.launches):
            rules, origin = given[launch.position], REPORT
            rows += [_rule_row(rule, REPORT) for rule in _sorted(rules)]
            if not any(rule.speedup is not None for rule in rules):
                estimated = recompute(_values_of(launch, evaluated, index, names))
                origin = NO_ESTIMATE if estimated is None else RECOMPUTED
                rules = [
                    Rule(
                        launch.position, one.section, one.rule, "optimization", one.message, None, one.speedup, one.kind
                    )
                    for one in estimated or ()
                ]
                rows += [_rule_row(rule, RECOMPUTED) for rule in _sorted(rules)]
            collected.estimates.append(_estimate(launch, rules, origin, durations[index], promised[index]))
        columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
        self._rules.write(columns | {"report": collected.report}, len(rows), collected.identity)


def counters_tables(raw: Path, out: Path, identity: Identity) -> list[Row]:
    """Write the tables of a counters stage and return its rows of the cells table.

    Args:
        raw: directory with ``report.ncu-rep`` (and ``report-none.ncu-rep`` where caches were kept too) and
            ``command.json``, whose sampling plan says what each profiled launch stands for.
        out: directory for the tables.
        identity: the stage they belong to.

    Raises:
        UserError: a report is missing or damaged.
    """
    reports = sorted(raw.glob("report*.ncu-rep"), key=lambda path: (path.stem != "report", path.name))
    if not reports:
        raise UserError(f"{raw} holds no report.ncu-rep: set the stage aside with 'gpustudy retry' and run it again.")
    catalogue, strata = load_catalogue(), read_strata(raw / "command.json")
    rows: list[Row] = []
    with Tables(out, catalogue) as tables:
        for path in reports:
            collected = tables.add(open_source(path), lambda launch: identity, None)
            suffix = path.stem.removeprefix("report").replace("-", "_cache_")
            rows += _cell_rows(collected, catalogue, strata, suffix)
        tables.finish(
            lambda collected: strata.phases(collected.launches), lambda collected: strata.weights(collected.launches)
        )
    return rows


def _cell_rows(collected: Collected, catalogue: Catalogue, strata: Strata, suffix: str) -> list[Row]:
    """Return totals and priority scores by class; launches that failed are counted, and in nothing else."""
    evaluated, classes = Evaluated.join(collected.evaluated), collected.classes
    kept = [index for index, launch in enumerate(collected.launches) if not launch.has_failed]
    weights = np.array(strata.weights(collected.launches))
    chosen = Evaluated(*(array[kept] for array in vars(evaluated).values()))
    scope = f"total{suffix}"
    rows = [
        cell_row(STAGE, "profiled_launches", len(kept), scope=scope),
        cell_row(STAGE, "failed_launches", len(collected.launches) - len(kept), scope=scope),
        cell_row(STAGE, "coverage_pct", strata.coverage_pct(collected.launches), scope=scope),
    ]
    rows += total_rows(chosen, catalogue, [classes[index] for index in kept], weights[kept], suffix=suffix)
    estimates = [
        Estimate(**(vars(one) | {"group": kernel_class, "weight": float(weight)}))
        for one, kernel_class, weight in zip(collected.estimates, classes, weights, strict=True)
    ]
    for kernel_class, score in scores(estimates).items():
        where = {"kernel_class": kernel_class, "n": score.launches}
        origin = "modelled"  # an estimate of ncu's or ours, not a measurement
        rows += [
            cell_row(STAGE, f"priority_{name}", getattr(score, name), scope=scope, origin=origin, **where)
            for name in ("score_ns", "score_mean_ns", "score_share_pct")
        ]
    return rows


def _counter_columns(collected: Collected, catalogue: Catalogue, phases: list[str]) -> dict[str, list[Any]]:
    """Return the columns of ``counters`` for one report, identity included."""
    launches, evaluated = collected.launches, Evaluated.join(collected.evaluated)
    facts = [column.name for column in TABLES["counters"].columns if hasattr(launches[0], column.name)]
    columns: dict[str, list[Any]] = {name: [getattr(launch, name) for launch in launches] for name in facts}
    columns |= {name: [value] * len(launches) for name, value in collected.identity._asdict().items()}
    columns["report"] = [collected.report] * len(launches)
    columns["launch"] = [launch.position for launch in launches]
    columns["class"], columns["phase"] = collected.classes, phases
    architectures = [launch.architecture for launch in launches]
    columns["lacking"] = list(reason_texts(evaluated.why, catalogue, architectures))
    columns["doubtful"] = list(doubtful_texts(evaluated, catalogue))
    for index, quantity in enumerate(catalogue.quantities):
        has, values = evaluated.why[:, index] == HAS_VALUE, evaluated.values[:, index]
        columns[quantity.name] = [value if there else None for value, there in zip(values.tolist(), has, strict=True)]
    return columns


def _values_of(launch: Launch, evaluated: Evaluated, index: int, names: list[str]) -> dict[str, float]:
    """Return the quantities of one launch that are there, with its sizes, as the rule formulas take them."""
    values = evaluated.values[index].tolist()
    found = {names[there]: values[there] for there in np.flatnonzero(evaluated.why[index] == HAS_VALUE).tolist()}
    for name, size in (("grid_blocks", launch.grid), ("block_threads", launch.block)):
        if size is not None:
            found[name] = float(math.prod(size))
    return found


def _estimate(launch: Launch, rules: list[Rule], origin: str, duration_ns: float, promised_pct: float) -> Estimate:
    def largest(kind: str) -> float | None:
        return max(
            (rule.speedup for rule in rules if rule.speedup is not None and rule.speedup_kind == kind), default=None
        )

    return Estimate(
        group=launch.name,
        duration_ns=math.nan if launch.has_failed else duration_ns,
        global_pct=None if origin == NO_ESTIMATE else largest("global") or 0.0,
        property_pct=None if math.isnan(promised_pct) else promised_pct,
        local_pct=largest("local"),
        origin=origin,
    )


def _priority_rows(collected: Collected, weights: Callable[[Collected], list[float]] | None) -> list[dict[str, Any]]:
    shared = collected.identity._asdict() | {"report": collected.report, "ncu_version": collected.ncu_version}
    estimates = collected.estimates
    if weights is not None:
        estimates = [replace(one, weight=weight) for one, weight in zip(estimates, weights(collected), strict=True)]
    return [
        shared | {"name": str(name), "class": classify(str(name))} | vars(score)
        for name, score in scores(estimates).items()
    ]


def _sorted(rules: list[Rule]) -> list[Rule]:
    return sorted(rules, key=lambda rule: (rule.section, rule.rule, rule.type, rule.message))


def _rule_row(rule: Rule, origin: str) -> dict[str, Any]:
    return vars(rule) | {"launch": rule.position, "origin": origin}


def phases_by_nvtx(collected: Collected) -> list[str]:
    """Return the phase of each launch as far as NVTX ranges ``gpustudy.PHASE`` around it tell."""
    return [phase_of(launch.nvtx) for launch in collected.launches]


def phase_of(nvtx: str | None) -> str:
    """Return the innermost phase among NVTX ranges; ``other`` without one."""
    names = (nvtx or "").split("/")
    return next((name[9:] for name in reversed(names) if name.startswith("gpustudy.") and name[9:] in _PHASES), _OTHER)
