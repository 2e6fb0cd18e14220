"""Data sets that lie in folders: whole-head pairs, BraTS2021, and any NIfTI images with label maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from gpustudy.base.errors import UserError
from gpustudy.base.progress import Progress
from gpustudy.data import geometry
from gpustudy.data.definitions import DATA_KINDS
from gpustudy.data.nifti import Volume, axes_of, check_axes, check_one_place, read_labels, read_volume
from gpustudy.data.sources import SourceCase, find_cases
from gpustudy.data.volumes import (
    MASK_RANGE,
    PUBLISHED_BRATS_MASK_RANGE,
    Case,
    Floats,
    Labels,
    Plan,
    one_hot,
    scale_slices_published,
    scale_volume,
    to_range,
)

BRAIN = "brain"
_BRATS_RAW_ENHANCING, _BRATS_ENHANCING, _BRATS_BRAIN = 4, 3, 4
"""BraTS2021 calls the enhancing tumour 4; the published preparation calls it 3 and gives 4 to the brain."""
_RANGE_TOLERANCE = 1e-3
"""Rounding that a preprocessed image may have beyond [-1, 1]; it is clipped."""


def plan_folder(name: str, resolved: Mapping[str, Any], root: Path) -> Plan:
    """Check every label map of a folder data set and return what will be written.

    Raises:
        UserError: unpaired files, or a label map that is wrong.
    """
    sources = find_cases(name, resolved, root)
    names = _label_names(resolved, sources)
    _check_label_maps(resolved, sources, names, Progress(f"data {name}", len(sources), "label map"))
    labels = DATA_KINDS[resolved["kind"]].mask_labels or tuple(label for label in names if label)
    is_published_brats = resolved["kind"] == "brats" and resolved["compat"] == "published"
    mask_range = PUBLISHED_BRATS_MASK_RANGE if is_published_brats else MASK_RANGE
    return Plan(
        case_ids=tuple(source.case_id for source in sources),
        mask_channels=tuple(names[label] for label in labels),
        mask_range=mask_range,
        label_names=names,
        cases=_cases(resolved, sources, labels, mask_range),
    )


def make_case(
    source: SourceCase, resolved: Mapping[str, Any], mask_labels: Sequence[int], mask_range: tuple[float, float]
) -> Case:
    """Read one case and bring it to the prepared form.

    Raises:
        UserError: a file is wrong, the files of the case lie in different places, or their shapes do not fit each
            other or the volume.
    """
    volumes = [read_volume(path) for path in source.images]
    labels, labels_affine = read_labels(source.labels)
    have, shape = _common_shape(volumes, labels, source), tuple(resolved["volume"])
    for path, affine in [*((volume.path, volume.affine) for volume in volumes[1:]), (source.labels, labels_affine)]:
        check_one_place(volumes[0], path, affine)
    _check_shape(volumes[0].path, have, shape, resolved["resize"])
    is_brats, is_published = resolved["kind"] == "brats", resolved["compat"] == "published"
    if is_brats and not resolved["preprocessed"]:
        labels[labels == _BRATS_RAW_ENHANCING] = _BRATS_ENHANCING
    soft_masks = None
    if is_published and not is_brats:
        image = np.stack([_published_image(volume.array, shape) for volume in volumes])
        soft_masks = np.stack([geometry.resample(m, shape, smooth=False) for m in one_hot(labels, mask_labels)])
    elif is_brats and resolved["preprocessed"]:
        image = np.stack([_as_it_is(volume, shape, resolved["resize"]) for volume in volumes])
    else:
        image = np.stack([_scaled(volume, shape, resolved["resize"]) for volume in volumes])
    labels = _labels_to(labels, shape, resolved["resize"])
    if is_brats and not resolved["preprocessed"]:
        labels[(labels == 0) & (image[0] > -1)] = _BRATS_BRAIN  # image[0] is t1, whose background is -1
    masks = one_hot(labels, mask_labels) if soft_masks is None else soft_masks
    move = geometry.resample_affine if resolved["resize"] == "resample" else geometry.crop_pad_affine
    affine = move(volumes[0].affine, have, shape)
    return Case(source.case_id, image, to_range(masks, mask_range), labels, affine)


def _cases(
    resolved: Mapping[str, Any],
    sources: Sequence[SourceCase],
    mask_labels: Sequence[int],
    mask_range: tuple[float, float],
) -> Iterator[Case]:
    """Yield the cases; one whose axes point elsewhere than the first one's is refused."""
    directions = None
    for source in sources:
        case = make_case(source, resolved, mask_labels, mask_range)
        directions = directions or axes_of(case.affine)
        check_axes(source.images[0], case.affine, directions)
        yield case


def _label_names(resolved: Mapping[str, Any], sources: Sequence[SourceCase]) -> dict[int, str]:
    """Return label -> name, background first; without ``classes`` every label found is a class."""
    fixed = DATA_KINDS[resolved["kind"]].label_names
    if fixed is not None:
        return dict(fixed)
    if resolved["classes"] is not None:
        return {0: "background"} | {int(label): title for label, title in resolved["classes"].items()}
    found = {int(label) for source in sources for label in np.unique(read_labels(source.labels)[0])} - {0}
    require_labels(found, sources[0])
    return {0: "background"} | {label: f"label_{label}" for label in sorted(found)}


