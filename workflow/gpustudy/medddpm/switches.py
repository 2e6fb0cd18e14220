"""The switches of the network's blocks: other forms of the same mathematics, all off as published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from gpustudy.base.errors import UserError
from gpustudy.medddpm.blocks import AttentionBlock, Convolution, GroupNorm, NormConvolution, ResBlock


@dataclass(frozen=True)
class Switch:
    """One attribute of one kind of block.

    Attributes:
        block: the kind of block that carries it.
        attribute: its name there.
        published: its value in the published operator sequence.
        values: what it may be.
        meaning: one sentence.
    """

    block: type[nn.Module]
    attribute: str
    published: Any
    values: tuple[Any, ...]
    meaning: str


SWITCHES = {
    "attention_kernel": Switch(
        AttentionBlock,
        "kernel",
        "explicit",
        ("explicit", "sdpa"),
        "sdpa: fused attention in place of two products around a softmax",
    ),
    "attention_recompute": Switch(
        AttentionBlock, "recompute", True, (True, False), "False: keep attention's activations for backward"
    ),
    "block_recompute": Switch(
        ResBlock, "recompute", False, (True, False), "True: recompute residual blocks in backward, for memory"
    ),
    "norm_in_float32": Switch(
        GroupNorm,
        "in_float32",
        True,
        (True, False),
        "False: normalise in the dtype of the input (statistics stay float32 inside the kernel)",
    ),
    "lean_norm": Switch(
        NormConvolution,
        "lean",
        False,
        (True, False),
        "True: keep only the input of normalisation, SiLU and convolution; compute the rest again in backward",
    ),
    "fast_convolution": Switch(
        Convolution,
        "fast",
        False,
        (True, False),
        "True: convolve one sample on the CPU by faster forms (minimal filtering, halves, matrix products)",
    ),
}
"""Name -> switch. A name sets the attribute on every block of its kind."""


def set_switches(model: nn.Module, **values: Any) -> None:
    """Set switches of all blocks of ``model``; those not named stay.

    Raises:
        UserError: an unknown switch or value.
    """
    for name, value in values.items():
        switch = SWITCHES.get(name)
        if switch is None:
            raise UserError(f"the network has no switch {name!r}: known are {', '.join(SWITCHES)}.")
        if value not in switch.values:
            raise UserError(f"switch {name} cannot be {value!r}: choose one of {switch.values}.")
        for block in _blocks(model, switch):
            setattr(block, switch.attribute, value)


def read_switches(model: nn.Module) -> dict[str, Any]:
    """Return each switch as it is on the blocks: its value, ``mixed``, or None where no block carries it."""
    read = {}
    for name, switch in SWITCHES.items():
        values = {getattr(block, switch.attribute) for block in _blocks(model, switch)}
        read[name] = None if not values else values.pop() if len(values) == 1 else "mixed"
    return read


def _blocks(model: nn.Module, switch: Switch) -> Iterator[nn.Module]:
    return (module for module in model.modules() if isinstance(module, switch.block))
