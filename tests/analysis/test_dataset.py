"""The data set holds what was written, of done stages alone, and knows why the rest is absent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpustudy.analysis import tables
from gpustudy.analysis.dataset import Dataset, Group
from gpustudy.analysis.draw import draw_figure
from gpustudy.analysis.groups import conversions_of, largest_class, speedup_of
from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from tests.analysis.crafted import CLASS_NS, GIB, Crafted


def group_of(dataset: Dataset, gpu: str, config: str) -> Group:
    return next(group for group in dataset.groups(gpu) if group.config == config)


def test_step_times_leave_out_warmup(full: Dataset) -> None:
    times = full.step_times(group_of(full, "a100", "baseline"))
    assert times[2] == pytest.approx([0.918, 1.02, 1.02, 1.53, 1.02])
    assert sorted(times) == [1, 2, 3]


def test_class_time_is_per_step_and_leaves_out_what_lies_outside(full: Dataset) -> None:
    time = full.of(full.class_time, group_of(full, "a100", "baseline"))
    own = time[time["repeat"] == 1].set_index(["phase", "class"])["step_ns"].to_dict()
    assert own == pytest.approx(CLASS_NS)


def test_peak_memory_is_the_largest(full: Dataset) -> None:
    assert full.peak_memory(group_of(full, "a100", "opt2")) == {1: 20 * GIB, 2: 20 * GIB, 3: 20 * GIB}


def test_conversions_are_means_over_repeats_of_converting_calls_alone(full: Dataset) -> None:
    found = conversions_of(full, group_of(full, "a100", "opt2"))
    assert found is not None
    assert found["calls"].to_dict() == {"clone": 8, "contiguous": 40}
    assert found["bytes"].to_dict() == {"clone": GIB, "contiguous": 4 * GIB}
    none = conversions_of(full, group_of(full, "a100", "baseline"))
    assert none is not None
    assert none.empty
    assert conversions_of(full, group_of(full, "v100", "baseline")) is None


def test_largest_class_and_its_share(full: Dataset) -> None:
    assert largest_class(full, group_of(full, "cpu", "baseline")) == ("convolution", pytest.approx(800 / 1005))
    assert largest_class(full, group_of(full, "cpu", "opt1")) is None


def test_speedup_needs_a_baseline(full: Dataset) -> None:
    found = speedup_of(full, group_of(full, "a100", "opt1"))
    assert found is not None
    assert found.value == pytest.approx(2, rel=1e-6)
    assert speedup_of(full, group_of(full, "h100", "opt1")) is None


@pytest.mark.parametrize(
    ("gpu", "config", "word"),
    [
        ("v100", "opt1", "missing (foreign)"),
        ("h100", "baseline", "stale (foreign)"),
        ("cpu", "opt12", "unsupported"),
        ("cpu", "baseline", ""),
    ],
)
def test_absence_has_a_word(full: Dataset, gpu: str, config: str, word: str) -> None:
    assert group_of(full, gpu, config).word("train") == word


def test_marks_are_in_the_label(full: Dataset) -> None:
    assert group_of(full, "h100", "opt1").label == "opt1 (null control)"
    assert group_of(full, "a100", "default").label == "default (accepted)"


def test_stages_of_a_cell_count_one_by_one(tmp_path: Path) -> None:
    crafted = Crafted(tmp_path)
    crafted.done("a100", "baseline", 1, [1.0, 1.0], stages=("train",))
    dataset = Dataset(crafted.survey())
    assert dataset.step_times(dataset.groups("a100")[0]) == {1: [1.0, 1.0]}
    assert dataset.class_time.empty
    assert dataset.groups("a100")[0].word("census") == "missing"


@pytest.mark.parametrize("state", ["stale", "failed", "unavailable"])
def test_a_stage_that_is_not_done_is_not_read_though_it_has_tables(state: str, tmp_path: Path) -> None:
    crafted = Crafted(tmp_path)
    crafted.done("a100", "baseline", 1, [1.0, 1.0])
    (cell,) = crafted.cells
    train = replace(cell.stages[0], state=state)
    crafted.cells = [replace(cell, state=state, stages=(train, *cell.stages[1:]))]
    dataset = Dataset(crafted.survey())
    assert dataset.step_times(dataset.groups("a100")[0]) == {}
    assert dataset.groups("a100")[0].word("train") == state


def test_crafted_is_known_by_origin(tmp_path: Path, full: Dataset) -> None:
    measured = Crafted(tmp_path, origin="measured")
    measured.done("cpu", "baseline", 1, [1.0])
    assert not Dataset(measured.survey()).crafted
    assert full.crafted


def test_broken_table_is_one_sentence(tmp_path: Path) -> None:
    crafted = Crafted(tmp_path)
    crafted.done("cpu", "baseline", 1, [1.0])
    stage = next(stage for stage in crafted.cells[0].stages if stage.stage == "census")
    assert stage.metrics is not None
    (stage.metrics / "launches.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(UserError, match=r"launches\.parquet is not a readable .*make it again with 'gpustudy metrics'"):
        _ = Dataset(crafted.survey()).class_time


def listed(root: Path) -> tuple[Crafted, Path]:
    """A cell whose metrics.json lists the table of its steps, and that table."""
    crafted = Crafted(root)
    crafted.done("cpu", "baseline", 1, [1.0])
    stage = next(stage for stage in crafted.cells[0].stages if stage.stage == "train")
    assert stage.metrics is not None
    table, listing = stage.metrics / "steps.parquet", stage.metrics / "metrics.json"
    about = {"sha256": file_sha256(table), "bytes": table.stat().st_size}
    listing.write_text(json.dumps(json.loads(listing.read_text()) | {"tables": {table.name: about}}))
    assert len(Dataset(crafted.survey()).steps)
    return crafted, table


@pytest.mark.parametrize("damage", ["missing", "cut short"])
def test_a_listed_table_that_is_missing_or_cut_short_costs_its_stage_alone(damage: str, tmp_path: Path) -> None:
    crafted, table = listed(tmp_path)
    table.unlink() if damage == "missing" else table.write_bytes(table.read_bytes()[:-100])
    dataset = Dataset(crafted.survey())
    (cell,) = dataset.survey.cells
    assert cell.state == "damaged"
    assert cell.reason.startswith(f"{table} is not the file that metrics.json beside it lists: remove {table.parent}")
    (group,) = dataset.groups("cpu")
    assert (group.word("train"), group.word("census")) == ("damaged", "")
    assert dataset.step_times(group) == {}
    assert not dataset.class_time.empty
    draw_figure("step_time", crafted.survey(), tmp_path / "figures")
    (row,) = tables.build("states", dataset).rows
    assert [value.text for value in row][1] == "damaged"
    assert row[-1].text == cell.reason


def test_a_listed_table_of_equal_length_and_other_content_is_never_passed_over(tmp_path: Path) -> None:
    crafted, table = listed(tmp_path)
    table.write_bytes(table.read_bytes()[:-1] + b"?")
    with pytest.raises(
        UserError, match=r"steps\.parquet is not the file that metrics\.json .*: remove .* and run again"
    ):
        _ = Dataset(crafted.survey()).steps
