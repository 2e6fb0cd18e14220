"""Writing one figure or table, with a caption file that names the cells it was made from."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustudy.analysis import style, tables
from gpustudy.analysis.dataset import Dataset, stage_word
from gpustudy.analysis.names import FIGURES, TABLES, Product
from gpustudy.base.atomic import write_json, write_text
from gpustudy.base.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpustudy.study.states import Survey


def draw_figures(names: Sequence[str], survey: Survey, out_dir: Path) -> None:
    """Write the figures ``names`` into ``out_dir`` as SVG and PDF, each with its caption as JSON.

    Raises:
        UserError: there is no such figure, or a table it needs is unreadable.
    """
    for name in names:
        _known(name, "figure", FIGURES)
    dataset = Dataset(survey)
    for name in names:
        with style.look():
            style.save(figure_of(name, dataset), out_dir / name)
        write_json(out_dir / f"{name}.json", caption(name, dataset))


def draw_figure(name: str, survey: Survey, out_dir: Path) -> None:
    """Write one figure, as ``draw_figures`` does."""
    draw_figures([name], survey, out_dir)


def make_tables(names: Sequence[str], survey: Survey, out_dir: Path) -> None:
    """Write the tables ``names`` into ``out_dir`` as CSV, LaTeX and HTML, each with its caption as JSON.

    Raises:
        UserError: there is no such table, or a table of metrics it needs is unreadable.
    """
    for name in names:
        _known(name, "table", TABLES)
    dataset = Dataset(survey)
    for name in names:
        table = tables.build(name, dataset)
        write_text(out_dir / f"{name}.csv", tables.to_csv(table))
        write_text(out_dir / f"{name}.tex", tables.to_latex(table))
        write_text(out_dir / f"{name}.html", _page(table))
        write_json(out_dir / f"{name}.json", caption(name, dataset))


def make_table(name: str, survey: Survey, out_dir: Path) -> None:
    """Write one table, as ``make_tables`` does."""
    make_tables([name], survey, out_dir)


def figure_of(name: str, dataset: Dataset) -> Figure:
    """Return the figure ``name``; call it inside ``style.look()``."""
    module = importlib.import_module(f"gpustudy.analysis.figures.{name}")
    figure: Figure = module.draw(dataset)
    return figure


def caption(name: str, dataset: Dataset) -> dict[str, Any]:
    """Return what is said with a figure or table: title, caption, and each cell with its part in it."""
    product: Product = (FIGURES | TABLES)[name]
    return {
        "name": name,
        "title": product.title,
        "caption": product.caption,
        "category": product.category,
        "crafted": dataset.crafted,
        "cells": [
            {
                "cell": f"{cell.gpu}/{cell.config}/r{cell.repeat}",
                "state": cell.state,
                "accepted": cell.accepted,
                "null_control": list(cell.null_control),
                "stages": {
                    stage.stage: {"key": stage.key, "used": not (word := stage_word(cell, stage.stage)), "why": word}
                    for stage in cell.stages
                    if stage.stage in product.stages
                },
            }
            for cell in dataset.survey.cells
        ],
    }


def _known(name: str, kind: str, names: Iterable[str]) -> None:
    """Refuse a name that is none of ``names``."""
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"choose one of {', '.join(names)}."
    raise UserError(f"unknown {kind} '{name}': {hint}")


def _page(table: tables.Table) -> str:
    """Return a table as a page of its own."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f"<title>{table.title}</title></head>\n<body>\n{tables.to_html(table)}</body>\n</html>\n"
    )
