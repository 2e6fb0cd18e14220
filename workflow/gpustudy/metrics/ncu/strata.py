"""What a profiled launch stands for: the sampling plan of a counters stage, applied to the launches of its report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError
from gpustudy.base.kernel_names import kernel_identity
from gpustudy.metrics.ncu.batch import Launch

_OTHER = "other"

Key = tuple[str, tuple[int, ...] | None, tuple[int, ...] | None, int | None]
"""A stratum: kernel name in one spelling, grid, block, shared memory in bytes."""


@dataclass(frozen=True)
class Stratum:
    """Launches of a step that do the same work.

    Attributes:
        per_step: how many a step makes.
        phase: the phase of all of them; ``other`` when they belong to several.
        time_ns: their time in a step of the census.
    """

    per_step: float
    phase: str
    time_ns: float

    def with_more(self, other: Stratum) -> Stratum:
        """Return both as one: strata whose names are one name in the report's spelling."""
        phase = self.phase if self.phase == other.phase else _OTHER
        return Stratum(self.per_step + other.per_step, phase, self.time_ns + other.time_ns)


@dataclass(frozen=True)
class Strata:
    """The plan of one stage; empty where there is none, and every launch stands for itself.

    Attributes:
        known: the strata of a step.
        steps: steps that were profiled.
    """

    known: dict[Key, Stratum]
    steps: int = 1

    def weights(self, launches: Sequence[Launch]) -> list[float]:
        """Return for each launch how many launches of one step it stands for.

        A stratum's launches share its count of a step, however many were profiled. A launch that the census does not
        know (the profiler changes some names) stands for itself, divided by the profiled steps.
        """
        keys = [_key(launch) for launch in launches]
        counts = Counter(key for key, launch in zip(keys, launches, strict=True) if not launch.has_failed)
        return [
            self.known[key].per_step / counts[key] if key in self.known and counts[key] else 1 / self.steps
            for key in keys
        ]

    def phases(self, launches: Sequence[Launch]) -> list[str]:
        """Return the phase of each launch: its stratum's."""
        return [self.known[key].phase if (key := _key(launch)) in self.known else _OTHER for launch in launches]

    def coverage_pct(self, launches: Sequence[Launch]) -> float | None:
        """Return the share of a step's kernel time whose strata were profiled; None without a plan."""
        total = sum(stratum.time_ns for stratum in self.known.values())
        profiled = {_key(launch) for launch in launches if not launch.has_failed}
        covered = sum(stratum.time_ns for key, stratum in self.known.items() if key in profiled)
        return 100 * covered / total if total else None


def read_strata(path: Path) -> Strata:
    """Read the sampling plan of a ``command.json``; a stage without that file profiled all its launches.

    Raises:
        UserError: the file is not a record of a counters stage.
    """
    if not path.exists():
        return Strata({})
    try:
        record = json.loads(path.read_text())
        known: dict[Key, Stratum] = {}
        for planned in record["plan"]["strata"]:
            key, stratum = _planned_key(planned), _stratum(planned)
            known[key] = stratum.with_more(known[key]) if key in known else stratum
        return Strata(known, int(record["settings"]["iterations"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not a readable record of a counters stage ({type(error).__name__}: {error}): "
            "run the stage again."
        ) from error


def _stratum(planned: dict[str, Any]) -> Stratum:
    phases = planned["phases"]
    per_step = float(planned["launches_per_step"])
    return Stratum(per_step, next(iter(phases)) if len(phases) == 1 else _OTHER, per_step * float(planned["mean_ns"]))


def _planned_key(planned: dict[str, Any]) -> Key:
    name = kernel_identity(planned["name"])
    return name, tuple(planned["grid"]), tuple(planned["block"]), int(planned["shared_memory_bytes"])


def _key(launch: Launch) -> Key:
    return kernel_identity(launch.name), launch.grid, launch.block, launch.shared_memory_bytes
