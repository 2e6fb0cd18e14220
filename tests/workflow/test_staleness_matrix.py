"""The staleness matrix: after each kind of change Snakemake plans exactly the jobs that it makes stale.

Each row starts from a study in which everything is current: the cells of this machine's cpu, those of a foreign
a100 (imported), every figure, table and the report. ``BREAKS`` shows that the rows can fail: with one part of a key
taken out of the code, the row that guards it fails.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.support.checkout import Checkout
from tests.workflow.staleness import (
    CONFIGS,
    STAGES,
    Job,
    cells,
    copy_of,
    craft_results,
    foreign_states,
    jobs_of,
    make_checkout,
    rewrite_config,
)

NOTHING: set[Job] = set()
DONE = {config: {"done"} for config in CONFIGS}
STALE = {config: {"foreign-stale"} for config in CONFIGS}
WRITTEN = {"write_report", "draw_step_time", "make_states"}


@dataclass(frozen=True)
class Row:
    """A change and what it makes stale.

    Attributes:
        change: makes the change in a checkout.
        jobs: jobs of the cpu's cells, and of foreign cells' tables, that are planned then.
        draws: whether figures, tables and the report are drawn anew.
        foreign: states of the a100's cells, which can never be planned.
        others: other rules that are planned.
    """

    change: Callable[[Checkout], object]
    jobs: set[Job]
    draws: bool = True
    foreign: dict[str, set[str]] = field(default_factory=lambda: DONE)
    others: frozenset[str] = frozenset()


def edit(file: str, old: str, new: str) -> Callable[[Checkout], object]:
    return lambda checkout: checkout.edit(file, old, new)


def comment(file: str) -> Callable[[Checkout], object]:
    """Add a comment to a source file of the package."""

    def change(checkout: Checkout) -> None:
        path = checkout.root / "workflow/gpustudy" / file
        path.write_text(path.read_text() + "\n# a remark\n")

    return change


def nested(*path: str, value: object) -> Callable[[Checkout], object]:
    """Set one value of config.yaml."""

    def set_value(content):
        section = content
        for name in path[:-1]:
            section = section[name]
        section[path[-1]] = value
        return content

    return lambda checkout: rewrite_config(checkout, set_value)


def reorder(value: object, keep: bool = True) -> object:
    """Reverse the order of all mappings below the names of gpus, configs and so on."""
    if not isinstance(value, dict):
        return value
    items = list(value.items()) if keep else list(reversed(value.items()))
    return {name: reorder(one, keep=False) for name, one in items}


def reorder_sections(content: dict) -> dict:
    return {name: reorder(section) for name, section in reversed(content.items())}


def reorder_configs(content: dict) -> dict:
    return content | {"configs": dict(reversed(content["configs"].items()))}


def rename_config(content: dict) -> dict:
    return content | {
        "configs": {"renamed" if name == "opt2" else name: one for name, one in content["configs"].items()}
    }


def rename_and_move(checkout: Checkout) -> None:
    rewrite_config(checkout, rename_config)
    for folder in checkout.root.glob("results/*/*/opt2"):
        folder.rename(folder.with_name("renamed"))


def drop_config(content: dict) -> dict:
    return content | {"configs": {name: one for name, one in content["configs"].items() if name != "opt2"}}


def add_config(content: dict) -> dict:
    return content | {"configs": content["configs"] | {"added": {"optimisations": ["channels_last", "sdpa"]}}}


def add_gpu(content: dict) -> dict:
    content["sites"]["local"]["gpus"].append("one_thread")
    return content | {"gpus": content["gpus"] | {"one_thread": content["gpus"]["cpu"] | {"threads": 1}}}


def swap(content: dict) -> dict:
    train = content["workloads"]["demo"]["train"]
    train["iterations"], train["warmup_iterations"] = train["warmup_iterations"], train["iterations"]
    return content


def float_numbers(content: dict) -> dict:
    content["gpus"]["a100"]["memory_gib"] = 40.0
    train = content["workloads"]["demo"]["train"]
    train["iterations"] = float(train["iterations"])
    content["seed"] = 2026.0
    return content


def touch_all(checkout: Checkout) -> None:
    for second, path in enumerate(sorted(checkout.root.rglob("*"), reverse=True)):
        os.utime(path, (1_800_000_000 + second, 1_800_000_000 + second), follow_symlinks=False)


def touch_newer(checkout: Checkout) -> None:
    """A newer image, newer prepared arrays: what a rebuilt container or a second preparation leaves."""
    image = checkout.root / "results/images/current-0123456789ab.sif"
    image.parent.mkdir()
    image.touch()
    for path in checkout.root.glob("results/data/*/manifest.json"):
        path.write_text("{}")


def replace_raw(checkout: Checkout) -> None:
    """Measure one stage again under the same key, as a copied results folder would."""
    path = next(checkout.root.glob("results/cells/cpu/opt2/r1/census-*/status.json"))
    path.write_text(re.sub(r'"seconds": [\d.]+', '"seconds": 7.5', path.read_text()))


def crlf(checkout: Checkout) -> None:
    path = checkout.root / "workflow/gpustudy/medddpm/unet.py"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


FOLLOWERS = cells(("census", "quality"))
ROWS = {
    "nothing_changed": Row(lambda checkout: None, NOTHING, draws=False),
    "a_value_of_one_config": Row(
        edit("config.yaml", "optimisations: [channels_last]", "optimisations: [channels_last, sdpa]"),
        cells(configs=["opt2"]),
        foreign=DONE | {"opt2": {"foreign-stale"}},
    ),
    "a_value_that_all_cells_of_a_workload_read": Row(
        nested("workloads", "demo", "train", "learning_rate", value=0.0007), cells()
    ),
    "a_value_that_one_stage_reads": Row(
        nested("workloads", "demo", "census", "iterations", value=9), cells(("census",))
    ),
    "a_value_of_the_last_stage": Row(nested("workloads", "demo", "quality", "seed", value=99), cells(("quality",))),
    "a_value_changed_to_one_that_occurs_elsewhere": Row(
        nested("workloads", "demo", "train", "accumulation", value=5), cells()
    ),
    "two_values_swapped": Row(lambda checkout: rewrite_config(checkout, swap), cells()),
    "the_seed": Row(nested("seed", value=99), cells(), foreign=STALE),
    "threads": Row(nested("gpus", "cpu", "threads", value=1), cells()),
    "a_description": Row(nested("configs", "opt2", "description", value="another text"), NOTHING),
    "sections_reordered": Row(lambda checkout: rewrite_config(checkout, reorder_sections), NOTHING, draws=False),
    "configs_reordered": Row(lambda checkout: rewrite_config(checkout, reorder_configs), NOTHING, draws=False),
    "comments_of_the_config": Row(edit("config.yaml", "# Repeats of", "# How many repeats of"), NOTHING, draws=False),
    "one_against_one_point_zero": Row(lambda checkout: rewrite_config(checkout, float_numbers), NOTHING, draws=False),
    "a_comment_in_the_source_of_one_stage": Row(comment("cell/census.py"), cells(("census",)), foreign=STALE),
    "a_comment_in_a_source_that_every_stage_reads": Row(comment("medddpm/unet.py"), cells(), foreign=STALE),
    "a_comment_in_the_first_stage": Row(comment("cell/train.py"), cells(), foreign=STALE),
    "a_comment_in_the_last_stage": Row(comment("cell/quality.py"), cells(("quality",)), foreign=STALE),
    "line_ends_of_a_source": Row(crlf, NOTHING, draws=False),
    "a_source_of_the_tables": Row(
        comment("metrics/census.py"),
        cells(("census",), runs=False) | cells(("census",), gpu="a100", runs=False),
    ),
    "a_source_of_the_figures": Row(comment("analysis/style.py"), NOTHING),
    "every_file_touched": Row(touch_all, NOTHING, draws=False),
    "a_rule_renamed": Row(edit("workflow/rules/cells.smk", "rule run_train:", "rule measure:"), NOTHING, draws=False),
    "the_text_of_a_command": Row(
        edit("workflow/rules/cells.smk", "python -m gpustudy stage", "python  -m gpustudy stage"), NOTHING, draws=False
    ),
    "a_config_renamed": Row(
        lambda checkout: rewrite_config(checkout, rename_config),
        cells(configs=["renamed"]),
        foreign={name: {"done"} for name in CONFIGS if name != "opt2"} | {"renamed": {"foreign-missing"}},
    ),
    "a_config_renamed_and_its_folders_with_it": Row(
        rename_and_move, NOTHING, foreign={name: {"done"} for name in (*CONFIGS, "renamed") if name != "opt2"}
    ),
    "a_config_added": Row(
        lambda checkout: rewrite_config(checkout, add_config),
        cells(configs=["added"]),
        foreign=DONE | {"added": {"foreign-missing"}},
    ),
    "a_config_removed": Row(
        lambda checkout: rewrite_config(checkout, drop_config),
        NOTHING,
        foreign={name: {"done"} for name in CONFIGS if name != "opt2"},
    ),
    "a_gpu_added": Row(lambda checkout: rewrite_config(checkout, add_gpu), cells(gpu="one_thread")),
    "a_repeat_added": Row(
        nested("repeats", value=3),
        cells(repeats=[3]),
        foreign={config: {"done", "foreign-missing"} for config in CONFIGS},
    ),
    "a_container_recipe": Row(
        edit("containers/paper.Dockerfile", "ENV DEBIAN_FRONTEND", "ENV A=1 DEBIAN_FRONTEND"), NOTHING, foreign=STALE
    ),
    "the_digest_of_a_base_image": Row(
        edit("containers/paper.Dockerfile", "@sha256:8f9dd0d0", "@sha256:0f9dd0d0"), NOTHING, foreign=STALE
    ),
    "a_pinned_version_of_a_foreign_stack": Row(
        edit("envs/paper.txt", "numpy==1.26", "numpy==1.25"), NOTHING, foreign=STALE
    ),
    "a_pinned_version": Row(edit("envs/current.txt", "sympy==", "sympy==0."), cells()),
    "the_ncu_version": Row(
        nested("workloads", "paper", "counters", "ncu_version", value="2024.1"),
        NOTHING,
        foreign=STALE,
    ),
    "the_definition_of_the_data": Row(
        nested("data", "mni152-demo", "seed", value=1), cells(), others=frozenset({"prepare_data"})
    ),
    "the_source_files_of_the_data": Row(
        lambda checkout: checkout.edit("workflow/locks/mni152-demo.json", '"sha256": "', '"sha256": "0'),
        cells(),
        others=frozenset({"prepare_data"}),
    ),
    "a_newer_image_and_newer_prepared_data": Row(touch_newer, NOTHING, draws=False),
    "raw_files_replaced_under_the_same_key": Row(replace_raw, cells(("census",), ["opt2"], [1], runs=False)),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which everything is current; tests change copies of it."""
    checkout = make_checkout(tmp_path_factory.mktemp("measured") / "checkout")
    craft_results(checkout, ("cpu", "a100"))
    return checkout


