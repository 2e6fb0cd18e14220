"""Varied copies of one real brain: the MNI152 template, deformed, re-lit and given a synthetic lesion.

One average brain is one sample, so a set is made from it: per volume a small rotation and scaling, a smooth
deformation, flips, a synthetic lesion, a contrast change, a smooth bias field and a little noise. Volume ``i``
depends on ``(seed, i)`` and the volume's size alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from gpustudy.data.definitions import DATA_KINDS, MNI152_MASKS
from gpustudy.data.nifti import read_volume
from gpustudy.data.sources import template_files
from gpustudy.data.volumes import (
    FWHM_PER_SIGMA,
    MASK_RANGE,
    Affine,
    Case,
    Floats,
    Labels,
    Plan,
    scale_volume,
    to_range,
)

Field = NDArray[np.float64]

CSF_OTHER, GREY_MATTER, WHITE_MATTER, LESION = 1, 2, 3, 4
TEMPLATE_MAXIMUM = 255.0
"""The template's files hold uint8: T1 from 0 to 255, probabilities times 255."""
PROBABILITY = 0.5
"""A voxel belongs to a tissue that more than half of it is made of."""

FIELD_OF_VIEW = 1.15
"""Side of the prepared volume over the brain's, along the axis that fits tightest: room for the deformation."""

ROTATION_DEG = 6.0
SCALE = 0.05
"""Bounds of the uniform rotation about each axis and of the uniform scaling along each."""
CONTROL_MM = 40.0
"""Spacing of the cubic B-spline control points of the deformation and of the bias field."""
SHIFT_SD_MM, SHIFT_MAX_MM = 8.0, 15.0
"""Control-point shift. Below CONTROL_MM / 2.48 a cubic B-spline deformation cannot fold (Choi and Lee, 2000)."""
GAMMA = (0.85, 1.2)
BIAS_SD, NOISE_SD = 0.2, 0.01
"""Exponent of the contrast, log bias of a control point, and noise, all on T1 scaled to [0, 1]."""

LESION_RADIUS_MM = (9.0, 20.0)
LESION_ROUGHNESS = 0.6
"""Log change of the radius at a control point of the lesion's outline."""
LESION_CONTROL_MM = 12.0
LESION_RIM = 0.75
"""Part of the radius from which the bright rim begins; inside lies a dark core, as a tumour has after contrast."""
LESION_CORE_T1, LESION_RIM_T1 = 0.3, 0.95


def plan_mni152(resolved: Mapping[str, Any]) -> Plan:
    """Return what a ``mni152`` data set will become."""
    label_names = DATA_KINDS["mni152"].label_names
    assert label_names is not None
    return Plan(
        case_ids=tuple(_case_id(index) for index in range(resolved["count"])),
        mask_channels=MNI152_MASKS,
        mask_range=MASK_RANGE,
        label_names=label_names,
        cases=_cases(resolved),
    )


def _cases(resolved: Mapping[str, Any]) -> Iterator[Case]:
    template = load_template(template_files())
    depth, height, width = resolved["volume"]
    grid = fit_grid(template, (depth, height, width))
    template = blurred(template, grid)
    for index in range(resolved["count"]):
        yield make_case(template, grid, resolved["seed"], index, resolved["flips"])


def _case_id(index: int) -> str:
    return f"mni152-{index:03d}"


@dataclass(frozen=True)
class Template:
    """The template cropped to the brain, in network order (Z, Y, X), 1 mm voxels.

    Attributes:
        maps: name -> (D, H, W) float32 in [0, 1]: ``t1``, ``gm``, ``wm`` and ``brain``.
        affine: 4x4 of the cropped (X, Y, Z) array.
    """

    maps: Mapping[str, Floats]
    affine: Affine


