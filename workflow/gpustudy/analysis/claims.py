"""Does each claim of the paper hold on these data? A verdict, the numbers behind it and the cells used.

A sentence may be understood in several ways (readings), and its number may be meant of the whole step, of single
launches or of the first ones (scopes). Each reading is judged in each scope by itself; the verdict says whether they
agree. Modelled values are shown and decide nothing; crafted ones decide verdicts that say so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gpustudy.analysis.claim_models import load_claims, paper
from gpustudy.analysis.claim_numbers import (
    FAILS,
    HOLDS,
    IMPOSSIBLE,
    NO_DATA,
    NONE_THERE,
    ONLY_MODELLED,
    OPEN,
    Number,
    number_of,
)
from gpustudy.analysis.claim_values import values_of
from gpustudy.analysis.dataset import CRAFTED, Group
from gpustudy.base.errors import UserError
from gpustudy.base.words import nearest

if TYPE_CHECKING:
    from gpustudy.analysis.claim_models import Check, Claim, Reading
    from gpustudy.analysis.dataset import Dataset

SUPPORTED, CONTRADICTED, AMBIGUOUS = "SUPPORTED", "CONTRADICTED", "AMBIGUOUS"
NOT_MEASURED, IMPLAUSIBLE = "NOT MEASURED", "IMPLAUSIBLE"

VERDICTS = {
    SUPPORTED: "every reading that could be judged holds, in every scope that was measured",
    CONTRADICTED: "none holds",
    AMBIGUOUS: "readings, scopes or cells disagree, an interval leaves it open, or not all cells are measured",
    NOT_MEASURED: "no measured value decides it",
    IMPLAUSIBLE: "a physical bound forbids the value as a total, and no other reading or scope shows it",
}
"""Verdict -> what it means."""

_JUDGED: WeakKeyDictionary[Dataset, tuple[Judgement, ...]] = WeakKeyDictionary()
"""Judgements of all claims of a data set that is still in use: the report asks for them in several places."""

_DECIDING = (HOLDS, FAILS, OPEN, IMPOSSIBLE)


@dataclass(frozen=True)
class Finding:
    """One reading in one scope.

    Attributes:
        reading: its name.
        scope: the scope.
        outcome: ``HOLDS``, ``FAILS``, ``OPEN``, ``IMPOSSIBLE``, ``NO_DATA`` or ``ONLY_MODELLED``.
        numbers: all that it was judged by.
    """

    reading: str
    scope: str
    outcome: str
    numbers: tuple[Number, ...]


@dataclass(frozen=True)
class Judgement:
    """What became of one claim.

    Attributes:
        claim: the claim.
        verdict: one of ``VERDICTS``.
        why: a sentence or two with the numbers that decide.
        findings: every reading in every scope.
        crafted: whether made-up values are behind it.
    """

    claim: Claim
    verdict: str
    why: str
    findings: tuple[Finding, ...]
    crafted: bool

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells whose values are behind it, references included."""
        used = {
            f"{place}/r{repeat}"
            for finding in self.findings
            for number in finding.numbers
            for place in (f"{number.gpu}/{number.config}", number.reference)
            if place
            for repeat in number.repeats
        }
        return tuple(sorted(used))

    def as_json(self) -> dict[str, Any]:
        """Return the judgement for programs: the claim with its readings, the verdict and every number."""
        claim = self.claim.model_dump(
            mode="json", include={"id", "sentence", "source", "metric", "ambiguity", "figures"}
        )
        return claim | {
            "verdict": self.verdict,
            "why": self.why,
            "crafted": self.crafted,
            "cells": list(self.cells),
            "findings": [asdict(finding) for finding in self.findings],
        }


def judge_all(dataset: Dataset, ids: Sequence[str] = ()) -> tuple[Judgement, ...]:
    """Judge the claims named, or all, in the order of the file.

    Raises:
        UserError: there is no such claim.
    """
    known = {claim.id: claim for claim in load_claims()}
    for name in ids:
        if name not in known:
            raise UserError(f"unknown claim '{name}': {nearest(name, known)}")
    if ids:
        return tuple(judge(dataset, claim) for claim in known.values() if claim.id in ids)
    if dataset not in _JUDGED:
        _JUDGED[dataset] = tuple(judge(dataset, claim) for claim in known.values())
    return _JUDGED[dataset]


def evidence(judgements: Sequence[Judgement]) -> dict[str, Any]:
    """Return judgements as the content of ``claims.json``: verdicts, the numbers behind them and the cells used.

    JSON has no infinity and no NaN, and none is in it: a number that is not finite is null.
    """
    return {
        "schema": 1,
        "paper": paper(),
        "crafted": any(one.crafted for one in judgements),
        "verdicts": {verdict: [one.claim.id for one in judgements if one.verdict == verdict] for verdict in VERDICTS},
        "claims": [_finite(one.as_json()) for one in judgements],
    }


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def judge(dataset: Dataset, claim: Claim) -> Judgement:
    """Judge one claim on the data at hand."""
    findings = tuple(
        _finding(dataset, claim, reading, scope)
        for reading in claim.readings
        for scope in (claim.scopes if reading.scopes is None else reading.scopes)
    )
    verdict = _verdict([finding.outcome for finding in findings])
    made_up = any(number.origin == CRAFTED and number.repeats for one in findings for number in one.numbers)
    return Judgement(claim, verdict, _why(verdict, findings), findings, made_up)


def _verdict(outcomes: Iterable[str]) -> str:
    found = {outcome for outcome in outcomes if outcome in _DECIDING}
    if not found:
        return NOT_MEASURED
    if found == {HOLDS}:
        return SUPPORTED
    if IMPOSSIBLE in found and not found & {HOLDS, OPEN}:
        return IMPLAUSIBLE
    return CONTRADICTED if found == {FAILS} else AMBIGUOUS


