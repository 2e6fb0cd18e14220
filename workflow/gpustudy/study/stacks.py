"""Software stacks: the key of a stack, from its recipe, its base image's digest and its pins."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from gpustudy.base.canonical import key_of
from gpustudy.base.digests import source_digest
from gpustudy.base.errors import UserError
from gpustudy.study.models import Stack

CHECKED_PACKAGES = ("torch", "numpy")
"""Packages whose versions a stage checks before it runs: the cell side rests on nothing else."""

_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;#]+)")
_BASE = re.compile(r"^(?:ARG\s+\w+=|FROM\s+)(\S+@sha256:[0-9a-f]{64})\b", re.MULTILINE)


@cache
def read_pins(path: Path) -> dict[str, str]:
    """Return name -> version of every pinned package in a requirements file.

    Raises:
        UserError: the file is missing or no text, or a line or the whole file pins nothing.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"{path} cannot be read ({reason}): restore the pins of the stack.") from error
    pins = {}
    for number, line in enumerate(lines, start=1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        match = _PIN.match(text)
        if not match:
            raise UserError(f"{path}, line {number}: '{text}' pins no version: write name==version.")
        pins[match[1].lower().replace("_", "-")] = match[2]
    if not pins:
        raise UserError(f"{path} pins nothing, so that no version would be checked: restore the pins of the stack.")
    return pins


@cache
def base_image(recipe: Path) -> str:
    """Return the base image of a container recipe, with its digest.

    Raises:
        UserError: the recipe is missing, or its base image is not pinned by digest.
    """
    try:
        match = _BASE.search(recipe.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"{recipe} cannot be read ({reason}): restore the recipe of the stack.") from error
    if not match:
        raise UserError(f"{recipe} names no base image by digest: write image:tag@sha256:DIGEST.")
    return match[1]


def check_stacks(stacks: Mapping[str, Stack], root: Path) -> None:
    """Check that the pins and the recipe of every stack are there and pin what they must.

    Raises:
        UserError: the first that is not, with its path in the config.
    """
    for name, stack in stacks.items():
        _check(f"stacks.{name}.pins", read_pins, root / stack.pins)
        _check(f"stacks.{name}.recipe", base_image, root / stack.recipe)


def _check(place: str, read: Callable[[Path], object], path: Path) -> None:
    """Read a file of a stack, and say with any mistake which value of the config names it."""
    try:
        read(path)
    except UserError as error:
        raise UserError(f"'{place}': {error}") from error


def stack_key(stack: Stack, root: Path, in_container: bool) -> str:
    """Return the key of ``stack``: of the pins alone where no container is used.

    Nothing built is in it: no image can be rebuilt bit for bit, and planning needs no image.
    """
    document: dict[str, object] = {"pins": read_pins(root / stack.pins)}
    if in_container:
        document["base_image"] = base_image(root / stack.recipe)
        document["recipe"] = source_digest(root, [stack.recipe])
    return key_of(document)
