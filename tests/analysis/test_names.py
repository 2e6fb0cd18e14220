"""Names are targets of the workflow: they must be light to import and fit what exists."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import gpustudy
from gpustudy.analysis.names import FIGURES, TABLES

PACKAGE_ROOT = Path(gpustudy.__file__).parents[1]


def test_names_load_the_standard_library_alone() -> None:
    code = "import sys, gpustudy.analysis.names; print(sorted({'numpy', 'pandas', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE_ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_module_and_every_module_its_name(name: str) -> None:
    assert callable(importlib.import_module(f"gpustudy.analysis.figures.{name}").draw)
    modules = {path.stem for path in (PACKAGE_ROOT / "gpustudy/analysis/figures").glob("*.py")} - {"__init__"}
    assert modules == set(FIGURES)


def test_no_figure_is_named_like_a_table() -> None:
    assert not set(FIGURES) & set(TABLES)


@pytest.mark.parametrize("name", [*FIGURES, *TABLES])
def test_snakemake_report_has_the_same_caption(name: str, repository: Path) -> None:
    """The captions of ``snakemake --report`` lie in files: they must not drift from the names."""
    caption = (FIGURES | TABLES)[name].caption
    assert (repository / "workflow" / "report" / f"{name}.rst").read_text() == f"{caption}\n"
