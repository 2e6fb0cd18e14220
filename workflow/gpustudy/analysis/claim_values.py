"""Numbers and facts that claims are judged by: any quantity of the tables, and a few made from several.

Each comes with its origin. A value is as good as its worst part: one modelled part makes it modelled, so that no
claim is ever supported by a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpustudy.analysis import quantities
from gpustudy.analysis.dataset import CRAFTED
from gpustudy.analysis.families import FAMILIES

if TYPE_CHECKING:
    import pandas as pd

    from gpustudy.analysis.dataset import Dataset, Group
    from gpustudy.study.models import Workload

MEASURED, MODELLED = "measured", "modelled"
_TEXTS = ("name", "class", "origin", "speedup_kind", "report")

COMPUTE = (*FAMILIES["convolution"], *FAMILIES["matrix product, attention"])
"""Classes whose kernels are bound by arithmetic when they are efficient: convolutions, products, attention."""

PUBLISHED_ITERATIONS = 100_000
"""Iterations of the published training script (``--epochs 100000``, which its code takes as iterations)."""

_S_PER_HOUR = 3600.0
_SHORT_SUM = 12
"""Hex digits of a checksum that are compared and shown."""

Known = float | str


@dataclass(frozen=True)
class Values:
    """One value for each repeat that has it.

    Attributes:
        by_repeat: repeat -> value, a number or a text.
        origin: the worst of its parts: modelled, crafted or measured.
    """

    by_repeat: Mapping[int, Known]
    origin: str

    def __bool__(self) -> bool:
        return bool(self.by_repeat)

    @property
    def numbers(self) -> dict[int, float]:
        """The values that are numbers."""
        return {repeat: value for repeat, value in self.by_repeat.items() if isinstance(value, float)}


NOTHING = Values({}, MEASURED)


def values_of(dataset: Dataset, group: Group, quantity: str, scope: str, classes: Collection[str] = ()) -> Values:
    """Return ``quantity`` of ``group`` for each repeat.

    Args:
        dataset: where to look.
        group: one gpu and config.
        quantity: a quantity of the table ``cells``, or one of ``DERIVED``.
        scope: scope of the quantity.
        classes: kernel classes to take together; empty for all launches.
    """
    if quantity in DERIVED:
        return DERIVED[quantity](dataset, group, scope, classes)
    found = quantities.values_by_repeat(dataset, group, quantity, scope, tuple(classes) or None)
    return Values(found, worst(quantities.origins(dataset, group, quantity, scope)))


def worst(origins: Collection[str]) -> str:
    """Return the origin of a value made of parts with these: modelled, else crafted, else measured."""
    return next((origin for origin in (MODELLED, CRAFTED) if origin in origins), MEASURED)


def _combined(
    dataset: Dataset, group: Group, scope: str, names: tuple[str, str], made: Callable[[float, float], float]
) -> Values:
    """Return a value made of two quantities, for the repeats that have both."""
    first, second = (values_of(dataset, group, name, scope) for name in names)
    one, other = first.numbers, second.numbers
    both = {repeat: made(one[repeat], other[repeat]) for repeat in one.keys() & other.keys()}
    return Values(both, worst((first.origin, second.origin)))


def _cuda_cores(dataset: Dataset, group: Group, scope: str, classes: Collection[str]) -> Values:
    return _combined(dataset, group, scope, ("fma_pipe_pct", "alu_pipe_pct"), max)


def _memory_over_sm(dataset: Dataset, group: Group, scope: str, classes: Collection[str]) -> Values:
    names = ("memory_throughput_pct", "sm_throughput_pct")
    return _combined(dataset, group, scope, names, lambda memory, sm: memory - sm)


def _step_per_cycles(dataset: Dataset, group: Group, scope: str, classes: Collection[str]) -> Values:
    """Return the time of an undisturbed step over the SM cycles of the profiled one, in s."""
    steps = values_of(dataset, group, "step_s", "median")
    cycles = values_of(dataset, group, quantities.CYCLES, scope)
    both = steps.numbers.keys() & cycles.numbers.keys()
    found = {repeat: steps.numbers[repeat] / cycles.numbers[repeat] for repeat in both if cycles.numbers[repeat] > 0}
    return Values(found, worst((steps.origin, cycles.origin)))


def _share(quantity: str) -> Callable[[Dataset, Group, str, Collection[str]], Values]:
    def share(dataset: Dataset, group: Group, scope: str, classes: Collection[str]) -> Values:
        whole = quantities.values_by_repeat(dataset, group, quantity, scope)
        part = quantities.values_by_repeat(dataset, group, quantity, scope, tuple(classes))
        shares = {repeat: 100 * part.get(repeat, 0.0) / total for repeat, total in whole.items() if total > 0}
        return Values(shares, worst(quantities.origins(dataset, group, quantity, scope)))

    return share


def _tables(
    dataset: Dataset, group: Group, stage: str, table: str, columns: list[str]
) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yield the repeats of a group with some columns of one of their tables, one at a time."""
    import pyarrow.parquet as pq

    own = type(dataset)(replace(dataset.survey, cells=group.cells))
    for cell, path in own.files(stage, table):
        texts = [name for name in columns if name in _TEXTS]  # a million names are a few hundred, held once each
        yield cell.repeat, pq.read_table(path, columns=columns, read_dictionary=texts, partitioning=None).to_pandas()


