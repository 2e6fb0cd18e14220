"""Two clones that cannot see each other: A measures a100, B measures h100 and reads A's archives."""

from __future__ import annotations

import shutil

import pytest

from tests.support.checkout import Checkout
from tests.workflow.staleness import (
    CONFIGS,
    cells,
    copy_of,
    craft_results,
    foreign_states,
    jobs_of,
    make_checkout,
    rewrite_config,
)

CUDA = ("train", "census", "counters", "quality")
DONE = {config: {"done"} for config in CONFIGS}
MISSING = {config: {"foreign-missing"} for config in CONFIGS}
STALE = {config: {"foreign-stale"} for config in CONFIGS}
AT_B = ("--configfile", "site.yaml")
OPT2 = "optimisations: [channels_last]"


def two_sites(content: dict) -> dict:
    """Give each of the two gpus to one site alone, without containers."""
    for site in content["sites"].values():
        site["gpus"] = [gpu for gpu in site["gpus"] if gpu not in ("a100", "h100")]
    here = {"executor": "local", "runtime": "none"}
    content["sites"] |= {"alpha": {"gpus": ["a100"], **here}, "beta": {"gpus": ["h100"], **here}}
    return content


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, Checkout]:
    """Clone A with its own cells measured and exported with and without raw files, and clone B with nothing."""
    folder = tmp_path_factory.mktemp("clones")
    a = make_checkout(folder / "a")
    rewrite_config(a, two_sites)
    b = copy_of(a, folder / "b")
    for checkout, site in ((a, "alpha"), (b, "beta")):
        checkout.overlay({"site": site}, "site.yaml")
    craft_results(a, ("a100",), site="alpha", products=False)
    for kind in ("raw", "metrics"):
        a.gpustudy("archive", "export", f"{kind}.zip", "--gpu", "a100", "--with", kind, *AT_B)
    return a, b


@pytest.fixture
def b(clones: tuple[Checkout, Checkout], tmp_path) -> Checkout:
    """A copy of clone B that has A's archives beside it."""
    a, clean = clones
    copy = copy_of(clean, tmp_path / "b")
    for kind in ("raw", "metrics"):
        shutil.copy(a.root / f"{kind}.zip", copy.root)
    return copy


@pytest.fixture
def measured(b: Checkout) -> Checkout:
    """Clone B after importing A's tables and measuring its own cells."""
    b.gpustudy("archive", "import", "metrics.zip", *AT_B)
    craft_results(b, ("h100",), site="beta")
    return b


def planned(checkout: Checkout, *arguments: str):
    """What Snakemake plans at site beta: jobs of cells, other rules."""
    return jobs_of(checkout, *AT_B, *arguments)


def states(checkout: Checkout):
    return foreign_states(checkout, "a100", *AT_B)


def test_before_the_import_b_plans_its_own_cells_alone(b):
    jobs, others = planned(b)
    assert jobs == cells(CUDA, gpu="h100")
    assert "prepare_data" in others
    assert states(b) == MISSING


def test_imported_tables_are_done_and_plan_no_job_of_the_foreign_gpu(b):
    told = b.gpustudy("archive", "import", "metrics.zip", *AT_B).stdout
    assert "a100/opt2/r1 train tables: current, new" in told
    assert planned(b)[0] == cells(CUDA, gpu="h100")
    assert states(b) == DONE


def test_after_its_own_run_b_has_nothing_to_do(measured):
    assert planned(measured) == (set(), set())
    assert "Nothing to be done" in measured.snakemake("-n", *AT_B).stdout


def test_a_changed_value_reruns_own_cells_and_shows_the_foreign_ones_as_stale(measured):
    measured.edit("config.yaml", "- channels_last", "- sdpa")
    assert planned(measured)[0] == cells(CUDA, configs=["opt2"], gpu="h100")
    assert states(measured) == DONE | {"opt2": {"foreign-stale"}}
    assert "foreign-stale: opt2 r1 r2" in measured.snakemake("-n", *AT_B).stdout
    told = measured.gpustudy("why", "a100/opt2/r1", *AT_B).stdout
    assert 'config.optimisations: ["channels_last"] -> ["sdpa"]' in told


