"""Checkpoints in the published layout: read into our network, and written from it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpustudy.base.errors import UserError
from gpustudy.medddpm.checkpoint import read_tensors
from gpustudy.medddpm.diffusion import Diffusion
from gpustudy.medddpm.unet import Architecture, UNet3D

NETWORK_PREFIX = "denoise_fn."
"""What the network's names begin with in a checkpoint, where the diffusion wraps it."""

_STEM = "input_blocks.0.0.weight"
_HEAD = "out.2.weight"
_CONVOLUTION_AXES = 5
"""Axes of a convolution's weight: output and input channels, D, H, W."""
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

State = dict[str, Tensor]


def load_published(source: Path | str | Mapping[str, Any], model: UNet3D | None = None) -> UNet3D:
    """Return the network of a published checkpoint, with its averaged (``ema``) weights, on the CPU.

    Args:
        source: a checkpoint file, its loaded content ({"step", "model", "ema"}), or a bare state dict with or
            without the ``denoise_fn.`` prefix.
        model: load into this network; None builds the one that the names and shapes tell.

    Raises:
        UserError: a file that cannot be read, a network that does not fit (the sentence names the argument that
            differs), or a tensor that holds no weights.
    """
    state = network_state(_read(source) if isinstance(source, (str, Path)) else source)
    _check_kinds(state)
    expected = infer_architecture(state)
    if model is None:
        model = UNet3D(
            expected.in_channels,
            expected.out_channels,
            expected.base_channels,
            expected.channel_mult,
            expected.res_blocks,
            expected.attention_downsamples,
        )
    else:
        _check_fits(expected, model.architecture)
    _check_names(state, model)
    _check_values(state)
    model.load_state_dict(state)
    return model


def to_published(model_state: State, ema_state: State, diffusion: Diffusion, step: int) -> dict[str, Any]:
    """Return a checkpoint in the published layout: step, and the diffusion's state with raw and averaged weights."""
    constants = {name: value.cpu() for name, value in diffusion.state_dict().items()}
    return {
        "step": step,
        "model": constants | {NETWORK_PREFIX + name: value.cpu() for name, value in model_state.items()},
        "ema": constants | {NETWORK_PREFIX + name: value.cpu() for name, value in ema_state.items()},
    }


def network_state(checkpoint: Mapping[str, Any]) -> State:
    """Return the network's tensors by their names in the network: of ``ema`` where there is one."""
    state = checkpoint.get("ema", checkpoint.get("model", checkpoint))
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise UserError("the checkpoint holds no state dict under 'ema' or 'model': give a Med-DDPM checkpoint.")
    inner = {
        name[len(NETWORK_PREFIX) :]: value
        for name, value in state.items()
        if name.startswith(NETWORK_PREFIX) and isinstance(value, Tensor)
    }
    found = inner or {name: value for name, value in state.items() if isinstance(value, Tensor)}
    if _STEM not in found or _HEAD not in found:
        raise UserError(
            f"the checkpoint has no tensor {NETWORK_PREFIX}{_STEM} or {NETWORK_PREFIX}{_HEAD}: "
            "give a Med-DDPM checkpoint."
        )
    return found


def infer_architecture(state: Mapping[str, Tensor]) -> Architecture:
    """Tell the architecture from the names and shapes of a network's tensors."""
    base, in_channels = _convolution_shape(state, _STEM)[:2]
    widths: list[int] = []
    blocks_of_level = [0]
    attention: list[int] = []
    for index in range(1, _count(state, r"input_blocks\.(\d+)\.")):
        block = f"input_blocks.{index}"
        if f"{block}.0.op.weight" in state:
            blocks_of_level.append(0)
            continue
        blocks_of_level[-1] += 1
        factor = 2 ** (len(blocks_of_level) - 1)
        if len(widths) < len(blocks_of_level):
            widths.append(_convolution_shape(state, f"{block}.0.out_layers.3.weight")[0])
        if f"{block}.1.qkv.weight" in state and factor not in attention:
            attention.append(factor)
    return Architecture(
        in_channels=in_channels,
        out_channels=_convolution_shape(state, _HEAD)[0],
        base_channels=base,
        channel_mult=tuple(_factor(width, base) for width in widths),
        res_blocks=blocks_of_level[0],
        attention_downsamples=tuple(attention),
    )