def require_labels(found: Set[int], first: SourceCase) -> None:
    """Refuse label maps, of which ``first`` has one, that together hold no label but the background.

    Raises:
        UserError: nothing but 0 was ``found``.
    """
    if not found - {0}:
        raise UserError(f"the label maps beside {first.labels} hold background only: give at least one label.")


def _check_label_maps(
    resolved: Mapping[str, Any], sources: Sequence[SourceCase], names: Mapping[int, str], progress: Progress
) -> None:
    """Refuse a label that is not known, a case without brain label, and a class that no case has."""
    is_raw_brats = resolved["kind"] == "brats" and not resolved["preprocessed"]
    known = {0, 1, 2, _BRATS_RAW_ENHANCING} if is_raw_brats else set(names)
    everywhere = set() if is_raw_brats else {label for label, title in names.items() if title == BRAIN}
    seen: set[int] = set()
    for done, source in enumerate(sources, start=1):
        progress.step(done)
        found = {int(label) for label in np.unique(read_labels(source.labels)[0])}
        seen |= found
        if found - known:
            hint = "; was it prepared before? then set preprocessed: true" if is_raw_brats else ""
            raise UserError(
                f"{source.labels} has the label {min(found - known)}, known are "
                f"{', '.join(map(str, sorted(known)))}: correct the label map or the definition{hint}."
            )
        for label in everywhere - found:
            hint = " (raw BraTS2021 has none: set preprocessed: false)" if resolved["kind"] == "brats" else ""
            raise UserError(f"{source.labels} lacks the brain label {label}: add the brain to the label map{hint}.")
    if resolved["kind"] == "nifti" and set(names) - seen - {0}:
        absent = min(set(names) - seen - {0})
        raise UserError(
            f"no label map of the data set has the label {absent} ({names[absent]!r}): take it out of classes."
        )


def _common_shape(volumes: Sequence[Volume], labels: Labels, source: SourceCase) -> tuple[int, ...]:
    """Return the (Z, Y, X) shape that all files of a case have."""
    shape: tuple[int, ...] = volumes[0].array.shape
    others = [(volume.path, volume.array.shape) for volume in volumes[1:]] + [(source.labels, labels.shape)]
    for path, other in others:
        if other != shape:
            raise UserError(
                f"{path} has shape {_file_shape(other)}, but {volumes[0].path} has {_file_shape(shape)}: "
                "bring them onto one grid."
            )
    return shape


def _check_shape(path: Path, have: tuple[int, ...], want: tuple[int, ...], resize: str | None) -> None:
    if resize is None and have != want:
        raise UserError(
            f"{path} has shape {_file_shape(have)}, not the volume's {_file_shape(want)}: set resize to crop_pad or "
            "resample in the data set's definition, or choose another volume."
        )


def _file_shape(shape: tuple[int, ...]) -> str:
    """Return a (Z, Y, X) shape as people know it from the file: X x Y x Z."""
    return "x".join(str(side) for side in reversed(shape))


def _labels_to(labels: Labels, shape: tuple[int, ...], resize: str | None) -> Labels:
    if resize == "resample":
        return geometry.resample_labels(labels, shape)
    return np.asarray(geometry.crop_pad(labels, shape, fill=0), dtype=np.uint8)


def _image_to(volume: Floats, shape: tuple[int, ...], resize: str | None) -> Floats:
    if resize == "resample":
        return geometry.resample(volume, shape, smooth=True)
    return np.asarray(geometry.crop_pad(volume, shape, fill=float(volume.min())), dtype=np.float32)


def _scaled(volume: Volume, shape: tuple[int, ...], resize: str | None) -> Floats:
    """Bring an image to ``shape``, then scale the volume as a whole to [-1, 1]."""
    array = _image_to(volume.array, shape, resize)
    if array.min() == array.max():
        raise UserError(f"{volume.path} has one value only within the cropped volume: choose a larger volume.")
    return scale_volume(array)


def _published_image(array: Floats, shape: tuple[int, ...]) -> Floats:
    """Scale each Z slice on its own, then resize without smoothing, then move to [-1, 1]."""
    return geometry.resample(scale_slices_published(array), shape, smooth=False) * 2 - 1


def _as_it_is(volume: Volume, shape: tuple[int, ...], resize: str | None) -> Floats:
    """Take an image that was already brought to [-1, 1]."""
    low, high = float(volume.array.min()), float(volume.array.max())
    if low < -1 - _RANGE_TOLERANCE or high > 1 + _RANGE_TOLERANCE:
        raise UserError(
            f"{volume.path} ranges from {low:g} to {high:g}, not within -1 to 1: it was not preprocessed; "
            "set preprocessed: false."
        )
    return _image_to(volume.array, shape, resize).clip(-1, 1)
