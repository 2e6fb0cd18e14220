"""What a training step of the U-Net costs, from the config alone: operations and bytes, without torch.

The shapes follow ``medddpm.unet`` (tests compare the operations with PyTorch's own count on that network, and the
bytes with the estimate that training makes for itself); planning must not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from gpustudy.study.models import Model

_MULTIPLY_ADD = 2
_KERNEL = 27
"""Elements of a kernel of side 3."""
_EMBEDDING_MULTIPLE = 4
"""Width of the timestep embedding over the base width (Med-DDPM)."""
_FLOAT32_BYTES = 4
_WEIGHT_COPIES = 5
"""Weights, gradients, two moments of Adam, moving average."""
_KEPT_PER_CONVOLUTION = 3
"""Tensors as large as a convolution's input that backward needs: what the normalisation, the activation and the
convolution itself were given."""
_BACKWARD_FORWARDS = 2
"""Backward of a convolution or a matrix product is two such products: for the input and for the weights."""


@dataclass(frozen=True)
class Convolution:
    """One convolution (or linear layer: a kernel of 1 on one voxel).

    Attributes:
        channels_in: channels of its input.
        channels_out: channels of its output.
        kernel: elements of its kernel.
        voxels: voxels of its output.
    """

    channels_in: int
    channels_out: int
    kernel: int
    voxels: int

    @property
    def flops(self) -> int:
        """Operations of the forward pass of one sample; bias left out, as PyTorch's counter does."""
        return _MULTIPLY_ADD * self.channels_in * self.channels_out * self.kernel * self.voxels

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return self.channels_out * (self.channels_in * self.kernel + 1)


@dataclass(frozen=True)
class Attention:
    """One attention block of one head: its projections and its two matrix products.

    Attributes:
        channels: channels of input and output.
        tokens: voxels that attend to each other.
    """

    channels: int
    tokens: int

    @property
    def flops(self) -> int:
        """Operations of the forward pass of one sample."""
        projections = 4 * self.channels * self.channels * self.tokens  # q, k, v and the output
        products = 2 * self.channels * self.tokens * self.tokens  # weights, and their sum over the values
        return _MULTIPLY_ADD * (projections + products)

    @property
    def parameters(self) -> int:
        """Weights and biases of projections and normalisation."""
        return 4 * self.channels * (self.channels + 1) + 2 * self.channels


Layer = Convolution | Attention


def forward_flops(model: Model) -> int:
    """Return the operations of the forward pass of one sample; one multiply and one add are two."""
    return sum(layer.flops for layer in _layers(model))


def step_flops(model: Model, samples: int) -> int:
    """Return the operations of one optimiser step on ``samples`` volumes, all its micro-batches together.

    Forward, twice that for backward, and the attention once more, which the published network recomputes there.
    """
    layers = list(_layers(model))
    again = sum(layer.flops for layer in layers if isinstance(layer, Attention))
    return samples * ((1 + _BACKWARD_FORWARDS) * sum(layer.flops for layer in layers) + again)


def training_bytes(model: Model, batch_size: int) -> int:
    """Return about how many bytes training holds at its peak: weights, and what one micro-batch keeps for backward."""
    layers = list(_layers(model))
    kept = sum(
        _KEPT_PER_CONVOLUTION * layer.channels_in * layer.voxels for layer in layers if isinstance(layer, Convolution)
    )
    widest = max(layer.tokens**2 for layer in layers if isinstance(layer, Attention))
    parameters = sum(layer.parameters for layer in layers)
    return _FLOAT32_BYTES * (_WEIGHT_COPIES * parameters + batch_size * (kept + 2 * widest))


def _layers(model: Model) -> Iterator[Layer]:
    """Yield the layers of the network, in the order of its forward pass."""
    widths = [model.base_channels * factor for factor in model.channel_mult]
    embedding = _EMBEDDING_MULTIPLE * model.base_channels
    yield Convolution(model.base_channels, embedding, 1, 1)
    yield Convolution(embedding, embedding, 1, 1)
    yield Convolution(model.image_channels + model.mask_channels, widths[0], _KERNEL, _voxels(model, 0))
    skips, width = [widths[0]], widths[0]
    for level, level_width in enumerate(widths):
        for _ in range(model.res_blocks):
            yield from _block(model, level, width, level_width)
            width = level_width
            skips.append(width)
        if level < len(widths) - 1:
            yield Convolution(width, width, _KERNEL, _voxels(model, level + 1))
            skips.append(width)
    last = len(widths) - 1
    yield from _residual(width, width, embedding, _voxels(model, last))
    yield Attention(width, _voxels(model, last))
    yield from _residual(width, width, embedding, _voxels(model, last))
    for level in reversed(range(len(widths))):
        for index in range(model.res_blocks + 1):
            yield from _block(model, level, width + skips.pop(), widths[level])
            width = widths[level]
            if level > 0 and index == model.res_blocks:
                yield Convolution(width, width, _KERNEL, _voxels(model, level - 1))
    yield Convolution(width, model.image_channels, _KERNEL, _voxels(model, 0))


def _block(model: Model, level: int, channels_in: int, channels_out: int) -> Iterator[Layer]:
    """Yield a residual block of a level, and the attention that follows it where the level has it."""
    voxels = _voxels(model, level)
    yield from _residual(channels_in, channels_out, _EMBEDDING_MULTIPLE * model.base_channels, voxels)
    if 2**level in model.attention_downsamples:
        yield Attention(channels_out, voxels)


def _residual(channels_in: int, channels_out: int, embedding: int, voxels: int) -> Iterator[Layer]:
    yield Convolution(channels_in, channels_out, _KERNEL, voxels)
    yield Convolution(embedding, channels_out, 1, 1)
    yield Convolution(channels_out, channels_out, _KERNEL, voxels)
    if channels_in != channels_out:
        yield Convolution(channels_in, channels_out, 1, voxels)


def _voxels(model: Model, level: int) -> int:
    """Return the voxels of a level: each halves every side."""
    return prod(side // 2**level for side in model.volume)
