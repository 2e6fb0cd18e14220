"""Looking at a folder before anything is made from it: every fault at once, one sentence each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpustudy.base.errors import UserError
from gpustudy.data.folders import require_labels
from gpustudy.data.nifti import Volume, axes_of, check_axes, check_one_place, read_labels, read_volume
from gpustudy.data.prepare import MANIFEST_FILE, check_prepared
from gpustudy.data.sources import SourceCase, find_brats_cases, find_paired_cases, nifti_files
from gpustudy.data.volumes import Affine, voxel_mm

_IMAGE_FOLDERS = ("images", "image")
_LABEL_FOLDERS = ("labels", "label", "masks", "mask")


@dataclass
class _Report:
    """What is told, and what later cases are compared with.

    Attributes:
        lines: about what is good.
        problems: sentences about what is wrong.
        axes: where the axes of the first case point.
        labels: what each label map holds that could be read.
    """

    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    axes: str | None = None
    labels: list[set[int]] = field(default_factory=list)


def check_folder(folder: Path) -> tuple[list[str], list[str]]:
    """Look at every file below ``folder`` and return (lines about what is good, sentences about what is wrong).

    The folder may be a prepared data set, a pair of folders (images and labels or masks), BraTS2021, or hold
    images alone.
    """
    try:
        if (folder / MANIFEST_FILE).is_file():
            manifest = check_prepared(folder)
            return [f"prepared data set {manifest['name']}, key {manifest['key']}, {manifest['count']} cases"], []
        cases, problems = _cases(folder)
        files = [] if cases or problems else list(nifti_files(folder, deep=True).values())
    except UserError as error:
        return [], [str(error)]
    report = _Report(problems=problems)
    for case in cases:
        _look(report, case.case_id, case.images, case)
    for path in files:
        _look(report, path.name, [path], None)
    _look_at_labels(report, cases)
    return report.lines, report.problems


def counted(folder: Path, lines: Sequence[str]) -> str:
    """Return how many ``lines`` about what is good ``check_folder`` had, and for a prepared data set how many cases."""
    if not lines or not (folder / MANIFEST_FILE).is_file():
        return f"{len(lines)} good"
    cases = json.loads((folder / MANIFEST_FILE).read_text())["count"]
    return f"{len(lines)} set good ({cases} {'case' if cases == 1 else 'cases'})"


def _cases(folder: Path) -> tuple[tuple[SourceCase, ...], list[str]]:
    """Return the whole cases of a known layout, and a sentence per file that another one lacks; or none of either."""
    images = next((folder / name for name in _IMAGE_FOLDERS if (folder / name).is_dir()), None)
    labels = next((folder / name for name in _LABEL_FOLDERS if (folder / name).is_dir()), None)
    if images and labels:
        return find_paired_cases(images, labels)
    if folder.is_dir() and next(folder.rglob("*_t1ce.nii*"), None):
        return find_brats_cases(folder)
    return (), []


def _look_at_labels(report: _Report, cases: Sequence[SourceCase]) -> None:
    """Append a sentence where all label maps beside single images were read and hold background only.

    Those of BraTS2021 may: its brain comes from the image.
    """
    if not cases or len(cases[0].images) > 1 or len(report.labels) < len(cases):
        return
    try:
        require_labels(set().union(*report.labels), cases[0])
    except UserError as error:
        report.problems.append(str(error))


def _look(report: _Report, title: str, images: Sequence[Path], case: SourceCase | None) -> None:
    """Read the files of one case and append a line, or a sentence per fault."""
    problems, before = report.problems, len(report.problems)
    shapes: dict[Path, tuple[int, ...]] = {}
    affines: dict[Path, Affine] = {}
    first: Volume | None = None
    words: list[str] = []
    for path in images:
        try:
            volume = read_volume(path)
        except UserError as error:
            problems.append(str(error))
            continue
        first = first or volume
        shapes[path], affines[path] = volume.array.shape[::-1], volume.affine
        words = [
            "x".join(map(str, shapes[path])),
            "x".join(f"{size:.3g}" for size in reversed(voxel_mm(volume.affine))) + " mm",
            axes_of(volume.affine),
        ]
    if case is not None:
        try:
            labels, affines[case.labels] = read_labels(case.labels)
            shapes[case.labels] = labels.shape[::-1]
            report.labels.append({int(label) for label in np.unique(labels)})
            words.append("labels " + " ".join(map(str, sorted(report.labels[-1]))))
        except UserError as error:
            problems.append(str(error))
    if len(set(shapes.values())) > 1:
        problems.append(
            f"case {title} has files of different shapes ("
            + ", ".join(f"{path.name} {'x'.join(map(str, shape))}" for path, shape in shapes.items())
            + "): bring them onto one grid."
        )
    elif first is not None:
        try:
            for path, affine in affines.items():
                check_one_place(first, path, affine)
            if case is not None:
                report.axes = report.axes or axes_of(first.affine)
                check_axes(first.path, first.affine, report.axes)
        except UserError as error:
            problems.append(str(error))
    if len(problems) == before:
        report.lines.append(f"{title}: {', '.join(words)}")
