"""The container runtimes of this machine: found, told apart, and started without anything that the host adds."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpustudy.base.errors import UserError
from gpustudy.launch.own import stated_scratch
from gpustudy.launch.tools import Runner, ask
from gpustudy.study.load import Effective
from gpustudy.study.models import Site

Kind = Literal["apptainer", "docker"]

_PROGRAMS: Mapping[Kind, tuple[str, ...]] = {"apptainer": ("apptainer", "singularity"), "docker": ("docker",)}
"""Commands by which a runtime is known, the first that is on PATH is taken. SingularityPRO and older installations
have the second name alone."""

_PREFIXES = ("APPTAINER", "SINGULARITY")
_KEPT = ("CACHEDIR", "TMPDIR", "CONFIGDIR", "DOCKER_USERNAME", "DOCKER_PASSWORD")
"""Variables of Apptainer that say where it works and who the user is. All others change what a container sees: they
bind folders, set variables or choose libraries, and are dropped."""


@dataclass(frozen=True)
class Runtime:
    """A container runtime.

    Attributes:
        kind: apptainer stands for Singularity as well.
        program: path of its command.
        version: as it prints it.
    """

    kind: Kind
    program: str
    version: str

    @property
    def prefix(self) -> str:
        """Beginning of its own environment variables."""
        return "APPTAINER" if self.version.lower().startswith("apptainer") else "SINGULARITY"


def find_runtime(kind: Kind, site: Site, site_name: str, runner: Runner = ask) -> Runtime:
    """Return the runtime of a site.

    Args:
        kind: which.
        site: the site, for the module that brings the runtime.
        site_name: its name, for the sentence.
        runner: asks the runtime for its version.

    Raises:
        UserError: it is not on PATH, or does not run.
    """
    program = next((path for name in _PROGRAMS[kind] if (path := shutil.which(name))), None)
    if program is None and site.container_module:
        program = _from_module(kind, site.container_module, runner)
    if program is None:
        names = " nor ".join(_PROGRAMS[kind])
        todo = f"'module load {site.container_module}'" if site.container_module else f"install {kind}"
        raise UserError(
            f"cells of site {site_name} run in {kind}, and there is no {names} on PATH here: {todo} and run again, "
            "or run on a node that has it."
        )
    answer = runner([program, "--version"])
    if answer.code:
        raise UserError(f"{program} does not run ({answer.complaint}): mend the installation and run again.")
    return Runtime(kind, program, answer.out.strip().splitlines()[0] if answer.out.strip() else "unknown")


def scratch_folder(effective: Effective, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the fast folder for images and temporary files, as the person or the site states it.

    None where none is stated, or it is not here: a stage then works in the system's temporary folder
    ('gpustudy preflight' says what is wrong with it).
    """
    try:
        folder = stated_scratch(effective.study, effective.site, environment)
    except UserError:
        return None
    return folder if folder is not None and folder.is_dir() and os.access(folder, os.W_OK) else None


def _from_module(kind: Kind, module: str, runner: Runner) -> str | None:
    """Return the program that the site's module brings; None where it does not.

    A job starts with the modules of the login node, where the runtime may be missing on purpose.
    """
    tried = " || ".join(f"command -v {name}" for name in _PROGRAMS[kind])
    answer = runner(["bash", "-lc", f"module load {shlex.quote(module)} >&2 && {{ {tried}; }}"])
    lines = answer.out.split()
    return lines[-1] if answer.code == 0 and lines and Path(lines[-1]).is_absolute() else None


def host_environment(runtime: Runtime, scratch: Path | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which the runtime's own command is started.

    Args:
        runtime: the runtime.
        scratch: fast folder in which Apptainer keeps its cache and unpacks; None leaves its own choice.
        environment: of this process.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(_PREFIXES) or name.split("_", 1)[-1] in _KEPT
    }
    if runtime.kind == "apptainer" and scratch is not None:
        for name in ("CACHEDIR", "TMPDIR"):
            folder = scratch / "gpustudy-apptainer" / name.lower()
            if f"{runtime.prefix}_{name}" not in kept:
                folder.mkdir(parents=True, exist_ok=True)
                kept[f"{runtime.prefix}_{name}"] = str(folder)
    return kept
