"""From launches to totals: the counters' rows of table ``cells``, by kernel class and for all launches together.

Several scopes, because the paper does not say which of them its numbers are: ``total`` (all launches, each times the
launches of a step that it stands for; ratios are sums of numerators over sums of denominators, never means of
percentages), ``launch_median`` and ``launch_mean`` (the middle and the average launch of a step: each profiled one
counts as often as the launches that it stands for) and ``first_n`` (totals of the first launches alone, as a run with
``--launch-count`` gives them).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gpustudy.metrics.catalogue import Catalogue, Quantity
from gpustudy.metrics.cells import MEASURED, Row
from gpustudy.metrics.expressions import Values
from gpustudy.metrics.ncu.evaluate import ABSENT, HAS_VALUE, Evaluated

STAGE = "counters"
FIRST_LAUNCHES = 100
"""Launches of scope ``first_n``: our choice, large enough to cover a forward pass of the paper's model in part."""

_QUARTILES = (0.25, 0.5, 0.75)


def total_rows(
    evaluated: Evaluated,
    catalogue: Catalogue,
    classes: Sequence[str],
    weights: Values,
    *,
    suffix: str = "",
    first: int = FIRST_LAUNCHES,
) -> Iterator[Row]:
    """Yield the rows of all scopes and classes.

    Args:
        evaluated: the quantities of the launches, in launch order, failed launches left out.
        catalogue: what they are.
        classes: kernel class of each launch.
        weights: launches of a step that each stands for.
        suffix: what follows the name of a scope, to tell two reports of a cell apart.
        first: launches of scope ``first_n``.
    """
    labels = np.array(classes, dtype=object)
    groups: list[tuple[str | None, NDArray[np.bool_]]] = [(None, np.ones(len(labels), dtype=np.bool_))]
    groups += [(name, labels == name) for name in sorted(set(classes))]
    is_first = np.arange(len(labels)) < first
    for column, quantity in enumerate(catalogue.quantities):
        for kernel_class, members in groups:
            base = _base(quantity, kernel_class)
            for scope, chosen, scale in (("total", members, weights), ("first_n", members & is_first, None)):
                value = _total(evaluated, column, quantity, chosen, scale)
                if value is not None:
                    yield base | _valued(f"{scope}{suffix}", value, int(chosen.sum()))
                elif scope == "total" and kernel_class is None:
                    yield base | _lacking(f"{scope}{suffix}", evaluated.why[:, column], quantity)
            known = members & (evaluated.why[:, column] == HAS_VALUE)
            values, counts = evaluated.values[known, column], weights[known]
            if len(values):
                low, middle, high = (float(end) for end in weighted_quantiles(values, counts, _QUARTILES))
                row = _valued(f"launch_median{suffix}", middle, len(values))
                yield base | row | {"low": low, "high": high, "interval": "quartiles"}
                yield base | _valued(f"launch_mean{suffix}", float(np.average(values, weights=counts)), len(values))


def weighted_quantiles(values: Values, weights: Values, shares: Sequence[float]) -> Values:
    """Return the values below which ``shares`` of the weight lie, interpolated between the middles of the weights.

    With equal weights this is Hazen's definition (number 5 of Hyndman & Fan 1996): its median is the usual one.

    Args:
        values: shape (n,), n > 0.
        weights: shape (n,), positive.
        shares: from 0 to 1.
    """
    order = np.argsort(values, kind="stable")
    ordered = weights[order]
    middles = (np.cumsum(ordered) - ordered / 2) / np.sum(ordered)
    found: Values = np.interp(shares, middles, values[order])
    return found


def _base(quantity: Quantity, kernel_class: str | None) -> Row:
    return {
        "stage": STAGE,
        "quantity": quantity.name,
        "kernel_class": kernel_class,
        "value": None,
        "unit": "" if quantity.unit == "1" else quantity.unit,
        "state": "done",
        "origin": MEASURED,
    }


def _total(
    evaluated: Evaluated, column: int, quantity: Quantity, chosen: NDArray[np.bool_], weights: Values | None
) -> float | None:
    """Return the total over the chosen launches; None unless every one of them can be counted."""
    if quantity.aggregate == "none" or not chosen.any():
        return None
    factor = 1.0 if weights is None else weights[chosen]
    numerator = float(np.sum(evaluated.numerators[chosen, column] * factor))
    denominator = float(np.sum(evaluated.denominators[chosen, column] * factor))
    if not np.isfinite(numerator):
        return None
    if quantity.aggregate == "sum":
        return numerator
    if not np.isfinite(denominator) or denominator == 0:
        return None
    return quantity.scale * numerator / denominator


def _valued(scope: str, value: float, n: int) -> Row:
    return {"scope": scope, "value": value, "n": n}


def _lacking(scope: str, why: NDArray[np.int8], quantity: Quantity) -> Row:
    """Return the row of a quantity that has no total: why most launches lack it."""
    if quantity.aggregate == "none":
        reason = "no_total"
    else:
        reason = (
            "architecture" if (why == ABSENT).any() else "not_collected" if (why != HAS_VALUE).any() else "undefined"
        )
    return {"scope": scope, "n": 0, "state": f"unavailable({reason})"}
