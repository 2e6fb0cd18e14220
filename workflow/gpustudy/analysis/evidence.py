"""The paper's claims as the report shows them: by verdict, each with the numbers and the cells behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpustudy.analysis.claim_numbers import NO_DATA, NONE_THERE, ONLY_MODELLED, OPEN, Number
from gpustudy.analysis.claims import NOT_MEASURED, VERDICTS, Finding, Judgement
from gpustudy.analysis.names import FIGURES, TABLES

_MOST_NUMBERS = 12
"""Numbers of one reading in one scope that are listed; ``gpustudy claims ID --explain`` lists all."""


@dataclass(frozen=True)
class Reading:
    """One way to understand a claim, in one scope; each number in words, and whether a model made it."""

    name: str
    scope: str
    outcome: str
    numbers: tuple[tuple[str, bool], ...]
    numbers_left: int


@dataclass(frozen=True)
class ShownClaim:
    """One claim: what the paper says, why the verdict, and what it rests on.

    Attributes:
        id: its name.
        sentence: what the paper says.
        source: where.
        why: the deciding numbers in a sentence.
        ambiguity: what the paper leaves open; empty for nothing.
        cells: the cells behind the verdict, in words.
        shown_in: anchor and title of each figure and table that shows its numbers.
        readings: the evidence; none where nothing was measured.
    """

    id: str
    sentence: str
    source: str
    why: str
    ambiguity: str
    cells: str
    shown_in: tuple[tuple[str, str], ...]
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class ClaimGroup:
    """All claims of one verdict; ``mark`` is the verdict as a style sheet and an anchor name it."""

    verdict: str
    mark: str
    meaning: str
    claims: tuple[ShownClaim, ...]

    @property
    def is_undecided(self) -> bool:
        """Whether nothing decides them, so that there is nothing to read unless one asks."""
        return self.verdict == NOT_MEASURED


def by_verdict(judgements: Sequence[Judgement]) -> list[ClaimGroup]:
    """Return the claims grouped by verdict, in the order of ``VERDICTS``, those that nothing decides last."""
    groups = []
    for verdict in sorted(VERDICTS, key=lambda verdict: verdict == NOT_MEASURED):
        own = tuple(_shown(one) for one in judgements if one.verdict == verdict)
        if own:
            groups.append(ClaimGroup(verdict, verdict.lower().replace(" ", "-"), VERDICTS[verdict], own))
    return groups


def _shown(judgement: Judgement) -> ShownClaim:
    claim = judgement.claim
    places = [
        (f"figure-{name}" if name in FIGURES else f"title-{name}", (FIGURES | TABLES)[name].title)
        for name in claim.figures
        if name in FIGURES or name in TABLES
    ]
    readings = tuple(_reading(finding) for finding in judgement.findings if finding.outcome != NO_DATA)
    return ShownClaim(
        claim.id, claim.sentence, claim.source, judgement.why, claim.ambiguity, _cells(judgement.cells), tuple(places),
        readings,
    )  # fmt: skip


def _reading(finding: Finding) -> Reading:
    numbers = [number for number in finding.numbers if number.outcome not in (NO_DATA, NONE_THERE)]
    if finding.outcome == OPEN:  # a cell without a value may be what leaves it open
        numbers += [number for number in finding.numbers if number.outcome == NO_DATA]
    listed = tuple((str(number), _is_modelled(number)) for number in numbers[:_MOST_NUMBERS])
    return Reading(finding.reading, finding.scope, finding.outcome, listed, len(numbers) - len(listed))


def _is_modelled(number: Number) -> bool:
    return number.outcome == ONLY_MODELLED or number.origin == "modelled"


def _cells(cells: Sequence[str]) -> str:
    """Put repeats of one gpu and config together: ``a100/opt1 r1 r2 r3``."""
    together: dict[str, list[str]] = {}
    for cell in cells:
        place, _, repeat = cell.rpartition("/")
        together.setdefault(place, []).append(repeat)
    return ", ".join(f"{place} {' '.join(repeats)}" for place, repeats in together.items())
