"""The counters stage with a fake ncu: real processes, the stage's own checks, every kind of end."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from gpustudy.base.errors import UserError
from gpustudy.base.status import Status, read_status, write_status
from gpustudy.cell import counters, ncu_watchdog
from gpustudy.cell.stages import run_stage
from tests.cell.ncu_fake import RECORD, FakeNcu, good_step
from tests.cell.ncu_texts import TEXTS
from tests.cell.ncu_trace import training_trace
from tests.device.documents import Machine, stage_cells, workload

MODEL = {
    "image_channels": 1,
    "mask_channels": 2,
    "base_channels": 32,
    "channel_mult": [1, 1],
    "res_blocks": 1,
    "attention_downsamples": [2],
    "volume": [16, 16, 16],
}
NAMES = [
    "vectorized_elementwise_kernel",
    "vectorized_elementwise_kernel",
    "implicit_convolveNd_sgemm",
    "wgrad_alg1_nd_float_engine",
    "reduce_kernel",
]


class StageRun:
    """A counters stage that is ready to run."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder, self.data, self.out = folder, data, folder / "out"
        self.changes: dict[str, Any] = {"stall_timeout_s": 20}
        self.config = "baseline"
        self.appended = b""  # to the census's trace, after its status was written

    def __call__(self) -> Status:
        machine = Machine("Crafted A100", "sm_80", 2**34, {name: metadata.version(name) for name in ("torch", "numpy")})
        sections = workload(MODEL)
        sections["counters"] = sections["counters"] | self.changes
        cells = stage_cells(machine, self.config, sections, {"name": "d", "key": "0123456789ab"})
        census = self.folder / "census"
        census.mkdir(exist_ok=True)
        training_trace().write(census / "trace.json.gz")
        write_status(census, Status("census", cells["census"]["key"], "done"))
        with (census / "trace.json.gz").open("ab") as stream:
            stream.write(self.appended)
        cell = self.folder / "cell.json"
        cell.write_text(json.dumps(cells["counters"]))
        run_stage("counters", cell, self.data, self.out, census)
        return read_status(self.out)

    def read(self, name: str) -> Any:
        return json.loads((self.out / name).read_text())


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNcu:
    return FakeNcu(tmp_path / "bin", monkeypatch)


@pytest.fixture
def stage(tmp_path: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch, ncu: FakeNcu) -> StageRun:
    """A stage on a machine that has a driver, as far as the stage can tell."""
    monkeypatch.setattr(counters, "check_driver", lambda: None)
    monkeypatch.setattr(counters, "RETRY_WAIT_S", 0.0)
    monkeypatch.setattr(ncu_watchdog, "POLL_S", 0.05)
    return StageRun(tmp_path, prepared)


def test_a_census_that_is_not_what_its_stage_wrote_is_refused(stage: StageRun, ncu: FakeNcu) -> None:
    ncu.will(good_step(NAMES))
    stage.appended = gzip.compress(b"\n")  # still a readable trace
    with pytest.raises(UserError, match=r"trace.json.gz is missing, or is not what its stage wrote: .*gpustudy retry"):
        stage()
    assert not stage.out.exists()


def test_good_run_leaves_report_log_command_and_names(stage: StageRun, ncu: FakeNcu) -> None:
    ncu.will(good_step(NAMES))
    status = stage()
    assert (status.state, status.reason) == ("done", "")
    assert {"report.ncu-rep", "ncu.log", "application.log", "command.json", "kernel_names.json", "profiled.json"} < set(
        status.files
    )
    assert stage.read("kernel_names.json")["only_census"] == []
    assert stage.read("profiled.json") == RECORD
    command = stage.read("command.json")
    (run,) = command["runs"]
    assert (run["launches"], run["passes"], run["attempts"], run["exit_code"]) == (5, 45, 1, 0)
    assert list(run["warnings"]) == ["cold-caches"]
    assert command["ncu"]["version"] == "2024.1.1.0"


def test_program_below_ncu_follows_the_plan(stage: StageRun, ncu: FakeNcu) -> None:
    """The whole way but the device: census, plan, a real training below a process named ncu, record, comparison."""
    stage.changes["stall_timeout_s"] = 120
    ncu.will({"run": str(Path(__file__).with_name("ncu_window.py")), "report": True})
    assert stage().state == "done"
    record = stage.read("profiled.json")
    assert record["gate"] == "operators"
    assert record["switches"]["pytorch_defaults"] is False
    assert all(record["profiled"][phase] > 0 for phase in ("forward", "backward", "optimiser"))
    (run,) = stage.read("command.json")["runs"]
    assert run["launches"] == sum(record["profiled"].values())
    assert "below ncu: step 1/1" in (stage.out / "application.log").read_text()


