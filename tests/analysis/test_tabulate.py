"""The tables of the crafted study: each holds the numbers that the kernels, settings and truths were made with."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

import gpustudy
from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.names import TABLES
from gpustudy.analysis.tables import build, to_csv, to_html, to_latex
from gpustudy.study.load import Effective
from gpustudy.study.states import survey
from tests.analysis.crafted import Crafted
from tests.support.crafted_study import Truth, craft_study, crafted_effective


@pytest.fixture(scope="module")
def dataset(crafted_study: Effective) -> Dataset:
    return Dataset(survey(crafted_study))


def rows_of(name: str, dataset: Dataset) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(build(name, dataset)))))


def test_every_table_has_its_module_and_every_module_its_name() -> None:
    modules = {path.stem for path in (Path(gpustudy.__file__).parent / "analysis/tabulate").glob("*.py")}
    assert modules - {"__init__"} == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_every_form_says_that_the_study_is_crafted(name: str, dataset: Dataset) -> None:
    table = build(name, dataset)
    assert table.rows
    assert all("CRAFTED DATA" in form for form in (to_csv(table), to_latex(table), to_html(table)))


@pytest.mark.parametrize("name", TABLES)
def test_every_table_can_be_made_without_a_result(name: str, tmp_path: Path) -> None:
    table = build(name, Dataset(survey(crafted_effective(tmp_path))))
    assert to_csv(table).count("\n") == len(table.rows) + 1


def test_platforms_name_the_device_found_and_cite_its_rates(dataset: Dataset) -> None:
    rows = {row["gpu"]: row for row in rows_of("platforms", dataset)}
    assert list(rows) == ["v100", "a100", "h100", "cpu"]
    a100 = rows["a100"]
    assert (a100["device_name"], a100["architecture"]) == ("NVIDIA A100-SXM4-40GB", "sm_80")
    assert (float(a100["fp32_flops"]), float(a100["tf32_flops"])) == (19.5e12, 156e12)
    assert float(a100["memory_bytes"]) == 40 * 2**30
    assert "Table 4" in a100["source"]
    assert (rows["cpu"]["fp32_flops"], rows["v100"]["tf32_flops"]) == ("", "")
    assert (float(a100["cells_with_results"]), float(a100["cells"])) == (15, 15)


def test_workloads_say_where_they_differ_from_the_published(dataset: Dataset) -> None:
    rows = {row["workload"]: row for row in rows_of("workloads", dataset)}
    assert rows["paper"]["difference_to_published"] == "as published"
    assert (rows["paper"]["volume"], rows["paper"]["channels"]) == ("128x128x128", "64-64-128-192-256")
    assert "volume 16-16-16 instead of 128-128-128" in rows["demo"]["difference_to_published"]
    assert (rows["demo"]["gpus"], rows["demo"]["counters"]) == ("cpu", "none")


def test_stacks_say_how_they_differ_from_the_paper(dataset: Dataset, crafted_study: Effective, tmp_path: Path) -> None:
    rows = rows_of("stacks", dataset)
    assert {row["difference_to_paper"] for row in rows if row["torch"].startswith("2.0.1")} == {
        "cuda 11.8 instead of 12.9"
    }
    truth = Truth(provenance={"v100": {"cuda": "12.9"}}, absent={"a100", "h100", "cpu"})
    told = craft_study(crafted_effective(tmp_path), truth, base=crafted_study.results)
    assert [row["difference_to_paper"] for row in rows_of("stacks", Dataset(survey(told)))] == ["as stated"]


def test_top_kernels_are_those_that_take_the_time(dataset: Dataset) -> None:
    rows = [row for row in rows_of("top_kernels", dataset) if (row["gpu"], row["config"]) == ("a100", "baseline")]
    assert len(rows) == 10
    first = rows[0]
    assert (first["name"], first["class"]) == (
        "cudnn_train_volta_scudnn_128x64_stridedB_splitK_xregs_large_nn_v1",
        "conv_wgrad",
    )
    assert (first["rank"], first["launches_per_step"]) == ("1", "6")  # counts are integers
    assert float(first["step_s"]) == pytest.approx(0.048)  # 6 launches of 8 ms
    assert float(first["share_pct"]) == pytest.approx(100 * 48 / 148.5, rel=1e-4)
    assert float(first["score_s"]) == pytest.approx(0.048 * 0.12, rel=1e-3)  # 12 % is estimated for each


def test_quality_is_compared_with_baseline(crafted_study: Effective, tmp_path: Path) -> None:
    truth = Truth(values={("a100", "opt1", "mask_fidelity", "foreground"): 0.61}, absent={"v100", "h100", "cpu"})
    told = craft_study(crafted_effective(tmp_path), truth, base=crafted_study.results)
    rows = {(row["config"], row["metric"]): row for row in rows_of("quality_scores", Dataset(survey(told)))}
    assert float(rows["opt1", "mask fidelity (Dice)"]["difference"]) == pytest.approx(-0.10, abs=1e-3)
    assert rows["baseline", "mask fidelity (Dice)"]["difference"] == ""


def test_cost_adds_up_the_stages(dataset: Dataset) -> None:
    row = next(row for row in rows_of("cost", dataset) if (row["gpu"], row["config"]) == ("h100", "opt2"))
    assert [float(row[f"{stage}_s"]) for stage in ("train", "census", "counters", "quality")] == [30, 12, 600, 45]
    assert float(row["device_hours"]) == pytest.approx(3 * 687 / 3600)
    assert (float(row["counters_over_train"]), float(row["coverage_pct"])) == (20, 100)
    assert float(row["profiled_launches"]) == pytest.approx(81)  # all but the memory copy
    assert float(row["launches_per_step"]) == pytest.approx(82)


def test_measured_time_is_charged_by_the_published_rate_of_the_cheapest_site(dataset: Dataset) -> None:
    rows = {row["gpu"]: row for row in rows_of("cost", dataset) if row["config"] == "opt2"}
    told = {gpu: (row["service_units"], row["unit_and_site"]) for gpu, row in rows.items()}
    assert told["cpu"] == ("", "\N{EN DASH}")  # the local site states no rate
    assert float(told["h100"][0]) == pytest.approx(3 * 687 / 3600)  # 4 SU an hour, shared by the node's four GPUs
    assert told["h100"][1] == "SU at stampede3-node"  # a job of its own per cell costs 1 SU at least
    assert (float(told["v100"][0]), told["v100"][1]) == (3, "SU at expanse")  # at least 1 SU per job, 1 per hour
    hours = float(rows["a100"]["device_hours"])
    assert float(told["a100"][0]) == pytest.approx(128 * hours)
    assert told["a100"][1] == "SU at jetstream2"


def test_claims_carry_verdict_and_evidence(dataset: Dataset) -> None:
    rows = {row["claim"]: row for row in rows_of("claims", dataset)}
    assert len(rows) == 39
    assert rows["O2-2"]["verdict"] == "IMPLAUSIBLE (crafted)"
    assert "0.2889 x" in rows["G3"]["why"]
    assert "a100/baseline/r1,2,3" in rows["G3"]["cells"]


@pytest.mark.parametrize(("name", "column"), [("summary", "gpu"), ("platforms", "gpu"), ("states", "cell")])
def test_gpus_with_results_come_first(name: str, column: str, tmp_path: Path) -> None:
    crafted = Crafted(tmp_path)
    crafted.absent("v100", "baseline", 1, "foreign-missing")
    crafted.absent("cpu", "baseline", 2, "missing")
    crafted.done("cpu", "baseline", 1, [1.0, 1.1])
    rows = rows_of(name, Dataset(crafted.survey()))
    assert rows[0][column].startswith("cpu")
    assert rows[-1][column].startswith("v100")
    if name == "states":
        assert [row["cell"] for row in rows] == ["cpu/baseline/r1", "cpu/baseline/r2", "v100/baseline/r1"]
