"""The checks of a compute node as a job of minutes: submitted like a cell, waited for, read back, not left behind."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gpustudy.base.errors import UserError
from gpustudy.launch.preflight.asked import Asked
from gpustudy.launch.preflight.checks import FAIL, PASS, WARN, Check, Place, from_json
from gpustudy.study.load import ROOT

JOB_MINUTES = 5
"""Length of the job: the checks end within half a minute, starting may take some."""
DEFAULT_WAIT_MINUTES = 10.0

ANSWER_FILE = "checks.json"
_LOG_FILE = "job.log"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 30.0
"""Seconds between questions to Slurm, ever longer: its controller is everybody's."""
_LOOK_S = 0.5
"""Seconds between looks for the answer's file."""
_LATENCY_S = 30.0
"""Seconds until a shared file system shows what the node has written."""
_GONE_S = 30.0
_SUBMIT_TIMEOUT_S = 60.0
"""Seconds for sbatch: sites check the account and more on the way."""
_JOB_ID = re.compile(r"^(\d+)(?:;\S+)?$", re.MULTILINE)
"""What ``sbatch --parsable`` prints, below whatever banner a site's own sbatch puts before it."""
_UNKNOWN_JOB = "Invalid job id"
"""What squeue says of a job that has left its memory."""
_LEFT_QUEUE = "ended"
_OVER = ("", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL")


def checks_in_job(
    place: Place,
    asked: Asked,
    configfiles: Sequence[Path],
    wait_s: float,
    tell: Callable[[str], object],
) -> list[Check]:
    """Submit the node's checks as a job and return what they found, with a row about the job itself.

    Args:
        place: of the login node.
        asked: what a cell asks for; the job is as large and only shorter.
        configfiles: overlays, for the job's own look at the study.
        wait_s: seconds to wait for the job; then it is cancelled.
        tell: is told in a line what goes on.

    Raises:
        UserError: results/ cannot be written.
    """
    try:
        place.effective.results.mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".preflight-", dir=place.effective.results)).resolve()
    except OSError as error:
        raise UserError(
            f"{place.effective.results}/ cannot be written ({error.strerror}): make it writable."
        ) from error
    try:
        return _submit_and_wait(place, asked, configfiles, folder, wait_s, tell)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _submit_and_wait(
    place: Place,
    asked: Asked,
    configfiles: Sequence[Path],
    folder: Path,
    wait_s: float,
    tell: Callable[[str], object],
) -> list[Check]:
    title = "job"
    options = asked.options(JOB_MINUTES)
    name = f"gpustudy{folder.name.replace('.', '-')}"
    command = ["sbatch", "--parsable", f"--job-name={name}", f"--output={folder / _LOG_FILE}", "--no-requeue"]
    command += [f"--chdir={Path.cwd()}", *options, "--wrap", _command(place, configfiles, folder)]
    ids: list[str] = []
    try:
        answer = place.runner(command, _SUBMIT_TIMEOUT_S)
        ids = _JOB_ID.findall(answer.out) if answer.code == 0 else []
    finally:
        if not ids:  # it may be queued all the same: sbatch hung, or was interrupted
            place.ask("scancel", "--quiet", f"--name={name}")
    if not ids:
        return [Check(title, FAIL, f"sbatch refuses '{' '.join(options)}': {_refusal(answer.out, answer.err)}.")]
    job = ids[-1]
    began = time.monotonic()
    tell(f"Job {job} is submitted ({' '.join(options)}); waiting at most {wait_s / 60:g} minutes.")
    try:
        state = _wait(place, job, folder, wait_s, tell)
    finally:
        _end(place, job, is_answered=(folder / ANSWER_FILE).exists())
    waited_s = time.monotonic() - began
    text = _answer(folder, state)
    if text is None:
        return [_unanswered(job, state, folder, wait_s)]
    try:
        found = from_json(text)
    except ValueError as error:
        return [Check(title, FAIL, f"Job {job} wrote an answer that is none ({error}): look for a full disk.")]
    return [Check(title, PASS, f"Job {job} ran, saw the checkout and answered after {waited_s:.0f} s."), *found]


