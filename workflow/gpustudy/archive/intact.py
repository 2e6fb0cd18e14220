"""Checking the files in results/ against what their stages wrote."""

from __future__ import annotations

from pathlib import Path

from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.base.progress import Progress
from gpustudy.base.status import STATUS_FILE, read_status
from gpustudy.study.paths import CELLS


def check_results(results: Path) -> int:
    """Compare every raw file in ``results/cells`` with its sum in the stage's status file.

    Returns:
        How many stage folders were checked.

    Raises:
        UserError: naming the first file that is missing or differs.
    """
    found = sorted((results / CELLS).glob(f"*/*/r*/[!.]*/{STATUS_FILE}"))
    progress = Progress(f"check {results / CELLS}", len(found), "folder")
    for done, path in enumerate(found, start=1):
        _check_folder(path.parent)
        progress.step(done)
    return len(found)


def _check_folder(folder: Path) -> None:
    for name, about in read_status(folder).files.items():
        path = folder / name
        if not path.is_file() or file_sha256(path) != about["sha256"]:
            raise UserError(
                f"{path} is missing, or is not what its stage wrote: import the cell again with --replace, "
                "or set it aside with 'gpustudy retry'."
            )
