"""The manifest of an archive: every member with its size and SHA-256, and where the archive comes from."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpustudy.archive.folder import Archive
from gpustudy.archive.names import (
    MANIFEST,
    MAX_DOCUMENT_BYTES,
    MAX_MANIFEST_BYTES,
    MAX_MEMBERS,
    TOP_MEMBERS,
    check_names,
)
from gpustudy.base.canonical import KEY_HEX_DIGITS, canonical_json
from gpustudy.base.errors import UserError

MANIFEST_SCHEMA = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Member:
    """One file of an archive: its size in bytes and its SHA-256 as 64 hex digits."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What an archive says of itself.

    Attributes:
        members: name -> size and sum of every file but the manifest itself.
        about: who made it, when, at which site, from which commit, under which licence; for people.
    """

    members: Mapping[str, Member]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Twelve hex digits over the sums of all results: two archives with the same results have the same."""
        sums = {name: member.sha256 for name, member in self.members.items() if name not in TOP_MEMBERS}
        return hashlib.sha256(canonical_json(sums).encode()).hexdigest()[:KEY_HEX_DIGITS]

    @property
    def crafted(self) -> tuple[str, ...]:
        """The cells in it that were made up for a test or an example; what is wrongly written there counts as none."""
        named = self.about.get("crafted_cells")
        return tuple(str(cell) for cell in named) if isinstance(named, list) else ()

    def as_json(self) -> dict[str, Any]:
        """Return the content of manifest.json."""
        members = {name: {"bytes": member.size, "sha256": member.sha256} for name, member in self.members.items()}
        return {"schema": MANIFEST_SCHEMA, "archive": self.identity, **self.about, "members": members}


def read_manifest(archive: Archive) -> Manifest:
    """Read and check an archive's manifest; its members must be those of the archive, with the sizes they have.

    A folder may hold more files than its manifest names; they are no part of the archive.

    Raises:
        UserError: the manifest is missing, too large, of another form, or does not fit the archive.
    """
    content = read_json(archive, MANIFEST, MAX_MANIFEST_BYTES)
    try:
        if content["schema"] != MANIFEST_SCHEMA or not isinstance(content["members"], dict):
            raise ValueError(f"schema {content['schema']!r} is unknown")
        if len(content["members"]) > MAX_MEMBERS:
            raise ValueError(f"it names more than {MAX_MEMBERS} members")
        members = {name: _member(about) for name, about in content["members"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{archive.name}: {MANIFEST} is no manifest of an archive ({type(error).__name__}: {error}): "
            "nothing was taken from it."
        ) from error
    check_names([*members, MANIFEST], archive.name)
    _compare(archive, members)
    about = {name: value for name, value in content.items() if name not in ("schema", "archive", "members")}
    return Manifest(members, about)


def _member(about: Mapping[str, Any]) -> Member:
    size, sha256 = about["bytes"], about["sha256"]
    if type(size) is not int or size < 0 or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError("a member has no size in bytes or no SHA-256")
    return Member(size, sha256)


def _compare(archive: Archive, members: Mapping[str, Member]) -> None:
    for name, member in members.items():
        size = archive.sizes.get(name)
        if size != member.size:
            said = "is missing" if size is None else f"has {size} bytes and not {member.size}"
            raise UserError(f"{archive.name}: member {name} {said}: nothing was taken from it; get the file again.")
    if archive.is_exact:
        for name in archive.sizes:
            if name not in members and name != MANIFEST:
                raise UserError(f"{archive.name}: member {name!a} is not in the manifest: nothing was taken from it.")


def read_bytes(archive: Archive, member: str, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Read a member whole.

    Raises:
        UserError: it is absent or has more than ``limit`` bytes.
    """
    size = archive.sizes.get(member)
    if size is None:
        raise UserError(f"{archive.name}: member {member} is missing: nothing was taken from it.")
    if size > limit:
        raise UserError(f"{archive.name}: member {member} has {size} bytes, more than the {limit} that are allowed.")
    return b"".join(archive.blocks(member))


def read_json(archive: Archive, member: str, limit: int = MAX_DOCUMENT_BYTES) -> dict[str, Any]:
    """Read a member that is a JSON object.

    Raises:
        UserError: it is absent, too large, or is none.
    """
    try:
        content = json.loads(read_bytes(archive, member, limit))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{archive.name}: member {member} is no JSON: nothing was taken from it.") from error
    if not isinstance(content, dict):
        raise UserError(f"{archive.name}: member {member} is no JSON object: nothing was taken from it.")
    return content


def total_bytes(members: Iterable[Member]) -> int:
    """Return the size of ``members`` together."""
    return sum(member.size for member in members)
