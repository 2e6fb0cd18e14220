"""Activation checkpointing: run now without keeping activations, run again in backward."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch.utils.checkpoint
from torch import Tensor


def recomputed(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Return ``function(*inputs)``, keeping only the inputs and running it again, whole, in backward.

    ``function`` must draw no random numbers: their state is not kept (nor is it in the published code).
    """
    with _whole_recomputation():
        result: Tensor = torch.utils.checkpoint.checkpoint(
            function, *inputs, use_reentrant=False, preserve_rng_state=False
        )
    return result


def _whole_recomputation() -> AbstractContextManager[None]:
    """Newer versions of PyTorch stop the second run early; the published code (and PyTorch 2.0) does not.

    A compiler decides by itself what it computes again, and cannot see through this context.
    """
    if _is_compiling():
        return nullcontext()
    stop_early: Callable[[bool], AbstractContextManager[None]] | None = getattr(
        torch.utils.checkpoint, "set_checkpoint_early_stop", None
    )
    return nullcontext() if stop_early is None else stop_early(False)


def _is_compiling() -> bool:
    """Say whether torch.compile is tracing the network (PyTorch 2.0 has no function that tells)."""
    compiler = getattr(torch, "compiler", None)
    is_compiling: Callable[[], bool] | None = getattr(compiler, "is_compiling", None)
    return is_compiling is not None and is_compiling()
