"""Trials: programs started as stages are, in the stack's own image, tell what no setting can.

One says which versions are there and whether torch reaches the GPU; the other profiles one kernel. They use the GPU, so
that they come after the checks that look whether anybody does.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError
from gpustudy.launch.containers import INSIDE, TEMPORARY, ContainerJob, Mount, container_command
from gpustudy.launch.devices import VISIBLE
from gpustudy.launch.images import Image, require_key, usable_image, wanted_image
from gpustudy.launch.preflight.checks import Finding, Place, failed, passed, skipped, warned
from gpustudy.launch.runtimes import Runtime, find_runtime, host_environment, scratch_folder
from gpustudy.launch.tools import Answer
from gpustudy.study.load import ROOT
from gpustudy.study.models import Gpu
from gpustudy.study.stacks import CHECKED_PACKAGES, read_pins

LOOK_TIMEOUT_S = 25.0
"""Seconds for the look: importing torch from an image on a parallel file system that is cold takes most of them."""
COUNTERS_TIMEOUT_S = 150.0
"""Seconds for the trial of counters: two imports of torch, and ncu's own start."""
_TIMED_OUT = 124
_FOR_THE_SITE = ("permission", "driver-busy", "driver", "profiler-library", "clock-control")
"""Reasons that only a site's administrators can change; the others are ours, such as an image without ncu."""

_LOOK = """
import json, shutil, subprocess
import numpy, torch
found = {"torch": torch.__version__, "numpy": numpy.__version__, "cuda": torch.version.cuda}
found |= {"device": None, "ncu": None}
if torch.cuda.is_available():
    found["device"] = torch.cuda.get_device_name(0)
    torch.ones(1, device="cuda").add_(1).item()
if shutil.which("ncu"):
    lines = subprocess.run(["ncu", "--version"], capture_output=True, text=True).stdout.splitlines()
    found["ncu"] = next((line.split()[1] for line in lines if line.startswith("Version ")), None)
print(json.dumps(found))
"""
"""What the look runs: versions, one operation on the device, Nsight Compute."""


def check_container(place: Place, stack: str) -> Finding:
    """Whether a stack's image starts here, has the pinned versions, and reaches the GPU."""
    if place.site.runtime == "none":
        return skipped("Cells run in this environment, without a container.")
    ready = _ready(place, stack)
    if isinstance(ready, Finding):
        return ready
    uses_gpu = any(gpu.stack == stack for gpu in place.cuda_gpus.values())
    answer = _run(place, *ready, ("python", "-c", _LOOK), uses_gpu, LOOK_TIMEOUT_S)
    if answer.code == _TIMED_OUT:
        return warned(
            f"The image did not start within {LOOK_TIMEOUT_S:.0f} s: its file system is slow or cold; try again."
        )
    found = _last_json(answer)
    if found is None:
        return failed(f"The image does not start here as a stage would: {answer.complaint}.")
    return _judged(place, stack, found, uses_gpu, answer.complaint)


def check_counters(place: Place, gpu: Gpu) -> Finding:
    """Whether Nsight Compute profiles one kernel here, clocks locked as the config asks."""
    counters = place.effective.study.workloads[gpu.workload].counters
    words = ["-m", "gpustudy.cell.counter_trial", "--clock-control", counters.clock_control]
    words += ["--ncu-version", counters.ncu_version] if counters.ncu_version else []
    if place.site.runtime == "none":
        variables = [f"PYTHONPATH={ROOT / 'workflow'}"]
        answer = place.runner(["env", *variables, sys.executable, *words], COUNTERS_TIMEOUT_S)
    else:
        ready = _ready(place, gpu.stack)
        if isinstance(ready, Finding):
            return ready
        answer = _run(place, *ready, ("python", *words), True, COUNTERS_TIMEOUT_S, reads_counters=True)
    found = _last_json(answer)
    if found is None:
        return warned(f"The trial of counters came to no end ({answer.complaint}): the counters stage will tell.")
    if found.get("state") == "done":
        return passed(f"ncu {found['ncu']} profiled a kernel, clocks {counters.clock_control}: counters can be read.")
    return warned(
        f"Counters cannot be had here ({found['reason']}): {found['detail']} Cells will have times and census, and the "
        "report will say why counters are absent.",
        f"Nsight Compute cannot read GPU performance counters in our jobs: {found['detail']} Could you help?"
        if found["reason"] in _FOR_THE_SITE
        else "",
    )


