"""What gc lists and deletes, and what it keeps."""

from __future__ import annotations

import pytest

from gpustudy.archive.garbage import NOT_IN_STUDY, OLD_KEY, SET_ASIDE, UNFINISHED, all_garbage, delete, old_results
from gpustudy.study import cells as cells_module
from gpustudy.study.accept import accept
from gpustudy.study.aside import set_aside
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.load import Effective
from gpustudy.study.states import survey
from tests.archive.helpers import SMALL, at, export, take, tree
from tests.support.crafted_results import craft

CENSUS_CHANGED = {"workloads": {"demo": {"census": {"iterations": 9}}}}


def garbage(effective):
    return all_garbage(effective, survey(effective))


@pytest.fixture
def changed(study_of):
    """A study whose census changed after all cells of the cpu were measured."""
    craft(study_of(SMALL))
    return study_of(SMALL, CENSUS_CHANGED)


def test_nothing_is_listed_while_everything_is_current(study_of):
    effective = study_of(SMALL)
    craft(effective, ("cpu", "a100"))
    assert garbage(effective) == []


def test_results_of_old_keys_are_listed_with_their_size_and_nothing_else(changed):
    found = garbage(changed)
    assert {one.why for one in found} == {OLD_KEY}
    assert {one.path.name.partition("-")[0] for one in found} == {"census"}
    assert len(found) == 2 * len(changed.study.configs)
    assert sum(one.size for one in found) == sum(
        len(content) for name, content in tree(changed.results).items() if "/census-" in name
    )


def test_delete_removes_what_was_listed_and_keeps_the_rest(changed):
    before = tree(changed.results)
    found = garbage(changed)
    delete(found, changed.results)
    assert tree(changed.results) == {name: content for name, content in before.items() if "/census-" not in name}
    assert garbage(changed) == []


def test_cells_that_left_the_study_are_listed(study_of):
    effective = study_of(SMALL)
    craft(effective)
    configs = {name: one for name, one in effective.study.configs.items() if name != "opt2"}
    fewer = Effective(effective.study.model_copy(update={"configs": configs}), "local", effective.results)
    found = garbage(fewer)
    assert {one.why for one in found} == {NOT_IN_STUDY}
    assert all("/opt2/" in str(one.path) for one in found)
    delete(found, fewer.results)
    assert not (fewer.results / "cells" / "cpu" / "opt2").exists()


def test_results_that_are_current_at_another_site_are_kept(study_of):
    sites = {"elsewhere": {"gpus": ["cpu"], "executor": "local", "runtime": "apptainer"}}
    effective = study_of(SMALL, {"sites": sites})
    craft(at(effective, effective.results, "elsewhere"))
    assert survey(effective).cells[-1].state == "stale"
    assert garbage(effective) == []


def test_what_an_archive_holds_is_kept(study_of, changed, tmp_path):
    export(study_of(SMALL), tmp_path / "a.zip", ("cpu",))
    assert garbage(changed) == []
    reader = at(changed, tmp_path / "reader")
    take(reader, tmp_path / "a.zip")
    assert garbage(reader) == []


def test_accepted_results_are_kept(study_of, monkeypatch):
    effective = study_of(SMALL)
    craft(effective)
    real = cells_module.digest_of
    patterns = set(cells_module.STAGE_SOURCES.values())
    monkeypatch.setattr(cells_module, "digest_of", lambda names: "e" * 64 if names in patterns else real(names))
    accept(effective, [Cell("cpu", "opt2", 1)], "a comment")
    assert garbage(effective)
    assert not [one for one in garbage(effective) if "/opt2/" in str(one.path)]


def test_what_was_set_aside_and_what_a_killed_run_left_is_listed(study_of):
    effective = study_of(SMALL)
    craft(effective)
    set_aside(survey(effective), Keys(effective), Cell("cpu", "opt2", 1), "quality")
    left = effective.results / "cells" / "cpu" / "opt2" / "r1" / ".quality-0123456789ab.x1.part"
    left.mkdir()
    (left / "samples.npz").write_bytes(b"x" * 10)
    found = {one.why: one.size for one in garbage(effective)}
    assert set(found) == {SET_ASIDE, UNFINISHED}
    assert found[UNFINISHED] == 10


def test_prepared_data_of_an_old_key_is_listed(study_of):
    effective = study_of(SMALL)
    for name, key in (("mni152-demo", Keys(effective).data_key("mni152-demo")), ("mni152-demo", "0" * 12)):
        folder = effective.results / "data" / f"{name}-{key}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
    assert [one.path.name for one in garbage(effective)] == [f"mni152-demo-{'0' * 12}"]


def test_images_of_an_old_key_and_half_built_ones_are_listed(study_of):
    effective = study_of(SMALL)
    folder = effective.results / "images"
    folder.mkdir(parents=True)
    key = Keys(effective).image_key("paper")
    names = [f"paper-{key}.sif", f"paper-{key}.sif.json", f"paper-{key}.docker.json"]
    old = ["paper-000000000000.sif", "paper-000000000000.sif.json"]
    for name in [*names, *old, f".paper-{key}.x1.part.sif"]:
        (folder / name).write_bytes(b"image")
    assert {one.path.name: one.why for one in garbage(effective)} == {
        **dict.fromkeys(old, OLD_KEY),
        f".paper-{key}.x1.part.sif": UNFINISHED,
    }


def test_old_results_alone_are_what_status_counts(changed):
    (changed.results / ".aside" / "x").mkdir(parents=True)
    assert {one.why for one in old_results(changed, survey(changed))} == {OLD_KEY}
