"""What the report says in tables of its own: the study at a glance, the state of every cell, where data came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpustudy.analysis.dataset import BASELINE, CRAFTED
from gpustudy.analysis.groups import largest_class, speedup_of
from gpustudy.analysis.statistics import Estimate, summarise_steps, verdict
from gpustudy.analysis.style import duration
from gpustudy.analysis.tables import SHORT_SUM

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset, Group
    from gpustudy.study.states import CellState

SYMBOLS = {
    "done": "✓",
    "damaged": "!",
    "stale": "↻",
    "missing": "○",
    "foreign-stale": "⇄",
    "foreign-missing": "◌",
    "unsupported": "⊘",
    "failed": "✗",
    "unavailable": "△",
}
"""State -> the symbol beside its word, so that colour is never alone."""

MEANINGS = {
    "done": "measured with the present keys; in the figures",
    "damaged": "a file of its result cannot be read; not in the figures; the reason names it",
    "stale": "measured, but something that decides the result has changed since; not in the figures",
    "missing": "not measured yet; the next run does it",
    "foreign-stale": "imported, but for other keys; not in the figures; this site cannot run it",
    "foreign-missing": "not imported yet; this site cannot run it",
    "unsupported": "the device or the software lacks an optimisation of the config",
    "failed": "ended by a fact about the workload, such as too little memory; can be tried again",
    "unavailable": "ended by a fact about the place, such as counters not permitted; can be tried again",
}
"""State -> what it means, for the legend."""


def measured_first(dataset: Dataset) -> list[str]:
    """Return the gpus, those with results before those without; each part in the order of the study."""
    measured = {cell.gpu for cell in dataset.survey.cells if any(stage.metrics for stage in cell.stages)}
    return sorted(dataset.gpus, key=lambda gpu: gpu not in measured)


@dataclass(frozen=True)
class Findings:
    """The findings, those on no gpu alone first."""

    general: tuple[str, ...]
    by_gpu: Mapping[str, tuple[str, ...]]


def grouped(sentences: Sequence[str], gpus: Sequence[str]) -> Findings:
    """Put the sentences on one gpu together; they begin with ``On GPU, ``."""
    by_gpu = {gpu: tuple(text for text in sentences if text.startswith(f"On {gpu}, ")) for gpu in gpus}
    told = {text for own in by_gpu.values() for text in own}
    general = tuple(text for text in sentences if text not in told)
    return Findings(general, {gpu: own for gpu, own in by_gpu.items() if own})


@dataclass(frozen=True)
class Badge:
    """Repeats of one gpu and config that are alike: their state, in symbol and word."""

    state: str
    symbol: str
    marks: str
    repeats: str
    reason: str


def matrix(cells: Sequence[CellState]) -> dict[tuple[str, str], list[Badge]]:
    """Return the badges of the state matrix: (gpu, config) -> one for all repeats that are alike."""
    alike: dict[tuple[str, str], dict[tuple[str, str], list[CellState]]] = {}
    for cell in cells:
        marks = [*(["null control"] if cell.null_control else []), *(["accepted"] if cell.accepted else [])]
        alike.setdefault((cell.gpu, cell.config), {}).setdefault((cell.state, ", ".join(marks)), []).append(cell)
    return {
        place: [
            Badge(state, SYMBOLS[state], marks, ", ".join(f"r{cell.repeat}" for cell in own), own[0].reason)
            for (state, marks), own in looks.items()
        ]
        for place, looks in alike.items()
    }


def legend(cells: Iterable[CellState]) -> list[tuple[str, str, str]]:
    """Return state, symbol and meaning of the states that occur, in the legend's order."""
    present = {cell.state for cell in cells}
    return [(state, SYMBOLS[state], MEANINGS[state]) for state in SYMBOLS if state in present]


@dataclass(frozen=True)
class Glance:
    """One config of one gpu at a glance.

    Attributes:
        config: its name with its marks.
        time: step time in words.
        bar_pct: step time over the longest of that gpu, in per cent.
        speedup: over baseline with its interval, in words; empty for baseline.
        verdict: FASTER, SLOWER, SAME, AMBIGUOUS, or ``reference`` for baseline; empty without a baseline.
        largest: the class with most of the profiled time and its share, in words.
    """

    config: str
    time: str
    bar_pct: int
    speedup: str
    verdict: str
    largest: str


