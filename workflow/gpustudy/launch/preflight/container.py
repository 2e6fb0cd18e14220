"""The check that says most: a program inside the stack's own image, started as a stage is, tells what it finds."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError
from gpustudy.launch.containers import ContainerJob, container_command
from gpustudy.launch.devices import VISIBLE
from gpustudy.launch.images import require_key, usable_image, wanted_image
from gpustudy.launch.preflight.checks import Finding, Place, failed, passed, skipped, warned
from gpustudy.launch.runtimes import find_runtime, host_environment, scratch_folder
from gpustudy.study.load import ROOT
from gpustudy.study.stacks import CHECKED_PACKAGES, read_pins

TRIAL_TIMEOUT_S = 25.0
"""Seconds for the trial: importing torch from an image on a parallel file system that is cold takes most of them."""
_TIMED_OUT = 124

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
"""What the trial runs: versions, one operation on the device, Nsight Compute."""


def check_container(place: Place, stack: str) -> Finding:
    """Whether a stack's image starts here, has the pinned versions, and reaches the GPU."""
    if place.site.runtime == "none":
        return skipped("Cells run in this environment, without a container.")
    wanted = wanted_image(place.effective, stack)
    if not wanted.path.exists():
        return skipped(f"{wanted.path} is not there yet.")
    try:
        runtime = find_runtime(wanted.kind, place.site, wanted.site, place.runner)
    except UserError:
        return skipped(f"There is no {wanted.kind} here.")
    if wanted.kind == "docker":
        reference = usable_image(wanted, runtime, place.runner).reference
    else:
        require_key(wanted, wanted.path)
        reference = str(wanted.path.resolve())
    scratch = scratch_folder(place.effective, place.environment)
    uses_gpu = any(gpu.stack == stack for gpu in place.cuda_gpus.values())
    chosen = {VISIBLE: place.environment[VISIBLE]} if VISIBLE in place.environment else {}
    with tempfile.TemporaryDirectory(prefix="gpustudy-preflight-", dir=scratch) as home:
        job = ContainerJob(reference, ("python", "-c", _LOOK), (), Path(home), chosen, uses_gpu)
        started = container_command(runtime, job)
        variables = host_environment(runtime, scratch, place.environment) | started.environment
        pairs = [f"{name}={value}" for name, value in variables.items()]
        answer = place.runner(["env", "-i", *pairs, *started.command], TRIAL_TIMEOUT_S)
        if started.undo and answer.code:
            place.ask(*started.undo)
    if answer.code == _TIMED_OUT:
        return warned(
            f"The image did not start within {TRIAL_TIMEOUT_S:.0f} s: its file system is slow or cold; try again."
        )
    try:
        found: dict[str, Any] = json.loads(answer.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return failed(f"The image does not start here as a stage would: {answer.complaint}.")
    return _judged(place, stack, found, uses_gpu, answer.complaint)


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
