"""Results accepted in spite of a changed key: one record each in ``results/accepted.jsonl``, never hidden.

A record says: for this stage of this cell the result of the key ``old`` stands for the key ``new``. It holds only
while the present key is ``new``, while nothing was made under ``new``, and while the old result is here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpustudy.base.atomic import write_text
from gpustudy.base.errors import UserError

ACCEPTED_FILE = "accepted.jsonl"
ACCEPTANCE_SCHEMA = 1


@dataclass(frozen=True)
class Acceptance:
    """One accepted result.

    Attributes:
        gpu: the cell's gpu.
        config: the cell's config.
        repeat: the cell's repeat.
        stage: the stage.
        tables: False: ``old`` and ``new`` are keys of the stage itself; True: keys of the tables made from it.
        old: the key under which the result lies.
        new: the key that it stands for.
        differing: the fields that differ, as ``gpustudy why`` prints them.
        reason: why they cannot matter, in the words of who accepted.
        who: login name of who accepted.
        when: time in UTC, ISO 8601.
    """

    gpu: str
    config: str
    repeat: int
    stage: str
    tables: bool
    old: str
    new: str
    differing: tuple[str, ...]
    reason: str
    who: str
    when: str

    def as_json(self) -> dict[str, Any]:
        """Return the record's form in the file."""
        return {"schema": ACCEPTANCE_SCHEMA, **asdict(self), "differing": list(self.differing)}


@dataclass(frozen=True)
class Acceptances:
    """All records of a results folder, in the order in which they were made."""

    records: tuple[Acceptance, ...] = ()
    _by_new: dict[tuple[Any, ...], list[Acceptance]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_new", {})
        for record in self.records:
            self._by_new.setdefault(_place(record), []).append(record)

    def of(self, gpu: str, config: str, repeat: int, stage: str, new: str, tables: bool) -> Iterator[Acceptance]:
        """Yield what was accepted for a key, the newest first."""
        if self._by_new:
            yield from reversed(self._by_new.get((gpu, config, repeat, stage, new, tables), ()))

    def with_more(self, records: Iterable[Acceptance]) -> Acceptances:
        """Return these records and ``records``, each once."""
        return Acceptances(tuple(dict.fromkeys((*self.records, *records))))


def _place(record: Acceptance) -> tuple[Any, ...]:
    return (record.gpu, record.config, record.repeat, record.stage, record.new, record.tables)


def read_acceptances(results: Path) -> Acceptances:
    """Read the records of a results folder; none where there is no file.

    Raises:
        UserError: a line is no record.
    """
    path = results / ACCEPTED_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Acceptances()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it from an archive or move it away.") from error
    return Acceptances(tuple(parse_acceptances(text, str(path))))


def parse_acceptances(text: str, name: str) -> Iterator[Acceptance]:
    """Yield the records in ``text``, a JSON object per line.

    Raises:
        UserError: a line is no record; ``name`` says where it stands.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            if content.pop("schema") != ACCEPTANCE_SCHEMA:
                raise ValueError("unknown schema")
            record = Acceptance(**(content | {"differing": tuple(content["differing"])}))
            hash(record)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{name}, line {number} is no record of an acceptance ({error}): correct it.") from error
        yield record


def write_acceptances(results: Path, acceptances: Acceptances) -> None:
    """Write all records to the results folder."""
    lines = [json.dumps(record.as_json(), sort_keys=True, ensure_ascii=False) for record in acceptances.records]
    write_text(results / ACCEPTED_FILE, "".join(f"{line}\n" for line in lines))
