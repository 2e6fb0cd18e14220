"""Checks of software: Snakemake and its executor, the container runtime, the images, Nsight Compute."""

from __future__ import annotations

import re
import shutil
from importlib import metadata
from pathlib import Path

from gpustudy.base.errors import UserError
from gpustudy.launch.building import require_buildable
from gpustudy.launch.images import require_key, usable_image, wanted_image
from gpustudy.launch.preflight.checks import FAIL, Finding, Place, failed, passed, sentence_of, skipped, warned
from gpustudy.launch.runtimes import find_runtime
from gpustudy.study.load import ROOT
from gpustudy.study.stacks import read_pins

_EXECUTORS = {"slurm": "snakemake-executor-plugin-slurm"}
_HOST_PINS = Path("envs/host.txt")


def check_host_software(place: Place) -> Finding:
    """Whether Snakemake and the site's executor plugin are installed, as pinned."""
    text = (ROOT / _HOST_PINS).read_text(encoding="utf-8")
    packages = ["snakemake", *(name for key, name in _EXECUTORS.items() if key == place.site.executor)]
    found = {}
    for package in packages:
        version = _installed(package)
        if version is None:
            return failed(f"{package} is not installed here: pip install -r {_HOST_PINS}.")
        found[package] = version
    others = [name for name, version in found.items() if f"\n{name}=={version}\n" not in f"\n{text}"]
    if others:
        told = ", ".join(f"{name} {found[name]}" for name in others)
        return warned(f"{told} is not what {_HOST_PINS} pins, which is what the project is tried with.")
    return passed(", ".join(f"{name} {version}" for name, version in found.items()) + ".")


def check_runtime(place: Place) -> Finding:
    """Whether the container runtime is here, on PATH or by the site's module, and works."""
    kind, module = place.site.runtime, place.site.container_module
    if kind == "none":
        return skipped("Cells run in this environment, without a container.")
    try:
        runtime = find_runtime(kind, place.site, place.effective.site, place.runner)
    except UserError as error:
        hint = f"; 'module load {module}' does not bring it" if module else ""
        return failed(sentence_of(error), f"How do we get {kind} on the nodes that run our jobs{hint}?")
    if kind == "docker":
        daemon = place.ask(runtime.program, "version", "--format", "{{.Server.Version}}")
        if daemon.code:
            return failed(
                f"Docker's daemon does not answer ({daemon.complaint}): start it, or join its group and log in again.",
                "Please add our user to the group 'docker' of the machine.",
            )
    is_on_path = shutil.which(Path(runtime.program).name) is not None
    return passed(f"{runtime.program}: {runtime.version}{'' if is_on_path else f', by the module {module}'}.")


def check_runtime_later(place: Place) -> Finding:
    """On a login node, where the runtime may be absent although compute nodes have it."""
    found = check_runtime(place)
    if found.level != FAIL:
        return found
    return warned(
        f"{place.site.runtime} does not work on this login node, which may be as the site wants it: cells run on "
        f"compute nodes. --in-job looks there. {found.sentence}"
    )


def check_image(place: Place, stack: str) -> Finding:
    """Whether a stack's image is there, whole, and built for the present recipe and pins; else whether it can be.

    Raises:
        UserError: it is damaged, or a run would be refused as it cannot be built for want of an argument.
    """
    if place.site.runtime == "none":
        return skipped("Cells run in this environment, without a container.")
    wanted = wanted_image(place.effective, stack)
    if not wanted.path.exists():
        require_buildable(
            place.effective, (name for name, gpu in place.gpus.items() if gpu.stack == stack), place.environment
        )
        return warned(
            f"{wanted.path} is not there: the workflow builds it before the first cell, or 'gpustudy image import "
            f"{stack} FILE --site {wanted.site}' takes one built elsewhere (see docs/containers.md)."
        )
    if wanted.kind == "docker":
        usable_image(wanted, find_runtime("docker", place.site, wanted.site, place.runner), place.runner)
    else:
        require_key(wanted, wanted.path)  # its sum is compared when a stage starts: gigabytes take more than 30 s
    return passed(f"{wanted.path} is there, whole, and built for key {wanted.key}.")


def check_ncu(place: Place) -> Finding:
    """Whether Nsight Compute is there, of the version asked for: on the node, or in the image."""
    if place.site.runtime != "none":
        return skipped("The image brings its own ncu (see the row on the container).")
    answer = place.ask("ncu", "--version")
    if answer.is_absent:
        return warned(
            "ncu is not on PATH: cells will have times and census, their counters will be 'unavailable (no-ncu)'; "
            "load the site's Nsight Compute or CUDA module.",
        )
    version = re.search(r"^Version (\d+(?:\.\d+)*)", answer.out, re.MULTILINE)
    if answer.code or version is None:
        return warned(f"ncu does not run ({answer.complaint}): mend the installation.")
    study = place.effective.study
    asked = {study.workloads[gpu.workload].counters.ncu_version for gpu in place.cuda_gpus.values()} - {None}
    wrong = sorted(text for text in asked if text and not f"{version[1]}.".startswith(f"{text}."))
    if wrong:
        return warned(f"ncu is version {version[1]}, workload.counters.ncu_version asks for {', '.join(wrong)}.")
    return passed(f"ncu {version[1]} is on PATH.")


def check_pins(place: Place, stack: str) -> Finding:
    """Without a container: whether torch and numpy of this environment are those that the stack pins."""
    if place.site.runtime != "none":
        return skipped("The image brings the stack's packages.")
    pins = read_pins(ROOT / place.effective.study.stacks[stack].pins)
    for package in ("torch", "numpy"):
        version = (_installed(package) or "none").split("+")[0]
        if pins.get(package, version) != version:
            return failed(
                f"{package} {version} is installed, stack {stack} pins {pins[package]}: cells would refuse to run; "
                f"pip install -r {place.effective.study.stacks[stack].pins}.",
            )
    return passed(f"torch and numpy are those that stack {stack} pins.")


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
