"""The main job, really run once on a tiny workload, and what a second run would do after every kind of change."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.checkout import TINY, Checkout, copy_checkout, planned

CONFIGS = ("default", "baseline", "opt1", "opt2", "opt12", "tuned", "fast")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the tiny study was run by real Snakemake. Tests must not change it: see ``copy``."""
    checkout = copy_checkout(tmp_path_factory.mktemp("ran") / "checkout")
    overlay = checkout.overlay(TINY)
    done = checkout.snakemake("--configfile", overlay)
    (checkout.root / "first.log").write_text(done.stdout)
    return checkout


@pytest.fixture
def copy(ran: Checkout, tmp_path: Path) -> Checkout:
    """A copy of the run checkout without ``.snakemake``, to change."""
    shutil.copytree(ran.root, tmp_path / "copy", symlinks=True, ignore=shutil.ignore_patterns(".snakemake"))
    return Checkout(tmp_path / "copy")


def plan_of(checkout: Checkout, *arguments: str) -> dict[str, int]:
    """What ``snakemake -n`` plans with the tiny overlay."""
    return planned(checkout.snakemake("-n", "-q", "rules", "--configfile", "overlay.yaml", *arguments).stdout)


def status_of(checkout: Checkout) -> dict[tuple[str, str], str]:
    """(gpu, config) -> state of the first repeat."""
    rows = json.loads(checkout.gpustudy("status", "--json", "--configfile", "overlay.yaml").stdout)
    return {(row["gpu"], row["config"]): row["state"] for row in rows if row["repeat"] == 1}


def draws(jobs: dict[str, int]) -> set[str]:
    return {name for name in jobs if name.startswith(("draw_", "make_", "write_")) and name != "make_metrics"}


def test_every_cell_of_this_machine_has_its_outcome(ran):
    found = status_of(ran)
    expected = dict.fromkeys(CONFIGS, "done") | {"opt1": "unsupported", "opt12": "unsupported"}
    assert {config: found["cpu", config] for config in CONFIGS} == expected
    assert {found[gpu, config] for gpu in ("v100", "a100", "h100") for config in CONFIGS} == {"foreign-missing"}


def test_the_reason_of_an_unsupported_cell_is_a_sentence_and_no_copy_of_the_baseline(ran):
    status = json.loads(next(ran.root.glob("results/cells/cpu/opt1/r1/train-*/status.json")).read_text())
    assert status["state"] == "unsupported"
    assert "tf32" in status["detail"]
    assert set(status["files"]) == {"cell.json", "provenance.json"}


def test_raw_files_become_tables_with_the_measured_steps(ran):
    raw = next(ran.root.glob("results/cells/cpu/baseline/r1/train-*/steps.jsonl"))
    steps = [json.loads(line) for line in raw.read_text().splitlines()]
    table = pq.read_table(next(ran.root.glob("results/metrics/cpu/baseline/r1/train-*/steps.parquet"))).to_pylist()
    assert [step["phase"] for step in steps] == ["warmup", "measured", "measured"]
    assert [row["step_ns"] for row in table] == [step["step_ns"] for step in steps]
    assert [row["loss"] for row in table] == [step["loss"] for step in steps]


def test_equal_seeds_give_equal_data_and_noise_to_every_config(ran):
    losses = {}
    for config in ("default", "baseline"):
        raw = next(ran.root.glob(f"results/cells/cpu/{config}/r1/train-*/steps.jsonl"))
        losses[config] = [json.loads(line)["loss"] for line in raw.read_text().splitlines()]
    assert losses["default"] == losses["baseline"]


def test_every_product_is_there_and_the_report_is_small_and_whole(ran):
    for name in ("step_time", "class_time", "loss_curves", "peak_memory"):
        assert (ran.root / f"results/figures/{name}.svg").stat().st_size > 1000
        assert (ran.root / f"results/figures/{name}.pdf").stat().st_size > 1000
    report = (ran.root / "results/report.html").read_text()
    assert len(report) < 5e6
    assert 'src="http' not in report
    assert "foreign-missing" in report
    assert f"Report: {ran.root}/results/report.html" in (ran.root / "first.log").read_text()


def test_cells_of_a_cpu_leave_claims_about_gpus_open_and_times_come_from_records(ran):
    evidence = json.loads((ran.root / "results/claims.json").read_text())
    assert evidence["crafted"] is False
    decided = ("SUPPORTED", "CONTRADICTED", "AMBIGUOUS", "IMPLAUSIBLE")
    assert [evidence["verdicts"][verdict] for verdict in decided] == [[]] * 4
    assert len(evidence["verdicts"]["NOT MEASURED"]) == 39
    appendix = (ran.root / "results/appendix.md").read_text()
    assert "CRAFTED" not in appendix
    assert "| set-up | prepare_data (1 job) | " in appendix
    assert "| execution | train on cpu, " in appendix


