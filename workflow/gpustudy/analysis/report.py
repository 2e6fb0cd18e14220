"""The report: one HTML file that needs nothing else, neither network nor the files beside it."""

from __future__ import annotations

import base64
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustudy import __version__
from gpustudy.analysis import style, tables
from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.draw import figure_of
from gpustudy.analysis.findings import sentences
from gpustudy.analysis.names import FIGURES, TABLES
from gpustudy.base.atomic import write_text
from gpustudy.study.load import ROOT

if TYPE_CHECKING:
    from gpustudy.study.states import CellState, Survey

SYMBOLS = {
    "done": "✓",
    "damaged": "!",
    "stale": "↻",
    "missing": "○",
    "foreign-stale": "⇄",
    "foreign-missing": "◌",
    "unsupported": "⊘",
    "failed": "✗",
    "unavailable": "△",
}
"""State -> the symbol beside its word, so that colour is never alone."""

MEANINGS = {
    "done": "measured with the present keys; in the figures",
    "damaged": "a file of its result cannot be read; not in the figures; the reason names it",
    "stale": "measured, but something that decides the result has changed since; not in the figures",
    "missing": "not measured yet; the next run does it",
    "foreign-stale": "imported, but for other keys; not in the figures; this site cannot run it",
    "foreign-missing": "not imported yet; this site cannot run it",
    "unsupported": "the device or the software lacks an optimisation of the config",
    "failed": "ended by a fact about the workload, such as too little memory; can be tried again",
    "unavailable": "ended by a fact about the place, such as counters not permitted; can be tried again",
}
"""State -> what it means, for the legend."""

_ANALYSIS_PACKAGES = ("matplotlib", "numpy", "pandas", "pyarrow", "scipy")
"""Packages whose versions can change how the report looks."""

_PX_PER_IN = 150
"""Width of a figure on the screen, in CSS pixels an inch of its width on paper: 7-point type as large as the text."""


def write_report(survey: Survey, path: Path) -> None:
    """Write the report of ``survey`` to ``path``.

    Everything in it is drawn anew from the tables of the cells: it never shows a figure older than they are.

    Raises:
        UserError: a table of a done cell is unreadable.
    """
    write_text(path, render(Dataset(survey)))


def render(dataset: Dataset) -> str:
    """Return the report as HTML."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpustudy.analysis"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    survey = dataset.survey
    return environment.get_template("report.html").render(
        version=__version__,
        site=survey.site,
        banner=style.CRAFTED_BANNER if dataset.crafted else "",
        findings=sentences(dataset),
        gpus=_described(dataset.gpus, survey.study.gpus),
        configs=_described(dataset.configs, survey.study.configs),
        matrix=_matrix(survey.cells),
        states=[(state, SYMBOLS[state], MEANINGS[state]) for state in _states(survey.cells)],
        figures=_figures(dataset),
        tables=[
            (table, tables.to_html(table)) for table in (tables.build(name, dataset) for name in TABLES) if table.rows
        ],
        provenance=_provenance(),
    )


def _described(names: Sequence[str], known: Any) -> list[tuple[str, str]]:
    """Return names with the descriptions that the config gives them."""
    return [(name, known[name].description if name in known else "") for name in names]


def _matrix(cells: Sequence[CellState]) -> dict[tuple[str, str], list[dict[str, str]]]:
    """Return the badges of the state matrix: (gpu, config) -> one for all repeats that are alike."""
    alike: dict[tuple[str, str], dict[tuple[str, str], list[CellState]]] = {}
    for cell in cells:
        marks = [*(["null control"] if cell.null_control else []), *(["accepted"] if cell.accepted else [])]
        alike.setdefault((cell.gpu, cell.config), {}).setdefault((cell.state, ", ".join(marks)), []).append(cell)
    return {
        place: [
            {
                "repeat": ", ".join(f"r{cell.repeat}" for cell in repeats),
                "state": state,
                "symbol": SYMBOLS[state],
                "marks": marks,
                "reason": repeats[0].reason,
            }
            for (state, marks), repeats in looks.items()
        ]
        for place, looks in alike.items()
    }


def _states(cells: Sequence[CellState]) -> list[str]:
    """Return the states that occur, in the legend's order."""
    present = {cell.state for cell in cells}
    return [state for state in SYMBOLS if state in present]


def _figures(dataset: Dataset) -> dict[str, list[dict[str, Any]]]:
    """Return the figures by category, each drawn now, as a data URI."""
    by_category: dict[str, list[dict[str, Any]]] = {}
    for name, product in FIGURES.items():
        with style.look():
            figure = figure_of(name, dataset)
            svg = style.svg_of(figure)
        by_category.setdefault(product.category, []).append(
            {
                "name": name,
                "title": product.title,
                "caption": product.caption,
                "width_px": round(figure.get_figwidth() * _PX_PER_IN),
                "source": f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}",
            }
        )
    return by_category


def _provenance() -> list[tuple[str, str]]:
    """Return what made this report; what made the data stands in the table of stacks."""
    return [
        ("gpustudy", __version__),
        ("git commit", _git_commit()),
        ("Python", platform.python_version()),
        *((package, version(package)) for package in _ANALYSIS_PACKAGES),
    ]


def _git_commit() -> str:
    """Return the commit of the checkout, and whether files differ from it; from the launcher where it knows."""
    if commit := os.environ.get("GPUSTUDY_GIT_COMMIT"):
        dirty = os.environ.get("GPUSTUDY_GIT_DIRTY", "") not in ("", "0", "false")
    else:
        found, status = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
        if found is None or status is None:
            return "not known (no git checkout)"
        commit, dirty = found, bool(status)
    return commit[: tables.SHORT_SUM] + (", with changes that are not committed" if dirty else "")


def _git(*arguments: str) -> str | None:
    """Return the output of a git command in the checkout; None where there is no git or no checkout."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
