"""Packs what was measured: a manifest with a SHA-256 per file, and few files that together stay small."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpustudy.base.atomic import write_json
from gpustudy.base.canonical import KEY_HEX_DIGITS, canonical_json
from gpustudy.base.digests import file_sha256
from gpustudy.base.status import read_status, write_status

MANIFEST = "manifest.json"
MANIFEST_SCHEMA = 1
"""Schema of the study's archives, which 'gpustudy archive import' reads."""
PART_PREFIX = "cells.tar.gz.part"
MOST_PARTS = 5
"""With manifest.json, summary.json and run.log that makes 8 files."""
MOST_BYTES = 58 * 10**6
"""Of all parts together: 60 MB less the small files."""
CHECKPOINT = "checkpoint.pt"


def trim(folder: Path) -> dict[str, Any] | None:
    """Remove the weights from a train stage's folder and its status; return what was removed, or None.

    They are most of the bytes, and nothing but the quality stage reads them. The status lists the files that are
    there, so it is written anew; state, reason and time stay.
    """
    checkpoint = folder / CHECKPOINT
    if not checkpoint.exists():
        return None
    removed = {"bytes": checkpoint.stat().st_size, "sha256": file_sha256(checkpoint)}
    checkpoint.unlink()
    write_status(folder, replace(read_status(folder), files={}))
    return removed


def write_manifest(results: Path, about: Mapping[str, Any]) -> Path:
    """Write ``results``/manifest.json over every file below ``results``/cells, in the form of the study's archives."""
    members = {
        path.relative_to(results).as_posix(): {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
        for path in sorted((results / "cells").rglob("*"))
        if path.is_file()
    }
    sums = {name: member["sha256"] for name, member in members.items()}
    identity = hashlib.sha256(canonical_json(sums).encode()).hexdigest()[:KEY_HEX_DIGITS]
    cells = {
        path.parent.relative_to(results).as_posix(): _document(path) for path in sorted(results.rglob("cell.json"))
    }
    path = results / MANIFEST
    write_json(path, {"schema": MANIFEST_SCHEMA, "archive": identity, **about, "cells": cells, "members": members})
    return path


def _document(cell: Path) -> Any:
    return json.loads(cell.read_text())["document"]


def pack(
    results: Path, out: Path, about: Mapping[str, Any], expendable: Sequence[Path], most_bytes: int = MOST_BYTES
) -> list[str]:
    """Write manifest and parts into ``out``; return the folders that had to be left out to stay small.

    Args:
        results: folder with ``cells``; its manifest is written here.
        out: where the files go.
        about: fields of the manifest about the whole.
        expendable: stage folders to leave out, first to last, while the parts are too large.
        most_bytes: of all parts together.
    """
    left_out: list[str] = []
    whole = out / f".{PART_PREFIX}"
    waiting = [folder for folder in expendable if folder.exists()]
    while True:
        manifest = write_manifest(results, {**about, "left_out": left_out})
        _compress(results, whole)
        if whole.stat().st_size <= most_bytes or not waiting:
            break
        left_out.append(_set_aside(results, waiting.pop(0)))
    (out / MANIFEST).write_bytes(manifest.read_bytes())
    _split(whole, out)
    whole.unlink()
    return left_out


def _set_aside(results: Path, folder: Path) -> str:
    """Move a stage's folder beside ``results``/cells, so that manifest and parts agree; return its name."""
    name = folder.relative_to(results).as_posix()
    target = results / "left-out" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    return name


def _compress(results: Path, target: Path) -> None:
    with tarfile.open(target, "w:gz", compresslevel=6) as tar:
        tar.add(results / MANIFEST, MANIFEST)
        tar.add(results / "cells", "cells")


def _split(whole: Path, out: Path) -> None:
    """Cut a file into at most ``MOST_PARTS`` parts of equal size."""
    for old in out.glob(f"{PART_PREFIX}*"):
        old.unlink()
    size = -(-whole.stat().st_size // MOST_PARTS)
    with whole.open("rb") as stream:
        for number in range(MOST_PARTS):
            if block := stream.read(size):
                (out / f"{PART_PREFIX}{number}").write_bytes(block)
