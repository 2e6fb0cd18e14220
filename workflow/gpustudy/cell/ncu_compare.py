"""Compares the kernels that ncu profiled with those of the census: did the profiler change what runs?

Here the profiled names come from ncu's log, which gives function names without namespace, template arguments and
parameters, and cuts long ones; the report has them whole and is compared stratum by stratum later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpustudy.base.kernel_names import function_name
from gpustudy.cell.ncu_census import Census
from gpustudy.cell.ncu_log import CUT_MARK


@dataclass(frozen=True)
class NameComparison:
    """Kernel names of the census beside those that were profiled.

    Attributes:
        census: function name to launches per step.
        profiled: name in the log, perhaps cut, to launches profiled.
        only_census: function names that were not profiled.
        only_profiled: names in the log that the census does not have.
        backward_only: function names that the census has in backward alone.
        backward_profiled: how many of the profiled launches have such a name.
    """

    census: dict[str, float]
    profiled: dict[str, int]
    only_census: tuple[str, ...]
    only_profiled: tuple[str, ...]
    backward_only: tuple[str, ...]
    backward_profiled: int

    @property
    def differs(self) -> bool:
        """Whether either side has a name that the other lacks."""
        return bool(self.only_census or self.only_profiled)

    @property
    def lacks_backward(self) -> bool:
        """Whether the census has kernels of backward alone and none of them was profiled."""
        return bool(self.backward_only) and self.backward_profiled == 0

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        return asdict(self)


def is_same_name(profiled: str, function: str) -> bool:
    """Whether a name of ncu's log, cut or whole, is that of ``function``."""
    if profiled.endswith(CUT_MARK):
        return function.startswith(profiled.removesuffix(CUT_MARK))
    return profiled == function


def compare_names(census: Census, profiled: Sequence[str]) -> NameComparison:
    """Compare the census with the names of the profiled launches, in any order."""
    per_step: Counter[str] = Counter()
    phases: dict[str, set[str]] = {}
    for launch in census.launches:
        name = function_name(launch.name)
        per_step[name] += 1
        phases.setdefault(name, set()).add(launch.phase)
    counts = Counter(profiled)
    backward_only = tuple(sorted(name for name, found in phases.items() if found == {"backward"}))
    return NameComparison(
        census={name: count / census.steps for name, count in sorted(per_step.items())},
        profiled=dict(sorted(counts.items())),
        only_census=tuple(sorted(name for name in per_step if not any(is_same_name(found, name) for found in counts))),
        only_profiled=tuple(
            sorted(found for found in counts if not any(is_same_name(found, name) for name in per_step))
        ),
        backward_only=backward_only,
        backward_profiled=sum(
            count
            for found, count in counts.items()
            if any(is_same_name(found, name) for name in backward_only)
            and not any(is_same_name(found, name) for name in phases if name not in backward_only)
        ),
    )
