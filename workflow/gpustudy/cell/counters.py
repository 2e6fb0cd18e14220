"""The counters stage: hardware counters of chosen launches, by running a few training steps under Nsight Compute.

Before anything trains, it is found out whether counters can be had here. The census says which launches to profile;
``profiled.py`` trains below ncu and opens the profiled window around them; what goes wrong is looked up in the table
of failures. Raw files: report, log and the program's output of each run, command.json (commands, plan with weights,
warnings), kernel_names.json (census names beside profiled names), profiled.json (what the program did).
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpustudy.base.atomic import write_json
from gpustudy.base.errors import UserError
from gpustudy.base.progress import Progress
from gpustudy.cell.document import whole_file
from gpustudy.cell.ncu_census import TRACE_FILE, Census, read_census
from gpustudy.cell.ncu_command import (
    PLAN_FILE,
    RECORD_FILE,
    CounterSettings,
    build_command,
    build_environment,
    file_suffix,
    log_file,
    profiled_program,
    read_settings,
    report_file,
)
from gpustudy.cell.ncu_compare import NameComparison, compare_names
from gpustudy.cell.ncu_failures import (
    INFRASTRUCTURE,
    FailureRow,
    killing_row,
    row,
    warning_rows,
)
from gpustudy.cell.ncu_log import NcuLog, parse_log
from gpustudy.cell.ncu_preflight import Ncu, check_driver, check_rights, find_ncu
from gpustudy.cell.ncu_sampling import SamplingPlan, plan_sampling
from gpustudy.cell.ncu_verdict import judge
from gpustudy.cell.ncu_watchdog import RunEnd, run_watched
from gpustudy.cell.outcomes import Outcome
from gpustudy.cell.provenance import write_provenance
from gpustudy.cell.stages import Job

COMMAND_FILE = "command.json"
COMMAND_SCHEMA = 1
NAMES_FILE = "kernel_names.json"

RETRY_WAIT_S = 30.0
"""Seconds before the one retry that a row may ask for; another ncu on the device may end meanwhile."""
TAIL_CHARACTERS = 400
"""End of the program's output that an error quotes."""
MANY_LAUNCHES_RATIO = 1.1
"""Profiled launches over all launches of the steps, from which something beside the steps must have been profiled."""
UNGATED_OPTIMISATIONS = ("compile",)
"""Compiled code launches its kernels past PyTorch's dispatcher, where the gate cannot see them."""

WEIGHT_RULE = (
    "a profiled launch stands for launches_per_step / (launches of its stratum profiled per step) launches of a step; "
    "strata are (name, grid, block, shared memory), and the report says how many of each were profiled"
)


@dataclass(frozen=True)
class NcuRun:
    """One run of ncu that gave a report.

    Attributes:
        cache_control: what ncu did to the caches.
        argv: the command.
        exit_code: its exit code.
        seconds: its wall time.
        attempts: 1, or 2 when the first met another tool that held the counters.
        launches: launches profiled to the end.
        passes: replay passes over all of them.
        processes: executables that ncu connected to.
        warnings: sentences of the table's rows to know beside the data, by the row's name.
        report: name of the report file.
        log: name of the log file.
    """

    cache_control: str
    argv: list[str]
    exit_code: int
    seconds: float
    attempts: int
    launches: int
    passes: int
    processes: list[str]
    warnings: dict[str, str]
    report: str
    log: str


@dataclass(frozen=True)
class Workplace:
    """What every run of one stage shares.

    Attributes:
        job: the stage's job.
        settings: the section ``counters`` of the workload.
        ncu: the Nsight Compute in use.
        census: the launches of the stage before.
        plan: what to profile.
        scratch: folder for HOME, TMPDIR, plan, heartbeat and record.
    """

    job: Job
    settings: CounterSettings
    ncu: Ncu
    census: Census
    plan: SamplingPlan
    scratch: Path

    @property
    def step_launches(self) -> float:
        """All launches of the profiled steps, by the census."""
        return len(self.census.launches) / self.census.steps * self.settings.iterations


def run(job: Job) -> None:
    """Run the stage.

    Raises:
        Outcome: counters cannot be had here, or the profiled program met a fact about the science.
        UserError: no driver, no census or a damaged one, or trouble of the infrastructure.
    """
    settings = read_settings(job.cell.workload["counters"], f"{job.cell.path}: workload.counters")
    if job.cell.gpu.device != "cuda":
        raise UserError(f"{job.cell.label} has no CUDA device: plan the counters stage for CUDA gpus alone.")
    if job.previous is None:
        raise UserError(f"{job.cell.label} needs the census before it: plan it behind one.")
    write_provenance(job.out, job.cell)
    ncu = find_ncu(settings.ncu_version)
    check_driver()
    check_rights()
    census = read_census(whole_file(job.previous, TRACE_FILE))
    is_gated = not set(job.optimisations) & set(UNGATED_OPTIMISATIONS)
    plan = plan_sampling(census, settings.launches_per_stratum if is_gated else None)
    with tempfile.TemporaryDirectory(prefix="gpustudy-ncu-", ignore_cleanup_errors=True) as scratch:
        place = Workplace(job, settings, ncu, census, plan, Path(scratch))
        write_json(place.scratch / PLAN_FILE, {"quotas": plan.quotas, "fallback": plan.fallback})
        runs = [_profile(place, cache_control) for cache_control in settings.cache_controls]
    write_json(job.out / COMMAND_FILE, _command_record(place, runs))


