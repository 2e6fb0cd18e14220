"""What happens once while the Snakefile is parsed: the config is checked, the folder is claimed, states are told."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from gpustudy.base.canonical import canonical_json
from gpustudy.base.errors import EXIT_USER_ERROR, UserError
from gpustudy.launch.dispatch import Call, check_call, check_run, put_wrappers_first, read_call
from gpustudy.launch.guard import announce_workflow
from gpustudy.launch.kept import begin_run, put_all_back
from gpustudy.launch.report_files import draw_for_report
from gpustudy.launch.requests import Requests
from gpustudy.launch.run_lock import hold_run_lock
from gpustudy.launch.slurm_jobs import SLURM_ACCOUNT, end_on_sigterm, guard_slurm_jobs
from gpustudy.launch.targets import check_targets
from gpustudy.study.load import CONFIG_FILE, EFFECTIVE_CONFIG, RESULTS, ROOT, Effective, effective, overlay, read_yaml
from gpustudy.study.mistakes import COMMAND_LINE, Layer
from gpustudy.study.workplan import Workplan

_NO_RUN = re.compile(
    r"-[A-Za-z]*n[A-Za-z]*|--(dry-?run|lint|list.*|summary|detailed-summary|report.*|dag|rulegraph|filegraph|d3dag"
    r"|unlock|cleanup-.*|touch|archive|generate-unit-tests|delete-.*|help|version)"
)
"""Options with which Snakemake runs no job."""

_DRY_RUN = re.compile(r"-[A-Za-z]*n[A-Za-z]*|--dry-?run")
"""Options with which Snakemake plans jobs and runs none."""

_ALL_JOBS = re.compile(
    r"--(lint|list.*|summary|detailed-summary|report.*|dag|rulegraph|filegraph|d3dag|archive|generate-unit-tests"
    r"|delete-.*|touch|cleanup-.*|force|forceall|forcerun(=.*)?)|-[A-Za-z]*[FfRtSD][A-Za-z]*"
)
"""Options that force jobs or are about all of them. Snakemake tells a Snakefile of none of them."""


_received: list[int] = []
"""Signals that asked this run to end."""


class SnakemakeWorkflow(Protocol):
    """What is used of Snakemake's ``workflow`` object."""

    is_main_process: bool
    overwrite_configfiles: Sequence[Path]


def begin(workflow: SnakemakeWorkflow, config: Mapping[str, Any]) -> tuple[Workplan, Requests]:
    """Check the config and this call; end the process with one sentence on a user's mistake.

    Args:
        workflow: Snakemake's workflow object.
        config: what ``--configfile``, ``--config`` and the profile laid over ``config.yaml``.

    Returns:
        What there is to do, and what it asks of the site.
    """
    _set_environment_of_jobs()
    words = sys.argv[1:]
    try:
        seen = _effective(workflow, config)
        if _is_slurm(seen):
            put_wrappers_first()
        call = _call(words) if workflow.is_main_process else None  # jobs of Slurm were checked before
        if call is not None:
            check_call(seen, call)
        if workflow.is_main_process:
            _claim_folder(seen, words)
        plan = Workplan(seen, whole=_concerns_all_jobs(words))
        requests = Requests(seen, in_job=not workflow.is_main_process)
        if _is_slurm(seen) and workflow.is_main_process:
            os.environ[SLURM_ACCOUNT] = requests.account
        if call is not None:
            check_targets(plan, call.targets)
            check_run(seen, requests, plan.survey, call, submits=not any(map(_DRY_RUN.fullmatch, words)))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR) from None
    except OSError as error:  # a folder that may not be read, a file system that went away
        place = error.filename or "a file"
        print(f"error: {place}: {error.strerror or error}; mend that and run again.", file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR) from None
    os.environ[EFFECTIVE_CONFIG] = canonical_json({**seen.study.model_dump(mode="json"), "site": seen.site})
    if workflow.is_main_process:
        is_asked = any(_NO_RUN.fullmatch(word) for word in words) or set(words) & set(plan.foreign_gpus)
        for note in [*plan.damaged_notes(), *(plan.foreign_notes() if is_asked else plan.foreign_summary())]:
            print(note, file=sys.stderr)
        draw_for_report(plan, words)
    return plan, requests