def test_a_person_can_follow_the_progress_of_a_training_run(ran):
    assert "cpu/baseline/r1 train: iteration 1/" in (ran.root / "first.log").read_text()


def test_a_second_run_has_nothing_to_do(ran):
    done = ran.snakemake("--configfile", "overlay.yaml")
    assert "Nothing to be done" in done.stdout
    assert plan_of(ran) == {}


def test_touching_every_file_in_any_order_without_snakemakes_memory_reruns_nothing(copy):
    files = [path for path in copy.root.rglob("*") if path.is_file()]
    random.Random(1).shuffle(files)
    for second, path in enumerate(files):
        os.utime(path, (1_800_000_000 + second, 1_800_000_000 + second))
    assert plan_of(copy) == {}


def test_touching_with_snakemakes_memory_reruns_nothing(ran, tmp_path):
    shutil.copytree(ran.root, tmp_path / "whole", symlinks=True)
    whole = Checkout(tmp_path / "whole")
    files = [path for path in whole.root.rglob("*") if path.is_file() and ".snakemake" not in path.parts]
    random.Random(2).shuffle(files)
    for second, path in enumerate(files):
        os.utime(path, (1_800_000_000 + second, 1_800_000_000 + second))
    assert plan_of(whole) == {}


def test_a_changed_config_reruns_its_own_cells_and_every_product(copy):
    copy.edit("config.yaml", "optimisations: [channels_last]", "optimisations: [channels_last, sdpa]")
    jobs = plan_of(copy)
    assert {rule: jobs.get(rule) for rule in ("run_train", "run_census", "run_quality", "make_metrics")} == {
        "run_train": 1,
        "run_census": 1,
        "run_quality": 1,
        "make_metrics": 3,
    }
    assert "draw_step_time" in jobs
    assert "write_report" in jobs
    assert "prepare_data" not in jobs


def test_one_figure_asked_for_by_name_brings_the_stale_cells_with_it(copy):
    copy.edit("config.yaml", "optimisations: [channels_last]", "optimisations: [channels_last, sdpa]")
    jobs = plan_of(copy, "--", "step_time")
    assert jobs["run_train"] == 1
    assert draws(jobs) == {"draw_step_time"}


def test_a_changed_plot_reruns_no_cell(copy):
    path = copy.root / "workflow/gpustudy/analysis/style.py"
    path.write_text(path.read_text() + "\n# a remark\n")
    jobs = plan_of(copy)
    assert not [rule for rule in jobs if rule.startswith("run_") or rule == "make_metrics"]
    assert "draw_step_time" in jobs


def test_an_edited_network_makes_every_cell_stale(copy):
    path = copy.root / "workflow/gpustudy/medddpm/unet.py"
    path.write_text(path.read_text() + "\n# a remark\n")
    assert plan_of(copy)["run_train"] == len(CONFIGS)
    listed = copy.gpustudy("plan", "--configfile", "overlay.yaml").stdout
    assert "cpu/baseline/r1 train: stale: source medddpm/unet.py" in listed


def test_a_foreign_target_exits_0_and_names_each_cells_state(ran):
    done = ran.snakemake("--configfile", "overlay.yaml", "--", "a100")
    for config in CONFIGS:
        assert f"{config} r1" in done.stdout
    assert "foreign-missing" in done.stdout
    assert not (ran.root / "results/cells/a100").exists()


def test_the_dry_run_of_the_full_study_plans_no_foreign_cell_and_names_each_state(tmp_path):
    checkout = copy_checkout(tmp_path / "fresh")
    done = checkout.snakemake("-n")
    assert "a100/" not in done.stdout
    for gpu in ("v100", "a100", "h100"):
        line = next(line for line in done.stdout.splitlines() if line.startswith(f"{gpu} is foreign"))
        assert all(f"{config} r1 r2 r3" in line for config in CONFIGS)
    assert planned(checkout.snakemake("-n", "-q", "rules").stdout)["run_train"] == 3 * len(CONFIGS)


@pytest.mark.parametrize(("target", "trains"), [("cpu", 7), ("opt2", 1), ("figures", 7), ("tables", 7), ("report", 7)])
def test_a_subset_is_a_target(tmp_path, target, trains):
    checkout = copy_checkout(tmp_path / "fresh")
    checkout.overlay(TINY)
    assert plan_of(checkout, "--", target)["run_train"] == trains


def test_retry_makes_the_next_run_make_that_stage_and_what_was_made_from_it(copy):
    copy.gpustudy("retry", "cpu/opt2/r1/census", "--configfile", "overlay.yaml")
    jobs = plan_of(copy)
    assert {rule for rule in jobs if rule.startswith("run_")} == {"run_census"}
    assert "draw_class_time" in jobs


def test_snakemakes_own_report_works(ran, tmp_path):
    target = tmp_path / "report.html"
    ran.snakemake("--configfile", "overlay.yaml", "--report", str(target))
    assert target.stat().st_size > 100_000
