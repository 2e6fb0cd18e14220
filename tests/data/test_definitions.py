"""Definitions: defaults, and one sentence for each mistake."""

from __future__ import annotations

from typing import get_args

import pytest

from gpustudy.base.errors import UserError
from gpustudy.data.definitions import DATA_KINDS, REQUIRED, image_channels, mask_channels, resolve, without_paths
from gpustudy.study.models import DataSet

DEMO = {"kind": "mni152", "volume": [32, 32, 32]}
HEAD = {"kind": "whole_head", "images": "i", "masks": "m"}
BRATS = {"kind": "brats", "folder": "b"}
OWN = {"kind": "nifti", "images": "i", "labels": "l", "volume": [16, 16, 16]}


def test_defaults_are_the_published_sizes():
    assert resolve("x", HEAD)["volume"] == [128, 128, 128]
    assert resolve("x", BRATS)["volume"] == [144, 192, 192]
    assert resolve("x", DEMO)["count"] == 8


def test_channels_are_those_of_the_published_models():
    assert (len(image_channels(HEAD)), len(mask_channels(resolve("x", HEAD)))) == (1, 2)
    assert (len(image_channels(BRATS)), len(mask_channels(resolve("x", BRATS)))) == (4, 4)
    assert mask_channels(resolve("x", DEMO)) == ("brain", "lesion")
    assert mask_channels(resolve("x", OWN)) is None
    assert mask_channels(resolve("x", OWN | {"classes": {3: "c", 1: "a"}})) == ("a", "c")


def test_published_fixes_the_resizing():
    assert resolve("x", HEAD | {"compat": "published"})["resize"] == "resample"
    assert resolve("x", BRATS | {"compat": "published"})["resize"] == "crop_pad"
    with pytest.raises(UserError, match=r"data.x.resize is 'crop_pad', but compat: published means 'resample'"):
        resolve("x", HEAD | {"compat": "published", "resize": "crop_pad"})


def test_paths_are_no_part_of_what_a_data_set_is():
    assert without_paths(resolve("x", OWN | {"cases": "ids.txt"})) == {
        "kind": "nifti",
        "volume": [16, 16, 16],
        "classes": None,
        "resize": None,
        "compat": None,
    }


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({}, "data.x.kind is None: give one of mni152, whole_head, brats, nifti"),
        ({"kind": "mni"}, "data.x.kind is 'mni'"),
        (DEMO | {"sed": 1}, "unknown key 'sed': did you mean 'seed'"),
        ({"kind": "mni152"}, "lacks 'volume'"),
        (DEMO | {"volume": [32, 32, 30]}, "divide by 16"),
        (DEMO | {"volume": [32, 32]}, "divide by 16"),
        (DEMO | {"volume": [32, 32, 0]}, "divide by 16"),
        (DEMO | {"volume": 32}, "divide by 16"),
        (DEMO | {"count": 0}, "data.x.count is 0: give a whole number from 1"),
        (DEMO | {"count": True}, "data.x.count is True"),
        (DEMO | {"seed": -1}, "data.x.seed is -1"),
        (DEMO | {"flips": "yes"}, "data.x.flips is 'yes': give true or false"),
        (OWN | {"images": None}, "data.x.images is None: give a path"),
        (OWN | {"resize": "pad"}, "data.x.resize is 'pad': give crop_pad, resample or null"),
        (OWN | {"compat": "old"}, "data.x.compat is 'old'"),
        (OWN | {"classes": [1, 2]}, "give a mapping such as"),
        (OWN | {"classes": {"one": "a"}}, "give a mapping such as"),
        (OWN | {"classes": {0: "a"}}, "give each label from 1 to 255 a name of its own"),
        (OWN | {"classes": {1: "a", 2: "a"}}, "a name of its own"),
        (OWN | {"classes": {}}, "a name of its own"),
        (OWN | {"classes": {"1": "a", "01": "b"}}, "a name of its own"),
        (OWN | {"classes": {1: "a", 2: " "}}, "a name of its own"),
    ],
)
def test_each_mistake_is_named(definition, message):
    with pytest.raises(UserError, match=message):
        resolve("x", definition)


def test_every_key_says_what_it_means():
    for kind in DATA_KINDS.values():
        assert all(key.meaning for key in kind.keys.values())
        assert kind.licence


def test_the_config_models_take_the_same_keys_with_the_same_defaults():
    data_sets = get_args(get_args(DataSet)[0])
    models = {get_args(model.model_fields["kind"].annotation)[0]: model for model in data_sets}
    assert models.keys() == DATA_KINDS.keys()
    for kind, model in models.items():
        fields = {name: field for name, field in model.model_fields.items() if name != "kind"}
        assert fields.keys() == DATA_KINDS[kind].keys.keys()
        for name, key in DATA_KINDS[kind].keys.items():
            assert fields[name].is_required() == (key.default is REQUIRED)
            assert fields[name].is_required() or fields[name].default == key.default


def test_the_how_to_names_every_kind_and_key(repository):
    text = (repository / "docs/data-sets.md").read_text()
    for name, kind in DATA_KINDS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        assert all(f"`{key}`" in row for key in kind.keys)
