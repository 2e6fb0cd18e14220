"""Checkpoints of a run: each file whole or absent, the last few kept."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from gpustudy.base.atomic import atomic_path
from gpustudy.base.errors import UserError

_NAME = re.compile(r"checkpoint-(\d{8})\.pt")
_REMEDY = "remove it to resume from the one before"
_STATE = {
    "schema": int,
    "iteration": int,
    "seed": int,
    "settings": dict,
    "model": dict,
    "ema": dict,
    "optimizer": dict,
    "scaler": dict,
}
"""What a trainer's state holds (see ``trainer.Trainer.state_dict``)."""


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
    state = read_tensors(path, _REMEDY)
    if not isinstance(state, dict):
        raise UserError(f"{path} holds a {type(state).__name__}, not the state of a run: {_REMEDY}.")
    for name, kind in _STATE.items():
        if not isinstance(state.get(name), kind):
            raise UserError(f"{path} has no {name} as a run's state does: {_REMEDY}.")
    return state


@contextmanager
def loading(path: Path) -> Iterator[None]:
    """Refuse the checkpoint at ``path`` where what is loaded from it does not fit.

    Raises:
        UserError: tensors of other names or shapes than the run's.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError:  # the checkpoint is not at fault
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{path} does not fit the run's network ({type(error).__name__}): {_REMEDY}.") from error


def read_tensors(path: Path, remedy: str) -> Any:
    """Read a file of ``torch.save`` onto the CPU: tensors and plain values, never an object that is brought to life.

    Raises:
        UserError: a file that cannot be read or holds anything else; the sentence ends with ``remedy``.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a pickle's protocol: the sentence below says what matters
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or type(error).__name__}): {remedy}.") from error
    except pickle.UnpicklingError as error:
        raise UserError(f"{path} holds something other than tensors and is not loaded: {remedy}.") from error
    except Exception as error:  # bytes that are no checkpoint fail wherever the unpickler happens to stand
        raise UserError(f"{path} is not a readable checkpoint ({type(error).__name__}): {remedy}.") from error
