"""Checks of folders: scratch and results can be written and are large enough, and compute nodes see the checkout."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from gpustudy.launch.own import stated_scratch
from gpustudy.launch.preflight.checks import Finding, Place, failed, passed, skipped, warned
from gpustudy.study.load import ROOT

_BYTES_PER_GIB = 2**30
IMAGE_GIB = 30.0
"""Room on scratch to build one image: layers, unpacked root (CUDA's devel base 9 GB, torch with its CUDA 5 GB) and the
compressed file lie there at once. An estimate on the safe side."""
TEMPORARY_GIB = 5.0
"""Room on scratch for temporary files of stages: ncu keeps a report of at most a few GB while it writes."""
CELL_GIB = {"cuda": 1.0, "cpu": 0.1}
"""Room in results/ per cell, by device: checkpoint (two sets of weights), samples, trace and report stay below. The
small workload of a CPU leaves some MB."""

SHARED_TYPES = frozenset(
    (
        *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "fuse.ceph", "panfs", "wekafs", "pvfs2"),
        *("orangefs", "afs", "cifs", "smb3", "9p", "virtiofs", "glusterfs", "fuse.glusterfs", "fuse.sshfs"),
    )
)
"""File system types that several machines see. Others are taken for a machine's own."""


def check_scratch(place: Place) -> Finding:
    """Whether the scratch folder exists, can be written, and has room for images and temporary files."""
    folder = stated_scratch(place.effective.study, place.effective.site, place.environment)
    if folder is None:
        folder = Path(tempfile.gettempdir())
        return _check_folder(folder, TEMPORARY_GIB, "the site states no scratch, temporary files go there")
    stacks = {gpu.stack for gpu in place.gpus.values()}
    images = IMAGE_GIB * len(stacks) if place.site.runtime != "none" else 0
    purpose = f"images of {', '.join(sorted(stacks))} and temporary files" if images else "temporary files"
    return _check_folder(folder, images + TEMPORARY_GIB, purpose)


def check_results(place: Place) -> Finding:
    """Whether results can be written, and have room for the site's cells."""
    folder = place.effective.results
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    study = place.effective.study
    cells = len(study.configs) * study.repeats
    needed_gib = sum(CELL_GIB[gpu.device] * cells for gpu in place.gpus.values())
    return _check_folder(folder.resolve(), needed_gib, f"for the {cells * len(place.gpus)} cells of this site")


def check_shared(place: Place) -> Finding:
    """Whether the checkout lies on a file system that compute nodes see too."""
    if place.site.executor != "slurm":
        return skipped("Jobs run on this machine.")
    mounts = place.read("/proc/mounts")
    kind = _type_of(ROOT, mounts) if mounts else None
    if kind is None:
        return skipped("/proc/mounts does not tell the checkout's file system: --in-job does.")
    if kind in SHARED_TYPES:
        return passed(f"The checkout lies on {kind}, which compute nodes see.")
    return warned(
        f"The checkout lies on {kind}, which is mostly a machine's own: jobs need it on a shared file system; "
        "--in-job finds out.",
    )


def _type_of(path: Path, mounts: str) -> str | None:
    """Return the type of the file system of a path: that of the deepest mount point above it, the last one there."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = words[1].replace("\\040", " ")
        if path.is_relative_to(point) and (best is None or len(point) >= best[0]):
            best = (len(point), words[2])
    return best[1] if best else None


def _check_folder(folder: Path, needed_gib: float, purpose: str) -> Finding:
    if not folder.is_dir():
        return failed(f"{folder} does not exist: make it with 'mkdir -p {folder}', or name another folder.")
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".gpustudy-preflight-") as file:
            file.write(os.urandom(16))
            file.flush()
            os.fsync(file.fileno())
        free_gib = shutil.disk_usage(folder).free / _BYTES_PER_GIB
    except OSError as error:
        return failed(f"{folder} cannot be written ({error.strerror}): free your quota or name another folder.")
    if free_gib < needed_gib:
        return failed(
            f"{folder} has {free_gib:.0f} GiB free, {needed_gib:.0f} GiB are needed ({purpose}): "
            "free some, or name another folder.",
        )
    return passed(
        f"{folder} can be written and has {free_gib:.0f} GiB free (a quota of yours may be less); "
        f"{needed_gib:.0f} GiB are needed ({purpose}).",
    )
