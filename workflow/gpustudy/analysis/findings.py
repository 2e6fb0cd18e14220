"""What the study found, in sentences made from the verdicts: no number here that a table does not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from gpustudy.analysis.claims import NOT_MEASURED, VERDICTS, judge_all
from gpustudy.analysis.dataset import BASELINE
from gpustudy.analysis.groups import baseline_of, conversions_of, largest_class, speedup_of
from gpustudy.analysis.overview import measured_first
from gpustudy.analysis.statistics import AMBIGUOUS, FASTER, NOISE_FLOOR, SAME, Estimate, summarise_steps, verdict
from gpustudy.analysis.style import amount_of_bytes, count, duration

if TYPE_CHECKING:
    from gpustudy.analysis.claims import Judgement
    from gpustudy.analysis.dataset import Dataset
    from gpustudy.study.states import CellState, StageState

_MAIN = ("A0", "G")
"""Beginnings of the claims of the abstract and of the conclusions: the paper's main ones, told one by one."""


def sentences(dataset: Dataset) -> list[str]:
    """Return the findings: the state of the study, measurements gpu by gpu, the claims, and last what is missing."""
    found = [_progress(dataset)]
    gpus = measured_first(dataset)
    for gpu in gpus:
        found += [text for text in (_baseline(dataset, gpu), *_verdicts(dataset, gpu)) if text]
        found += [text for text in (_largest(dataset, gpu), *_conversions(dataset, gpu)) if text]
    found += claim_sentences(judge_all(dataset)) if gpus else []
    for gpu in gpus:
        found += [*_without_data(dataset, gpu), *_without_counters(dataset, gpu)]
    return found


def claim_sentences(judgements: Sequence[Judgement]) -> list[str]:
    """Return what became of the paper's claims: how many have which verdict, which, and the paper's main ones."""
    by_verdict = {name: [one for one in judgements if one.verdict == name] for name in VERDICTS}
    decided = {name: own for name, own in by_verdict.items() if own and name != NOT_MEASURED}
    if not decided:
        about = list(dict.fromkeys(gpu for one in judgements for gpu in one.claim.gpus))
        return [f"None of the paper's {len(judgements)} claims is measured yet: they are about {_listed(about)}."]
    parts = [f"{len(own)} {_is(own)} {name.lower()}" for name, own in decided.items()]
    left = len(by_verdict[NOT_MEASURED])
    rest = f"; {left} {_is(by_verdict[NOT_MEASURED])} not measured" if left else ""
    made_up = " (crafted data: this says nothing of the paper)" if any(one.crafted for one in judgements) else ""
    texts = [f"Of the paper's {len(judgements)} claims {_listed(parts)} on these data{rest}{made_up}."]
    for name, own in decided.items():
        claims = ", ".join(f"{one.claim.id} ({one.claim.metric})" for one in own)
        texts.append(f"{name.capitalize()}: {claims}.")
    main = [one for one in judgements if one.claim.id.startswith(_MAIN) and one.verdict != NOT_MEASURED]
    return texts + [f"The paper says: {one.claim.sentence} This is {one.verdict}. {one.why}" for one in main]


def _is(own: Sequence[Judgement]) -> str:
    return "is" if len(own) == 1 else "are"


def _progress(dataset: Dataset) -> str:
    cells = dataset.survey.cells
    if not cells:
        return "The study has no cells: add a gpu and a config to config.yaml."
    counts = Counter(cell.state for cell in cells)
    rest = [f"{count} {state}" for state, count in counts.items() if state != "done"]
    done = f"{counts['done']} of {len(cells)} cells are done"
    return f"{done}; the others: {', '.join(rest)}." if rest else f"{done}."


def _baseline(dataset: Dataset, gpu: str) -> str:
    steps = dataset.step_times(baseline_of(dataset, gpu))
    if not steps:
        return ""
    time = summarise_steps(steps)
    interval = _interval(time, lambda end: duration(end, time.value))
    return f"On {gpu}, a step of {BASELINE} takes {duration(time.value)} ({interval})."


def _verdicts(dataset: Dataset, gpu: str) -> Iterable[str]:
    for group in dataset.groups(gpu):
        ratio = speedup_of(dataset, group) if group.config != BASELINE else None
        if ratio is not None:
            yield f"On {gpu}, {group.label} {_compared(ratio)} ({_interval(ratio, '{:.2f}x'.format)})."