def test_plan_with_weights_is_kept(stage: StageRun, ncu: FakeNcu) -> None:
    ncu.will(good_step(NAMES))
    stage()
    plan = stage.read("command.json")["plan"]
    adds = next(s for s in plan["strata"] if "CUDAFunctor_add" in s["name"])
    assert (adds["launches_per_step"], adds["planned"], adds["weight"]) == (2, 1, 2.0)
    assert plan["quotas"]["aten::add"] == 1
    assert sum(s["planned"] * s["weight"] for s in plan["strata"]) == 5


def test_ncu_gets_the_command_and_an_environment_of_its_own(stage: StageRun, ncu: FakeNcu) -> None:
    ncu.will(good_step(NAMES))
    stage()
    (call,) = ncu.calls
    words = call["argv"]
    assert words[words.index("--profile-from-start") + 1] == "off"
    assert words[words.index("--clock-control") + 1] == "none"
    assert call["environment"]["LC_ALL"] == "C"
    assert call["environment"]["HOME"] == call["environment"]["TMPDIR"]
    assert not Path(call["environment"]["HOME"]).exists()  # scratch is gone


def test_both_cache_controls_give_two_reports(stage: StageRun, ncu: FakeNcu) -> None:
    stage.changes["cache_control"] = "both"
    ncu.will(good_step(NAMES))
    status = stage()
    assert {"report.ncu-rep", "report-none.ncu-rep", "ncu-none.log", "profiled-none.json"} < set(status.files)
    runs = stage.read("command.json")["runs"]
    assert [run["cache_control"] for run in runs] == ["all", "none"]
    assert ["cold-caches" in run["warnings"] for run in runs] == [True, False]


UNAVAILABLE_OR_FAILED = [
    "permission",
    "driver",
    "profiler-library",
    "clock-control",
    "metric",
    "section",
    "ncu-options",
    "replay-memory",
    "launch-failed",
    "no-kernels",
]


@pytest.mark.parametrize("name", UNAVAILABLE_OR_FAILED)
def test_text_of_a_failure_becomes_the_status(stage: StageRun, ncu: FakeNcu, name: str) -> None:
    ncu.will({"log": TEXTS[name][0], "exit": 1})
    status = stage()
    assert status.state in ("unavailable", "failed")
    assert status.reason == name
    assert status.detail.startswith("a100/baseline/r1 counters: ")
    assert (stage.out / "ncu.log").read_text() == TEXTS[name][0]


def test_program_is_ended_when_counters_are_not_permitted(stage: StageRun, ncu: FakeNcu) -> None:
    """ncu lets the program train on after this error: nobody waits for it."""
    ncu.will({"log": TEXTS["permission"][0], "sleep": 60})
    status = stage()
    assert (status.state, status.reason) == ("unavailable", "permission")
    assert status.seconds < 20


def test_no_driver_text_on_standard_error_is_found(stage: StageRun, ncu: FakeNcu) -> None:
    first, *rest = TEXTS["driver"][1].splitlines(keepends=True)
    ncu.will({"output": first, "log": "".join(rest), "exit": 1})
    assert stage().reason == "driver"


def test_busy_driver_is_tried_once_more(stage: StageRun, ncu: FakeNcu) -> None:
    ncu.will({"log": TEXTS["driver-busy"][0], "exit": 9}, good_step(NAMES))
    assert stage().state == "done"
    assert stage.read("command.json")["runs"][0]["attempts"] == 2
    assert "driver resource" not in (stage.out / "ncu.log").read_text()


def test_driver_that_stays_busy_is_unavailable(stage: StageRun, ncu: FakeNcu) -> None:
    ncu.will({"log": TEXTS["driver-busy"][0], "exit": 9})
    status = stage()
    assert (status.state, status.reason) == ("unavailable", "driver-busy")
    assert "dcgmi profile --pause" in status.detail
    assert len(ncu.calls) == 2


@pytest.mark.parametrize("name", ["lock-file", "application", "torch-library", "interrupted"])
def test_trouble_of_the_infrastructure_leaves_no_output(stage: StageRun, ncu: FakeNcu, name: str) -> None:
    ncu.will({"log": TEXTS[name][0], "output": "Traceback: the last line", "exit": 1})
    with pytest.raises(UserError, match="the last line"):
        stage()
    assert not stage.out.exists()
    assert not list(stage.folder.glob(".out.*"))


def test_stall_is_a_failure_of_its_own(stage: StageRun, ncu: FakeNcu) -> None:
    stage.changes["stall_timeout_s"] = 1
    ncu.will({"log": TEXTS["slow-launch"][0], "sleep": 60})
    status = stage()
    assert (status.state, status.reason) == ("failed", "stall")


