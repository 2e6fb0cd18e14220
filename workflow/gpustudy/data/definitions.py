"""What a data set's definition may say: one table of kinds and keys, and the check of one definition against it.

The standard library alone is imported here: the study reads this table while the workflow is parsed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from gpustudy.base.errors import UserError

SIDE_DIVISOR = 16
"""Every side of a volume is a multiple of this: five resolution levels halve it four times."""

LARGEST_LABEL = 255
"""Label maps are stored as uint8."""

REQUIRED = object()
"""Marks a key without a default."""


@dataclass(frozen=True)
class Key:
    """One key of a data set's definition.

    Attributes:
        form: what the value may be: a name in ``_CHECKS``.
        default: value when the key is absent, or ``REQUIRED``.
        meaning: one line for the documentation.
        is_path: the value is a place on this machine, so it stays out of every key.
    """

    form: str
    default: Any
    meaning: str
    is_path: bool = False


@dataclass(frozen=True)
class Kind:
    """One kind of data set: its keys, the channels it gives, and the notice that goes with what is made from it."""

    meaning: str
    keys: Mapping[str, Key]
    image_channels: tuple[str, ...]
    label_names: Mapping[int, str] | None
    mask_labels: tuple[int, ...] | None
    licence: str


_VOLUME = "(Z, Y, X) voxels of the prepared volumes, each a multiple of 16"
_COMPAT = Key("compat", None, "'published' repeats the published implementation's oddities; null is the sane form")
_RESIZE = "how an image of another shape becomes the volume: crop_pad, resample; null refuses it"
_CASES = Key("path", None, "text file with one case id per line to take; null takes all", is_path=True)
_OWN_LICENCE = "The terms of the source images apply to these arrays."

DATA_KINDS: Mapping[str, Kind] = {
    "mni152": Kind(
        "varied copies of the MNI152 average brain in the nilearn package, each with a synthetic lesion",
        {
            "volume": Key("volume", REQUIRED, _VOLUME),
            "count": Key("positive", 8, "number of volumes"),
            "seed": Key("seed", 20260619, "seed of every random choice; volume i depends on (seed, i) alone"),
            "flips": Key("flag", True, "flip head to foot and front to back at random (left to right changes nothing)"),
        },
        ("t1",),
        {0: "background", 1: "csf_other", 2: "grey_matter", 3: "white_matter", 4: "lesion"},
        None,
        "Arrays derived from the ICBM152 2009a templates as packaged by nilearn. Copyright (C) 1993-2009 Louis "
        "Collins, McConnell Brain Imaging Centre, Montreal Neurological Institute, McGill University. Permission to "
        "use, copy, modify, and distribute this software and its documentation for any purpose and without fee is "
        "hereby granted, provided that the above copyright notice appear in all copies. The authors and McGill "
        "University make no representations about the suitability of this software for any purpose. It is provided "
        '"as is" without express or implied warranty. Deformed, re-intensified and given synthetic lesions here: '
        "not for clinical use.",
    ),
    "whole_head": Kind(
        "a folder of images and a folder of masks (1 brain, 2 tumour), as for the published whole-head model",
        {
            "images": Key("path", REQUIRED, "folder of T1 images (.nii or .nii.gz)", is_path=True),
            "masks": Key("path", REQUIRED, "folder of label maps with the same file names", is_path=True),
            "volume": Key("volume", [128, 128, 128], _VOLUME),
            "resize": Key("resize", None, _RESIZE),
            "compat": _COMPAT,
            "cases": _CASES,
        },
        ("t1",),
        {0: "background", 1: "brain", 2: "tumour"},
        (1, 2),
        _OWN_LICENCE,
    ),
    "brats": Kind(
        "BraTS2021 files NAME_t1, _t1ce, _t2, _flair and _seg, in one folder per modality or per case",
        {
            "folder": Key("path", REQUIRED, "folder that holds them at any depth", is_path=True),
            "volume": Key("volume", [144, 192, 192], _VOLUME),
            "preprocessed": Key("flag", False, "labels are already 1, 2, 3 and 4 (brain), images already in [-1, 1]"),
            "resize": Key("resize", "crop_pad", _RESIZE),
            "compat": _COMPAT,
            "cases": _CASES,
        },
        ("t1", "t1ce", "t2", "flair"),
        {0: "background", 1: "necrotic_core", 2: "oedema", 3: "enhancing_tumour", 4: "brain"},
        (1, 2, 3, 4),
        "BraTS2021 data: the terms accepted with the challenge's download apply to these arrays.",
    ),
    "nifti": Kind(
        "any folder of images with a folder of label maps, of any number of classes",
        {
            "images": Key("path", REQUIRED, "folder of images (.nii or .nii.gz), one channel each", is_path=True),
            "labels": Key("path", REQUIRED, "folder of label maps with the same file names", is_path=True),
            "volume": Key("volume", REQUIRED, _VOLUME),
            "classes": Key("classes", None, "label: name, a mask channel each; null takes every label found"),
            "resize": Key("resize", None, _RESIZE),
            "compat": _COMPAT,
            "cases": _CASES,
        },
        ("image",),
        None,
        None,
        _OWN_LICENCE,
    ),
}
"""Kind of data set -> its keys (besides ``kind``). ``label_names`` None: the label maps or ``classes`` decide."""

MNI152_MASKS = ("brain", "lesion")
"""Mask channels of ``mni152``: the whole-head layout; the brain channel is 0 inside the lesion."""


def resolve(name: str, definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``definition`` with every default filled in and ``classes`` keyed by text.

    Raises:
        UserError: an unknown kind or key (the nearest known one is named), a missing key, or a value out of range.
    """
    kind = definition.get("kind")
    if not isinstance(kind, str) or kind not in DATA_KINDS:
        raise UserError(f"data.{name}.kind is {kind!r}: give one of {', '.join(DATA_KINDS)}.")
    keys = DATA_KINDS[kind].keys
    for key in definition:
        if key != "kind" and key not in keys:
            near = difflib.get_close_matches(str(key), keys, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"{kind} takes {', '.join(keys)}."
            raise UserError(f"data.{name} has the unknown key {key!r}: {hint}")
    resolved: dict[str, Any] = {"kind": kind}
    for key, field in keys.items():
        value = definition.get(key, field.default)
        if value is REQUIRED:
            raise UserError(f"data.{name} lacks {key!r} ({field.meaning}): add it to the definition.")
        resolved[key] = _checked(f"data.{name}.{key}", field, value)
    _check_compat(name, resolved)
    return resolved


def without_paths(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resolved definition without the places on this machine: what may enter a key or a manifest."""
    keys = DATA_KINDS[resolved["kind"]].keys
    return {key: value for key, value in resolved.items() if key == "kind" or not keys[key].is_path}


def image_channels(resolved: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the image channels that a resolved definition gives."""
    return DATA_KINDS[resolved["kind"]].image_channels


def mask_channels(resolved: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names of the mask channels, or None where the label maps decide (``classes: null``)."""
    kind = DATA_KINDS[resolved["kind"]]
    if resolved["kind"] == "mni152":
        return MNI152_MASKS
    if kind.label_names is not None and kind.mask_labels is not None:
        return tuple(kind.label_names[label] for label in kind.mask_labels)
    return None if resolved["classes"] is None else tuple(resolved["classes"].values())


def _check_compat(name: str, resolved: dict[str, Any]) -> None:
    """Fill in the resizing that the published code always does, and refuse another one."""
    if resolved.get("compat") != "published":
        return
    published = "crop_pad" if resolved["kind"] == "brats" else "resample"
    if resolved["resize"] not in (None, published):
        raise UserError(
            f"data.{name}.resize is {resolved['resize']!r}, but compat: published means {published!r} for "
            f"{resolved['kind']}: leave one of the two out."
        )
    resolved["resize"] = published


def _checked(place: str, field: Key, value: Any) -> Any:
    if value is None and field.default is None:
        return None
    if field.form == "classes":
        return _checked_classes(place, value)
    is_right, wanted = _CHECKS[field.form]
    if not is_right(value):
        raise UserError(f"{place} is {value!r}: give {wanted} ({field.meaning}).")
    return list(value) if field.form == "volume" else str(value) if field.form == "path" else value


def _checked_classes(place: str, value: Any) -> dict[str, str]:
    """Return ``classes`` as label text -> name, in the order of the labels."""
    try:
        classes = {int(label): str(title) for label, title in value.items()}
    except (AttributeError, TypeError, ValueError):
        raise UserError(f"{place} is {value!r}: give a mapping such as {{1: brain, 2: lesion}}.") from None
    titles = {title for title in classes.values() if title.strip()}
    if not classes or len(titles) < len(value) or not all(0 < k <= LARGEST_LABEL for k in classes):
        raise UserError(f"{place} is {value!r}: give each label from 1 to {LARGEST_LABEL} a name of its own.")
    return {str(label): classes[label] for label in sorted(classes)}


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_volume(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or len(value) != 3:
        return False
    return all(_is_whole(side, SIDE_DIVISOR) and side % SIDE_DIVISOR == 0 for side in value)


_CHECKS = {
    "volume": (_is_volume, f"three sides that divide by {SIDE_DIVISOR}, such as [64, 64, 64]"),
    "positive": (lambda value: _is_whole(value, 1), "a whole number from 1"),
    "seed": (lambda value: _is_whole(value, 0), "a whole number from 0"),
    "flag": (lambda value: isinstance(value, bool), "true or false"),
    "path": (lambda value: isinstance(value, (str, PathLike)) and bool(str(value)), "a path"),
    "resize": (lambda value: value in (None, "crop_pad", "resample"), "crop_pad, resample or null"),
    "compat": (lambda value: value in (None, "published"), "published or null"),
}
"""Form of a value -> (its check, what a person should give instead)."""
