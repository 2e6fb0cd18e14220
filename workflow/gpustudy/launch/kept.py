"""No finished stage is lost when a later one of its job fails.

Snakemake runs the stages of a cell as one group, and when one of them fails it removes the outputs of all and runs all
again. A stage's output is its status file, written last; so each stage that a run has finished is noted beside the
results, and its status file is put back when the same run starts that stage again, when the run has failed, and when
the next one begins. What a killed run had finished is complete too: Snakemake's mark of incomplete files is taken off.
"""

from __future__ import annotations

import json
import shutil
from base64 import urlsafe_b64decode
from pathlib import Path

from gpustudy.base.atomic import write_json, write_text
from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.base.status import STATUS_FILE, parse_status
from gpustudy.launch.run_lock import run_in_this_folder
from gpustudy.study.paths import CELLS, METRICS, METRICS_FILE

KEPT = ".kept"
_JOINT = "+"
"""Stands for a slash in the name of a record; no name of the study holds one."""
_INCOMPLETE = Path(".snakemake/incomplete")
_COMPLETE_WHEN_THERE = {CELLS: STATUS_FILE, METRICS: METRICS_FILE}
"""Folder of results -> the file that is written last there: where it is, all is."""


def note_finished(results: Path, stage_folder: Path) -> None:
    """Note that this run has finished a stage; nothing without a run, as when a stage is started by hand."""
    run, status = run_in_this_folder(), stage_folder / STATUS_FILE
    if run and status.is_file():
        write_json(_record(results, stage_folder), {"run": run, "status": status.read_text(encoding="utf-8")})


def put_back(results: Path, stage_folder: Path) -> bool:
    """Put the status file of a stage back that this very run had finished; return whether it did.

    A status file that is there stays, and nothing is put back where a raw file is not the one that was finished.
    """
    run, status = _noted(_record(results, stage_folder))
    return bool(run) and run == run_in_this_folder() and _restore(stage_folder, status)


def put_all_back(results: Path) -> None:
    """Put the status file of every stage back that the last run had finished, where it is gone."""
    for record in sorted((results / KEPT).glob("*.json")):
        _restore(results / record.stem.replace(_JOINT, "/"), _noted(record)[1])


def begin_run(results: Path) -> None:
    """Put back what the last run had finished, and take Snakemake's mark off the results that are complete."""
    put_all_back(results)
    shutil.rmtree(results / KEPT, ignore_errors=True)
    if not _INCOMPLETE.is_dir():
        return
    for mark in [path for path in _INCOMPLETE.rglob("*") if path.is_file()]:
        output = _marked(mark)
        if output is not None and _is_complete(output, results):
            mark.unlink(missing_ok=True)


def _record(results: Path, stage_folder: Path) -> Path:
    return results / KEPT / (_JOINT.join(stage_folder.relative_to(results).parts) + ".json")


def _noted(record: Path) -> tuple[str, str]:
    """Return the run and the status file that a record holds; empty texts where it cannot be read."""
    try:
        content = json.loads(record.read_bytes())
        return str(content["run"]), str(content["status"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", ""


def _restore(stage_folder: Path, text: str) -> bool:
    """Write a status file back whose raw files are all as it says; return whether it was written."""
    path = stage_folder / STATUS_FILE
    if path.exists():
        return False
    try:
        status = parse_status(text.encode(), path)
        is_whole = all(file_sha256(stage_folder / name) == entry["sha256"] for name, entry in status.files.items())
    except (OSError, UserError):
        return False
    if is_whole:
        write_text(path, text)
    return is_whole


def _marked(mark: Path) -> Path | None:
    """Return the output that a mark of Snakemake's is about: its name in base64, cut into folders where it is long."""
    text = "".join(part.removeprefix("@") for part in mark.relative_to(_INCOMPLETE).parts)
    try:
        return Path(urlsafe_b64decode(text).decode())
    except ValueError:
        return None


def _is_complete(output: Path, results: Path) -> bool:
    room = output.relative_to(results).parts[0] if output.is_relative_to(results) else ""
    return output.name == _COMPLETE_WHEN_THERE.get(room) and output.is_file()
