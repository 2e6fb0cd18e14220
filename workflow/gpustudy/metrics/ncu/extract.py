"""``gpustudy extract``: Nsight Compute files of anyone's, as one set of typed tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpustudy.base.atomic import atomic_directory, write_json
from gpustudy.base.canonical import KEY_HEX_DIGITS
from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.base.progress import Progress
from gpustudy.metrics.catalogue import load_catalogue
from gpustudy.metrics.ncu.batch import Launch
from gpustudy.metrics.ncu.source import Source, open_source
from gpustudy.metrics.ncu.tables import TABLE_FILES, Tables, phases_by_nvtx
from gpustudy.metrics.schemas import Identity

SESSION_FILE = "session.json"
SESSION_SCHEMA = 1


def extract(reports: Sequence[Path], out: Path, *, salvage: bool = False, all_metrics: bool = True) -> dict[str, int]:
    """Read reports and write their tables into ``out``, all of them or none.

    Several reports share the tables: column ``report`` holds the file name, ``key`` the beginning of its SHA-256.

    Args:
        reports: report files or CSV exports, with different names.
        out: directory to write; one that is there already is replaced.
        salvage: keep the complete results of damaged reports.
        all_metrics: write every metric to ``counter_values``, not just those of the catalogue.

    Returns:
        The number of rows of each table.

    Raises:
        UserError: a file is absent, damaged, not Nsight Compute's, or has the name of another.
    """
    if doubled := [name for name, count in Counter(path.name for path in reports).items() if count > 1]:
        raise UserError(f"two reports are called {doubled[0]}: rename one, the tables tell reports apart by name.")
    _refuse_foreign(out)
    sources = [open_source(path, salvage=salvage) for path in sorted(reports, key=lambda path: path.name)]
    catalogue = load_catalogue()
    metrics = None if all_metrics else catalogue.metrics()
    sessions: list[dict[str, Any]] = []
    with atomic_directory(out) as directory:
        with Tables(directory, catalogue) as tables, ThreadPoolExecutor(1) as pool:
            for source in sources:
                digest = pool.submit(file_sha256, source.path)
                progress = Progress(source.path.name, source.launches or 1, "launch")
                collected = tables.add(source, _identity(source, digest), metrics, progress.step)
                sessions.append(source.facts() | {"sha256": digest.result(), "launches": len(collected.launches)})
            rows = tables.finish(phases_by_nvtx)
        write_json(directory / SESSION_FILE, {"schema": SESSION_SCHEMA, "reports": sessions, "rows": rows})
    return rows


def _refuse_foreign(out: Path) -> None:
    """Refuse to replace anything but an empty directory or what was written here before, and nothing beside it.

    Raises:
        UserError: ``out`` holds something else, such as the reports themselves.
    """
    if not out.exists():
        return
    ours = {SESSION_FILE, *TABLE_FILES.values()}
    names = {path.name for path in out.iterdir()} if out.is_dir() else {out.name}
    if foreign := sorted(names - ours):
        raise UserError(
            f"{out} exists and is not the output of 'gpustudy extract' alone (it holds {foreign[0]}): "
            "name another directory."
        )


def _identity(source: Source, digest: Future[str]) -> Callable[[Launch], Identity]:
    return lambda launch: Identity(
        launch.device or launch.architecture or "unknown", source.path.name, 0, digest.result()[:KEY_HEX_DIGITS]
    )
