"""Stands in for ``python -m gpustudy.cell``: leaves crafted raw files of a stage, or fails as it is told."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path

from gpustudy.base.atomic import atomic_directory
from gpustudy.base.status import Status, write_status
from tests.cell.ncu_trace import training_trace


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("stage")
    for name in ("--cell", "--data", "--out", "--previous"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    cell = json.loads(arguments.cell.read_text())
    how = json.loads(os.environ.get("FAKE_STAGE", "{}")).get(f"{cell['labels']['config']} {arguments.stage}", "done")
    if how == "hangs":
        Path(os.environ["FAKE_PID"]).write_text(str(os.getpid()))
        time.sleep(60)
    if how == "breaks":
        print("a dead node")
        return 1
    with atomic_directory(arguments.out) as folder:
        shutil.copyfile(arguments.cell, folder / "cell.json")
        if how == "done":
            {"train": _train, "census": _census, "counters": _counters}[arguments.stage](folder)
        state, _, reason = how.partition(" ")
        write_status(folder, Status(arguments.stage, cell["key"], state, reason, f"crafted {reason}" if reason else ""))
    return 0


def _train(folder: Path) -> None:
    (folder / "checkpoint.pt").write_bytes(os.urandom(1000))
    steps = [
        {"iteration": i, "phase": "warmup" if i <= 2 else "measured", "step_ns": 1000 * i, "loss": 0.8}
        for i in range(1, 8)
    ]
    (folder / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))


def _census(folder: Path) -> None:
    trace = training_trace()
    for event in trace.events:  # the last kernel of a step becomes the optimiser's
        if event["name"] == "gpustudy.backward":
            trace.events.append(
                event | {"name": "gpustudy.optimiser", "ts": event["ts"] + event["dur"] - 10, "dur": 10}
            )
            event["dur"] -= 10
            break
    trace.write(folder / "trace.json.gz")


def _counters(folder: Path) -> None:
    (folder / "report.ncu-rep").write_bytes(b"NVR\0" + os.urandom(100_000))
    command = {"runs": [{"report": "report.ncu-rep", "launches": 5}], "plan": {"planned_launches": 5}}
    (folder / "command.json").write_text(json.dumps(command))


if __name__ == "__main__":
    sys.exit(main())
