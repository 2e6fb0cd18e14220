"""``gpustudy compare`` as a person calls it: archives, configs, earlier results, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustudy.archive.exporting import export_archive
from gpustudy.cli import main
from gpustudy.study.cells import Keys
from gpustudy.study.load import Effective
from gpustudy.study.states import survey
from tests.support.crafted_study import GPUS, Truth, craft_study, crafted_effective

CONFIGS = ("baseline", "opt2")


def only_cpu(**told: object) -> Truth:
    truth = Truth(absent={gpu for gpu in GPUS if gpu != "cpu"}, lacking={"quality"})
    for name, value in told.items():
        setattr(truth, name, value)
    return truth


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A checkout's folder whose cpu cells are there, an archive of slower ones, and results of an earlier key."""
    root = tmp_path_factory.mktemp("compare")
    (root / "config.yaml").write_bytes((repository / "config.yaml").read_bytes())
    now = craft_study(crafted_effective(root / "results", configs=CONFIGS), only_cpu())
    slow = {("cpu", config): 0.030 for config in CONFIGS}
    before = crafted_effective(root / "before", configs=CONFIGS)
    craft_study(before, only_cpu(step_s=slow))
    seen = survey(before)
    cells = [cell for cell in seen.cells if cell.gpu == "cpu"]
    export_archive(seen, Keys(before), root / "before.zip", cells, with_raw=False)
    told = only_cpu(step_s=slow, provenance={"cpu": {"started": "2025-06-01T00:00:00+00:00"}})
    earlier = now.study.model_copy(update={"seed": 1})
    craft_study(Effective(earlier, now.site, now.results), told)
    return root


@pytest.fixture
def call(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    monkeypatch.chdir(study)
    monkeypatch.delenv("GPUSTUDY_CONFIG", raising=False)

    def run(*words: str) -> tuple[int, str]:
        code = main(["compare", *words])
        out, err = capsys.readouterr()
        return code, out + err

    return run


def verdicts(text: str) -> dict[str, str]:
    found = json.loads(text)
    return {f"{pair['first']} {pair['second']}": pair["step_time"]["verdict"] for pair in found["pairs"]}


def test_an_archive_with_what_is_here(call: Callable[..., tuple[int, str]]) -> None:
    code, text = call("before.zip", ".", "--json")
    assert code == 0
    assert verdicts(text.partition("\ncheck")[0]) == {
        "cpu/baseline cpu/baseline": "FASTER", "cpu/opt2 cpu/opt2": "FASTER",
    }  # fmt: skip


def test_a_regression_check_fails_on_slower_step_times(call: Callable[..., tuple[int, str]]) -> None:
    assert call("before.zip", ".", "--fail-on", "slower,missing")[0] == 0
    code, text = call(".", "before.zip", "--fail-on", "slower", "--config", "baseline")
    assert code == 1
    assert "Step times of 1 pair: 1 SLOWER." in text
    assert text.startswith("CRAFTED DATA: not a measurement")


def test_two_configs_of_one_gpu(call: Callable[..., tuple[int, str]]) -> None:
    code, text = call("cpu/baseline", "cpu/opt2")
    assert code == 0
    assert "cpu/baseline -> cpu/opt2  (paired: r1, r2, r3)" in text
    assert 'differ in: config.optimisations: [] -> ["channels_last"]' in text
    assert "by class, time of a profiled step:" in text
    assert "Step times of 1 pair: 1 SAME." in text


def test_two_repeats_of_one_cell_are_shown_and_not_paired(call: Callable[..., tuple[int, str]]) -> None:
    code, text = call("cpu/opt2/r1", "cpu/opt2/r2")
    assert code == 0
    assert "cpu/opt2  (no repeat is on both sides: values stand beside each other, without a ratio)" in text
    (line,) = [line for line in text.splitlines() if line.strip().startswith("step time")]
    assert "x (" not in line


@pytest.mark.parametrize("when", ["old", "2025-06-01", "2025-12"])
def test_earlier_results_of_the_same_cells(when: str, call: Callable[..., tuple[int, str]]) -> None:
    code, text = call(f"cpu/baseline@{when}", "cpu/baseline")
    assert code == 0
    assert "Step times of 1 pair: 1 FASTER." in text
    assert "differ in: seed: " in text


def test_a_key_takes_the_stages_made_from_it(call: Callable[..., tuple[int, str]], study: Path) -> None:
    effective = Effective(crafted_effective(study / "results", configs=CONFIGS).study, "local", study / "results")
    earlier = Keys(Effective(effective.study.model_copy(update={"seed": 1}), "local", effective.results))
    cell = next(cell for cell in earlier.cells() if str(cell) == "cpu/baseline/r1")
    code, text = call(f"cpu/baseline/r1@{earlier.stage_key(cell, 'train')[:8]}", "cpu/baseline/r1", "--json")
    assert code == 0
    (pair,) = json.loads(text)["pairs"]
    assert pair["repeats"] == [1]
    assert pair["step_time"]["verdict"] == "AMBIGUOUS"  # one repeat decides nothing
    assert pair["step_time"]["before"] == pytest.approx(0.030)
    assert pair["classes"], "the census made from that training is on the side too"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("cpu/basline", "cpu/opt2"), "unknown config 'basline': did you mean 'baseline'?"),
        (("cpuu", "."), "'cpuu' is no archive, gpu or config: did you mean 'cpu'?"),
        (("cpu/opt2/r9", "."), "unknown repeat 'r9'"),
        (("cpu@yesterday", "cpu"), "'@yesterday' is no time of a result: write @old, @YYYY-MM-DD or @KEY"),
        (("cpu@2020-01-01", "cpu"), "no tables of cpu fit '@2020-01-01': of its first stage there are"),
        (("nothing.zip", "."), "nothing.zip cannot be read"),
        (("a100", "cpu"), "no gpu and config is on both sides: a100 has nothing measured; cpu has cpu/baseline"),
        (("cpu", "cpu", "--fail-on", "slow"), "--fail-on: unknown word 'slow': did you mean 'slower'?"),
        (("cpu", "cpu", "--noise", "5"), "--noise 5 is no share"),
    ],
)
def test_mistakes_are_one_sentence(words: tuple[str, ...], sentence: str, call: Callable[..., tuple[int, str]]) -> None:
    code, text = call(*words)
    assert code == 2
    assert sentence in text
    assert text.count("\n") == 1
