"""``gpustudy preflight`` as a person or a program calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpustudy.base.errors import UserError
from gpustudy.cli import main
from gpustudy.launch.preflight.checks import FAIL, PASS, WARN, Finding, Place, failed, passed, warned
from gpustudy.launch.preflight.survey import run_checks, verdict
from tests.launch.places import REPOSITORY, place_at


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config.yaml").write_text((REPOSITORY / "config.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    for name in ("GPUSTUDY_CONFIG", "GPUSTUDY_ACCOUNT", "GPUSTUDY_SCRATCH", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_this_machine_can_run_the_cpu_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["site"], content["exit_code"]) == ("local", 0)
    levels = {check["name"]: check["level"] for check in content["checks"]}
    assert levels["snakemake"] == levels["scratch"] == levels["results folder"] == PASS


def test_the_table_ends_with_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "expanse"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Preflight of site expanse (SDSC Expanse")
    assert lines[-1].endswith("The study would not run here: mend what failed.")
    assert any(line.startswith("FAIL     scheduler") for line in lines)
    assert any(line.startswith("SKIPPED  compute node") for line in lines)
    assert max(len(line) for line in lines) <= 140


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["expanze"], "unknown site 'expanze': did you mean 'expanse'?"),
        (["expanse", "--site", "stampede3"], "two sites are named"),
        (["expanse", "--wait", "0"], "--wait 0 is no time to wait"),
    ],
)
def test_bad_use_is_one_sentence_and_exit_code_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preflight", *words]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.out == ""


def test_inside_an_allocation_the_node_is_looked_at_and_nothing_is_submitted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "exp-7-59")
    assert main(["preflight", "expanse", "--json"]) == 1
    names = {check["name"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert {"gpu v100", "counter permission", "memory"} <= names
    assert not {"job", "compute node"} & names


def test_on_the_node_the_checks_are_left_as_json(checkout: Path) -> None:
    assert main(["preflight", "local", "--on-node", "checks.json"]) == 0
    names = [check["name"] for check in json.loads((checkout / "checks.json").read_text())]
    assert {"runtime on the node", "scratch on the node", "cores", "memory"} <= set(names)


def test_a_check_that_hangs_does_not_hold_the_others_up(tmp_path: Path) -> None:
    def hang(place: Place) -> Finding:
        time.sleep(30)
        return passed("late")

    began = time.monotonic()
    checks = run_checks(
        place_at("local", tmp_path), [("dead mount", hang), ("quick", lambda place: passed("here"))], 0.3
    )
    assert time.monotonic() - began < 5
    assert [(check.name, check.level) for check in checks] == [("dead mount", WARN), ("quick", PASS)]
    assert "something hangs here" in checks[0].sentence


def test_a_check_that_hangs_does_not_keep_the_process(tmp_path: Path) -> None:
    program = (
        "import time\n"
        "from pathlib import Path\n"
        "from gpustudy.launch.preflight.survey import run_checks\n"
        "from tests.launch.places import place_at\n"
        f"run_checks(place_at('local', Path({str(tmp_path)!r})), [('dead mount', lambda place: time.sleep(60))], 0.1)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'workflow'}:{REPOSITORY}"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=30)


def test_a_users_mistake_inside_a_check_is_a_failed_row(tmp_path: Path) -> None:
    def refuse(place: Place) -> Finding:
        raise UserError("envs/paper.txt cannot be read: restore it.")

    (check,) = run_checks(place_at("local", tmp_path), [("stack", refuse)])
    assert (check.level, check.sentence) == (FAIL, "envs/paper.txt cannot be read: restore it.")


@pytest.mark.parametrize(("finding", "code"), [(passed(""), 0), (warned(""), 0), (failed(""), 1)])
def test_the_exit_code_says_whether_the_study_would_run(tmp_path: Path, finding: Finding, code: int) -> None:
    assert verdict(run_checks(place_at("local", tmp_path), [("one", lambda place: finding)])) == code
