"""Images at hand: which file or Docker image a stack's cells run in, and whether it is still what was built.

Beside each image lies a record: SHA-256, size and time of change. An image of another size is refused at once; one
that was touched since is summed anew. One whose size and time are unchanged is taken as it is: summing gigabytes
before every stage would cost more than many stages take, and ``gpustudy image verify`` does it when asked.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpustudy.base.atomic import write_json
from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.launch.runtimes import Kind, Runtime
from gpustudy.launch.sif import read_sif
from gpustudy.launch.tools import Runner, ask
from gpustudy.study.cells import Keys
from gpustudy.study.load import ROOT, Effective
from gpustudy.study.paths import image_path
from gpustudy.study.stacks import base_image

KEY_LABEL = "gpustudy.key"
STACK_LABEL = "gpustudy.stack"
RECORD_SCHEMA = 1
DOCKER_REPOSITORY = "gpustudy"


@dataclass(frozen=True)
class Wanted:
    """The image that a stack's cells need at a site.

    Attributes:
        site: name of the site.
        stack: name of the stack.
        key: its key, with recipe, base image and pins in it.
        kind: of the runtime.
        path: the .sif, or the file that names the Docker image.
        base: base image with its digest.
    """

    site: str
    stack: str
    key: str
    kind: Kind
    path: Path
    base: str

    @property
    def tag(self) -> str:
        """Name of the image in Docker."""
        return f"{DOCKER_REPOSITORY}-{self.stack}:{self.key}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the image, by which it is known wherever it is copied to."""
        return {STACK_LABEL: self.stack, KEY_LABEL: self.key}

    @property
    def record(self) -> Path:
        """File with the image's sum."""
        return self.path if self.kind == "docker" else self.path.with_name(f"{self.path.name}.json")


@dataclass(frozen=True)
class Record:
    """What is known of an image.

    Attributes:
        stack: name of its stack.
        key: key of its stack.
        base: base image with its digest.
        sha256: of the .sif; of a Docker image its id.
        bytes: size.
        changed_ns: time of change of the .sif, as its file system gives it; 0 for Docker.
        origin: what it was built with and when, or which file it was taken from.
        versions: of the packages found in it; empty where nobody looked.
    """

    stack: str
    key: str
    base: str
    sha256: str
    bytes: int
    changed_ns: int
    origin: dict[str, str]
    versions: dict[str, str]


@dataclass(frozen=True)
class Image:
    """An image that may be started.

    Attributes:
        reference: what the runtime is given: absolute path, or id.
        sha256: its sum, for provenance.
    """

    reference: str
    sha256: str


def wanted_image(effective: Effective, stack: str, keys: Keys | None = None, kind: Kind | None = None) -> Wanted:
    """Return which image a stack's cells need at this site, whether or not it is there.

    Args:
        effective: the study as seen from a site.
        stack: name of the stack.
        keys: the study's keys, where the caller has them.
        kind: of the runtime; None: the site's.

    Raises:
        UserError: the site runs cells without containers, or there is no such stack.
    """
    site = effective.study.sites[effective.site]
    runtime = kind or (None if site.runtime == "none" else site.runtime)
    if stack not in effective.study.stacks:
        raise UserError(f"there is no stack '{stack}': it is one of {', '.join(effective.study.stacks)}.")
    if runtime is None:
        raise UserError(f"site {effective.site} runs cells without containers: name another site with --site.")
    key = (keys or Keys(effective)).image_key(stack)
    base = base_image(ROOT / effective.study.stacks[stack].recipe)
    return Wanted(effective.site, stack, key, runtime, image_path(effective.results, stack, key, runtime), base)


def usable_image(wanted: Wanted, runtime: Runtime, runner: Runner = ask) -> Image:
    """Return the image to start, checked.

    Raises:
        UserError: it is missing, cut off, changed since it was built, or of another stack.
    """
    if wanted.kind == "docker":
        return _docker_image(wanted, runtime, runner)
    return Image(str(wanted.path.resolve()), check_sif(wanted).sha256)


