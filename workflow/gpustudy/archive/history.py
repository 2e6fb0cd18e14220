"""Where results came from and went: a line per export and import, carried along in archives.

``results/history.jsonl`` holds the lines; ``results/archives/{archive}.json`` says which stages an archive holds, so
that ``gpustudy gc`` keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpustudy.archive.names import HISTORY
from gpustudy.base.atomic import write_json, write_text
from gpustudy.base.errors import UserError
from gpustudy.base.user import user_name

ARCHIVES = "archives"
_EVENT_KEYS = ("event", "archive", "file", "site", "who", "when", "stages", "replaced")
_MAX_EVENTS = 10_000
"""Lines of a history that are kept, the newest ones."""


def event(what: str, archive: str, file: Path | str, site: str, stages: int, replaced: Iterable[str]) -> dict[str, Any]:
    """Return the line for an export or import that happens now.

    Args:
        what: ``export`` or ``import``.
        archive: identity of the archive.
        file: its name, without the folder it lies in.
        site: where it happens.
        stages: number of stage folders that were written.
        replaced: folders whose earlier content was set aside.
    """
    return {
        "event": what,
        "archive": archive,
        "file": Path(file).name,
        "site": site,
        "who": user_name(),
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "stages": stages,
        "replaced": list(replaced),
    }


def read_history(results: Path) -> list[dict[str, Any]]:
    """Return the lines of a results folder, oldest first.

    Raises:
        UserError: a line is none, or the file is no UTF-8 text.
    """
    path = results / HISTORY
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line} is no UTF-8 text: remove the line.") from error
    return list(parse_history(text, str(path)))


def parse_history(text: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a history.

    Raises:
        UserError: a line is none; ``name`` says where it stands.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            content = json.loads(line)
            if set(content) != set(_EVENT_KEYS) or not isinstance(content["when"], str):
                raise ValueError("other keys than an event has")
        except (ValueError, TypeError, RecursionError) as error:
            raise UserError(f"{name}, line {number} is no event of a history ({error}): remove the line.") from error
        yield content


def history_text(events: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a history, every line once, oldest first."""
    lines = {json.dumps(event, sort_keys=True, ensure_ascii=False): event["when"] for event in events}
    ordered = sorted(lines, key=lambda line: lines[line])[-_MAX_EVENTS:]
    return "".join(f"{line}\n" for line in ordered)


def add_events(results: Path, events: Iterable[Mapping[str, Any]]) -> None:
    """Add lines to the history of a results folder."""
    write_text(results / HISTORY, history_text([*read_history(results), *events]))


def remember_archive(results: Path, archive: str, file: Path | str, stages: Iterable[str]) -> None:
    """Keep a list of the stages that an archive holds."""
    content = {"archive": archive, "file": Path(file).name, "stages": sorted(stages)}
    write_json(results / ARCHIVES / f"{archive}.json", content)


def remembered_archives(results: Path) -> list[dict[str, Any]]:
    """Return the archives that were exported from or imported into a results folder.

    Raises:
        UserError: a record is unreadable.
    """
    found = []
    for path in sorted((results / ARCHIVES).glob("*.json")):
        try:
            content = json.loads(path.read_text())
            content["archive"], content["file"], list(content["stages"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is no record of an archive ({error}): remove it.") from error
        found.append(content)
    return found