def _from_launches(made: Callable[[pd.DataFrame], Known]) -> Callable[[Dataset, Group, str, Collection[str]], Values]:
    """Return a quantity made from each census's launches: step, start_ns, name and class."""

    def of(dataset: Dataset, group: Group, scope: str, classes: Collection[str]) -> Values:
        columns = ["step", "start_ns", "name", "class"]
        found = {repeat: made(rows) for repeat, rows in _tables(dataset, group, "census", "launches", columns)}
        return Values(found, worst(quantities.origins(dataset, group, "launches", quantities.STEP)))

    return of


def _alternation_pct(launches: pd.DataFrame) -> float:
    """Return how many of the launches follow one of the other kind, compute or memory, in percent."""
    inside = launches[launches["step"] >= 0].sort_values(["step", "start_ns"])
    is_compute = inside["class"].isin(COMPUTE).to_numpy()
    return float(100 * (is_compute[1:] != is_compute[:-1]).mean()) if len(is_compute) > 1 else 0.0


def _kernel_names(launches: pd.DataFrame) -> str:
    """Return a short sum over the names of all kernels of the steps: equal where the same kernels ran."""
    names = sorted(launches.loc[launches["step"] >= 0, "name"].astype(str).unique())
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:_SHORT_SUM]


def _estimated_launches(dataset: Dataset, group: Group, scope: str, classes: Collection[str]) -> Values:
    """Return how many of the profiled launches carry a global estimate in the report itself, in percent."""
    found: dict[int, Known] = {}
    columns = ["report", "launch", "speedup_kind", "origin"]
    for repeat, rules in _tables(dataset, group, "counters", "rules", columns):
        known = rules[(rules["origin"] == "report") & (rules["speedup_kind"] == "global")]
        profiled = quantities.values_by_repeat(dataset, group, "profiled_launches").get(repeat, 0.0)
        if profiled > 0:
            found[repeat] = float(min(100.0, 100 * len(known[["report", "launch"]].drop_duplicates()) / profiled))
    return Values(found, worst(quantities.origins(dataset, group, "profiled_launches")))


def _provenance(name: str) -> Callable[[Dataset, Group, str, Collection[str]], Values]:
    """Return a fact of the run that a stage's provenance tells, for the stages train and census."""

    def of(dataset: Dataset, group: Group, scope: str, classes: Collection[str]) -> Values:
        found: dict[int, Known] = {}
        origins = set()
        for cell, stage, manifest in dataset.manifests:
            told = manifest.get("provenance") or {}
            if (cell.gpu, cell.config) == (group.gpu, group.config) and stage.state == "done" and told.get(name):
                found.setdefault(cell.repeat, fact(name, told[name]))
                origins.add(CRAFTED if told.get("origin") == CRAFTED else MEASURED)
        return Values(found, worst(origins))

    return of