def _ready(place: Place, stack: str) -> tuple[Runtime, Image] | Finding:
    """Return runtime and image to start, or why there is nothing to try; the image's sum is left to the first stage."""
    wanted = wanted_image(place.effective, stack)
    if not wanted.path.exists():
        return skipped(f"{wanted.path} is not there yet.")
    try:
        runtime = find_runtime(wanted.kind, place.site, wanted.site, place.runner)
    except UserError:
        return skipped(f"There is no {wanted.kind} here.")
    if wanted.kind == "docker":
        return runtime, usable_image(wanted, runtime, place.runner)
    require_key(wanted, wanted.path)
    return runtime, Image(str(wanted.path.resolve()), "")


def _run(
    place: Place,
    runtime: Runtime,
    image: Image,
    words: Sequence[str],
    uses_gpu: bool,
    timeout_s: float,
    reads_counters: bool = False,
) -> Answer:
    """Start a program in the image as a stage is started: clean environment, this checkout read only."""
    scratch = scratch_folder(place.effective, place.environment)
    variables = {"PYTHONPATH": f"{INSIDE}/workflow", "PYTHONDONTWRITEBYTECODE": "1"}
    variables |= {VISIBLE: place.environment[VISIBLE]} if VISIBLE in place.environment else {}
    with tempfile.TemporaryDirectory(prefix="gpustudy-preflight-", dir=scratch) as folder:
        home, temporary = Path(folder) / "home", Path(folder) / "tmp"
        home.mkdir()
        temporary.mkdir()
        mounts = (Mount(ROOT / "workflow", f"{INSIDE}/workflow"), Mount(temporary, TEMPORARY, writable=True))
        job = ContainerJob(image.reference, tuple(words), mounts, home, variables, uses_gpu, reads_counters)
        started = container_command(runtime, job)
        host = host_environment(runtime, scratch, place.environment) | started.environment
        pairs = [f"{name}={value}" for name, value in host.items()]
        answer = place.runner(["env", "-i", *pairs, *started.command], timeout_s)
        if started.undo and answer.code:
            place.ask(*started.undo)
    return answer


def _last_json(answer: Answer) -> dict[str, Any] | None:
    """Return what the program printed in its last line; None where it came to no end."""
    try:
        found = json.loads(answer.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return found if isinstance(found, dict) else None


def _judged(place: Place, stack: str, found: dict[str, Any], uses_gpu: bool, complaint: str) -> Finding:
    pins = read_pins(ROOT / place.effective.study.stacks[stack].pins)
    others = [
        f"{package} {found[package]} (pinned: {pins[package]})"
        for package in CHECKED_PACKAGES
        if package in pins and found[package].split("+")[0] != pins[package]
    ]
    if others:
        return failed(f"The image has other versions than stack {stack} pins: {', '.join(others)}; build it anew.")
    told = f"torch {found['torch']} (CUDA {found['cuda'] or 'none'})"
    if not uses_gpu:
        return passed(f"The image starts and has {told}.")
    if found["device"] is None:
        return failed(
            f"The image starts and has {told}, which finds no GPU ({complaint}): look at the rows on driver and GPU.",
            "In a container started with --nv, PyTorch finds no GPU; is NVIDIA's container support set up on the node?",
        )
    if found["ncu"] is None:
        return warned(f"The image starts and {told} uses {found['device']}, but it has no ncu: no counters.")
    return passed(f"The image starts, {told} uses {found['device']}, and ncu is {found['ncu']}.")
