"""Checks of the machine that cells run on: cores, memory, and whether Slurm starts a step there."""

from __future__ import annotations

import os
import re

from gpustudy.launch.preflight.checks import Finding, Place, failed, passed, skipped, warned
from gpustudy.launch.requests import MIB_PER_GIB, Requests
from gpustudy.study.cells import Keys

_AVAILABLE = re.compile(r"^MemAvailable:\s*(\d+) kB", re.MULTILINE)
_KIB_PER_MIB = 1024


def check_cores(place: Place) -> Finding:
    """Whether this process may use as many cores as a cell asks for."""
    here = len(os.sched_getaffinity(0))
    requests = Requests(place.effective)
    wanted = max((requests.cores(gpu) for gpu in place.gpus), default=1)
    if here < wanted:
        return warned(
            f"{here} cores may be used here, a cell asks for {wanted}: loading data may hold the GPU up, and a CPU's "
            "times are those of fewer threads.",
        )
    return passed(f"{here} cores may be used, a cell asks for {wanted}.")


def check_memory(place: Place) -> Finding:
    """Whether the machine has the host memory that a cell needs."""
    found = _AVAILABLE.search(place.read("/proc/meminfo") or "")
    if found is None:
        return skipped("/proc/meminfo does not tell.")
    requests, keys = Requests(place.effective), Keys(place.effective)
    needs = {
        gpu: max(requests.estimate(gpu, stage).memory_gib_asked for stage in keys.stages(gpu)) for gpu in place.gpus
    }
    gpu = max(needs, key=lambda name: needs[name])
    available_gib = int(found[1]) / _KIB_PER_MIB / MIB_PER_GIB
    if available_gib < needs[gpu]:
        return failed(
            f"{available_gib:.0f} GiB of host memory are free, a {gpu} cell needs about {needs[gpu]} GiB (modelled): "
            "free some, or ask for more.",
        )
    return passed(f"{available_gib:.0f} GiB of host memory are free, a {gpu} cell needs about {needs[gpu]} (modelled).")


def check_step(place: Place) -> Finding:
    """Whether srun starts a step inside the job, as Snakemake's executor does for every cell."""
    if place.site.executor != "slurm" or "SLURM_JOB_ID" not in place.environment:
        return skipped("Not in a job of Slurm's.")
    answer = place.ask("srun", "--ntasks=1", "--nodes=1", "true")
    if answer.code:
        return failed(
            f"srun starts no step inside the job ({answer.complaint}): Snakemake's executor needs it; run the workflow "
            "inside one job instead, with a profile whose executor is local.",
            f"Inside a batch job, 'srun --ntasks=1 true' fails with '{answer.complaint}'; may jobs use srun?",
        )
    return passed("srun starts a step inside the job.")
