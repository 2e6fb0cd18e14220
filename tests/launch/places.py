"""A place for preflight's checks: the real config, a recorded site, a /proc of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpustudy.launch.preflight.checks import Check, Place
from gpustudy.launch.preflight.survey import Named, run_checks
from gpustudy.study.load import effective, read_yaml
from tests.launch.smi import Recorded

REPOSITORY = Path(__file__).resolve().parents[2]


def place_at(
    site: str,
    folder: Path,
    runner: Callable[..., Any] | None = None,
    overlay: dict[str, Any] | None = None,
    **more: str,
) -> Place:
    """A place at ``site``; ``more`` are variables of its environment. Its files are those under ``folder``/root."""
    layers = [(Path("config.yaml"), read_yaml(REPOSITORY / "config.yaml"))]
    layers += [(Path("overlay.yaml"), overlay)] if overlay else []
    seen = replace(effective(layers, site), results=folder / "results")
    environment = {"USER": "jane", "GPUSTUDY_SCRATCH": str(folder), **more}
    return Place(seen, environment, runner or Recorded({}), folder / "root")


def write_system_file(folder: Path, path: str, text: str) -> None:
    """Write a file of the place's system, such as /proc/mounts."""
    file = folder / "root" / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def found(place: Place, checks: Sequence[Named]) -> dict[str, Check]:
    """Run checks and return them by name."""
    return {check.name: check for check in run_checks(place, checks)}
