"""One small forward pass, looked at closely: what the optimisations really did to the operators' tensors.

Where a switch of the network is not as published, another pass with that one as published is what its effect is
compared with. It runs before the warm-up, without a compiler, at a small volume (two voxels a side at the coarsest
level): formats and dtypes do not depend on the size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's own documentation uses
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gpustudy.cell.layouts import VOLUME_DIMENSIONS, Row, recorded_layouts
from gpustudy.medddpm.blocks import KERNEL_SIDE
from gpustudy.medddpm.switches import SWITCHES, read_switches, set_switches
from gpustudy.medddpm.trainer import TrainOptions
from gpustudy.medddpm.unet import UNet3D

CONVOLUTION = "aten.convolution"


@dataclass(frozen=True)
class Probe:
    """What one forward pass showed.

    Attributes:
        rows: operator calls, as ``layouts.LayoutRecorder`` keeps them.
        fused_attention_calls: calls of ``scaled_dot_product_attention``.
        saved_bytes: what autograd kept for backward outside recomputed parts, the weights left out.
        without: by the name of each switch that is not as published, what a pass with it as published showed.
    """

    rows: list[Row] = field(default_factory=list)
    fused_attention_calls: int = 0
    saved_bytes: int = 0
    without: Mapping[str, Probe] = field(default_factory=dict)

    def convolutions(self) -> list[Row]:
        """Return the calls of 3D convolutions."""
        calls = (row for row in self.rows if row["op"] == CONVOLUTION)
        return [row for row in calls if len(row["inputs"][0]["shape"]) == VOLUME_DIMENSIONS]

    def plain_convolutions(self) -> int:
        """Return how many of them convolve one sample with a whole kernel of side 3: those of no faster form."""
        shapes = ([tensor["shape"] for tensor in row["inputs"][:2]] for row in self.convolutions())
        return sum(x[0] == 1 and list(kernel[2:]) == [KERNEL_SIDE] * 3 for x, kernel in shapes)


class _CountFusedAttention(TorchFunctionMode):
    calls = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is getattr(F, "scaled_dot_product_attention", None):
            self.calls += 1
        return func(*args, **(kwargs or {}))


def take_probe(model: UNet3D, options: TrainOptions) -> Probe:
    """Run ``model`` forward once as a training step would, and once more for each switch that is not as published."""
    without = {}
    for name, value in read_switches(model).items():
        published = SWITCHES[name].published
        if value not in (published, None, "mixed"):
            set_switches(model, **{name: published})
            try:
                without[name] = _look(model, options)
            finally:
                set_switches(model, **{name: value})
    return replace(_look(model, options), without=without)


def _look(model: UNet3D, options: TrainOptions) -> Probe:
    side = 2 * model.architecture.side_multiple  # at one voxel every format is every other
    memory_format = torch.channels_last_3d if options.channels_last else torch.contiguous_format
    x = torch.zeros((1, model.architecture.in_channels, side, side, side), device=options.device)
    x = x.contiguous(memory_format=memory_format)
    timesteps = torch.zeros(1, dtype=torch.long, device=options.device)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    autocast = torch.autocast(options.device.type, options.autocast_dtype, options.autocast_dtype is not None)
    attention = _CountFusedAttention()
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        recorded_layouts(model) as recorder,
        attention,
        autocast,
    ):
        output = model(x, timesteps)
    del output  # and with it the autograd graph, which held what was kept
    return Probe(recorder.rows, attention.calls, sum(kept.values()))