def _command(place: Place, configfiles: Sequence[Path], folder: Path) -> str:
    """Return the job's shell command: the same verb, on the node, with this Python and this checkout."""
    words = [
        sys.executable,
        "-m",
        "gpustudy",
        "preflight",
        place.effective.site,
        "--on-node",
        str(folder / ANSWER_FILE),
    ]
    words += ["--configfile", *(str(path.resolve()) for path in configfiles)] if configfiles else []
    return f"PYTHONPATH={shlex.quote(str(ROOT / 'workflow'))} exec {shlex.join(words)}"


def _wait(place: Place, job: str, folder: Path, wait_s: float, tell: Callable[[str], object]) -> str:
    """Wait until the job has answered, has ended or the time is up, and return its last state."""
    deadline, pause_s, state, told = time.monotonic() + wait_s, _FIRST_PAUSE_S, "PENDING", ""
    next_question = time.monotonic() + pause_s
    while time.monotonic() < deadline and not (folder / ANSWER_FILE).exists():
        time.sleep(_LOOK_S)
        if time.monotonic() < next_question:
            continue
        answer = place.ask("squeue", "--noheader", f"--jobs={job}", "--format=%T|%r")
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        next_question = time.monotonic() + pause_s
        if answer.code and _UNKNOWN_JOB not in answer.err:  # Slurm is away for a moment
            continue
        line = (answer.out.strip().splitlines() or ["|"])[0]
        state, _, reason = line.partition("|")
        if state in _OVER:
            return state or _LEFT_QUEUE
        if state == "PENDING" and reason != told:
            told = reason
            tell(f"Job {job} waits in the queue: {reason}.")
    return state


def _end(place: Place, job: str, is_answered: bool) -> None:
    """Wait until the job is gone; cancel it, at once where it has not answered."""
    deadline = time.monotonic() + _GONE_S
    is_patient = is_answered
    while time.monotonic() < deadline:
        if not is_patient:
            place.ask("scancel", job)
        answer = place.ask("squeue", "--noheader", f"--jobs={job}", "--format=%T")
        if answer.out.strip() in _OVER and (answer.code == 0 or _UNKNOWN_JOB in answer.err):
            return
        is_patient = time.monotonic() < deadline - _GONE_S / 2
        time.sleep(_LOOK_S)


def _answer(folder: Path, state: str) -> str | None:
    """Return the text of the answer's file; None when there is none, as far as a shared file system shows by now."""
    deadline = time.monotonic() + (_LATENCY_S if state in ("COMPLETED", _LEFT_QUEUE) else 0)
    while True:
        sorted(folder.iterdir())  # some network file systems look again only when a folder is listed
        try:
            return (folder / ANSWER_FILE).read_text(encoding="utf-8")
        except OSError:
            if time.monotonic() > deadline:
                return None
        time.sleep(_LOOK_S)


def _unanswered(job: str, state: str, folder: Path, wait_s: float) -> Check:
    log = folder / _LOG_FILE
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if state == "PENDING":
        return Check(
            "job",
            WARN,
            f"Job {job} did not start within {wait_s / 60:g} minutes and was cancelled: try again with more --wait.",
        )
    if not last:
        return Check(
            "job",
            FAIL,
            f"Job {job} ended ({state}) and left neither an answer nor a log in {folder.parent}: compute nodes do not "
            "see this folder; put the checkout on a file system that they share.",
        )
    return Check("job", FAIL, f"Job {job} ended ({state}) without an answer; its log ends with '{last}'.")


def _refusal(out: str, err: str) -> str:
    lines = [line.strip().removeprefix("sbatch: ") for line in f"{out}\n{err}".splitlines() if line.strip()]
    reasons = [line for line in lines if re.search(r"error|failure|FAILED", line)] or lines
    return "; ".join(dict.fromkeys(reasons)) or "it gives no reason"
