"""What made a cell stale: the fields in which the document of an old result differs from the present one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustudy.base.canonical import KEY_HEX_DIGITS, canonical_json

_ABSENT = "absent"
_SHA256_HEX_DIGITS = 64


@dataclass(frozen=True)
class Difference:
    """One field that differs: its dotted path, the old and the new value."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        """Return ``workload.train.iterations: 4 -> 5``."""
        return f"{self.field}: {_shown(self.old)} -> {_shown(self.new)}"


TABLES_EDITED = Difference("sources of the tables", "as they were", "edited")
"""What differs where tables are here without raw files, and the code that makes tables was edited since."""


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return the fields in which two cell files (key, labels, document) differ, the telling ones first.

    A changed source digest is told by the files that were edited; that the stage before has another key is told
    last, since it always follows from something else.
    """
    found = list(_walk("", old["document"], new["document"]))
    # a stage that ran without this workflow does not list them
    known, present = (side["labels"].get("source_files", {}) for side in (old, new))
    edited = [
        Difference(f"source {name}", before, after)
        for name, before, after in _pairs(known, present)
        if known and present and before != after
    ]
    told = [difference for difference in found if not difference.field.startswith(("sources.", "previous."))]
    if not edited and any(difference.field == "sources.digest" for difference in found):
        edited = [difference for difference in found if difference.field == "sources.digest"]
    follows = [difference for difference in found if difference.field.startswith("previous.")]
    return told + edited + follows


def read_cell_file(directory: Path) -> dict[str, Any] | None:
    """Return the cell file beside a result; None where there is none, as with tables that were made here."""
    try:
        content: dict[str, Any] = json.loads((directory / "cell.json").read_text())
        content["document"]["stage"], content["labels"]["config"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return content


def _walk(path: str, old: Any, new: Any) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name, before, after in _pairs(old, new):
            yield from _walk(f"{path}.{name}" if path else name, before, after)
    elif canonical_json(old) != canonical_json(new):
        yield Difference(path, old, new)


def _pairs(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in [*new, *(name for name in old if name not in new)]:
        yield name, old.get(name, _ABSENT), new.get(name, _ABSENT)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    is_sum = len(text) == _SHA256_HEX_DIGITS
    return text[:KEY_HEX_DIGITS] if is_sum else text
