"""Any Nsight Compute file, recognised by what it holds: its batches of launches, and its session facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError
from gpustudy.metrics.inputs import refuse_streams
from gpustudy.metrics.ncu.batch import Batch
from gpustudy.metrics.ncu.container import MAGIC, Container, walk_whole
from gpustudy.metrics.ncu.csvpages import read_csv
from gpustudy.metrics.ncu.report import read_report
from gpustudy.metrics.ncu.session import Session, read_session

REPORT_SUFFIXES = (".ncu-rep", ".nsight-cuprof-report")


@dataclass(frozen=True)
class Source:
    """One file, ready to be read.

    Attributes:
        path: the file.
        format: ``report`` or ``csv``.
        launches: how many it holds; None where only reading it through tells.
        session: its session facts; those of a CSV export are empty.
        damage: what is wrong after the salvaged launches; empty for a whole file.
    """

    path: Path
    format: str
    launches: int | None
    session: Session
    damage: str
    _container: Container | None

    def batches(self, metrics: Sequence[str] | None = None) -> Iterator[Batch]:
        """Read the launches; of the given metrics only, or of all. A CSV export always gives all it has."""
        if self._container is None:
            yield read_csv(self.path)
        else:
            yield from read_report(self._container, metrics)

    def facts(self) -> dict[str, Any]:
        """Return what ``session.json`` says of the file."""
        session = asdict(self.session)
        session["processes"] = [process._asdict() for process in self.session.processes]
        session["devices"] = {str(number): name for number, name in self.session.devices.items()}
        return {"report": self.path.name, "format": self.format, "damage": self.damage or None, **session}


def open_source(path: Path, *, salvage: bool = False) -> Source:
    """Recognise a report or a CSV export and check that it is whole.

    Raises:
        UserError: it does not exist, is neither, is damaged, or holds no launches.
    """
    try:
        refuse_streams(path)
        with path.open("rb") as stream:
            head = stream.read(len(MAGIC))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check the path.") from error
    if head == MAGIC or path.suffix in REPORT_SUFFIXES:
        container = walk_whole(path, salvage=salvage)
        return Source(path, "report", len(container.results), read_session(container), container.damage, container)
    return Source(path, "csv", None, Session(), "", None)
