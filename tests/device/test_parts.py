"""Parts of the device check: names, metrics, sizes, crops, what is found wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpustudy.base.errors import UserError
from gpustudy.base.status import Status, write_status
from gpustudy.cell.document import read_cell
from gpustudy.cell.ncu_command import read_settings
from tests.cell.ncu_trace import training_trace
from tests.device import findings, volumes
from tests.device.documents import CONFIGS, METRICS, Machine, chip_name, gpu_name, stage_cells, workload


@pytest.mark.parametrize(
    ("device", "chip", "gpu"),
    [
        ("Tesla V100-SXM2-32GB", "V100", "v100"),
        ("NVIDIA A100-SXM4-40GB", "A100", "a100"),
        ("GRID A100X-40C", "A100X", "a100x"),
        ("NVIDIA H100 80GB HBM3", "H100", "h100"),
        ("NVIDIA H200", "H200", "h200"),
        ("NVIDIA GeForce RTX 3070", "RTX 3070", "rtx3070"),
        ("NVIDIA GeForce GTX 1660 Ti", "GTX 1660 Ti", "gtx1660ti"),
    ],
)
def test_gpu_is_named_by_its_chip(device: str, chip: str, gpu: str) -> None:
    assert (chip_name(device), gpu_name(device)) == (chip, gpu)
    assert chip_name(device) in device


def test_metrics_exist_on_all_three_generations(shared_facts: Path) -> None:
    with (shared_facts / "ncu_metric_availability.csv").open() as stream:
        rows = list(csv.reader(stream))
    bases = {row[0]: row for row in rows[1:]}
    for name in METRICS:
        base = name.split(".")[0]
        assert base in bases, name
        assert "0" not in bases[base][1:4], name


def test_settings_of_the_check_are_taken_by_the_stage() -> None:
    sections = workload(volumes.MODEL)
    assert read_settings(sections["counters"], "c").launches_per_stratum == 1


def test_cells_are_read_by_the_cell_side(tmp_path: Path) -> None:
    machine = Machine("NVIDIA H200", "sm_90", 2**37, {"torch": "2.11.0", "numpy": "2.5.2"})
    for config in CONFIGS:
        cells = stage_cells(machine, config, workload(volumes.MODEL), {"name": "d", "key": "0123456789ab"})
        for stage, content in cells.items():
            path = tmp_path / "cell.json"
            path.write_text(json.dumps(content))
            assert read_cell(path, stage).label == f"h200/{config}/r1 {stage}"


def test_volta_runs_tf32_as_a_null_control() -> None:
    machine = Machine("Tesla V100-SXM2-32GB", "sm_70", 2**35, {})
    cells = stage_cells(machine, "opt12", workload(volumes.MODEL), {"name": "d", "key": "0123456789ab"})
    assert cells["train"]["document"]["gpu"]["null_control"] == ["tf32"]


def test_workload_shrinks_until_it_fits(prepared_folder: Path) -> None:
    prepared = volumes.read_prepared(prepared_folder)

    def estimate(model: Any) -> int:
        return int(np.prod(model["volume"])) * model["base_channels"]

    full = 32 * 48 * 32 * 64
    assert volumes.fitting_model(prepared, 2 * full, estimate)["volume"] == [32, 48, 32]
    # 0.7 of the free bytes must hold it: the next smaller is 32 cubed, then 16 cubed, then half the channels
    assert volumes.fitting_model(prepared, full, estimate)["volume"] == [32, 32, 32]
    narrow = volumes.fitting_model(prepared, 16**3 * 32 * 2, estimate)
    assert (narrow["volume"], narrow["base_channels"]) == ([16, 16, 16], 32)
    with pytest.raises(UserError, match="free the device of other programs"):
        volumes.fitting_model(prepared, 10, estimate)


def test_crop_is_the_middle_with_its_own_key_and_affine(prepared_folder: Path, tmp_path: Path) -> None:
    prepared = volumes.read_prepared(prepared_folder)
    cut = volumes.crop(prepared, (16, 32, 32), tmp_path / "scratch")
    whole, part = (np.load(place.folder / "images.npy") for place in (prepared, cut))
    assert np.array_equal(part, whole[:, :, 8:24, 8:40, :])
    assert cut.key != prepared.key
    manifest = json.loads((cut.folder / "manifest.json").read_text())
    # 0 voxels along x, 8 along y, 8 along z, of 2, 3 and 4 mm
    assert np.array(manifest["affine"])[:3, 3].tolist() == [0.0, 24.0, 32.0]
    assert manifest["crop_of"] == prepared.key
    assert np.load(cut.folder / "labels.npy").shape == (2, 16, 32, 32)
    assert volumes.crop(prepared, prepared.volume, tmp_path) is prepared


def test_no_data_and_nothing_to_make_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volumes.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"no prepared data, and nilearn, .* is not installed here: prepare it elsewhere"
    ):
        volumes.find_prepared(None, tmp_path, tmp_path)


def test_data_prepared_beforehand_are_found(prepared_folder: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    (results / "data").mkdir(parents=True)
    prepared_folder.rename(results / "data" / "crafted-0123456789ab")
    assert volumes.find_prepared(None, results, tmp_path).name == "crafted"


def _train(folder: Path, losses: list[float]) -> Path:
    folder.mkdir(parents=True)
    lines = [json.dumps({"phase": "measured", "step_ns": 5, "loss": loss}) for loss in losses]
    (folder / "steps.jsonl").write_text("\n".join(lines).replace("NaN", "NaN"))
    write_status(folder, Status("train", "0123456789ab", "done"))
    return folder


def test_losses_that_differ_from_the_baselines_are_found(tmp_path: Path) -> None:
    folders = {
        name: {"train": _train(tmp_path / name, [loss, 0.7])} for name, loss in (("baseline", 0.8), ("opt1", 0.9))
    }
    assert findings.problems(folders, 2) == ["opt1 train: the first loss is 0.9000, baseline's is 0.8000"]


def test_missing_steps_and_bad_losses_are_found(tmp_path: Path) -> None:
    folders = {"baseline": {"train": _train(tmp_path / "t", [0.8, float("nan")])}}
    assert findings.problems(folders, 7) == [
        "baseline train: has 2 steps instead of 7",
        "baseline train: has a step without time or with an infinite loss",
    ]


def test_changed_file_is_found(tmp_path: Path) -> None:
    folder = _train(tmp_path / "t", [0.8])
    with (folder / "steps.jsonl").open("a") as stream:
        stream.write("\n")
    assert "steps.jsonl is not the file that the status lists" in findings.problems({"c": {"train": folder}}, 1)[0]


def test_census_without_an_optimiser_is_found(tmp_path: Path) -> None:
    training_trace().write(tmp_path / "trace.json.gz")
    write_status(tmp_path, Status("census", "0123456789ab", "done"))
    found = findings.problems({"baseline": {"train": tmp_path / "none", "census": tmp_path}}, 1)
    assert "baseline census: has no kernel in optimiser" in found
    assert "baseline train: left no result (see run.log)" in found


@pytest.mark.parametrize(
    ("report", "launches", "sentence"),
    [
        (b"NVR\0", 79, "profiled 79 launches, planned were 100"),
        (b"text", 100, "report.ncu-rep is no report"),
    ],
)
def test_counters_that_are_none_are_found(tmp_path: Path, report: bytes, launches: int, sentence: str) -> None:
    (tmp_path / "report.ncu-rep").write_bytes(report)
    runs = [{"report": "report.ncu-rep", "launches": launches}]
    (tmp_path / "command.json").write_text(json.dumps({"runs": runs, "plan": {"planned_launches": 100}}))
    write_status(tmp_path, Status("counters", "0123456789ab", "done"))
    found = findings.problems({"opt1": {"train": tmp_path / "none", "counters": tmp_path}}, 1)
    assert f"opt1 counters: {sentence}" in found