def test_forward_kernels_alone_are_a_failure(stage: StageRun, ncu: FakeNcu) -> None:
    ncu.will(good_step(NAMES[:3]))
    status = stage()
    assert (status.state, status.reason) == ("failed", "no-backward")


def test_gate_that_saw_no_backward_is_a_failure(stage: StageRun, ncu: FakeNcu) -> None:
    ncu.will(good_step(NAMES, record=RECORD | {"profiled": {"forward": 3}}))
    assert stage().reason == "no-backward"


def test_report_that_is_none_is_a_failure(stage: StageRun, ncu: FakeNcu) -> None:
    ncu.will(good_step(NAMES, report=False))
    assert stage().reason == "no-kernels"


def test_program_that_left_no_record_did_not_end_well(stage: StageRun, ncu: FakeNcu) -> None:
    step = good_step(NAMES)
    del step["record"]
    ncu.will(step)
    with pytest.raises(UserError, match="ended with an error"):
        stage()


def test_outcome_of_the_program_is_the_stages(stage: StageRun, ncu: FakeNcu) -> None:
    outcome = {"state": "failed", "reason": "oom", "detail": "ran out of memory below ncu"}
    ncu.will({"log": TEXTS["no-kernels"][0], "record": {"outcome": outcome}})
    status = stage()
    assert (status.state, status.reason, status.detail) == ("failed", "oom", "ran out of memory below ncu")


def test_other_kernels_than_in_the_census_are_reported(stage: StageRun, ncu: FakeNcu) -> None:
    ncu.will(good_step([*NAMES, "nchwToNhwcKernel"]))
    assert stage().state == "done"
    assert stage.read("kernel_names.json")["only_profiled"] == ["nchwToNhwcKernel"]
    assert "names-changed" in stage.read("command.json")["runs"][0]["warnings"]


def test_autotuning_inside_the_window_shows_by_the_number_of_launches(stage: StageRun, ncu: FakeNcu) -> None:
    ncu.will(good_step(NAMES * 40))
    stage()
    assert "many-launches" in stage.read("command.json")["runs"][0]["warnings"]


def test_warnings_of_the_log_are_kept_beside_the_data(stage: StageRun, ncu: FakeNcu) -> None:
    step = good_step(NAMES)
    for name in ("memory-spill", "clocks-free", "missing-metrics", "child-without-cuda"):
        step["log"] += TEXTS[name][0]
    ncu.will(step)
    stage()
    warnings = stage.read("command.json")["runs"][0]["warnings"]
    assert set(warnings) == {"memory-spill", "clocks-free", "missing-metrics", "cold-caches"}


def test_application_replay_is_recorded(stage: StageRun, ncu: FakeNcu) -> None:
    stage.changes["replay"] = "application"
    ncu.will(good_step(NAMES))
    stage()
    assert "application-replay" in stage.read("command.json")["runs"][0]["warnings"]


def test_compiled_config_is_profiled_whole(stage: StageRun, ncu: FakeNcu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "UNGATED_OPTIMISATIONS", ("channels_last",))
    stage.config = "opt2"
    ncu.will(good_step(NAMES))
    stage()
    assert stage.read("command.json")["plan"]["quotas"] is None


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda stage, ncu: ncu.will(good_step(NAMES), version="2023.3.0.0"), "ncu-version"),
        (lambda stage, ncu: ncu.will(good_step(NAMES), version="nothing"), "no-ncu"),
    ],
)
def test_ncu_that_does_not_serve_is_found_before_training(
    stage: StageRun, ncu: FakeNcu, prepare: Callable[[StageRun, FakeNcu], None], reason: str
) -> None:
    stage.changes["ncu_version"] = "2024.1"
    prepare(stage, ncu)
    status = stage()
    assert (status.state, status.reason) == ("unavailable", reason)
    assert ncu.calls == []
    assert "provenance.json" in status.files


def test_machine_without_a_driver_is_found_before_training(
    stage: StageRun, ncu: FakeNcu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_driver() -> None:
        raise UserError("there is no NVIDIA driver here")

    monkeypatch.setattr(counters, "check_driver", no_driver)
    ncu.will(good_step(NAMES))
    with pytest.raises(UserError, match="no NVIDIA driver"):
        stage()
    assert ncu.calls == []
    assert not stage.out.exists()


def test_unknown_field_is_refused(stage: StageRun, ncu: FakeNcu) -> None:
    stage.changes["metric"] = ["x"]
    ncu.will(good_step(NAMES))
    with pytest.raises(UserError, match="unknown field 'metric'"):
        stage()
