"""A fake ncu on PATH: a real process that writes given texts, hangs, leaves reports, or runs the program for real."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

RECORD = {"gate": "operators", "iterations": 1, "losses": [0.8], "profiled": {"forward": 3, "backward": 2}}
"""What a profiled program leaves that did its work."""

_PROGRAM = """\
#!{python}
import json, os, pathlib, subprocess, sys, time
words = sys.argv[1:]
scenario = json.loads(pathlib.Path({scenario!r}).read_text())
if words == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion " + scenario.get("version", "2024.1.1.0"))
    sys.exit(0)
calls = pathlib.Path({calls!r})
number = len(calls.read_text().splitlines()) if calls.exists() else 0
with calls.open("a") as stream:
    stream.write(json.dumps({{"argv": words, "environment": dict(os.environ), "cwd": os.getcwd()}}) + "\\n")
step = scenario["steps"][min(number, len(scenario["steps"]) - 1)]
value = lambda option: words[words.index(option) + 1]
pathlib.Path(value("--log-file")).write_text(step.get("log", ""))
print(step.get("output", ""), flush=True)
if "run" in step:
    program = words[words.index("-m") + 2 :]
    os.environ["FAKE_NCU_LOG"] = os.path.abspath(value("--log-file"))
    subprocess.run([sys.executable, step["run"], *program], check=True)
if "record" in step:
    (pathlib.Path(value("--scratch")) / "profiled.json").write_text(json.dumps(step["record"]))
if step.get("report"):
    pathlib.Path(value("-o") + ".ncu-rep").write_bytes(b"NVR" + bytes(1) + b"crafted")
time.sleep(step.get("sleep", 0))
sys.exit(step.get("exit", 0))
"""


class FakeNcu:
    """Installs the fake on PATH and tells how it was called."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self._scenario, self._calls = folder / "scenario.json", folder / "calls.jsonl"
        executable = folder / "ncu"
        executable.write_text(
            _PROGRAM.format(python=sys.executable, scenario=str(self._scenario), calls=str(self._calls))
        )
        executable.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def will(self, *steps: dict[str, Any], version: str = "2024.1.1.0") -> None:
        """Say what each call does; the last step repeats. Keys: log, output, record, report, run, sleep, exit."""
        self._scenario.write_text(json.dumps({"steps": steps, "version": version}))

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Arguments, environment and working folder of each call that profiled."""
        if not self._calls.exists():
            return []
        return [json.loads(line) for line in self._calls.read_text().splitlines()]


def good_step(names: list[str], **more: Any) -> dict[str, Any]:
    """Return a step that profiles launches of these names and leaves report and record."""
    lines = [f'==PROF== Profiling "{name}" - {i}: 0%....50%....100% - 9 passes' for i, name in enumerate(names)]
    log = "\n".join(["==PROF== Connected to process 1 (/usr/bin/python3.11)", *lines, ""])
    return {"log": log, "record": RECORD, "report": True, **more}