def expected(row: Row) -> tuple[object, ...]:
    return row.jobs, row.draws, set(row.others), row.foreign


def observed(row: Row, checkout: Checkout) -> tuple[object, ...]:
    """Make a row's change; return what Snakemake plans and what is said of foreign cells, in the form of a row."""
    row.change(checkout)
    jobs, others = jobs_of(checkout)
    drawn = {name for name in others if name.startswith(("draw_", "make_", "write_"))}
    draws = drawn >= WRITTEN if drawn else False
    return jobs, draws, others - drawn, foreign_states(checkout)


@pytest.mark.parametrize("name", ROWS)
def test_a_change_reruns_exactly_what_it_makes_stale(name, measured, tmp_path):
    assert observed(ROWS[name], copy_of(measured, tmp_path / "copy")) == expected(ROWS[name])


CELLS_PY = "workflow/gpustudy/study/cells.py"
TEXT_IN_KEY = (CELLS_PY, '"schema": DOCUMENT_SCHEMA,', '"schema": Path("config.yaml").read_text(),')
BREAKS = {
    "a_value_of_one_config": (
        CELLS_PY,
        '"config": config.model_dump(mode="json", exclude={"description"})',
        '"config": 0',
    ),
    "a_description": ("workflow/gpustudy/study/products.py", '"descriptions": descriptions,', ""),
    "a_value_that_all_cells_of_a_workload_read": (CELLS_PY, '"workload": _workload_slice(', '"workload": 0 and ('),
    "a_value_that_one_stage_reads": (CELLS_PY, "include=set(_READ_OF_WORKLOAD[stage])", 'exclude={"description"}'),
    "the_seed": (CELLS_PY, '"seed": self._study.seed + cell.repeat', '"seed": cell.repeat'),
    "threads": (CELLS_PY, '"threads": gpu.threads,', ""),
    "two_values_swapped": (
        CELLS_PY,
        "self._parts[place] = {name: canonical_json(value)",
        "self._parts[place] = {name: ''.join(sorted(canonical_json(value)))",
    ),
    "sections_reordered": TEXT_IN_KEY,
    "configs_reordered": TEXT_IN_KEY,
    "comments_of_the_config": TEXT_IN_KEY,
    "one_against_one_point_zero": TEXT_IN_KEY,
    "a_comment_in_a_source_that_every_stage_reads": (
        CELLS_PY,
        '"sources": {"digest": digest_of(sources), ',
        '"sources": {',
    ),
    "a_comment_in_the_first_stage": (
        CELLS_PY,
        '{"stage": previous, "key": self.stage_key(cell, previous)} if previous else None',
        "None",
    ),
    "line_ends_of_a_source": ("workflow/gpustudy/base/digests.py", '.replace(b"\\r\\n", b"\\n")', ""),
    "a_source_of_the_tables": (CELLS_PY, '"sources": digest_of(METRICS_SOURCES[stage])', '"sources": 0'),
    "a_source_of_the_figures": ("workflow/gpustudy/study/products.py", '"sources": digest_of(ANALYSIS_SOURCES),', ""),
    "every_file_touched": (
        "workflow/gpustudy/base/digests.py",
        "content = (root / name).read_bytes()",
        "content = str((root / name).stat().st_mtime_ns).encode()",
    ),
    "a_container_recipe": (
        "workflow/gpustudy/study/stacks.py",
        'document["recipe"] = ',
        'document["recipe"] = "" and ',
    ),
    "a_pinned_version": ("workflow/gpustudy/study/stacks.py", '{"pins": read_pins(root / stack.pins)}', "{}"),
    "the_definition_of_the_data": ("workflow/gpustudy/data/lock.py", '"definition": without_paths(resolved), ', ""),
    "the_source_files_of_the_data": ("workflow/gpustudy/data/lock.py", ', "sources": sums}', "}"),
    "a_config_added": (
        "workflow/gpustudy/study/workplan.py",
        "if (self._whole or not is_here)",
        "if (self._whole and not is_here)",
    ),
    "raw_files_replaced_under_the_same_key": (
        "workflow/gpustudy/study/states.py",
        'status_sum in (None, tables["raw"]["status_sha256"])',
        "tables['raw']",
    ),
}
"""Row -> an edit that takes out of the code what the row guards."""


