"""Priority scores: how much time the guided analysis says could be saved, by kernel and by class.

The paper names a score "combining kernel duration and estimated speedup potential" without its formula. Ours is the
sum over launches of duration x largest global estimate: the time that would go. Variants stand beside it: the mean
over launches, the share of all time, and the sum with ncu's own ``property__estimated_speedup``. A global estimate is
a share of a launch's duration; a local one is the gain of a part looked at alone, so it is never multiplied with time.
Several global estimates of a launch overlap and are not added: the largest counts.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

REPORT, RECOMPUTED, NO_ESTIMATE = "report", "recomputed", "none"


@dataclass(frozen=True)
class Estimate:
    """What is known of one launch.

    Attributes:
        group: what scores are made for: a kernel's name, a class.
        duration_ns: its duration.
        global_pct: largest global estimate, in percent of the duration; 0 where the rules gave none, None where no
            rules are known.
        property_pct: ncu's ``property__estimated_speedup``; None where the report lacks it.
        local_pct: largest local estimate.
        origin: REPORT, RECOMPUTED or NO_ESTIMATE.
        weight: launches of a step that it stands for.
    """

    group: Hashable
    duration_ns: float
    global_pct: float | None
    property_pct: float | None = None
    local_pct: float | None = None
    origin: str = REPORT
    weight: float = 1.0


@dataclass(frozen=True)
class Score:
    """Scores of one group; None where no launch of it has an estimate."""

    launches: int
    duration_ns: float
    score_ns: float | None
    score_mean_ns: float | None
    score_share_pct: float | None
    score_property_ns: float | None
    largest_local_pct: float | None
    origin: str


def scores(estimates: Iterable[Estimate]) -> dict[Hashable, Score]:
    """Return the scores of every group, largest first.

    Launches without a usable duration (ncu records failed ones with NaN) are left out.
    """
    usable = [one for one in estimates if math.isfinite(one.duration_ns)]
    total_ns = math.fsum(one.weight * one.duration_ns for one in usable)
    groups: dict[Hashable, list[Estimate]] = {}
    for one in usable:
        groups.setdefault(one.group, []).append(one)
    found = {group: _score(members, total_ns) for group, members in groups.items()}
    return dict(sorted(found.items(), key=lambda item: (-(item[1].score_ns or 0.0), str(item[0]))))


def _score(members: Sequence[Estimate], total_ns: float) -> Score:
    score = _saved_ns([(one, one.global_pct) for one in members])
    weight = math.fsum(one.weight for one in members)
    locals_pct = [one.local_pct for one in members if one.local_pct is not None]
    origins = {one.origin for one in members if one.origin != NO_ESTIMATE}
    return Score(
        launches=len(members),
        duration_ns=math.fsum(one.weight * one.duration_ns for one in members),
        score_ns=score,
        score_mean_ns=None if score is None else score / weight,
        score_share_pct=100 * score / total_ns if score is not None and total_ns else None,
        score_property_ns=_saved_ns([(one, one.property_pct) for one in members]),
        largest_local_pct=max(locals_pct, default=None),
        origin="+".join(sorted(origins)) or NO_ESTIMATE,
    )


def _saved_ns(pairs: Sequence[tuple[Estimate, float | None]]) -> float | None:
    """Return the sum of duration x estimate; None where no launch has one."""
    known = [(one, percent) for one, percent in pairs if percent is not None]
    return math.fsum(one.weight * one.duration_ns * percent / 100 for one, percent in known) if known else None
