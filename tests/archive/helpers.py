"""Two sites and an archive between them, on crafted results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gpustudy.archive.check import Contents, check_archive
from gpustudy.archive.exporting import export_archive
from gpustudy.archive.folder import open_archive
from gpustudy.archive.importing import Arrival, arrivals, land
from gpustudy.study.cells import Keys
from gpustudy.study.load import Effective
from gpustudy.study.states import survey

SMALL = {"repeats": 1}


def at(effective: Effective, results: Path, site: str | None = None) -> Effective:
    """The same study with other results, perhaps at another site."""
    return replace(effective, results=results, site=site or effective.site)


def export(effective: Effective, file: Path, gpus: Iterable[str] = ("a100",), *, with_raw: bool = True) -> Path:
    """Export the current results of some gpus."""
    keys = Keys(effective)
    seen = survey(effective, keys)
    cells = [state for state in seen.cells if state.gpu in gpus]
    export_archive(seen, keys, file, cells, with_raw=with_raw)
    return file


def look(effective: Effective, file: Path) -> list[Arrival]:
    """What importing would do."""
    with open_archive(file) as archive:
        return arrivals(effective, check_archive(archive))


def take(effective: Effective, file: Path, *, force: bool = False) -> list[Arrival]:
    """Import, and return what was written."""
    with open_archive(file) as archive:
        contents = check_archive(archive)
        return land(effective, archive, contents, arrivals(effective, contents), replace=force)


def check(file: Path) -> Contents:
    """Check every byte."""
    with open_archive(file) as archive:
        return check_archive(archive)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its content."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
