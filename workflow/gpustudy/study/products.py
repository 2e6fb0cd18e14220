"""Figures, tables and the report: the key of each, from everything that decides how it looks."""

from __future__ import annotations

from pathlib import Path

from gpustudy.analysis.names import DOCUMENTS, FIGURES, TABLES
from gpustudy.base.canonical import key_of
from gpustudy.study.paths import marker
from gpustudy.study.sources import ANALYSIS_SOURCES, digest_of
from gpustudy.study.states import DAMAGED, Survey

REPORT = "report"


def seen_key(survey: Survey) -> str:
    """Return the key of all that a product is drawn from.

    It covers the analysis sources, and for every stage of every cell the key of its tables where they are here
    or will be made here, else the cell's state: a stale or missing foreign cell is drawn as such. Of the sites it
    covers what tables show: which gpus they have, and what they charge.
    """
    here = frozenset(survey.study.sites[survey.site].gpus)
    cells = [
        [
            str(cell.cell),
            cell.accepted,
            [
                stage.state
                if stage.state == DAMAGED or not (stage.metrics or stage.raw or cell.gpu in here)
                else stage.metrics_key
                for stage in cell.stages
            ],
        ]
        for cell in survey.cells
    ]
    descriptions = {
        "gpus": {name: gpu.description for name, gpu in survey.study.gpus.items()},
        "configs": {name: config.description for name, config in survey.study.configs.items()},
    }
    sites = {
        name: [site.gpus, site.executor, site.gpus_per_node, site.rate.model_dump(mode="json") if site.rate else None]
        for name, site in survey.study.sites.items()
    }
    return key_of(
        {
            "site": survey.site,
            "sources": digest_of(ANALYSIS_SOURCES),
            "cells": cells,
            "descriptions": descriptions,
            "sites": sites,
        }
    )


def markers(survey: Survey) -> dict[str, Path]:
    """Return product name -> marker path, for every figure, every table, every document and the report."""
    seen = seen_key(survey)
    names = [*FIGURES, *TABLES, *DOCUMENTS, REPORT]
    return {name: marker(survey.results, name, key_of({"product": name, "seen": seen})) for name in names}