def test_forcing_all_jobs_never_attempts_a_foreign_cell(measured):
    jobs, others = planned(measured, "--forceall")
    assert jobs == cells(CUDA, gpu="h100")
    assert others >= {"write_report", "draw_step_time", "prepare_data"}
    measured.edit("config.yaml", "- channels_last", "- sdpa")
    assert planned(measured, "--forceall")[0] == cells(CUDA, gpu="h100")


def test_a_stale_foreign_file_asked_for_by_name_has_no_rule(measured):
    path = next(path for path in (measured.root / "results/metrics/a100/opt2/r1").glob("train-*"))
    shutil.rmtree(path)
    name = f"{path.relative_to(measured.root)}/metrics.json"
    done = measured.snakemake("-n", *AT_B, "--", name, check=False)
    assert done.returncode != 0
    assert "MissingInputException" in done.stdout or "MissingRuleException" in done.stdout


def test_a_value_taken_back_makes_old_results_current_again(measured):
    measured.edit("config.yaml", "- channels_last", "- sdpa")
    assert planned(measured)[0]
    measured.edit("config.yaml", "- sdpa", "- channels_last")
    assert planned(measured) == (set(), set())


def test_edited_table_sources_make_tables_without_raw_files_stale_and_raw_files_bring_them_back(measured):
    path = measured.root / "workflow/gpustudy/metrics/make.py"
    path.write_text(path.read_text() + "\n# a remark\n")
    assert planned(measured)[0] == cells(CUDA, gpu="h100", runs=False)
    assert states(measured) == STALE
    assert "sources of the tables" in measured.gpustudy("why", "a100/opt2/r1", *AT_B).stdout
    told = measured.gpustudy("archive", "import", "raw.zip", *AT_B).stdout
    assert "a100/opt2/r1 train: current, new" in told
    assert "a100/opt2/r1 train tables: stale (sources of the tables" in told
    assert planned(measured)[0] == cells(CUDA, gpu="h100", runs=False) | cells(CUDA, gpu="a100", runs=False)
    assert states(measured) == DONE


def test_an_edited_model_source_reruns_own_cells_and_makes_the_foreign_ones_stale(measured):
    path = measured.root / "workflow/gpustudy/medddpm/unet.py"
    path.write_text(path.read_text() + "\n# a remark\n")
    assert planned(measured)[0] == cells(CUDA, gpu="h100")
    assert states(measured) == STALE


def test_an_edit_at_the_other_site_is_told_when_its_archive_is_imported(b):
    path = b.root / "workflow/gpustudy/medddpm/unet.py"
    path.write_text(path.read_text() + "\n# a remark\n")
    told = b.gpustudy("archive", "import", "raw.zip", *AT_B).stdout
    assert "a100/opt2/r1 train: stale (source medddpm/unet.py: " in told
    assert states(b) == STALE


def test_a_target_of_the_foreign_gpu_ends_well_and_names_its_cells(b):
    done = b.snakemake(*AT_B, "--", "a100")
    assert "foreign-missing" in done.stdout
    assert "gpustudy archive import FILE" in done.stdout


def test_a_reader_draws_everything_from_an_archive_without_network_or_containers(measured, tmp_path):
    """Reviewer mode: a clone at a site with none of the gpus, one archive, and no way out but this machine."""
    measured.gpustudy("archive", "import", "raw.zip", *AT_B)
    measured.gpustudy("archive", "export", "all.zip", *AT_B)
    reader = make_checkout(tmp_path / "reader")
    rewrite_config(reader, lambda content: two_sites(content) | {"gpus": without_cpu(content)})
    shutil.copy(measured.root / "all.zip", reader.root)
    reader.overlay(
        {"site": "paper", "sites": {"paper": {"gpus": [], "executor": "local", "runtime": "none"}}}, "site.yaml"
    )
    reader.gpustudy("archive", "import", "all.zip", *AT_B)
    jobs, others = planned(reader)
    assert jobs == set()
    assert others >= {"write_report", "draw_step_time", "make_states"}
    assert "prepare_data" not in others
    assert foreign_states(reader, "h100", *AT_B) == DONE


def without_cpu(content: dict) -> dict:
    for site in content["sites"].values():
        site["gpus"] = [gpu for gpu in site["gpus"] if gpu != "cpu"]
    return {name: gpu for name, gpu in content["gpus"].items() if name != "cpu"}
