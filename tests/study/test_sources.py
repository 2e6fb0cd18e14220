"""Declared sources of each stage are exactly what the stage imports: no stale result, no needless rerun."""

from __future__ import annotations

import ast

import pytest

from gpustudy.base.errors import UserError
from gpustudy.study.sources import METRICS_SOURCES, PACKAGE, STAGE_SOURCES, files_of

CELL_ENTRIES = {
    "train": ("cell/__main__.py", "cell/train.py"),
    "census": ("cell/__main__.py", "cell/census.py"),
    "counters": ("cell/__main__.py", "cell/counters.py", "cell/profiled.py"),
    "quality": ("cell/__main__.py", "cell/quality.py"),
}
METRICS_ENTRIES = {
    "train": ("metrics/make.py", "metrics/train.py"),
    "census": ("metrics/make.py", "metrics/census.py"),
    "counters": ("metrics/make.py", "metrics/ncu/tables.py", "metrics/ncu/worker.py"),
    "quality": ("metrics/make.py", "metrics/quality.py"),
}


def imported(entries: tuple[str, ...]) -> set[str]:
    """Every file of the package that ``entries`` import, themselves and the packages' own files included."""
    found: set[str] = set()
    waiting = list(entries)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imports(name)
    return found


def _imports(name: str) -> list[str]:
    modules = [f"gpustudy.{name.removesuffix('.py').replace('/', '.')}"]
    for node in ast.walk(ast.parse((PACKAGE / name).read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [file for module in modules if module.split(".")[0] == "gpustudy" for file in _files(module)]


def _files(module: str) -> list[str]:
    """The files that importing ``module`` reads: its own and those of the packages above it."""
    parts = module.split(".")[1:]
    folders = ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]
    named = [f"{folder}/__init__.py".lstrip("/") for folder in folders] + ["/".join(parts) + ".py"]
    return [file for file in named if (PACKAGE / file).is_file()]


def python_files(patterns: tuple[str, ...]) -> set[str]:
    return {file for file in files_of(patterns) if file.endswith(".py")}


@pytest.mark.parametrize("stage", STAGE_SOURCES)
def test_a_stage_declares_what_it_imports(stage):
    assert python_files(STAGE_SOURCES[stage]) == imported(CELL_ENTRIES[stage])


@pytest.mark.parametrize("stage", METRICS_SOURCES)
def test_the_tables_of_a_stage_declare_what_makes_them(stage):
    assert python_files(METRICS_SOURCES[stage]) == imported(METRICS_ENTRIES[stage])


def test_a_pattern_that_matches_nothing_is_noticed():
    with pytest.raises(UserError, match="this source file is missing"):
        files_of(("cell/no_such_module.py",))
