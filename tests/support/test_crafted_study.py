"""The crafted study is whole, has the answers it claims, and cannot pass for a measurement."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gpustudy.analysis.dataset import Dataset
from gpustudy.archive.check import check_archive
from gpustudy.archive.exporting import export_archive
from gpustudy.archive.folder import open_archive
from gpustudy.archive.importing import arrivals, land
from gpustudy.cli import main
from gpustudy.metrics.make import make_metrics
from gpustudy.metrics.schemas import TABLES, read_table
from gpustudy.study.cells import Keys
from gpustudy.study.load import Effective
from gpustudy.study.states import survey
from tests.support.crafted_kernels import kernels_of, step_s
from tests.support.crafted_study import CONFIGS, Truth, craft_study, crafted_effective


@pytest.fixture(scope="module")
def crafted(tmp_path_factory: pytest.TempPathFactory) -> Effective:
    """Two gpus and two configs: enough for what is asked here."""
    effective = crafted_effective(tmp_path_factory.mktemp("crafted") / "results", configs=("baseline", "opt1"))
    return craft_study(effective, Truth(absent={"v100", "h100"}))


def test_every_stage_is_current_and_every_table_is_in_the_real_schema(crafted: Effective) -> None:
    states = {(cell.gpu, cell.config): cell.state for cell in survey(crafted).cells}
    assert states["a100", "baseline"] == states["a100", "opt1"] == states["cpu", "baseline"] == "done"
    assert states["cpu", "opt1"] == "unsupported"
    assert states["h100", "baseline"] == "foreign-missing"
    found = {path.stem for path in crafted.results.rglob("*.parquet") if read_table(path, path.stem) is not None}
    assert found == set(TABLES)


def test_times_are_the_sums_of_the_kernels(crafted: Effective) -> None:
    dataset = Dataset(survey(crafted))
    (group,) = [group for group in dataset.groups("a100") if group.config == "baseline"]
    assert sorted(dataset.step_times(group)[1])[12] == pytest.approx(
        0.1485
    )  # 36 + 6 + 42 + 48 + ... ms, the middle of 25
    assert step_s("a100", "baseline") == pytest.approx(0.1485)
    time = dataset.of(dataset.class_time, group).query("repeat == 1").groupby("class")["step_ns"].sum()
    assert time["conv_wgrad"] == pytest.approx(48e6)  # 6 launches of 8 ms


def test_the_counters_of_a_total_are_sums_over_launches(crafted: Effective) -> None:
    rows = Dataset(survey(crafted)).quantities.query("gpu == 'a100' and config == 'baseline' and repeat == 1")
    whole = rows[rows["kernel_class"].isna()].set_index(["quantity", "scope"])["value"]
    kernels = [kernel for kernel in kernels_of("a100", "baseline") if kernel.phase != "data"]
    time_us = sum(kernel.launches * kernel.us for kernel in kernels)
    tensor_us = sum(kernel.launches * kernel.us for kernel in kernels if kernel.kind.tensor == 1.5)
    assert whole["duration_ns", "total"] == pytest.approx(time_us * 1000)
    assert whole["sm_active_cycles", "total"] == pytest.approx(0.9 * time_us * 1e-6 * 1.41e9)
    assert whole["tensor_pipe_pct", "total"] == pytest.approx(1.5 * tensor_us / time_us)


def test_a_truth_sets_one_answer_and_leaves_the_rest(crafted: Effective, tmp_path: Path) -> None:
    truth = Truth(values={("a100", "opt1", "ipc", "total"): 3.0}, absent={"v100", "h100"})
    told = crafted_effective(tmp_path, configs=("baseline", "opt1"))
    rows = Dataset(survey(craft_study(told, truth, base=crafted.results))).quantities
    ipc = rows.query("gpu == 'a100' and repeat == 1 and quantity == 'ipc' and scope == 'total'")
    whole = ipc[ipc["kernel_class"].isna()].set_index("config")["value"]
    assert whole["opt1"] == pytest.approx(3.0)
    assert whole["baseline"] < 2.4


def test_every_row_and_every_manifest_says_that_it_is_crafted(crafted: Effective) -> None:
    for path in crafted.results.rglob("cells.parquet"):
        assert set(pq.read_table(path, partitioning=None)["origin"].to_pylist()) == {"crafted"}
    for path in crafted.results.rglob("metrics.json"):
        assert json.loads(path.read_text())["provenance"]["origin"] == "crafted"


def test_tables_made_anew_from_crafted_raw_files_are_crafted(crafted: Effective, tmp_path: Path) -> None:
    raw = next((crafted.results / "cells/a100/baseline/r1").glob("train-*"))
    make_metrics(raw, tmp_path / "out", "0" * 12)
    origins = pq.read_table(tmp_path / "out/cells.parquet", partitioning=None)["origin"].to_pylist()
    assert set(origins) == {"crafted"}


@pytest.mark.parametrize("with_raw", [True, False])
def test_an_archive_of_it_cannot_pass_for_measured(crafted: Effective, tmp_path: Path, with_raw: bool) -> None:
    keys, file = Keys(crafted), tmp_path / "a100.zip"
    seen = survey(crafted, keys)
    done = export_archive(seen, keys, file, [one for one in seen.cells if one.gpu == "a100"], with_raw=with_raw)
    assert "a100/opt1/r2" in done.crafted
    target = crafted_effective(tmp_path / "elsewhere", configs=("baseline", "opt1"))
    with open_archive(file) as archive:
        contents = check_archive(archive)
        assert contents.manifest.about["origin"] == "crafted"
        assert contents.manifest.crafted == done.crafted
        land(target, archive, contents, arrivals(target, contents), replace=False)
    assert Dataset(survey(target)).crafted


def test_whoever_exports_lists_or_imports_it_is_told(
    crafted: Effective, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    shutil.copy(repository / "config.yaml", tmp_path)
    (tmp_path / "results").mkdir()
    for room in ("cells", "metrics"):
        (tmp_path / "results" / room).symlink_to(crafted.results / room)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUSTUDY_CONFIG", raising=False)
    for arguments in (
        ["export", "a100.zip", "--gpu", "a100", "--with", "metrics"],
        ["list", "a100.zip"],
        ["import", "a100.zip", "--dry-run"],
    ):
        assert main(["archive", *arguments]) == 0
        assert "CRAFTED DATA: a100/baseline/r1 and 5 more were made up, not measured" in capsys.readouterr().err


def test_the_configs_are_those_of_the_paper(crafted: Effective) -> None:
    assert set(CONFIGS) <= set(crafted_effective(Path("nowhere")).study.configs)