def fact(name: str, told: Any) -> str:
    """Return a version as people write it: torch without its local label, cuDNN's 8902 as 8.9.2."""
    if name == "image_sha256":
        return str(told)[:_SHORT_SUM]
    text = str(told).partition("+")[0] if name == "torch" else str(told)
    if name == "cudnn" and text.isdigit():
        number = int(text)
        # cudnn.h: major * 1000 + minor * 100 + patch before version 9, major * 10000 + minor * 100 + patch from it on
        major = number // 10000 if number >= 90000 else number // 1000
        return f"{major}.{number % 1000 // 100 if number < 90000 else number % 10000 // 100}.{number % 100}"
    return text


def _setting(told: Callable[[Workload], Known]) -> Callable[[Dataset, Group, str, Collection[str]], Values]:
    """Return a setting that trained cells were trained with: their keys cover it."""

    def of(dataset: Dataset, group: Group, scope: str, classes: Collection[str]) -> Values:
        study = dataset.survey.study
        trained = values_of(dataset, group, "step_s", "median")
        gpu = study.gpus.get(group.gpu)
        if gpu is None:
            return NOTHING
        return Values(dict.fromkeys(trained.by_repeat, told(study.workloads[gpu.workload])), trained.origin)

    return of


def _architecture(dataset: Dataset, group: Group, scope: str, classes: Collection[str]) -> Values:
    """Return the architecture of the device: a stage refuses a device that is not the one its gpu names."""
    trained = values_of(dataset, group, "step_s", "median")
    gpu = dataset.survey.study.gpus.get(group.gpu)
    return Values(dict.fromkeys(trained.by_repeat, gpu.architecture), trained.origin) if gpu else NOTHING


def _published_hours(dataset: Dataset, group: Group, scope: str, classes: Collection[str]) -> Values:
    """Return the hours that the published number of iterations would take at the measured step: a model."""
    steps = values_of(dataset, group, "step_s", "median").numbers
    hours = {repeat: step * PUBLISHED_ITERATIONS / _S_PER_HOUR for repeat, step in steps.items()}
    return Values(hours, MODELLED)


Derived = Callable[["Dataset", "Group", str, Collection[str]], Values]

DERIVED: Mapping[str, Derived] = {
    "cuda_core_pct": _cuda_cores,
    "memory_over_sm_pct": _memory_over_sm,
    "step_per_cycles": _step_per_cycles,
    "time_share_pct": _share("class_time_ns"),
    "launch_share_pct": _share("class_launches"),
    "alternation_pct": _from_launches(_alternation_pct),
    "kernel_names": _from_launches(_kernel_names),
    "estimated_launches_pct": _estimated_launches,
    "architecture": _architecture,
    "torch_version": _provenance("torch"),
    "cuda_version": _provenance("cuda"),
    "cudnn_version": _provenance("cudnn"),
    "ncu_version": _provenance("ncu"),
    "image_sha256": _provenance("image_sha256"),
    "trained_iterations": _setting(lambda workload: float(workload.train.iterations)),
    "batch_size": _setting(lambda workload: float(workload.train.batch_size)),
    "volume": _setting(lambda workload: "x".join(map(str, workload.model.volume))),
    "timesteps": _setting(lambda workload: float(workload.train.timesteps)),
    "ddim_steps": _setting(lambda workload: float(workload.quality.ddim_steps)),
    "published_training_hours": _published_hours,
}
"""Quantities made here. ``docs/claims.md`` says what each is; a test holds the two together."""

EXACT = frozenset(("trained_iterations", "batch_size", "timesteps", "ddim_steps"))
"""Settings: exact with a single repeat already."""

UNITS: Mapping[str, str] = {
    "cuda_core_pct": "%", "memory_over_sm_pct": "% points", "time_share_pct": "%", "launch_share_pct": "%",
    "alternation_pct": "%", "estimated_launches_pct": "%", "published_training_hours": "h",
}  # fmt: skip
