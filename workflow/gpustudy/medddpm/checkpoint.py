"""Checkpoints of a run: each file whole or absent, the last few kept."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gpustudy.base.atomic import atomic_path
from gpustudy.base.errors import UserError

_NAME = re.compile(r"checkpoint-(\d{8})\.pt")
_PART_GLOB = ".checkpoint-*.part.pt"
"""What a killed writer leaves behind (see ``base.atomic``)."""


def save_checkpoint(folder: Path, state: Mapping[str, Any], keep: int) -> Path:
    """Write ``state`` as checkpoint of its iteration, then remove all but the last ``keep``."""
    path = folder / f"checkpoint-{state['iteration']:08d}.pt"
    with atomic_path(path) as temporary:
        torch.save(dict(state), temporary)
    for old in checkpoints(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted(path for path in folder.glob("checkpoint-*.pt") if _NAME.fullmatch(path.name))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Raises:
        UserError: a file that is damaged or is no checkpoint.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} is not a readable checkpoint ({type(error).__name__}): remove it to resume from the one before."
        ) from error
    return state


def remove_parts(folder: Path) -> None:
    """Remove unfinished files of a writer that was killed."""
    for part in folder.glob(_PART_GLOB):
        part.unlink(missing_ok=True)
