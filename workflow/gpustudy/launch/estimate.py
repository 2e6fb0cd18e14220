"""How long a stage of a cell will take and how much host memory it needs, before it ever ran: modelled, not measured.

Time: the operations of the workload by formula over the peak rate of the device in float32, of which a fixed share is
taken to be reached. Faster configs (TF32, bfloat16) are not credited, so that the slowest fits. Every assumption is a
constant below; 'gpustudy plan' shows the time that was measured beside the estimate, where there is one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod

from gpustudy.launch.workload import forward_flops, step_flops, training_bytes
from gpustudy.study.cells import BYTES_PER_GIB
from gpustudy.study.models import Gpu, Mni152Data, Model, Site, Study, Workload
from gpustudy.study.peaks import peaks_of

REACHED_SHARE = 0.15
"""Share of the float32 peak that a whole step is taken to reach. Assumption, low on purpose: 3D convolutions in float32
reach more, normalisation, activation and attention's softmax reach almost nothing of it."""

CPU_FLOPS_PER_THREAD = 4e9
"""Operations per second and thread of a CPU on small 3D convolutions. Assumption, low on purpose: the demo's train
stage reached 10 GFLOP/s on the two threads of a development machine, its start included."""

START_S = 10.0
"""Seconds until a stage works: interpreter, libraries, data, checks. Assumption; some 3 s on a development machine."""

CONTAINER_START_S = 110.0
"""Seconds more in a container, whose image lies on a shared file system that other users load too. Assumption."""

PROFILER_SLOWDOWN = 3.0
"""Time of a step under the profiler over a plain one, writing the trace included. Assumption."""

LAYOUTS_STEPS = 10
"""Plain steps that the run for memory formats costs: every operator passes through Python. Assumption."""

REPLAY_PASSES = 40
"""Times that a chosen launch is run again to collect the catalogue's metrics. Assumption: it depends on the device."""

STRATA = 200
"""Kinds of launches (kernel, grid, block) in one step, of each of which a few are chosen. Assumption."""

LAUNCHES = 4000
"""Launches in one step, all of which are profiled where no number per stratum is set. Assumption."""

PASS_S = 0.01
"""Seconds that one pass costs beside the kernel: saving and restoring memory, flushing caches. Assumption."""

HOST_GIB = 6.0
"""Host memory of a CUDA process with its libraries and one trace. Assumption."""

CPU_HOST_GIB = 2.0
"""Host memory of a process that computes on the CPU, without the training itself. Assumption."""

MEMORY_MARGIN = 1.25
"""Host memory asked for over the estimate."""

TIME_MARGIN = 2.0
"""Minutes asked for over the estimate: a job that is cut off is lost, one that ends early costs nothing more."""

MINUTES_STEP = 5
"""Requests are rounded up to so many minutes."""

_FLOAT32_BYTES = 4


@dataclass(frozen=True)
class StageEstimate:
    """What one stage of one cell will take.

    Attributes:
        seconds: wall time.
        host_bytes: host memory.
        basis: what the time rests on, in a few words.
    """

    seconds: float
    host_bytes: float
    basis: str

    @property
    def minutes_asked(self) -> int:
        """Minutes to ask a scheduler for: the estimate with its margin, rounded up."""
        return MINUTES_STEP * math.ceil(self.seconds * TIME_MARGIN / 60 / MINUTES_STEP)

    @property
    def memory_gib_asked(self) -> int:
        """GiB of host memory to ask for: the estimate with its margin, rounded up."""
        return math.ceil(self.host_bytes * MEMORY_MARGIN / BYTES_PER_GIB)


def estimate_stage(study: Study, site: Site, gpu_name: str, stage: str) -> StageEstimate:
    """Estimate one stage of the cells of one gpu.

    A gpu whose peak rate is not known (see ``peaks.yaml``) takes the site's ``default_minutes``.
    """
    gpu = study.gpus[gpu_name]
    workload = study.workloads[gpu.workload]
    host_bytes = _host_bytes(study, gpu, workload, stage)
    rate, basis = _rate(gpu)
    if rate is None:
        return StageEstimate(site.default_minutes * 60 / TIME_MARGIN, host_bytes, basis)
    start_s = START_S + (CONTAINER_START_S if site.runtime != "none" else 0)
    return StageEstimate(start_s + _flops(workload, stage) / rate + _replay_s(workload, stage), host_bytes, basis)


def _rate(gpu: Gpu) -> tuple[float | None, str]:
    """Return the operations per second that a gpu is taken to reach, and what that rests on."""
    if gpu.device == "cpu":
        threads = gpu.threads or 1
        return CPU_FLOPS_PER_THREAD * threads, f"{CPU_FLOPS_PER_THREAD * threads / 1e9:g} GFLOP/s on {threads} threads"
    memory_bytes = None if gpu.memory_gib is None else gpu.memory_gib * BYTES_PER_GIB
    peaks = peaks_of(gpu.architecture, gpu.device_name, memory_bytes)
    if peaks is None or peaks.fp32 is None:
        return None, "the site's default_minutes, as no peak rate of this gpu is known"
    return peaks.fp32 * REACHED_SHARE, f"{REACHED_SHARE:.0%} of the float32 peak of {peaks.product}"


def _flops(workload: Workload, stage: str) -> float:
    """Return the operations of a stage; profiling is counted as the plain steps that take as long."""
    train, model = workload.train, workload.model
    step = step_flops(model, train.accumulation * train.batch_size)
    if stage == "train":
        return float(step * (train.warmup_iterations + train.iterations))
    if stage == "census":
        steps = workload.census.warmup_iterations + PROFILER_SLOWDOWN * workload.census.iterations
        return step * (steps + (LAYOUTS_STEPS if workload.census.layouts else 0))
    if stage == "counters":
        counters = workload.counters
        runs = 2 if counters.cache_control == "both" else 1
        return float(step * runs * (counters.warmup_iterations + REPLAY_PASSES * counters.iterations))
    quality = workload.quality
    return float(forward_flops(model) * quality.samples * quality.ddim_steps)


def _replay_s(workload: Workload, stage: str) -> float:
    """Return what the passes of the counters stage cost beside the kernels that they repeat."""
    if stage != "counters":
        return 0.0
    counters = workload.counters
    chosen = LAUNCHES if counters.launches_per_stratum is None else STRATA * counters.launches_per_stratum
    runs = 2 if counters.cache_control == "both" else 1
    return PASS_S * REPLAY_PASSES * runs * chosen * counters.iterations


def _host_bytes(study: Study, gpu: Gpu, workload: Workload, stage: str) -> float:
    """Return the host memory of a stage: the process, the data in the page cache, and what is computed there."""
    training = training_bytes(workload.model, workload.train.batch_size)
    held = _data_bytes(study, workload)
    if gpu.device == "cpu":
        return CPU_HOST_GIB * BYTES_PER_GIB + held + training
    if stage == "counters":  # replay may keep what a kernel overwrites on the host
        held += training
    if stage == "quality":
        held += 2 * workload.quality.samples * _volume_bytes(workload.model)
    return HOST_GIB * BYTES_PER_GIB + held


def _data_bytes(study: Study, workload: Workload) -> int:
    """Return the size of the prepared data; 0 where only the files tell how many volumes there are."""
    data = study.data[workload.data]
    count = data.count if isinstance(data, Mni152Data) else 0
    return count * _volume_bytes(workload.model)


def _volume_bytes(model: Model) -> int:
    """Return the size of one volume with its masks, float32."""
    return _FLOAT32_BYTES * (model.image_channels + model.mask_channels) * prod(model.volume)