def check_sif(wanted: Wanted, thorough: bool = False) -> Record:
    """Check a .sif against its record, and return that.

    An image that someone put in its place by hand has no record: it is taken when it says that it was built for this
    key, and then gets one.

    Args:
        wanted: the image.
        thorough: sum the whole file, whatever its size and time say.

    Raises:
        UserError: it is missing, cut off, changed since it was built, or of another stack.
    """
    if not wanted.path.exists():
        raise UserError(f"{wanted.path} is missing: {_how_to_get(wanted)}.")
    record = read_record(wanted)
    state = wanted.path.stat()
    if record is None:
        return adopt(wanted, {"taken from": wanted.path.name})
    if state.st_size != record.bytes:
        raise UserError(
            f"{wanted.path} has {state.st_size} bytes, it was built with {record.bytes}: remove it, and "
            f"{_how_to_get(wanted)}."
        )
    if state.st_mtime_ns == record.changed_ns and not thorough:
        return record
    if file_sha256(wanted.path) != record.sha256:
        raise UserError(f"{wanted.path} was changed since it was built: remove it, and {_how_to_get(wanted)}.")
    fresh = Record(**asdict(record) | {"changed_ns": state.st_mtime_ns})
    with contextlib.suppress(OSError):  # a folder that may only be read: the next stage sums again
        write_record(wanted, fresh)
    return fresh


def adopt(wanted: Wanted, origin: dict[str, str], versions: dict[str, str] | None = None) -> Record:
    """Write the record of a .sif that is in its place, after a look at whether it is whole and of this key.

    Raises:
        UserError: it is cut off, or was built for another key.
    """
    require_key(wanted, wanted.path)
    state = wanted.path.stat()
    record = Record(
        wanted.stack,
        wanted.key,
        wanted.base,
        file_sha256(wanted.path),
        state.st_size,
        state.st_mtime_ns,
        origin,
        versions or {},
    )
    write_record(wanted, record)
    return record


def require_key(wanted: Wanted, path: Path) -> None:
    """Refuse a .sif that is cut off, or does not say that it was built for this key.

    Raises:
        UserError: naming what it is.
    """
    key = read_sif(path).label(KEY_LABEL)
    if key != wanted.key:
        built_for = f"stack key {key}" if key else "no stack of this study"
        raise UserError(
            f"{path} was built for {built_for}, stack '{wanted.stack}' has key {wanted.key} now: {_how_to_get(wanted)}."
        )


def read_record(wanted: Wanted) -> Record | None:
    """Return the record of an image; None where there is none or it cannot be read."""
    try:
        content: dict[str, Any] = json.loads(wanted.record.read_bytes())
        if content.pop("schema") != RECORD_SCHEMA or content["key"] != wanted.key:
            return None
        return Record(**content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_record(wanted: Wanted, record: Record) -> None:
    """Write the record of an image beside it."""
    write_json(wanted.record, {"schema": RECORD_SCHEMA, **asdict(record)})


def _docker_image(wanted: Wanted, runtime: Runtime, runner: Runner) -> Image:
    record = read_record(wanted)
    if record is None:
        raise UserError(f"{wanted.path} is missing or no record of an image: {_how_to_get(wanted)}.")
    # By id: a tag can be given to another image.
    answer = runner([runtime.program, "image", "inspect", "--format", "{{.Id}}", f"sha256:{record.sha256}"])
    if answer.code:
        raise UserError(
            f"Docker has no image {wanted.tag} as {wanted.path} names it ({answer.complaint}): remove that file, and "
            f"{_how_to_get(wanted)}."
        )
    return Image(f"sha256:{record.sha256}", record.sha256)


def _how_to_get(wanted: Wanted) -> str:
    build = f"'gpustudy image build {wanted.stack} --site {wanted.site}' builds it"
    return f"{build}, 'gpustudy image import {wanted.stack} FILE' takes one" if wanted.kind == "apptainer" else build
