"""Which source files decide the result of which stage: editing one makes exactly these stale.

Names are relative to the package; a trailing ``/*.py`` stands for every module of that folder. Tests compare
these lists with what each stage really imports.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import gpustudy
from gpustudy.base.digests import source_digest
from gpustudy.base.errors import UserError

PACKAGE = Path(gpustudy.__file__).resolve().parent

_BASE = ("__init__.py", *(f"base/{name}.py" for name in ("__init__", "atomic", "digests", "errors", "status")))

_CELL = (
    *_BASE,
    "base/canonical.py",
    "base/progress.py",
    "cell/__init__.py",
    "cell/__main__.py",
    "cell/allocator.py",
    "cell/document.py",
    "cell/layouts.py",
    "cell/optimisation_names.py",
    "cell/optimisations.py",
    "cell/outcomes.py",
    "cell/probe.py",
    "cell/provenance.py",
    "cell/session.py",
    "cell/stages.py",
    "cell/switches.py",
    "medddpm/__init__.py",
    "medddpm/autocast.py",
    "medddpm/blocks.py",
    "medddpm/cast_weights.py",
    "medddpm/checkpoint.py",
    "medddpm/diffusion.py",
    "medddpm/ema.py",
    "medddpm/fastconv.py",
    "medddpm/lean.py",
    "medddpm/loader.py",
    "medddpm/matrix.py",
    "medddpm/memory.py",
    "medddpm/micro_batch_threads.py",
    "medddpm/minimal.py",
    "medddpm/minimal_tiles.py",
    "medddpm/published.py",
    "medddpm/recompute.py",
    "medddpm/schedule.py",
    "medddpm/settings.py",
    "medddpm/switches.py",
    "medddpm/trainer.py",
    "medddpm/unet.py",
    "medddpm/volumes.py",
)
"""What every stage of a cell runs through: its start, the optimisations and the workload."""

STAGE_SOURCES: dict[str, tuple[str, ...]] = {
    "train": (*_CELL, "cell/memory.py", "cell/train.py"),
    "census": (*_CELL, "cell/census.py"),
    "counters": (*_CELL, "base/kernel_names.py", "cell/counters.py", "cell/profiled.py", "cell/ncu_*.py"),
    "quality": (*_CELL, "cell/memory.py", "cell/train.py", "cell/quality.py"),
}

_NCU = (
    "__init__",
    "batch",
    "container",
    "csvpages",
    "csvtext",
    "evaluate",
    "printed",
    "process",
    "report",
    "session",
    "source",
    "strata",
    "stream",
    "tables",
    "totals",
    "units",
    "wire",
    "worker",
)
"""The readers of Nsight Compute's files, without the verb that reads foreign ones."""

_METRICS = (*_BASE, *(f"metrics/{name}.py" for name in ("__init__", "cells", "make", "schemas")))

METRICS_SOURCES: dict[str, tuple[str, ...]] = {
    "train": (*_METRICS, "metrics/train.py"),
    "census": (
        *_METRICS,
        *(
            f"metrics/{name}.py"
            for name in ("census", "classes", "flops", "inputs", "launches", "layouts", "nesting", "trace")
        ),
        "metrics/kernel_classes.csv",
    ),
    "counters": (
        *_METRICS,
        "base/kernel_names.py",
        *(
            f"metrics/{name}.py"
            for name in ("catalogue", "classes", "expressions", "inputs", "priority", "rule_formulas")
        ),
        *(f"metrics/ncu/{name}.py" for name in _NCU),
        "metrics/catalogue.yaml",
        "metrics/kernel_classes.csv",
    ),
    "quality": (
        *_METRICS,
        *(f"metrics/{name}.py" for name in ("pictures", "quality", "similarity", "two_sample")),
    ),
}

ANALYSIS_SOURCES = ("analysis/**/*", "study/*.py", "study/peaks.yaml", "base/*.py")


@cache
def files_of(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the source files that ``patterns`` name, relative to the package, sorted.

    Raises:
        UserError: a pattern matches nothing, so that a moved or deleted file is noticed.
    """
    found: set[str] = set()
    for pattern in patterns:
        matches = {
            path.relative_to(PACKAGE).as_posix()
            for path in PACKAGE.glob(pattern)
            if path.is_file() and "__pycache__" not in path.parts
        }
        if not matches:
            raise UserError(f"{PACKAGE / pattern}: this source file is missing: restore it from git.")
        found |= matches
    return tuple(sorted(found))


@cache
def digest_of(patterns: tuple[str, ...]) -> str:
    """Return the SHA-256 over the source files that ``patterns`` name."""
    return source_digest(PACKAGE, files_of(patterns))


@cache
def file_sums(patterns: tuple[str, ...]) -> dict[str, str]:
    """Return the digest of each source file alone, so that ``why`` can name the one that was edited."""
    return {name: source_digest(PACKAGE, [name]) for name in files_of(patterns)}
