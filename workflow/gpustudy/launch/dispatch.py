"""Whether this call of Snakemake may run jobs at the site: its executor, its profile, its account, its limits.

Snakemake says nothing of its executor to a Snakefile, so its own parser reads the command line and the profile again.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpustudy.base.errors import UserError
from gpustudy.base.words import nearest
from gpustudy.launch.building import require_buildable
from gpustudy.launch.own import require_account
from gpustudy.launch.requests import Requests
from gpustudy.study.cells import Cell
from gpustudy.study.load import DEFAULT_SITE, ROOT, Effective, read_yaml
from gpustudy.study.states import Survey

_PROFILES = ROOT / "workflow/profiles"
WRAPPERS = _PROFILES / "bin"
"""Wrappers of Slurm's programs that mend what Snakemake's plugin takes wrongly."""


@dataclass(frozen=True)
class Call:
    """What this call of Snakemake asked for, its profile included.

    Attributes:
        executor: name of Snakemake's executor.
        profiles: the profiles as they were named, without those of Snakemake's environment variable.
        limits: upper limits by resource.
        targets: what is to be made; empty for everything.
        start: the folder in which Snakemake was called, from which it looks for profiles.
    """

    executor: str
    profiles: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    start: Path = ROOT


def read_call(arguments: Sequence[str]) -> Call | None:
    """Return what ``arguments`` of Snakemake's command line ask for; None where this is no such command line."""
    start = Path.cwd()
    parsed = _parsed(arguments, start)
    if parsed is not None and parsed.directory is not None:
        start = _called_in(Path(parsed.directory))
        parsed = _parsed(arguments, start)
    if parsed is None:
        return None
    limits = {name: resource.value for name, resource in parsed.resources.items() if isinstance(resource.value, int)}
    targets = tuple(map(str, parsed.targets or ()))
    return Call(parsed.executor or "local", tuple(parsed.profile or ()), limits, targets, start)


def _parsed(arguments: Sequence[str], start: Path) -> Namespace | None:
    """Return what Snakemake's own parser makes of ``arguments`` given in the folder ``start``."""
    from snakemake.cli import parse_args

    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.chdir(start):
            parsed: Namespace = parse_args(list(arguments))[1]
    except SystemExit:
        return None
    return parsed


def _called_in(directory: Path) -> Path:
    """Return the folder in which Snakemake was called with ``--directory``, to which it has gone since.

    The shell's PWD tells, where it leads to the present folder; else that one is taken.
    """
    here = Path.cwd()
    said = Path(os.environ.get("PWD", here))
    return said if said.is_dir() and (said / directory).resolve() == here.resolve() else here


def site_of_profile(profile: str, named: str | None = None) -> str:
    """Return the site that a profile names; the profile is found as Snakemake finds it from the root of the checkout.

    Args:
        profile: name or folder of the profile.
        named: a site that was named beside it.

    Raises:
        UserError: there is no such profile, it names no site, or another one than ``named``.
    """
    path = Path(profile) / "config.yaml"
    if not path.is_file():
        known = [found.parent.name for found in ROOT.glob("workflow/profiles/*/config.yaml")]
        raise UserError(f"there is no profile '{profile}' here: {nearest(profile, known)}")
    entries = read_yaml(path).get("config", [])
    sites = [str(entry).removeprefix("site=") for entry in entries if str(entry).startswith("site=")]
    if not sites:
        raise UserError(f"{path} names no site: add 'config: [site=NAME]'.")
    if named not in (None, sites[-1]):
        raise UserError(f"profile '{profile}' is for site '{sites[-1]}', not '{named}': name one of the two.")
    return sites[-1]


def check_call(effective: Effective, call: Call) -> None:
    """Refuse a site that does not fit the executor, or is not the one that the profile is named after.

    Raises:
        UserError: naming both.
    """
    site = effective.site
    for profile in call.profiles:
        name = Path(profile).name
        is_own = (call.start / profile).resolve() == (_PROFILES / name).resolve()
        if name == profile and (_PROFILES / name).is_dir() and not is_own:
            raise UserError(
                f"profile '{profile}' was read from elsewhere, not from this checkout: run from {ROOT}, or name the "
                f"other one by its folder."
            )
        if name in effective.study.sites and name != site:
            raise UserError(
                f"profile '{profile}' is for site '{name}', this call chose site '{site}': --config on the command "
                f"line replaces the profile's own, so add site={name} to it, or use --configfile for the values."
            )
    wanted = effective.study.sites[site].executor
    if wanted == call.executor:
        return
    if site == DEFAULT_SITE and not call.profiles:
        others = ", ".join(name for name, other in effective.study.sites.items() if other.executor == call.executor)
        raise UserError(
            f"executor '{call.executor}' without a profile is for no site: site '{site}' runs with executor "
            f"'{wanted}'; choose a profile of {others or 'your own'}."
        )
    hint = f"run 'snakemake --profile {site}'" if (ROOT / site / "config.yaml").exists() else "correct the profile"
    raise UserError(
        f"site '{site}' runs with executor '{wanted}', this call has executor '{call.executor}': {hint}; to look at "
        f"the study from there, 'gpustudy plan --site {site}'."
    )


def check_run(effective: Effective, requests: Requests, seen: Survey, call: Call, submits: bool) -> None:
    """Refuse a run whose cells ask for more than they are granted, or whose account is not known.

    Args:
        effective: the study as seen from the site.
        requests: what its cells ask for.
        seen: the states of all cells.
        call: this call of Snakemake.
        submits: False for a dry run, which needs no account.

    Raises:
        UserError: in one sentence.
    """
    waiting = list(_pending(seen, call.targets))
    requests.check(waiting, call.limits)
    if not submits or not waiting:
        return
    if requests.is_slurm:
        require_account(effective.study, effective.site)
        _require_sbatch(effective.site)
    require_buildable(effective, {cell.gpu for cell, _ in waiting})


def _require_sbatch(site: str) -> None:
    """Refuse a run that would submit where there is no Slurm, such as a laptop."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if shutil.which("sbatch", path=os.pathsep.join(name for name in folders if Path(name) != WRAPPERS)) is None:
        raise UserError(
            f"site {site} submits with sbatch, and there is none on PATH: run on a login node of the site, with its "
            f"Slurm module loaded, or look at the study from here with 'gpustudy plan --site {site}'."
        )


def _pending(seen: Survey, targets: Sequence[str]) -> Iterable[tuple[Cell, list[str]]]:
    """Yield the cells that would run here, each with its stages that are not current.

    Targets other than gpus and configs, such as figures, may need any cell.
    """
    here = seen.study.sites[seen.site].gpus
    names_cells = bool(targets) and all(name in seen.study.gpus or name in seen.study.configs for name in targets)
    for state in seen.cells:
        if names_cells and not {state.gpu, state.config} & set(targets):
            continue
        stages = [stage.stage for stage in state.stages if stage.raw is None and stage.metrics is None]
        if state.gpu in here and stages:
            yield state.cell, stages


def put_wrappers_first() -> None:
    """Let this process find the wrappers of Slurm's programs before the programs themselves."""
    if WRAPPERS.is_dir():
        os.environ["PATH"] = os.pathsep.join([str(WRAPPERS), os.environ.get("PATH", os.defpath)])
    if "SLURM_CONF" in os.environ:  # the plugin drops it in jobs; the wrappers put it back
        os.environ["GPUSTUDY_SLURM_CONF"] = os.environ["SLURM_CONF"]
