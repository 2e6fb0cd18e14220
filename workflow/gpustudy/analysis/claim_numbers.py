"""One check on one cell in one scope: the number, its interval, its bound, and whether it is as the paper says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpustudy.analysis.claim_bounds import BOUNDS, IDEALS, bounded
from gpustudy.analysis.claim_values import EXACT, MODELLED, NOTHING, UNITS, Values, values_of, worst
from gpustudy.analysis.dataset import Group
from gpustudy.analysis.statistics import (
    AMBIGUOUS,
    LESS,
    MORE,
    SAME,
    Estimate,
    change,
    mean_over_repeats,
    ratio_over_repeats,
)

if TYPE_CHECKING:
    from gpustudy.analysis.claim_models import Check
    from gpustudy.analysis.dataset import Dataset

HOLDS, FAILS, OPEN = "holds", "fails", "open"
IMPOSSIBLE = "impossible"
"""A physical bound forbids the claimed value, or the measured one: the launches cannot have done equal work."""
EXACTLY = "exact: a setting"
"""Name of the interval of what has none: a setting is as exact with one repeat."""
NO_DATA = "not measured"
ONLY_MODELLED = "modelled"
"""There is a value, but a model made it: it is shown and decides nothing."""
NONE_THERE = "none there"
"""Neither the cell nor its reference has any of it (a kind of stall that never occurs): it decides nothing."""


@dataclass(frozen=True)
class Number:
    """A check on one cell in one scope.

    Attributes:
        quantity: its name.
        measure: value, ratio or difference.
        gpu: of the cell.
        config: of the cell.
        reference: gpu/config that a ratio or difference is taken to; empty for a value.
        scope: of the quantity.
        estimate: over the repeats; None where there is no number.
        text: the value of a fact that is no number; empty for a number.
        unit: of the estimate; empty for a pure number.
        origin: measured, modelled or crafted.
        repeats: which repeats are in it.
        accepted: what fits the paper's words, for people.
        bound: least value that a physical bound allows; None where none is known.
        outcome: ``HOLDS`` to ``NONE_THERE``.
        why: what makes the outcome, where the number alone does not say.
        marks: what a reader must know of the cell: null control, accepted; empty for nothing.
    """

    quantity: str
    measure: str
    gpu: str
    config: str
    reference: str
    scope: str
    estimate: Estimate | None
    text: str
    unit: str
    origin: str
    repeats: tuple[int, ...]
    accepted: str
    bound: float | None
    outcome: str
    why: str = ""
    marks: str = ""

    def __str__(self) -> str:
        """Return a line for people."""
        where = f"{self.gpu}/{self.config}{self.marks}" + (f" over {self.reference}" if self.measure == "ratio" else "")
        where += f" less {self.reference}" if self.measure == "difference" else ""
        if self.estimate is None:
            told = self.text or self.why or NO_DATA
        else:
            told = f"{self.estimate.value:.4g}{self.unit and ' ' + self.unit}"
            if self.estimate.low is not None and self.estimate.high is not None and self.estimate.interval != EXACTLY:
                told += f" ({self.estimate.low:.4g} to {self.estimate.high:.4g})"
            told += f", n = {self.estimate.n}"
        marks = "" if self.origin == "measured" or not self.repeats else f" [{self.origin}]"
        return f"{self.quantity} of {where}: {told}{marks}; expected {self.accepted}"


def number_of(dataset: Dataset, check: Check, quantity: str, group: Group, scope: str) -> Number:
    """Return what ``check`` finds for one quantity of one group in one scope."""
    own = values_of(dataset, group, quantity, scope, check.classes)
    against = _reference(dataset, check, group) if check.measure != "value" else None
    other = values_of(dataset, against, quantity, scope, check.classes) if against is not None else NOTHING
    blank = Number(
        quantity, check.measure, group.gpu, group.config,
        f"{against.gpu}/{against.config}" if against is not None else "", scope, None, "",
        _unit(dataset, check, quantity), worst((own.origin, other.origin)), tuple(sorted(own.by_repeat)),
        accepted_text(check), _bound(dataset, check, group, scope), NO_DATA,
    )  # fmt: skip
    blank = replace(blank, marks=group.label.removeprefix(group.config))
    if against is not None:
        paired = sorted(set(own.by_repeat) & set(other.by_repeat))
        blank = replace(blank, repeats=tuple(paired))
    if not blank.repeats:
        return replace(blank, why=_absence(dataset, check, group, scope))
    if check.operator in ("equals", "same"):
        found = _judged_text(check, blank, own)
    else:
        found = _estimated(check, blank, own.numbers, other.numbers, quantity in EXACT)
    if blank.origin == MODELLED:
        return replace(found, outcome=ONLY_MODELLED, why="a model made it, so that it decides nothing")
    return found


def accepted_text(check: Check) -> str:
    """Return what a check takes for agreement, for people."""
    if check.operator == "same":
        return "equal everywhere"
    if check.operator == "equals":
        return f"'{check.expected}'"
    if check.operator in ("up", "down"):
        return f"{check.operator}, beyond the noise"
    low, high = check.accepted
    if math.isinf(high):
        return f"at least {low:g}"
    return f"at most {high:g}" if math.isinf(low) else f"{low:.4g} to {high:.4g}"


def _reference(dataset: Dataset, check: Check, group: Group) -> Group:
    gpu, config = check.reference.gpu or group.gpu, check.reference.config
    known = next((one for one in dataset.groups(gpu) if one.config == config), None)
    return known or Group(gpu, config, ())


def _unit(dataset: Dataset, check: Check, quantity: str) -> str:
    if check.measure == "ratio":
        return "x"
    return UNITS.get(quantity, "%" if quantity.endswith("_pct") else "")


def _bound(dataset: Dataset, check: Check, group: Group, scope: str) -> float | None:
    return BOUNDS[check.bound](dataset, group) if check.bound and bounded(scope) else None


def _absence(dataset: Dataset, check: Check, group: Group, scope: str) -> str:
    """Say that there is no value, and what a bound of ideal work lets expect."""
    ideal_of = IDEALS.get(check.bound or "") if bounded(scope) else None
    ideal = ideal_of(dataset, group) if ideal_of else None
    return NO_DATA if ideal is None else f"{NO_DATA}; of multiply-adds alone the ratio would be at least {ideal:.3g}"


def _judged_text(check: Check, blank: Number, own: Values) -> Number:
    texts = sorted({str(value) for value in own.by_repeat.values()})
    found = replace(blank, text=", ".join(texts))
    if check.operator == "same":
        return replace(found, outcome=OPEN, why="compared over the cells together")
    return replace(found, outcome=HOLDS if texts == [check.expected] else FAILS)


def _estimated(
    check: Check, blank: Number, own: Mapping[int, float], other: Mapping[int, float], exact: bool
) -> Number:
    if check.measure == "ratio" and (found := _of_nothing(check, blank, own, other)):
        return found
    estimate = _estimate(check, own, other)
    if estimate is None:
        return replace(blank, why="has no ratio: a value is not positive")
    if exact:
        estimate = replace(estimate, low=estimate.value, high=estimate.value, interval=EXACTLY)
    judged = replace(blank, estimate=estimate)
    if blank.bound is not None and (impossible := _beyond(check, estimate, blank.bound)):
        return replace(judged, outcome=IMPOSSIBLE, why=impossible)
    outcome = _outcome(check, estimate)
    why = "one repeat has no interval, so that it decides nothing" if estimate.low is None else ""
    return replace(judged, outcome=outcome, why=why)


def _of_nothing(check: Check, blank: Number, own: Mapping[int, float], other: Mapping[int, float]) -> Number | None:
    """Judge a ratio whose parts are 0 in every repeat; None where it has a logarithm."""
    mine, theirs = (all(values[repeat] == 0 for repeat in blank.repeats) for values in (own, other))
    if mine and theirs:
        return replace(blank, outcome=NONE_THERE, why="neither has any")
    if theirs:
        outcome = HOLDS if check.operator in ("up", "at_least") else FAILS
        return replace(blank, outcome=outcome, why="the reference has none")
    if mine:
        fits = check.operator in ("down", "at_most") or (check.operator == "between" and check.accepted[0] <= 0)
        zero = Estimate(0.0, 0.0, 0.0, len(blank.repeats), "none in any repeat")
        return replace(blank, estimate=zero, outcome=HOLDS if fits else FAILS, why="the cell has none")
    return None


def _estimate(check: Check, own: Mapping[int, float], other: Mapping[int, float]) -> Estimate | None:
    if check.measure == "ratio":
        return ratio_over_repeats(own, other)
    if check.measure == "difference":
        return mean_over_repeats([own[repeat] - other[repeat] for repeat in sorted(own.keys() & other.keys())])
    return mean_over_repeats([own[repeat] for repeat in sorted(own)])


def _beyond(check: Check, estimate: Estimate, bound: float) -> str:
    """Say what of a ratio no physics allows; empty where all is possible."""
    highest = estimate.value if estimate.high is None else estimate.high
    if highest < bound:
        return f"the measured ratio lies under the physical bound of {bound:.3g}: the launches did not do equal work"
    if check.operator in ("between", "at_most") and check.accepted[1] < bound:
        return f"the claimed ratio lies under the physical bound of {bound:.3g} for equal work"
    return ""


def _outcome(check: Check, estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return OPEN
    if check.operator in ("up", "down"):
        return _direction(check, estimate, estimate.low, estimate.high)
    low, high = check.accepted
    if low <= estimate.low and estimate.high <= high:
        return HOLDS
    return FAILS if estimate.high < low or estimate.low > high else OPEN


def _direction(check: Check, estimate: Estimate, low: float, high: float) -> str:
    if check.measure == "ratio":
        found = change(estimate)
    else:
        margin = check.margin or 0.0
        inside = SAME if low >= -margin and high <= margin else AMBIGUOUS
        found = MORE if low > margin else LESS if high < -margin else inside
    if found == AMBIGUOUS:
        return OPEN
    return HOLDS if found == {"up": MORE, "down": LESS}[check.operator] else FAILS