def on_start(requests: Requests) -> None:
    """Do what must come after Snakemake has set itself up, before its first job."""
    if requests.is_slurm:
        end_on_sigterm()
    for number in (signal.SIGINT, signal.SIGTERM):
        _note(number)


def _note(number: signal.Signals) -> None:
    """Keep in mind that a signal came, and do what is done at present when it comes."""
    handler = signal.getsignal(number)
    if not callable(handler):  # ignored, as below nohup
        return

    def noted(received: int, frame: FrameType | None) -> None:
        _received.append(received)
        handler(received, frame)

    signal.signal(number, noted)


def on_error() -> None:
    """Put right what Snakemake removes of a cell one of whose stages failed, and say what to do next."""
    put_all_back(RESULTS)
    if _received:
        print(
            "The run was interrupted: the next one goes on where it stopped; 'gpustudy plan' lists what is left to do.",
            file=sys.stderr,
        )
        return
    print(
        "A job failed: its message stands above and in the named log. 'gpustudy plan' lists what is left to do.",
        file=sys.stderr,
    )


def _call(arguments: Sequence[str]) -> Call | None:
    """Return this call of Snakemake where it plans or runs jobs; None where it only tells about the workflow."""
    tells = any(_NO_RUN.fullmatch(argument) and not _DRY_RUN.fullmatch(argument) for argument in arguments)
    return None if tells else read_call(arguments)


def _is_slurm(seen: Effective) -> bool:
    return seen.study.sites[seen.site].executor == "slurm"


def _concerns_all_jobs(arguments: Sequence[str]) -> bool:
    """Tell whether this call forces jobs, or is about all of them, so that current results take part."""
    return any(_ALL_JOBS.fullmatch(argument) for argument in arguments)


def _set_environment_of_jobs() -> None:
    """Let jobs run this checkout's package with this Python, whatever else is installed or first on PATH."""
    os.environ["PYTHONPATH"] = str(ROOT / "workflow")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    announce_workflow()


def _effective(workflow: SnakemakeWorkflow, config: Mapping[str, Any]) -> Effective:
    """Return the study that config.yaml, overlay files and the command line describe together."""
    layers: list[Layer] = [(CONFIG_FILE, read_yaml(CONFIG_FILE))]
    for path in workflow.overwrite_configfiles:
        shown = Path(os.path.relpath(path))
        if shown != CONFIG_FILE:
            layers.append((shown, read_yaml(path)))
    below: dict[str, Any] = {}
    for _, content in layers:
        below = overlay(below, content)
    # What the command line or the profile sets is known only merged with the files: what differs is laid on top.
    on_top = _beyond(config, below)
    return effective([*layers, (COMMAND_LINE, on_top)] if on_top else layers)


def _beyond(config: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of ``config`` that ``below`` does not have, mappings compared key by key."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if key in below and isinstance(value, Mapping) and isinstance(below[key], Mapping):
            if inner := _beyond(value, below[key]):
                found[key] = inner
        elif key not in below or below[key] != value:
            found[key] = value
    return found


def _claim_folder(seen: Effective, arguments: Sequence[str]) -> None:
    """Hold the run lock, check that results can be written and see to what runs before left, when jobs will run."""
    if any(_NO_RUN.fullmatch(argument) for argument in arguments):
        return
    _require_writable(RESULTS)
    for note in (hold_run_lock(), guard_slurm_jobs() if _is_slurm(seen) else None):
        if note:
            print(note, file=sys.stderr)
    begin_run(RESULTS)


def _require_writable(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".writable-"):
            pass
    except OSError as error:
        raise UserError(
            f"{folder}/ cannot be written ({error.strerror}): make it writable or free the place."
        ) from error
