"""Where the source files of a data set lie, and which image goes with which label map. Opens none of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError
from gpustudy.base.reading import read_text, require_folder
from gpustudy.data.definitions import DATA_KINDS

NIFTI_SUFFIXES = (".nii.gz", ".nii")

TEMPLATE_MAPS = ("t1", "gm", "wm")
_TEMPLATE_FILE = "mni_icbm152_{}_tal_nlin_sym_09a_converted.nii.gz"
"""The ICBM152 2009a symmetric template in nilearn/datasets/data: T1, grey- and white-matter probability."""


@dataclass(frozen=True)
class SourceCase:
    """The files of one case: ``images`` in channel order, and its label map."""

    case_id: str
    images: tuple[Path, ...]
    labels: Path


def template_files() -> dict[str, Path]:
    """Return map name -> file of the MNI152 template, found without importing nilearn.

    Raises:
        UserError: nilearn or one of its files is absent.
    """
    spec = importlib.util.find_spec("nilearn")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("the data kind mni152 needs the package nilearn: install it with 'pip install nilearn'.")
    folder = Path(spec.submodule_search_locations[0]) / "datasets" / "data"
    files = {name: folder / _TEMPLATE_FILE.format(name) for name in TEMPLATE_MAPS}
    for path in files.values():
        if not path.is_file():
            raise UserError(f"nilearn's template file {path.name} is absent: install nilearn anew.")
    return files


def find_cases(name: str, resolved: Mapping[str, Any], root: Path) -> tuple[SourceCase, ...]:
    """Return the cases of a folder data set, in the order of their ids; relative paths begin at ``root``.

    Raises:
        UserError: a folder is absent or empty, a file has no partner, or a listed case is not there.
    """
    if resolved["kind"] == "brats":
        cases, faults = find_brats_cases(root / resolved["folder"])
    else:
        labels = resolved["masks" if resolved["kind"] == "whole_head" else "labels"]
        cases, faults = find_paired_cases(root / resolved["images"], root / labels)
    if faults:
        more = f" ({len(faults) - 1} more such files: 'gpustudy data check' lists all.)" if len(faults) > 1 else ""
        raise UserError(faults[0] + more)
    return cases if resolved["cases"] is None else _chosen(name, cases, root / resolved["cases"])


def source_files(name: str, resolved: Mapping[str, Any], root: Path) -> dict[str, Path]:
    """Return every source file of a data set under a name that holds no place of this machine."""
    if resolved["kind"] == "mni152":
        return {f"nilearn/{path.name}": path for path in template_files().values()}
    files: dict[str, Path] = {}
    for case in find_cases(name, resolved, root):
        roles = [*(f"images/{channel}" for channel in DATA_KINDS[resolved["kind"]].image_channels), "labels"]
        for role, path in zip(roles, (*case.images, case.labels), strict=True):
            files[f"{role}/{path.name}"] = path
    return files


def nifti_stem(path: Path) -> str | None:
    """Return the file name without its NIfTI suffix, or None for another file."""
    for suffix in NIFTI_SUFFIXES:
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return None


def nifti_files(folder: Path, deep: bool = False) -> dict[str, Path]:
    """Return stem -> NIfTI file of ``folder`` (at any depth when ``deep``); hidden files are left out.

    Raises:
        UserError: the folder is absent or holds none, or two files share a stem.
    """
    require_folder(folder, "name a folder of .nii or .nii.gz files")
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*") if deep else folder.iterdir()):
        stem = nifti_stem(path)
        if stem is None or path.name.startswith(".") or not path.is_file():
            continue
        if stem in files:
            raise UserError(f"{files[stem]} and {path} are both named {stem!r}: remove one of them.")
        files[stem] = path
    if not files:
        raise UserError(f"the folder {folder} holds no .nii or .nii.gz file: point the data set to the right folder.")
    return files


def find_paired_cases(images: Path, labels: Path) -> tuple[tuple[SourceCase, ...], list[str]]:
    """Pair the files of two folders by equal name (never by order or by digits, as the published code does).

    Returns:
        The pairs, and a sentence per file without a partner.
    """
    of_images, of_labels = nifti_files(images), nifti_files(labels)
    cases = tuple(
        SourceCase(stem, (of_images[stem],), of_labels[stem]) for stem in sorted(of_images) if stem in of_labels
    )
    faults = [
        f"{here[stem]} has no partner in {where}: give image and label map the same file name."
        for here, there, where in ((of_images, of_labels, labels), (of_labels, of_images, images))
        for stem in sorted(here.keys() - there.keys())
    ]
    return cases, faults


def find_brats_cases(folder: Path) -> tuple[tuple[SourceCase, ...], list[str]]:
    """Collect NAME_t1, NAME_t1ce, NAME_t2, NAME_flair and NAME_seg, in whatever folders they lie.

    Returns:
        The whole cases, and a sentence per file that a case lacks.
    """
    modalities = DATA_KINDS["brats"].image_channels
    found: dict[str, dict[str, Path]] = {}
    for stem, path in nifti_files(folder, deep=True).items():
        case_id, _, role = stem.rpartition("_")
        if case_id and role in (*modalities, "seg"):
            found.setdefault(case_id, {})[role] = path
    if not found:
        raise UserError(f"the folder {folder} holds no file named like BraTS2021_00000_t1.nii.gz: is it BraTS2021?")
    cases: list[SourceCase] = []
    faults: list[str] = []
    for case_id, roles in sorted(found.items()):
        absent = [role for role in (*modalities, "seg") if role not in roles]
        faults += [
            f"case {case_id} in {folder} has no {case_id}_{role} file: add it or remove the case." for role in absent
        ]
        if not absent:
            cases.append(SourceCase(case_id, tuple(roles[modality] for modality in modalities), roles["seg"]))
    return tuple(cases), faults


def _chosen(name: str, cases: tuple[SourceCase, ...], listing: Path) -> tuple[SourceCase, ...]:
    """Return the cases listed in a text file, in the order of their ids."""
    lines = read_text(listing, f"correct the path at data.{name}.cases").splitlines()
    wanted = {line.strip() for line in lines if line.strip()}
    absent = sorted(wanted - {case.case_id for case in cases})
    if absent or not wanted:
        what = f"case {absent[0]!r} is in no folder of the data set" if absent else "it lists no case"
        raise UserError(f"data.{name}.cases: {listing}: {what}; correct the list.")
    return tuple(case for case in cases if case.case_id in wanted)