@pytest.mark.parametrize("name", BREAKS)
def test_each_row_fails_when_the_key_is_broken(name, tmp_path):
    checkout = make_checkout(tmp_path / "broken")
    checkout.edit(*BREAKS[name])
    craft_results(checkout, ("cpu", "a100"))
    assert observed(ROWS[name], checkout) != expected(ROWS[name])


def test_the_unbroken_code_passes_from_its_own_crafted_results(tmp_path):
    """The counterpart of the broken keys: the same steps without a break."""
    checkout = make_checkout(tmp_path / "whole")
    craft_results(checkout, ("cpu", "a100"))
    assert observed(ROWS["a_value_of_one_config"], checkout) == expected(ROWS["a_value_of_one_config"])


def test_an_accepted_comment_costs_no_job_and_is_shown(measured, tmp_path):
    checkout = copy_of(measured, tmp_path / "copy")
    comment("medddpm/unet.py")(checkout)
    checkout.gpustudy("accept", "cpu", "a100", "--reason", "only a comment")
    jobs, others = jobs_of(checkout)
    assert jobs == NOTHING
    assert others >= WRITTEN
    assert foreign_states(checkout) == DONE
    assert "2 done (accepted)" in checkout.gpustudy("status").stdout
    told = checkout.gpustudy("why", "a100/opt1/r2").stdout
    assert "only a comment" in told
    assert "source medddpm/unet.py" in told
    comment("medddpm/unet.py")(checkout)
    assert jobs_of(checkout)[0] == cells()


