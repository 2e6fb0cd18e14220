"""The report: one HTML file that needs nothing else, neither network nor the files beside it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustudy import __version__
from gpustudy.analysis import explorer, overview, style, tables
from gpustudy.analysis.claim_models import paper
from gpustudy.analysis.claims import judge_all
from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.draw import caption
from gpustudy.analysis.evidence import by_verdict
from gpustudy.analysis.findings import sentences
from gpustudy.analysis.names import DOCUMENTS, FIGURES, TABLES
from gpustudy.analysis.pictures import Picture, has_data, pictures
from gpustudy.base.atomic import write_text
from gpustudy.base.own import require_own
from gpustudy.study.load import ROOT

if TYPE_CHECKING:
    from gpustudy.study.states import Survey

TITLE = "3D medical diffusion training on GPU generations: report"
"""Title of every report, by which an earlier one is known: writing one replaces a report and nothing else."""

MOST_TABLE_ROWS = 500
"""Rows of a table in the report; its CSV has all of them."""

_SUFFIXES = (".html", ".htm")
_OF_OTHER_SECTIONS = ("claims",)
"""Tables whose rows the report shows elsewhere, with more to each."""

_TALL_ROWS = 20
"""Rows from which on a table scrolls in a window of its own, so that what follows it is not far away."""

_ANALYSIS_PACKAGES = ("matplotlib", "numpy", "pandas", "pyarrow", "scipy")
"""Packages whose versions can change how the report looks."""


def write_report(survey: Survey, path: Path) -> None:
    """Write the report of ``survey`` to ``path``.

    Everything in it is drawn anew from the tables of the cells: it never shows a figure older than they are.

    Raises:
        UserError: ``path`` is something else than a report, or a table of a done cell is unreadable.
    """
    require_own(path, "report", TITLE, _SUFFIXES)
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
    gpus = overview.measured_first(dataset)
    by_category, without_data = _figures(dataset)
    kernels = explorer.explorer(dataset)
    return environment.get_template("report.html").render(
        title=TITLE,
        claims=by_verdict(judge_all(dataset)),
        claims_paper=paper(),
        version=__version__,
        site=survey.site,
        banner=style.CRAFTED_BANNER if dataset.crafted else "",
        findings=overview.grouped(sentences(dataset), gpus),
        glance=overview.glance(dataset),
        trained={gpu: overview.trained(dataset, gpu) for gpu in dataset.gpus},
        gpus=_described(gpus, survey.study.gpus),
        configs=_described(dataset.configs, survey.study.configs),
        matrix=overview.matrix(survey.cells),
        states=overview.legend(survey.cells),
        figures=by_category,
        figures_without_data=without_data,
        tables=_tables(dataset),
        kernels=_for_script(explorer.as_json(kernels)) if len(kernels) else "",
        kernel_count=len(kernels),
        most_kernels=explorer.MOST_ROWS,
        origins=overview.origins(dataset),
        provenance=_provenance(),
        products=_products(dataset),
    )


@dataclass(frozen=True)
class Figure:
    """One figure of the report: its picture, what is said with it, and the cells it was made from."""

    name: str
    title: str
    caption: str
    cells: str
    picture: Picture


def _figures(dataset: Dataset) -> tuple[dict[str, list[Figure]], list[tuple[str, str, str]]]:
    """Return the figures by category, and name, title and stages of those that no cell has data for yet."""
    shown = [name for name in FIGURES if has_data(name, dataset)]
    drawn = pictures(dataset, shown)
    by_category: dict[str, list[Figure]] = {}
    for name in drawn:
        said = caption(name, dataset)
        figure = Figure(name, said["title"], said["caption"], overview.cells_used(said["cells"]), drawn[name])
        by_category.setdefault(said["category"], []).append(figure)
    without = [
        (name, product.title, " or ".join(product.stages)) for name, product in FIGURES.items() if name not in drawn
    ]
    return by_category, without


@dataclass(frozen=True)
class ShownTable:
    """One table of the report: its HTML, and how many of its rows are left to its CSV."""

    name: str
    title: str
    html: str
    rows_left: int
    is_tall: bool


def _tables(dataset: Dataset) -> list[ShownTable]:
    """Return the tables; one without rows has no HTML."""
    shown = []
    for name in TABLES:
        if name in _OF_OTHER_SECTIONS:
            continue
        table = tables.build(name, dataset)
        cut = replace(table, rows=table.rows[:MOST_TABLE_ROWS])
        html = tables.to_html(cut) if table.rows else ""
        left, is_tall = len(table.rows) - len(cut.rows), len(cut.rows) > _TALL_ROWS
        shown.append(ShownTable(name, table.title, html, left, is_tall))
    return shown


def _products(dataset: Dataset) -> list[tuple[str, str, str, int]]:
    """Return name, title, kind and number of cells of every figure, table and document, for the list of commands.

    What needs no stage, such as the table of states, is about all cells.
    """
    found = []
    for kind, products in (("figure", FIGURES), ("table", TABLES)):
        for name, product in products.items():
            said = caption(name, dataset)
            used = [any(stage["used"] for stage in cell["stages"].values()) for cell in said["cells"]]
            found.append((name, said["title"], kind, sum(used) if product.stages else len(used)))
    every = len(dataset.survey.cells)
    return found + [(name, ", ".join(files), "document", every) for name, files in DOCUMENTS.items()]


def _described(names: Sequence[str], known: Any) -> list[tuple[str, str]]:
    """Return names with the descriptions that the config gives them."""
    return [(name, known[name].description if name in known else "") for name in names]


def _for_script(content: Any) -> str:
    """Return ``content`` as JSON that may stand inside an HTML script element."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _provenance() -> list[tuple[str, str]]:
    """Return what made this report; what made the data is told by gpu."""
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
