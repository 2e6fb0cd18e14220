"""Keys: what changes them, and for which cells; what must not."""

from __future__ import annotations

import pytest

from gpustudy.base.canonical import key_of
from gpustudy.base.errors import UserError
from gpustudy.study.cells import PREVIOUS, Cell, Keys
from gpustudy.study.differences import differences
from gpustudy.study.stacks import base_image, read_pins


def keys_of(effective):
    keys = Keys(effective)
    return {(cell, stage): keys.stage_key(cell, stage) for cell in keys.cells() for stage in keys.stages(cell.gpu)}


def changed(study_of, *overlays, site="local"):
    """The (gpu, config, stage) whose key another config changes."""
    before, after = keys_of(study_of(site=site)), keys_of(study_of(*overlays, site=site))
    return {(cell.gpu, cell.config, stage) for (cell, stage), key in after.items() if before.get((cell, stage)) != key}


def test_a_key_is_the_digest_of_its_document(study_of):
    keys = Keys(study_of())
    cell = Cell("a100", "opt1", 2)
    document = keys.document(cell, "census")
    assert keys.stage_key(cell, "census") == key_of(document)
    assert document["previous"] == {"stage": "train", "key": keys.stage_key(cell, "train")}
    assert document["seed"] == 2026 + 2


def test_all_keys_of_the_study_differ(study_of):
    found = keys_of(study_of())
    assert len(set(found.values())) == len(found)


def test_an_optimisation_list_changes_that_config_alone(study_of):
    found = changed(study_of, {"configs": {"opt1": {"optimisations": ["channels_last"]}}})
    assert {config for _, config, _ in found} == {"opt1"}
    assert {gpu for gpu, _, _ in found} == {"v100", "a100", "h100", "cpu"}


def test_a_workload_changes_the_gpus_that_run_it(study_of):
    found = changed(study_of, {"workloads": {"demo": {"train": {"learning_rate": 0.01}}}})
    assert {gpu for gpu, _, _ in found} == {"cpu"}
    assert {stage for _, _, stage in found} == {"train", "census", "quality"}


def test_a_later_stage_alone_changes_when_only_it_reads_the_value(study_of):
    assert {stage for *_, stage in changed(study_of, {"workloads": {"demo": {"census": {"iterations": 9}}}})} == {
        "census"
    }
    assert {stage for *_, stage in changed(study_of, {"workloads": {"demo": {"quality": {"seed": 9}}}})} == {"quality"}


def test_the_seed_base_changes_every_cell(study_of):
    assert len(changed(study_of, {"seed": 1})) == len({(c.gpu, c.config, s) for c, s in keys_of(study_of())})


@pytest.mark.parametrize(
    "overlay",
    [
        {"configs": {"opt1": {"description": "other words"}}},
        {"gpus": {"a100": {"description": "other words"}}},
        {"repeats": 5},
        {"workloads": {"demo": {"train": {"iterations": 3.0}}}},
        {"sites": {"local": {"gpus": ["cpu", "a100"], "runtime": "none"}}},
        {"configs": {"mine": {"optimisations": ["sdpa"]}}},
    ],
)
def test_what_cannot_matter_changes_no_key_of_an_existing_cell(study_of, overlay):
    before, after = keys_of(study_of()), keys_of(study_of(overlay))
    runnable_elsewhere = {cell for cell, _ in before if cell.gpu == "a100"} if "sites" in overlay else set()
    for pair, key in before.items():
        if pair[0] not in runnable_elsewhere:
            assert after[pair] == key, pair


def test_a_gpu_at_a_site_without_containers_has_a_stack_of_the_pins_alone(study_of):
    document = Keys(study_of()).document(Cell("cpu", "baseline", 1), "train")
    same = Keys(study_of(site="expanse")).document(Cell("cpu", "baseline", 1), "train")
    assert document["stack"] == same["stack"], "a foreign cell has the key of the site that can run it"
    contained = Keys(study_of({"sites": {"expanse": {"gpus": ["v100", "cpu"]}}}, site="expanse"))
    assert contained.document(Cell("cpu", "baseline", 1), "train")["stack"]["key"] != document["stack"]["key"]


def test_a_missing_recipe_is_a_sentence(study_of):
    effective = study_of({"stacks": {"paper": {"recipe": "containers/none.Dockerfile"}}})
    with pytest.raises(UserError, match=r"none\.Dockerfile cannot be read .*: restore the recipe of the stack"):
        keys_of(effective)


@pytest.mark.parametrize(("content", "reason"), [(b"", "pins nothing"), (b"\xff\xfe", "it is no text")])
def test_pins_that_check_nothing_are_refused(tmp_path, content, reason):
    (tmp_path / "pins.txt").write_bytes(content)
    with pytest.raises(UserError, match=rf"pins\.txt .*{reason}.*: restore the pins"):
        read_pins(tmp_path / "pins.txt")


def test_seeds_are_paired_over_gpus_and_configs(study_of):
    keys = Keys(study_of())
    seeds = {cell.repeat: keys.document(cell, "train")["seed"] for cell in keys.cells()}
    assert all(keys.document(cell, "train")["seed"] == seeds[cell.repeat] for cell in keys.cells())


def test_no_absolute_path_and_no_time_is_in_a_document(study_of, repository, tmp_path):
    text = str(Keys(study_of()).cell_file(Cell("cpu", "opt2", 1), "train"))
    assert str(repository) not in text
    assert str(tmp_path) not in text


def test_every_stage_starts_from_a_stage_of_the_same_cell(study_of):
    keys = Keys(study_of())
    for gpu in ("cpu", "a100"):
        for stage in keys.stages(gpu):
            assert PREVIOUS[stage] is None or PREVIOUS[stage] in keys.stages(gpu)


def test_the_first_difference_names_the_value_that_changed(study_of):
    cell = Cell("cpu", "opt2", 1)
    old = Keys(study_of()).cell_file(cell, "census")
    new = Keys(study_of({"workloads": {"demo": {"train": {"iterations": 9}}}})).cell_file(cell, "census")
    found = differences(old, new)
    assert str(found[0]) == f"workload.train.iterations: {old['document']['workload']['train']['iterations']} -> 9"
    assert found[-1].field == "previous.key"


def test_an_edited_source_is_named_by_its_file(study_of):
    keys = Keys(study_of())
    cell = Cell("cpu", "opt2", 1)
    new = keys.cell_file(cell, "train")
    old = keys.cell_file(cell, "train")
    old["document"]["sources"]["digest"] = "0" * 64
    old["labels"] = old["labels"] | {"source_files": old["labels"]["source_files"] | {"medddpm/unet.py": "1" * 64}}
    assert [difference.field for difference in differences(old, new)] == ["source medddpm/unet.py"]


def test_base_images_of_all_stacks_are_pinned_by_digest_as_the_lock_says(study_of, repository):
    import yaml

    lock = yaml.safe_load((repository / "containers/images.lock.yaml").read_text())
    stacks = study_of().study.stacks
    assert set(lock) == set(stacks)
    for name, stack in stacks.items():
        assert base_image(repository / stack.recipe) == lock[name]["base"]
        assert {"torch", "numpy"} <= set(read_pins(repository / stack.pins))