def test_why_and_plan_name_the_first_field_that_differs(measured, tmp_path):
    checkout = copy_of(measured, tmp_path / "copy")
    nested("workloads", "demo", "census", "iterations", value=9)(checkout)
    said = r"workload.census.iterations: \d -> 9\n"
    assert re.search(said, checkout.gpustudy("why", "cpu/opt2/r1").stdout)
    assert re.search(f"cpu/opt2/r1 census: stale: {said}", checkout.gpustudy("plan").stdout)


def test_what_a_removed_cell_left_is_counted_by_status_and_listed_by_gc(measured, tmp_path):
    checkout = copy_of(measured, tmp_path / "copy")
    rewrite_config(checkout, drop_config)
    folders = len(STAGES) * 2 * 2 + (len(STAGES) + 1) * 2 * 2
    assert f"in {folders} folders ('gpustudy gc' lists them)" in checkout.gpustudy("status").stdout
    before = {path for path in checkout.root.glob("results/*/*/*/*/*") if "opt2" not in path.parts}
    assert "/opt2/" in checkout.gpustudy("gc").stdout
    assert list(checkout.root.glob("results/cells/cpu/opt2/*"))
    checkout.gpustudy("gc", "--delete")
    assert set(checkout.root.glob("results/*/*/*/*/*")) == before
    assert jobs_of(checkout)[0] == NOTHING


def test_plan_lists_the_jobs_that_snakemake_plans(measured, tmp_path):
    checkout = copy_of(measured, tmp_path / "copy")
    nested("workloads", "demo", "census", "iterations", value=9)(checkout)
    comment("metrics/train.py")(checkout)
    found = json.loads(checkout.gpustudy("plan", "--json").stdout)["pending"]
    told = {entry["what"] for entry in found if entry["kind"] != "product"}
    jobs, _ = jobs_of(checkout)
    kinds = {"run": "{}", "tables": "{} tables"}
    assert told == {
        f"{gpu}/{config}/r{repeat} " + kinds[rule.split("_")[0]].format(rule.split("_")[1])
        for rule, gpu, config, repeat in jobs
    }