def _compared(ratio: Estimate) -> str:
    """Say what a speed-up shows, as the end of a sentence."""
    found = verdict(ratio)
    if found == SAME:
        return f"takes the same time as {BASELINE}, within the noise floor of {NOISE_FLOOR:.0%}: {ratio.value:.2f}x"
    if found == AMBIGUOUS:
        return f"cannot be told from {BASELINE}, nor called equal to it: {ratio.value:.2f}x"
    if found == FASTER:
        return f"is faster than {BASELINE}: {ratio.value:.2f}x"
    return f"is slower than {BASELINE}: {ratio.value:.2f}x its speed"


def _interval(estimate: Estimate, text: Callable[[float], str]) -> str:
    """Name the interval and what it is over."""
    repeats = f"{estimate.n} repeats" if estimate.n > 1 else "one repeat"
    if estimate.low is None or estimate.high is None:
        return f"{repeats}, no interval"
    within = "" if estimate.over_repeats else " within that run"
    return f"95% interval {text(estimate.low)} to {text(estimate.high)}{within}, {repeats}"


def _largest(dataset: Dataset, gpu: str) -> str:
    shares: dict[str, list[str]] = {}
    for group in dataset.groups(gpu):
        if found := largest_class(dataset, group):
            shares.setdefault(found[0], []).append(f"{found[1]:.0%} in {group.config}")
    parts = [f"{name} ({', '.join(own)})" for name, own in shares.items()]
    return f"On {gpu}, the class with most of the profiled time is {_listed(parts)}." if parts else ""


def _conversions(dataset: Dataset, gpu: str) -> Iterable[str]:
    for group in dataset.groups(gpu):
        found = conversions_of(dataset, group)
        if found is not None and not found.empty:
            calls, size = count(float(found["calls"].sum())), amount_of_bytes(float(found["bytes"].sum()))
            yield f"On {gpu}, {group.label} converts memory layouts {calls} times an iteration, writing {size}."


def _without_data(dataset: Dataset, gpu: str) -> list[str]:
    """Name the configs without step times, and why; once for each reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for group in dataset.groups(gpu):
        if not dataset.step_times(group):
            why = next((_reason(cell) for cell in group.cells if cell.reason), "")
            reasons.setdefault((group.word("train"), why), []).append(group.config)
    return [_absence(dataset, gpu, names, word, why) for (word, why), names in reasons.items()]


def _without_counters(dataset: Dataset, gpu: str) -> list[str]:
    """Name the configs that have times but no hardware counters, and why; once for each reason."""
    reasons: dict[str, list[str]] = {}
    for group in dataset.groups(gpu):
        whys = [_reason(cell, stage.reason) for cell in group.cells for stage in cell.stages if _lacks_counters(stage)]
        if whys and dataset.step_times(group):
            reasons.setdefault(whys[0], []).append(group.config)
    return [
        f"On {gpu}, {_listed(names)} {'has' if len(names) == 1 else 'have'} times but no hardware counters: "
        f"{why.rstrip('.')}."
        for why, names in reasons.items()
    ]


def _lacks_counters(stage: StageState) -> bool:
    return stage.stage == "counters" and stage.state in ("unavailable", "failed")


def _reason(cell: CellState, reason: str | None = None) -> str:
    """Return a reason without the cell's and the stage's name, so that one sentence serves all cells that share it."""
    text = (cell.reason if reason is None else reason).removeprefix(f"{cell.gpu}/{cell.config}/r{cell.repeat} ")
    return text.removeprefix("counters: ")


def _absence(dataset: Dataset, gpu: str, names: Sequence[str], word: str, why: str) -> str:
    verb = "is" if len(names) == 1 else "are"
    text = f"On {gpu}, {_listed(names)} {verb} {word}"
    if "foreign" in word:
        sites = [name for name, site in dataset.survey.study.sites.items() if gpu in site.gpus]
        where = f"measured at {_listed(sites, 'or')}" if sites else "measured at no site of this study"
        why = f"{gpu} cells are {where} and imported here"
    return f"{text}: {why.rstrip('.')}." if why else f"{text}."


def _listed(words: Sequence[str], last: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
