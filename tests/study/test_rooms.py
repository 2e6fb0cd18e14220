"""The imports of each room: what runs in a container needs torch and numpy alone, what parses needs neither."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gpustudy

PACKAGE = Path(gpustudy.__file__).parent
STANDARD = sys.stdlib_module_names
LIGHT = {
    "gpustudy.analysis.names",
    "gpustudy.cell.optimisation_names",
    "gpustudy.data.lock",
    "gpustudy.data.definitions",
    "gpustudy.metrics.requested",
}
"""Modules of other rooms that are plain data: the study checks names against them."""

MAY_IMPORT = {
    "base": {"gpustudy.base"},
    "study": {"gpustudy.base", "gpustudy.study", "pydantic", "yaml", *LIGHT},
    "data": {"gpustudy.base", "gpustudy.data", "numpy", "scipy", "nibabel", "nilearn"},
    "medddpm": {"gpustudy.base", "gpustudy.medddpm", "numpy", "torch"},
    "cell": {"gpustudy.base", "gpustudy.cell", "gpustudy.medddpm", "numpy", "torch"},
    "launch": {"gpustudy.base", "gpustudy.study", "gpustudy.launch", "snakemake.cli", "spython", "pydantic"},
    "metrics": {
        "gpustudy.base",
        "gpustudy.metrics",
        "numpy",
        "pyarrow",
        "pandas",
        "nibabel",
        "monai",
        "torch",
        "yaml",
        "ncu_report",
        "matplotlib",
        "scipy",
        "PIL",
    },
    "analysis": {
        "gpustudy.base",
        "gpustudy.study",
        "gpustudy.metrics.schemas",
        "gpustudy.metrics.catalogue",
        "gpustudy.metrics.cells",
        "gpustudy.analysis",
        "numpy",
        "pandas",
        "pyarrow",
        "seaborn",
        "matplotlib",
        "scipy",
        "jinja2",
        "pydantic",
        "yaml",
    },
    "archive": {"gpustudy.base", "gpustudy.study", "gpustudy.archive", "rocrate"},
}


def imports_of(path: Path) -> set[str]:
    """Every module that ``path`` imports, at its top or inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {_module_named(node.module, alias.name) for alias in node.names}
    return found


def _module_named(package: str, name: str) -> str:
    """What ``from package import name`` imports: the module of that name where there is one, else the package."""
    folder = PACKAGE.parent / package.replace(".", "/")
    return f"{package}.{name}" if (folder / f"{name}.py").exists() or (folder / name).is_dir() else package


def is_allowed(module: str, allowed: set[str]) -> bool:
    if module == "gpustudy" or module.split(".")[0] in STANDARD:
        return True
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_the_design_allows(room):
    files = sorted((PACKAGE / room).rglob("*.py"))
    assert files
    wrong = {
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path in files
        for module in imports_of(path)
        if module != "gpustudy.__version__" and not is_allowed(module, MAY_IMPORT[room])
    }
    assert wrong == set()


def test_every_room_is_held_by_this_test():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms == {*MAY_IMPORT, "verbs"}


def test_parsing_the_workflow_imports_nothing_heavy():
    program = (
        "import sys, gpustudy.launch.parse; "
        "heavy = {'torch', 'pandas', 'numpy', 'matplotlib', 'pyarrow', 'scipy', 'nilearn', 'nibabel'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(PACKAGE.parent)},
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("room", ["base", "medddpm", "cell"])
def test_what_runs_in_a_container_is_valid_python_3_10(room):
    for path in (PACKAGE / room).rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 10))
