"""Which source files decide the result of which stage: editing one makes exactly these stale.

Names are relative to the package; a trailing ``/*.py`` stands for every module of that folder. Tests compare
these lists with what each stage really imports.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import gpustudy
from gpustudy.base.digests import source_digest

PACKAGE = Path(gpustudy.__file__).resolve().parent

_EVERY_STAGE = (
    "__init__.py",
    "base/*.py",
    "cell/__init__.py",
    "cell/__main__.py",
)

STAGE_SOURCES: dict[str, tuple[str, ...]] = {
    "train": (*_EVERY_STAGE, "medddpm/*.py"),
    "census": (*_EVERY_STAGE, "medddpm/*.py"),
    "counters": (*_EVERY_STAGE, "medddpm/*.py"),
    "quality": (*_EVERY_STAGE, "medddpm/*.py"),
}

METRICS_SOURCES: dict[str, tuple[str, ...]] = {
    "train": ("metrics/*.py",),
    "census": ("metrics/*.py",),
    "counters": ("metrics/*.py",),
    "quality": ("metrics/*.py",),
}

ANALYSIS_SOURCES = ("analysis/**/*", "study/*.py", "base/*.py")


@cache
def files_of(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the source files that ``patterns`` name, relative to the package, sorted.

    Raises:
        FileNotFoundError: a pattern matches nothing, so that a moved file is noticed.
    """
    found: set[str] = set()
    for pattern in patterns:
        matches = {
            path.relative_to(PACKAGE).as_posix()
            for path in PACKAGE.glob(pattern)
            if path.is_file() and "__pycache__" not in path.parts
        }
        if not matches:
            raise FileNotFoundError(f"no source file matches {PACKAGE / pattern}")
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