def _finding(dataset: Dataset, claim: Claim, reading: Reading, scope: str) -> Finding:
    parts: list[str] = []
    numbers: list[Number] = []
    for check in reading.checks:
        groups = _groups(dataset, claim, check)
        for quantity in check.quantities:
            own = [number_of(dataset, check, quantity, group, scope) for group in groups]
            if check.operator == "same":
                own = _compared(dataset, check, quantity, groups, scope, own)
            parts.append((_every if check.over == "every" else _any)([number.outcome for number in own]))
            numbers += own
    return Finding(reading.name, scope, _every(parts), tuple(numbers))


def _groups(dataset: Dataset, claim: Claim, check: Check) -> list[Group]:
    """Return the cells of a check, by gpu and config; one that the study lacks has no data."""
    gpus = claim.gpus if check.gpus is None else check.gpus
    configs = claim.configs if check.configs is None else check.configs
    known = {(group.gpu, group.config): group for gpu in dataset.gpus for group in dataset.groups(gpu)}
    return [
        known.get((gpu, config)) or Group(gpu, config, ())
        for gpu in gpus or dataset.gpus
        for config in configs or dataset.configs
    ]


def _compared(
    dataset: Dataset, check: Check, quantity: str, groups: Sequence[Group], scope: str, numbers: Sequence[Number]
) -> list[Number]:
    """Compare a value over the cells: equal in all of one repeat and config, or not."""
    values = [values_of(dataset, group, quantity, scope, check.classes) for group in groups]
    told: dict[tuple[str, int], set[object]] = {}
    for group, own in zip(groups, values, strict=True):
        for repeat, value in own.by_repeat.items():
            told.setdefault((group.config, repeat), set()).add(value)
    with_data = sum(1 for own in values if own)
    if with_data < 2:
        return [replace(one, outcome=NO_DATA, why="needs two cells to compare") for one in numbers]
    outcome = FAILS if any(len(found) > 1 for found in told.values()) else HOLDS
    return [one if one.outcome != OPEN else replace(one, outcome=outcome, why="") for one in numbers]


def _every(outcomes: Sequence[str]) -> str:
    """Combine what must all be so."""
    found = {outcome for outcome in outcomes if outcome != NONE_THERE}
    for worse in (IMPOSSIBLE, FAILS):
        if worse in found:
            return worse
    if not found or found == {NO_DATA}:
        return NO_DATA
    if ONLY_MODELLED in found and not found & {HOLDS, OPEN}:
        return ONLY_MODELLED
    return HOLDS if found == {HOLDS} else OPEN


def _any(outcomes: Sequence[str]) -> str:
    """Combine what must be so in one cell at least ('up to'); a cell without data leaves it open."""
    found = {outcome for outcome in outcomes if outcome != NONE_THERE}
    if HOLDS in found:
        return HOLDS
    if not found or found == {NO_DATA}:
        return NO_DATA
    if found <= {ONLY_MODELLED, NO_DATA}:
        return ONLY_MODELLED
    if found & {OPEN, NO_DATA, ONLY_MODELLED}:
        return OPEN
    return IMPOSSIBLE if IMPOSSIBLE in found else FAILS


_VERB = {HOLDS: "Holds", FAILS: "Fails", OPEN: "Open", IMPOSSIBLE: "Beyond a physical bound"}


def _why(verdict: str, findings: Sequence[Finding]) -> str:
    """Say which readings hold and which do not, each group with the number that decides it best."""
    if verdict == NOT_MEASURED:
        return _why_not_measured(findings)
    texts = []
    for outcome, verb in _VERB.items():
        own = [finding for finding in findings if finding.outcome == outcome]
        if own:
            texts.append(f"{verb} {_places(own, findings)}: {_example(own[0])}.")
    return " ".join(texts)


def _why_not_measured(findings: Sequence[Finding]) -> str:
    numbers = [number for finding in findings for number in finding.numbers]
    if modelled := [number for number in numbers if number.outcome == ONLY_MODELLED]:
        return f"Only modelled values, which decide nothing: {modelled[0]}."
    cells = ", ".join(dict.fromkeys(f"{number.gpu}/{number.config}" for number in numbers))
    ideal = dict.fromkeys(
        f"{number.gpu}/{number.config}: {number.why.partition('; ')[2]}" for number in numbers if "; " in number.why
    )
    return f"No measured value of {cells}." + (f" As totals, {'; '.join(ideal)}." if ideal else "")


def _places(own: Sequence[Finding], findings: Sequence[Finding]) -> str:
    """Name findings as shortly as tells them from the others: readings, and scopes where there are several."""
    by_reading: dict[str, list[str]] = {}
    for finding in own:
        by_reading.setdefault(finding.reading, []).append(finding.scope)
    has_readings = len({one.reading for one in findings}) > 1
    texts = []
    for reading, scopes in by_reading.items():
        has_scopes = len({one.scope for one in findings if one.reading == reading}) > 1
        words = ([f"'{reading}'"] if has_readings else []) + ([f"as {', '.join(scopes)}"] if has_scopes else [])
        texts.append(" ".join(words) or f"'{reading}'")
    return "; ".join(texts)


def _example(finding: Finding) -> str:
    """Return the number that decides a finding."""
    best = next((number for number in finding.numbers if number.outcome == finding.outcome), None)
    chosen = best or next((number for number in finding.numbers if number.outcome == NO_DATA), finding.numbers[0])
    return f"{chosen}" + (f" ({chosen.why})" if chosen.why and chosen.why not in str(chosen) else "")