def _profile(place: Workplace, cache_control: str) -> NcuRun:
    """Run ncu once, a second time where the table says so, and return what it gave."""
    first = _attempt(place, cache_control, 1)
    if isinstance(first, NcuRun):
        return first
    if first.is_retried:
        time.sleep(RETRY_WAIT_S)
        second = _attempt(place, cache_control, 2)
        if isinstance(second, NcuRun):
            return second
        first = second
    raise _as_error(place, first, cache_control)


def _attempt(place: Workplace, cache_control: str, attempt: int) -> NcuRun | FailureRow:
    """Run ncu once; return the run, or the row of the table that it ended in.

    Raises:
        Outcome: the profiled program itself ended as one.
    """
    files = _files(place, cache_control)
    for stale in (files.output, files.log, files.report, place.scratch / RECORD_FILE):
        stale.unlink(missing_ok=True)
    program = profiled_program(place.job.cell.path, place.job.data, place.scratch)
    command = build_command(place.settings, cache_control, program, place.ncu.path)
    end = _run(place, command, files, f"caches {cache_control}")
    record = _read_record(place.scratch / RECORD_FILE)
    text = _text(files.log) + _text(files.output)
    log = parse_log(text)
    comparison = compare_names(place.census, [launch.name for launch in log.complete])
    if failure := judge(end, text, log, comparison, record, files.report):
        return failure
    _keep(place, cache_control, record, comparison)
    return NcuRun(
        cache_control=cache_control,
        argv=command,
        exit_code=end.exit_code,
        seconds=end.seconds,
        attempts=attempt,
        launches=len(log.complete),
        passes=sum(launch.passes for launch in log.complete),
        processes=[path for _, path in log.processes],
        warnings=_warnings(place, cache_control, text, log, comparison),
        report=files.report.name,
        log=files.log.name,
    )


@dataclass(frozen=True)
class _Files:
    """What one run writes: ncu's log and report, and the output of ncu and of the program together."""

    log: Path
    report: Path
    output: Path


def _files(place: Workplace, cache_control: str) -> _Files:
    out, settings = place.job.out, place.settings
    return _Files(
        log=out / log_file(settings, cache_control),
        report=out / report_file(settings, cache_control),
        output=out / f"application{file_suffix(settings, cache_control)}.log",
    )


def _run(place: Workplace, command: list[str], files: _Files, note: str) -> RunEnd:
    """Run the command under the watchdog, with a progress line for a person."""
    total = max(1, round(place.plan.planned_launches * place.settings.iterations))
    progress, told = Progress(place.job.cell.label, total, "launch"), 0

    def look() -> str | None:
        nonlocal told
        text = _text(files.log)
        done = min(total, len(parse_log(text).complete))
        if done > told:
            progress.step(done, note)
            told = done
        killing = killing_row(text + _text(files.output))
        return killing.name if killing else None

    return run_watched(
        command,
        build_environment(place.scratch),
        place.job.out,
        files.output,
        [files.log, files.report, place.scratch],
        place.settings.stall_timeout_s,
        look,
    )


def _as_error(place: Workplace, failure: FailureRow, cache_control: str) -> Outcome | UserError:
    """Return how the stage ends for a row of the table."""
    label = place.job.cell.label
    if failure.outcome != INFRASTRUCTURE:
        return Outcome(failure.outcome, failure.name, f"{label}: {failure.detail}")
    output = _text(_files(place, cache_control).output)
    tail = " / ".join(line.strip() for line in output[-TAIL_CHARACTERS:].splitlines() if line.strip())
    quoted = f" The program's output ended: {tail}" if tail else ""
    return UserError(f"{label}: {failure.detail}{quoted}")


def _warnings(
    place: Workplace, cache_control: str, text: str, log: NcuLog, comparison: NameComparison
) -> dict[str, str]:
    """Return the sentences to know beside the data: of texts, and of what the stage itself found."""
    found = list(warning_rows(text))
    if cache_control == "all":
        found.append(row("cold-caches"))
    if place.settings.replay == "application":
        found.append(row("application-replay"))
    if len(log.complete) > place.step_launches * MANY_LAUNCHES_RATIO:
        found.append(row("many-launches"))
    if comparison.differs:
        found.append(row("names-changed"))
    return {warning.name: warning.detail for warning in found}


def _keep(place: Workplace, cache_control: str, record: dict[str, Any], comparison: NameComparison) -> None:
    """Write what the program left and the comparison of names beside the report."""
    suffix = file_suffix(place.settings, cache_control)
    for name, content in ((RECORD_FILE, record), (NAMES_FILE, comparison.as_json())):
        path = place.job.out / name
        write_json(path.with_name(f"{path.stem}{suffix}{path.suffix}"), content)


def _command_record(place: Workplace, runs: list[NcuRun]) -> dict[str, Any]:
    environment = build_environment(place.scratch, {})
    return {
        "schema": COMMAND_SCHEMA,
        "ncu": asdict(place.ncu),
        "settings": asdict(place.settings),
        "environment": {name: environment[name] for name in ("LC_ALL", "HOME", "TMPDIR")},
        "runs": [asdict(run) for run in runs],
        "plan": place.plan.as_json(),
        "weight_rule": WEIGHT_RULE,
    }


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return record


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
