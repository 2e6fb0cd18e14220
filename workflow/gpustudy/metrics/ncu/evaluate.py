"""The catalogue's quantities of a batch of launches, each with the reason where it has none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpustudy.metrics.catalogue import Catalogue, Quantity
from gpustudy.metrics.expressions import Expression, Term, Values
from gpustudy.metrics.ncu.batch import NUMBER, WHOLE, Batch

HAS_VALUE, NOT_COLLECTED, UNDEFINED, ABSENT = 0, 1, 2, 3
"""Why a launch has no value of a quantity."""

REASONS = {
    NOT_COLLECTED: "not collected",
    UNDEFINED: "undefined: a denominator of 0, or not a number in the report",
}
"""Words for the reasons that do not depend on the architecture; that of ABSENT stands in the catalogue."""


@dataclass(frozen=True)
class Evaluated:
    """Quantities of some launches.

    Attributes:
        values: (launches, quantities); NaN where there is none.
        why: (launches, quantities); HAS_VALUE or the reason.
        numerators: (launches, quantities), what a total sums: the value itself for sums.
        denominators: (launches, quantities), what a ratio's total is divided by; 1 for sums.
    """

    values: Values
    why: NDArray[np.int8]
    numerators: Values
    denominators: Values

    @staticmethod
    def join(parts: Sequence[Evaluated]) -> Evaluated:
        """Put the launches of several batches one after the other."""
        return Evaluated(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.why for part in parts]),
            np.concatenate([part.numerators for part in parts]),
            np.concatenate([part.denominators for part in parts]),
        )


def evaluate(batch: Batch, catalogue: Catalogue) -> Evaluated:
    """Return every quantity of every launch of a batch."""
    count = len(batch.launches)
    shape = (count, len(catalogue.quantities))
    result = Evaluated(
        np.full(shape, np.nan),
        np.full(shape, NOT_COLLECTED, dtype=np.int8),
        np.full(shape, np.nan),
        np.full(shape, np.nan),
    )
    terms = _Terms(batch)
    architectures = np.array([launch.architecture or "" for launch in batch.launches], dtype=object)
    for architecture in sorted(set(architectures)):
        chosen = np.flatnonzero(architectures == architecture)
        for column, quantity in enumerate(catalogue.quantities):
            if architecture in quantity.absent:
                result.why[chosen, column] = ABSENT
                continue
            values, why = terms.first(quantity.alternatives(architecture))
            result.values[chosen, column], result.why[chosen, column] = values[chosen], why[chosen]
            numerators, denominators = _fraction(quantity, terms, values)
            result.numerators[chosen, column] = numerators[chosen]
            result.denominators[chosen, column] = denominators[chosen]
    return result


def _fraction(quantity: Quantity, terms: _Terms, values: Values) -> tuple[Values, Values]:
    """Return numerator and denominator of each launch, such that their sums make the total of the quantity."""
    if quantity.aggregate not in ("ratio", "time_weighted"):
        return values, np.ones_like(values)
    denominators, _ = terms.first(quantity.denominators)
    numerators, _ = terms.first(quantity.numerators)
    with np.errstate(invalid="ignore"):
        implied = values * denominators / quantity.scale
    # Of nothing, nothing: a launch with a denominator of 0 has no ratio, yet adds 0 to both sums.
    implied = np.where((denominators == 0) & np.isnan(implied), 0.0, implied)
    return np.where(np.isnan(numerators), implied, numerators), denominators


class _Terms:
    """The metrics of a batch, as one array a term, read off the rows when an expression first asks."""

    def __init__(self, batch: Batch) -> None:
        self._batch, self._known = batch, dict[Term, Values]()
        self._present: dict[Term, NDArray[np.bool_]] = {}
        self._index = {name: number for number, name in enumerate(batch.metrics)}
        columns = batch.columns
        order = np.argsort(columns.metric, kind="stable")
        bounds = np.searchsorted(columns.metric[order], np.arange(len(batch.metrics) + 1))
        self._rows = [order[bounds[number] : bounds[number + 1]] for number in range(len(batch.metrics))]

    def first(self, alternatives: Sequence[Expression]) -> tuple[Values, NDArray[np.int8]]:
        """Return, launch by launch, the value of the first alternative whose metrics are all there."""
        count = len(self._batch.launches)
        values = np.full(count, np.nan)
        why = np.full(count, NOT_COLLECTED, dtype=np.int8)
        for expression in alternatives:
            if any(term.metric not in self._index for term in expression.terms):
                continue
            known: Mapping[Term, Values] = {term: self._term(term) for term in expression.terms}
            present = np.logical_and.reduce([self._present[term] for term in expression.terms])
            chosen = present & (why == NOT_COLLECTED)
            if chosen.any():
                found = expression.evaluate(known)
                values[chosen] = found[chosen]
                why[chosen] = np.where(np.isfinite(found[chosen]), HAS_VALUE, UNDEFINED)
        values[why != HAS_VALUE] = np.nan
        return values, why

    def _term(self, term: Term) -> Values:
        if term not in self._known:
            rows = self._rows[self._index[term.metric]]
            values, present = self._opcodes(rows, term) if term.opcodes else self._whole(rows)
            self._known[term], self._present[term] = values, present
        return self._known[term]

    def _whole(self, rows: NDArray[Any]) -> tuple[Values, NDArray[np.bool_]]:
        columns, count = self._batch.columns, len(self._batch.launches)
        rows = rows[(columns.instance[rows] == WHOLE) & (columns.kind[rows] == NUMBER)]
        values, present = np.full(count, np.nan), np.zeros(count, dtype=np.bool_)
        values[columns.launch[rows]] = columns.value[rows]
        present[columns.launch[rows]] = True
        return values, present

    def _opcodes(self, rows: NDArray[Any], term: Term) -> tuple[Values, NDArray[np.bool_]]:
        """Sum over the instances of some opcodes; a launch that has instances, but none of these, gets 0."""
        columns, count = self._batch.columns, len(self._batch.launches)
        rows = rows[
            (columns.instance[rows] != WHOLE) & (columns.kind[rows] == NUMBER) & (columns.correlation[rows] >= 0)
        ]
        present = np.zeros(count, dtype=np.bool_)
        present[columns.launch[rows]] = True
        listed = np.array([text.split(".")[0] in term.opcodes for text in self._batch.strings], dtype=np.bool_)
        rows = rows[listed[columns.correlation[rows]]] if len(rows) else rows
        sums = np.bincount(columns.launch[rows], weights=columns.value[rows], minlength=count)
        return np.where(present, sums, np.nan), present


def reason_texts(why: NDArray[np.int8], catalogue: Catalogue, architectures: Sequence[str | None]) -> list[str | None]:
    """Return for each launch, as JSON, what it lacks: reason -> quantities; None for nothing."""
    known: dict[tuple[bytes, str | None], str | None] = {}
    texts = []
    for row, architecture in zip(why, architectures, strict=True):
        key = row.tobytes(), architecture
        if key not in known:
            known[key] = _reason_text(row, catalogue, architecture)
        texts.append(known[key])
    return texts


def doubtful_texts(evaluated: Evaluated, catalogue: Catalogue) -> list[str | None]:
    """Return for each launch, as JSON, the quantities that cannot be: negative ones, and percentages above 100.

    ncu gives such values where its passes differ, mostly of short kernels (Nsight Compute documentation, "Range and
    Precision"). They are kept as they are. None where there is none.
    """
    ceilings = np.array([100.0 if quantity.unit == "%" else np.inf for quantity in catalogue.quantities])
    names = np.array([quantity.name for quantity in catalogue.quantities], dtype=object)
    with np.errstate(invalid="ignore"):
        doubtful = (evaluated.values < 0) | (evaluated.values > ceilings)
    return [json.dumps(names[row].tolist()) if row.any() else None for row in doubtful]


def _reason_text(row: NDArray[np.int8], catalogue: Catalogue, architecture: str | None) -> str | None:
    lacking: dict[str, list[str]] = {}
    for quantity, reason in zip(catalogue.quantities, row.tolist(), strict=True):
        if reason != HAS_VALUE:
            words = quantity.absent[architecture or ""] if reason == ABSENT else REASONS[reason]
            lacking.setdefault(words, []).append(quantity.name)
    return json.dumps(lacking) if lacking else None