@dataclass(frozen=True)
class Grid:
    """The prepared volume's voxels in the cropped template: ``centre`` in its (Z, Y, X) voxels, one voxel size."""

    shape: tuple[int, int, int]
    centre: Field
    voxel_mm: float
    affine: Affine

    def offsets_mm(self) -> list[Field]:
        """Return, per axis, each voxel's distance from the centre."""
        return [(np.arange(side, dtype=np.float64) - (side - 1) / 2) * self.voxel_mm for side in self.shape]


def load_template(files: Mapping[str, Path]) -> Template:
    """Read the T1, grey- and white-matter files; the brain is where the skull-stripped T1 is above 0."""
    volumes = {name: read_volume(path) for name, path in files.items()}
    t1 = volumes["t1"]
    brain = t1.array > 0
    box = ndimage.find_objects(brain.astype(np.uint8))[0]
    maps = {name: volume.array[box] / np.float32(TEMPLATE_MAXIMUM) for name, volume in volumes.items()}
    affine = t1.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ [axis.start for axis in reversed(box)]
    return Template({**maps, "brain": brain[box].astype(np.float32)}, affine)


def tissue_labels(maps: Mapping[str, Floats]) -> Labels:
    """Return (D, H, W) labels: white matter, grey matter, other brain, background."""
    labels = (maps["brain"] > PROBABILITY).astype(np.uint8) * np.uint8(CSF_OTHER)
    inside = labels > 0
    labels[inside & (maps["gm"] > PROBABILITY)] = GREY_MATTER
    labels[inside & (maps["wm"] > PROBABILITY)] = WHITE_MATTER
    return labels


def fit_grid(template: Template, shape: tuple[int, int, int]) -> Grid:
    """Return the grid of cubic voxels, centred on the brain, on which all of it fits with room to spare."""
    sides = np.array(template.maps["t1"].shape)
    voxel = float((sides * FIELD_OF_VIEW / np.array(shape)).max())
    centre = (sides - 1) / 2
    first = centre - (np.array(shape) - 1) / 2 * voxel  # template position of voxel (0, 0, 0)
    affine = template.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ first[::-1]
    affine[:3, :3] *= voxel
    return Grid(shape, centre, voxel, affine)


def blurred(template: Template, grid: Grid) -> Template:
    """Return the template blurred to the grid's voxel width, so that sampling it does not alias."""
    if grid.voxel_mm <= 1:
        return template
    sigma = grid.voxel_mm / FWHM_PER_SIGMA
    maps = {name: ndimage.gaussian_filter(array, sigma, mode="constant") for name, array in template.maps.items()}
    return Template(maps, template.affine)


def make_case(template: Template, grid: Grid, seed: int, index: int, flips: bool) -> Case:
    """Return volume ``index`` of the set; ``template`` must be blurred for ``grid``."""
    random = np.random.default_rng([seed, index])
    places = _deformed_places(random, grid, flips)
    maps = {name: ndimage.map_coordinates(array, places, order=1) for name, array in template.maps.items()}
    labels = tissue_labels(maps)
    radius = _lesion_radius(random, grid, labels)
    is_lesion = (radius < 1) & (labels > 0)
    labels[is_lesion] = LESION
    t1 = maps["t1"].copy()
    t1[is_lesion] = np.where(radius[is_lesion] < LESION_RIM, LESION_CORE_T1, LESION_RIM_T1) * maps["brain"][is_lesion]
    t1 = np.clip(t1, 0, 1) ** random.uniform(*GAMMA)
    t1 *= np.exp(spline_field(random.normal(0, BIAS_SD, _control_shape(grid, CONTROL_MM)), grid, CONTROL_MM))
    t1 = np.clip(t1 + random.normal(0, NOISE_SD, grid.shape) * maps["brain"], 0, None)
    channels = np.stack([(labels > 0) & ~is_lesion, is_lesion]).astype(np.float32)
    return Case(
        case_id=_case_id(index),
        image=scale_volume(t1.astype(np.float32))[None],
        masks=to_range(channels, MASK_RANGE),
        labels=labels,
        affine=grid.affine,
    )