def _read(source: Path | str) -> Mapping[str, Any]:
    path = Path(source)
    content = read_tensors(path, "check its path, or fetch it again")
    if not isinstance(content, Mapping):
        raise UserError(f"{path} holds a {type(content).__name__}, not a dictionary: give a Med-DDPM checkpoint.")
    return content


def _check_fits(checkpoint: Architecture, model: Architecture) -> None:
    """Refuse the first argument in which checkpoint and model differ, with what was probably forgotten."""
    told = {
        "in_channels": ("input channels", _mask_hint(checkpoint, model)),
        "out_channels": ("output channels", "the number of image modalities differs"),
        "base_channels": ("base channels", "set base_channels to the checkpoint's"),
        "widths": ("channels per level", "set channel_mult to the checkpoint's"),
        "res_blocks": ("residual blocks per level", "set res_blocks to the checkpoint's (whole head 1, BraTS 2)"),
        "attention_levels": (
            "as downsampling factors with attention",
            "set attention_downsamples to the checkpoint's (whole head 8, BraTS none)",
        ),
    }
    for name, (noun, hint) in told.items():
        expects, has = getattr(checkpoint, name), getattr(model, name)
        if expects != has:
            raise UserError(f"checkpoint expects {_listed(expects)} {noun}, the model has {_listed(has)}: {hint}.")


def _mask_hint(checkpoint: Architecture, model: Architecture) -> str:
    if model.in_channels == model.out_channels < checkpoint.in_channels:
        return "was the condition mask left out?"
    if checkpoint.in_channels == checkpoint.out_channels < model.in_channels:
        return "it was trained without a condition mask"
    return "the number of mask channels differs"


def _check_names(state: Mapping[str, Tensor], model: UNet3D) -> None:
    """Refuse a checkpoint with other names or shapes than the architecture told by its encoder."""
    own = model.state_dict()
    for name in own.keys() | state.keys():
        if name not in state:
            raise UserError(f"the checkpoint has no tensor {name}: it is not of a Med-DDPM network, or not whole.")
        if name not in own:
            raise UserError(
                f"the checkpoint has a tensor {name} that the network lacks: it is of another architecture."
            )
        if own[name].shape != state[name].shape:
            raise UserError(
                f"{name} has shape {tuple(state[name].shape)} in the checkpoint, {tuple(own[name].shape)} in the "
                "network: it is of another architecture (Med-DDPM's fast-sampling network cannot be loaded)."
            )


def _count(state: Mapping[str, Tensor], pattern: str) -> int:
    """Return how many numbers from 0, without a gap, ``pattern`` finds at the start of a name."""
    found = {match.group(1) for match in (re.match(pattern, name) for name in state) if match}
    return next(number for number in itertools.count() if str(number) not in found)


def _convolution_shape(state: Mapping[str, Tensor], name: str) -> torch.Size:
    if name not in state:
        raise UserError(f"the checkpoint has no tensor {name}: it is not of a Med-DDPM network, or not whole.")
    shape = state[name].shape
    if len(shape) != _CONVOLUTION_AXES or 0 in shape:
        raise UserError(
            f"{name} has shape {tuple(shape)} in the checkpoint, which is no 3D convolution's: "
            "it is not of a Med-DDPM network."
        )
    return shape


def _check_kinds(state: Mapping[str, Tensor]) -> None:
    """Refuse a tensor that is not dense and real, before its shape is asked for."""
    for name, value in state.items():
        layout = "nested" if value.is_nested else str(value.layout)
        if layout != "torch.strided" or value.dtype not in _DTYPES:
            raise UserError(
                f"{name} is a {layout} tensor of {value.dtype} in the checkpoint: "
                "give one of dense tensors of float32, float64, float16 or bfloat16."
            )


def _check_values(state: Mapping[str, Tensor]) -> None:
    """Refuse a tensor without values, or with one that no training goes on from."""
    for name, value in state.items():
        if value.is_meta:
            raise UserError(f"{name} is a meta tensor, a shape without values: give a checkpoint that was saved whole.")
        if not value.float().isfinite().all():
            raise UserError(
                f"{name} holds values that are not finite in the checkpoint: its training diverged or the file is "
                "damaged; give another checkpoint."
            )


def _factor(width: int, base: int) -> float:
    """Return width / base, whole where it is."""
    return width // base if width % base == 0 else width / base


def _listed(value: Any) -> str:
    return (",".join(str(item) for item in value) or "none") if isinstance(value, tuple) else str(value)
