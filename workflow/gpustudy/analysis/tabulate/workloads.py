"""One row for each workload that a gpu of the study trains, and where it differs from the published one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpustudy.analysis.tables import Column, Content, Value
from gpustudy.study.models import Model, Train

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset
    from gpustudy.study.models import Workload

COLUMNS = (
    Column("workload", ("workload",)),
    Column("GPUs", ("gpus",)),
    Column("data", ("data",), is_printed=False),
    Column("volume", ("volume",)),
    Column("channels", ("channels",)),
    Column("batch", ("batch_size",), is_number=True),
    Column("micro-batches", ("accumulation",), is_number=True),
    Column("steps (warm-up)", ("iterations", "warmup_iterations"), is_number=True),
    Column("timesteps", ("timesteps",), is_number=True),
    Column("census steps", ("census_iterations",), is_number=True),
    Column("counters", ("counters",), is_printed=False),
    Column("samples (DDIM steps)", ("samples", "ddim_steps"), is_number=True),
    Column("beside the published", ("difference_to_published",), is_long=True),
)


def content(dataset: Dataset) -> Content:
    """Return columns and rows, in the order of the study."""
    study = dataset.survey.study
    trained: dict[str, list[str]] = {}
    for name in dataset.gpus:
        if name in study.gpus:
            trained.setdefault(study.gpus[name].workload, []).append(name)
    return COLUMNS, tuple(
        _row(study.workloads[name], name, gpus, any(study.gpus[gpu].device == "cuda" for gpu in gpus))
        for name, gpus in trained.items()
    )


def _row(workload: Workload, name: str, gpus: list[str], on_gpu: bool) -> tuple[Value, ...]:
    model, train, counters, quality = workload.model, workload.train, workload.counters, workload.quality
    each = counters.launches_per_stratum
    return (
        Value(name),
        Value(", ".join(gpus)),
        Value(workload.data),
        Value("x".join(map(str, model.volume))),
        Value("-".join(str(model.base_channels * factor) for factor in model.channel_mult)),
        _whole(train.batch_size),
        _whole(train.accumulation),
        Value(
            f"{train.iterations} ({train.warmup_iterations})", (float(train.iterations), float(train.warmup_iterations))
        ),
        _whole(train.timesteps),
        _whole(workload.census.iterations),
        Value(
            f"{'all' if each is None else f'{each} of each kind'}, caches {counters.cache_control}"
            if on_gpu
            else "none"
        ),
        Value(f"{quality.samples} ({quality.ddim_steps})", (float(quality.samples), float(quality.ddim_steps))),
        Value(_difference(workload)),
    )


def _whole(value: int) -> Value:
    return Value(str(value), (float(value),))


def _difference(workload: Workload) -> str:
    """Say where a workload differs from the published whole-head one, whose values are the models' defaults."""
    published: dict[str, Any] = Model().model_dump() | Train().model_dump()
    here = workload.model.model_dump() | workload.train.model_dump()
    texts = [f"{name} {_short(here[name])} instead of {_short(value)}" for name, value in published.items()
             if here[name] != value and name != "warmup_iterations"]  # fmt: skip
    return "; ".join(texts) or "as published"


def _short(value: Any) -> str:
    return (
        "-".join(map(str, value))
        if isinstance(value, list)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