def glance(dataset: Dataset) -> dict[str, list[Glance]]:
    """Return the step times of every gpu that has any: gpu -> its configs."""
    found = {}
    for gpu in measured_first(dataset):
        times = {group: summarise_steps(steps) for group in dataset.groups(gpu) if (steps := dataset.step_times(group))}
        if times:
            longest = max(time.value for time in times.values())
            found[gpu] = [_glance(dataset, group, time, longest) for group, time in times.items()]
    return found


def trained(dataset: Dataset, gpu: str) -> str:
    """Return what the cells of ``gpu`` train, in words: times of different workloads are not comparable."""
    study = dataset.survey.study
    if gpu not in study.gpus:
        return ""
    name = study.gpus[gpu].workload
    workload = study.workloads[name]
    model, train = workload.model, workload.train
    channels = "-".join(str(model.base_channels * factor) for factor in model.channel_mult)
    return (
        f"workload {name}: volumes of {'x'.join(map(str, model.volume))}, network of {channels} channels, "
        f"{train.iterations} measured steps"
    )


def _glance(dataset: Dataset, group: Group, time: Estimate, longest: float) -> Glance:
    ratio = None if group.config == BASELINE else speedup_of(dataset, group)
    interval = f" ({ratio.low:.2f} to {ratio.high:.2f})" if ratio and ratio.low is not None else ""
    largest = largest_class(dataset, group)
    return Glance(
        config=group.label,
        time=duration(time.value),
        bar_pct=max(1, round(100 * time.value / longest)),
        speedup=f"{ratio.value:.2f}x{interval}" if ratio else "",
        verdict="reference" if group.config == BASELINE else verdict(ratio) if ratio else "",
        largest=f"{largest[0]} {largest[1]:.0%}" if largest else "",
    )


_FACTS = (
    "device_name", "cpu_model", "threads", "driver", "cuda", "cudnn", "torch", "numpy", "python", "ncu", "clocks",
    "mig", "image_sha256", "git_commit", "git_dirty", "host", "started",
)  # fmt: skip
"""What is told of where cells were measured, in this order."""

_SUMS = ("git_commit", "image_sha256")
_MOST_TOLD = 3
"""Different values of one fact that are told one by one."""


def origins(dataset: Dataset) -> dict[str, list[tuple[str, str]]]:
    """Return where the cells of each gpu were measured and with what: gpu -> facts in words.

    Crafted provenance says so first.
    """
    by_gpu: dict[str, dict[str, list[Any]]] = {}
    for cell, _, manifest in dataset.manifests:
        facts = by_gpu.setdefault(cell.gpu, {})
        for name, value in (manifest.get("provenance") or {}).items():
            if value is not None:
                facts.setdefault(name, []).append(value)
    told = {}
    for gpu in measured_first(dataset):
        facts = by_gpu.get(gpu, {})
        crafted = [("origin", "crafted: nobody measured this")] if CRAFTED in facts.get("origin", []) else []
        lines = [(name.replace("_", " "), _fact(name, facts[name])) for name in _FACTS if name in facts]
        if crafted or lines:
            told[gpu] = crafted + lines
    return told


def _fact(name: str, values: Sequence[Any]) -> str:
    """Tell the different values of one fact."""
    texts = [str(value)[:SHORT_SUM] if name in _SUMS else _words(value) for value in values]
    different = sorted(dict.fromkeys(texts))
    if len(different) <= _MOST_TOLD:
        return ", ".join(different)
    between = f"{different[0]} to {different[-1]}"
    return between if name == "started" else f"{len(different)} different: {between}"


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(one)}" for name, one in value.items())
    return ", ".join(_words(one) for one in value) if isinstance(value, list) else str(value)


def cells_used(cells: Sequence[dict[str, Any]]) -> str:
    """Name the cells of a caption that have a part in a product, such as ``a100: baseline r1 r2 r3, opt1 r1``.

    Args:
        cells: the entry ``cells`` of ``draw.caption``.
    """
    used: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        if any(stage["used"] for stage in cell["stages"].values()):
            gpu, config, repeat = cell["cell"].split("/")
            used.setdefault(gpu, {}).setdefault(config, []).append(repeat)
    named = {
        gpu: ", ".join(f"{config} {' '.join(repeats)}" for config, repeats in configs.items())
        for gpu, configs in used.items()
    }
    return "; ".join(f"{gpu}: {cells}" for gpu, cells in named.items())