def spline_field(coefficients: Field, grid: Grid, control_mm: float) -> Field:
    """Return (D, H, W): the uniform cubic B-spline with these control values on the grid's voxels.

    Plain loops of einsum on purpose: a BLAS product could differ in the last bit with the number of threads.
    """
    field = coefficients
    for side in grid.shape:  # each pass takes the first axis away and appends it evaluated
        field = np.einsum("kyx,nk->yxn", field, _spline_basis(side, grid.voxel_mm / control_mm, field.shape[0]))
    return field


def _spline_basis(side: int, step: float, controls: int) -> Field:
    """Return (side, controls): weights of the control points at voxel positions ``step`` spans apart."""
    position = np.arange(side) * step
    span = position.astype(int)
    u = position - span
    weights = np.stack([(1 - u) ** 3, 3 * u**3 - 6 * u**2 + 4, -3 * u**3 + 3 * u**2 + 3 * u + 1, u**3]) / 6
    basis = np.zeros((side, controls))
    for offset, weight in enumerate(weights):
        basis[np.arange(side), span + offset] = weight
    return basis


def _control_shape(grid: Grid, control_mm: float) -> tuple[int, ...]:
    """Return how many control points cover the grid: four around each voxel."""
    return tuple(int((side - 1) * grid.voxel_mm / control_mm) + 4 for side in grid.shape)


def _deformed_places(random: np.random.Generator, grid: Grid, flips: bool) -> Field:
    """Return (3, D, H, W): the template position that each voxel of the grid shows."""
    angles = np.radians(random.uniform(-ROTATION_DEG, ROTATION_DEG, 3))
    signs = np.where(random.random(3) < 1 / 2, -1, 1) if flips else np.ones(3, dtype=int)
    signs[2] = 1  # the template is symmetric from left to right
    matrix = _rotation(angles) * (random.uniform(1 - SCALE, 1 + SCALE, 3) * signs)
    offsets = np.stack(np.meshgrid(*grid.offsets_mm(), indexing="ij"))  # (3, D, H, W)
    places = np.einsum("ij,jzyx->izyx", matrix, offsets)
    for axis in range(3):
        shifts = random.normal(0, SHIFT_SD_MM, _control_shape(grid, CONTROL_MM)).clip(-SHIFT_MAX_MM, SHIFT_MAX_MM)
        places[axis] += spline_field(shifts, grid, CONTROL_MM) + grid.centre[axis]
    return np.asarray(places)


def _rotation(angles: Field) -> Field:
    """Return the product of the rotations about the three axes, in radians."""
    matrix = np.eye(3)
    for axis, angle in enumerate(angles):
        first, second = (index for index in range(3) if index != axis)
        turn = np.eye(3)
        turn[first, first] = turn[second, second] = np.cos(angle)
        turn[first, second], turn[second, first] = -np.sin(angle), np.sin(angle)
        matrix = matrix @ turn
    return matrix


def _lesion_radius(random: np.random.Generator, grid: Grid, labels: Labels) -> Field:
    """Return (D, H, W): distance from the lesion's centre over its radius in that direction; below 1 is inside.

    The centre lies in white matter where there is any, as a glioma's mostly does.
    """
    sites = np.flatnonzero(labels == WHITE_MATTER)
    if sites.size == 0:
        sites = np.flatnonzero(labels)
    centre = np.unravel_index(sites[random.integers(sites.size)], grid.shape)
    radii = random.uniform(*LESION_RADIUS_MM, 3)
    steps = [(np.arange(side) - at) * grid.voxel_mm / radius
             for side, at, radius in zip(grid.shape, centre, radii, strict=True)]  # fmt: skip
    distance = np.sqrt(sum(step**2 for step in np.ix_(*steps)))
    bumps = random.normal(0, LESION_ROUGHNESS, _control_shape(grid, LESION_CONTROL_MM))
    return np.asarray(distance * np.exp(spline_field(bumps, grid, LESION_CONTROL_MM)))
