"""The Med-DDPM U-Net: wiring, published variants, checks of widths and sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gpustudy.base.errors import UserError
from gpustudy.medddpm.blocks import (
    NORM_GROUPS,
    AttentionBlock,
    Convolution,
    Downsample,
    NormConvolution,
    ResBlock,
    Stage,
    Upsample,
    timestep_embedding,
    zero_parameters,
)

EMBEDDING_MULTIPLE = 4
"""Width of the timestep embedding over the base width (Med-DDPM)."""


@dataclass(frozen=True)
class Architecture:
    """What decides the names and shapes of a U-Net's parameters.

    Attributes:
        in_channels: image channels plus condition mask channels.
        out_channels: image channels.
        base_channels: width of the first level.
        channel_mult: width of each level over ``base_channels``, finest first.
        res_blocks: residual blocks per level on the way down (one more on the way up).
        attention_downsamples: downsampling factors at which attention follows each residual block.
    """

    in_channels: int
    out_channels: int
    base_channels: int = 64
    channel_mult: tuple[float, ...] = (1, 1, 2, 3, 4)
    res_blocks: int = 1
    attention_downsamples: tuple[int, ...] = (8,)

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of each level, finest first."""
        return tuple(int(self.base_channels * factor) for factor in self.channel_mult)

    @property
    def side_multiple(self) -> int:
        """What every side of a volume must be a multiple of: 2^(levels - 1)."""
        return int(2 ** (len(self.channel_mult) - 1))

    @property
    def attention_levels(self) -> tuple[int, ...]:
        """The factors of ``attention_downsamples`` that a level has; others, such as 12, never apply."""
        factors = (2**level for level in range(len(self.channel_mult)))
        return tuple(factor for factor in factors if factor in self.attention_downsamples)

    def check(self) -> None:
        """Refuse what no network can be built from.

        Raises:
            UserError: a count below one, or a width that is not a multiple of 32.
        """
        for name in ("in_channels", "out_channels", "base_channels", "res_blocks"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}: give the model at least one.")
        if not self.channel_mult:
            raise UserError("channel_mult is empty: give one factor per level, such as 1,1,2,3,4.")
        if self.in_channels < self.out_channels:
            raise UserError(
                f"in_channels {self.in_channels} is less than out_channels {self.out_channels}: "
                "the input holds the image channels and then the condition mask's."
            )
        for factor, width in zip(self.channel_mult, self.widths, strict=True):
            if width < 1 or width % NORM_GROUPS:
                raise UserError(
                    f"base_channels {self.base_channels} times channel_mult {factor:g} is {width}, not a multiple of "
                    f"{NORM_GROUPS} (the groups of each normalisation): use a base width of 32, 64 or another multiple."
                )

    def check_volume(self, volume: Sequence[int]) -> None:
        """Refuse a volume (D, H, W) whose sides do not divide down to the coarsest level.

        Raises:
            UserError: a side that is not a multiple of 2^(levels - 1), with the nearest sides that are.
        """
        multiple = self.side_multiple
        for axis, side in zip("DHW", volume, strict=True):
            if side < multiple or side % multiple:
                lower, upper = side // multiple * multiple, -(-side // multiple) * multiple
                near = f"{lower} or {upper}" if lower else f"{upper}"
                raise UserError(
                    f"side {axis} of the volume is {side}, but {len(self.channel_mult)} levels need a multiple of "
                    f"{multiple}: crop or pad it to {near}."
                )


class UNet3D(nn.Module):
    """The noise predictor of Med-DDPM.

    Args:
        in_channels: image channels plus condition mask channels, in this order.
        out_channels: image channels.
        base_channels: width of the first level, a multiple of 32.
        channel_mult: width of each level over ``base_channels``, finest first.
        res_blocks: residual blocks per level on the way down (one more on the way up).
        attention_downsamples: downsampling factors (powers of two) at which attention follows each residual
            block; the middle block always has it.

    Raises:
        UserError: widths that are not multiples of 32, or a count below one.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        base_channels: int = 64,
        channel_mult: Sequence[float] = (1, 1, 2, 3, 4),
        res_blocks: int = 1,
        attention_downsamples: Sequence[int] = (8,),
    ) -> None:
        super().__init__()
        self.architecture = Architecture(
            in_channels, out_channels, base_channels, tuple(channel_mult), res_blocks, tuple(attention_downsamples)
        )
        self.architecture.check()
        embedding = EMBEDDING_MULTIPLE * base_channels
        self.time_embed = nn.Sequential(nn.Linear(base_channels, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.input_blocks, skips = self._encoder(embedding)
        middle = self.architecture.widths[-1]
        self.middle_block = Stage(
            ResBlock(middle, middle, embedding), AttentionBlock(middle), ResBlock(middle, middle, embedding)
        )
        self.output_blocks = self._decoder(embedding, skips)
        last = self.architecture.widths[0]
        self.out = NormConvolution(last, out_channels)
        zero_parameters(self.out[-1])

    @classmethod
    def whole_head(cls) -> UNet3D:
        """The published whole-head model: 1 image and 2 mask channels, 128 x 128 x 128; 40,226,433 parameters."""
        return cls(in_channels=3, out_channels=1)

    @classmethod
    def brats(cls) -> UNet3D:
        """The published BraTS model: 4 image and 4 mask channels, 144 x 192 x 192; 57,562,564 parameters.

        Attention is in the middle block alone: the builder asks for it at a factor of 192 // 16 = 12, which
        no level has.
        """
        return cls(in_channels=8, out_channels=4, res_blocks=2, attention_downsamples=())

    @classmethod
    def from_document(cls, model: Mapping[str, Any]) -> UNet3D:
        """Build the network of a workload's ``model`` section (image_channels, mask_channels, ...)."""
        return cls(**asdict(architecture_of(model)))

    @property
    def image_channels(self) -> int:
        """Channels of the image, which come first in the input and are all of the output."""
        return self.architecture.out_channels

    @property
    def mask_channels(self) -> int:
        """Channels of the condition mask, which come last in the input."""
        return self.architecture.in_channels - self.architecture.out_channels

    def forward(self, x: Tensor, timesteps: Tensor) -> Tensor:
        """Predict the noise in a noisy image.

        Args:
            x: noisy image channels, then condition mask channels; shape (B, C_in, D, H, W).
            timesteps: raw indices 0..T-1, integers of shape (B,).

        Returns:
            The noise, shape (B, C_out, D, H, W).

        Raises:
            UserError: a number of channels or a side that the network cannot take.
        """
        if x.shape[1] != self.architecture.in_channels:
            raise UserError(
                f"the input has {x.shape[1]} channels, the model takes {self.architecture.in_channels}: "
                "give the noisy image channels and then the condition mask's."
            )
        self.architecture.check_volume(x.shape[2:])
        features = timestep_embedding(timesteps, self.architecture.base_channels)
        embedding = self.time_embed(features.to(next(self.parameters()).dtype))  # (B, 4 base)
        skips = []
        h = x
        for stage in self.input_blocks:
            h = stage(h, embedding)
            skips.append(h)
        h = self.middle_block(h, embedding)
        for stage in self.output_blocks:
            h = stage(torch.cat([h, skips.pop()], dim=1), embedding)
        noise: Tensor = self.out(h)
        return noise

    def _encoder(self, embedding: int) -> tuple[nn.ModuleList, list[int]]:
        """Return the way down and the channels of each of its outputs."""
        widths = self.architecture.widths
        width = widths[0]
        stages = [Stage(Convolution(self.architecture.in_channels, width))]
        skips = [width]
        for level, level_width in enumerate(widths):
            for _ in range(self.architecture.res_blocks):
                stages.append(Stage(ResBlock(width, level_width, embedding), *self._attention(level, level_width)))
                width = level_width
                skips.append(width)
            if level < len(widths) - 1:
                stages.append(Stage(Downsample(width)))
                skips.append(width)
        return nn.ModuleList(stages), skips

    def _decoder(self, embedding: int, skips: list[int]) -> nn.ModuleList:
        """Return the way up; the last stage of every level but the finest also upsamples."""
        widths = self.architecture.widths
        remaining = list(skips)
        width = widths[-1]
        stages = []
        for level in reversed(range(len(widths))):
            for index in range(self.architecture.res_blocks + 1):
                blocks: list[nn.Module] = [ResBlock(width + remaining.pop(), widths[level], embedding)]
                width = widths[level]
                blocks += self._attention(level, width)
                if level > 0 and index == self.architecture.res_blocks:
                    blocks.append(Upsample(width))
                stages.append(Stage(*blocks))
        return nn.ModuleList(stages)

    def _attention(self, level: int, width: int) -> list[nn.Module]:
        """Return the attention of a level: one block, or none."""
        return [AttentionBlock(width)] if 2**level in self.architecture.attention_levels else []


def architecture_of(model: Mapping[str, Any]) -> Architecture:
    """Return the architecture of a workload's ``model`` section, whose ``volume`` it must fit.

    Raises:
        UserError: a missing key, or sides that do not divide.
    """
    try:
        architecture = Architecture(
            in_channels=model["image_channels"] + model["mask_channels"],
            out_channels=model["image_channels"],
            base_channels=model["base_channels"],
            channel_mult=tuple(model["channel_mult"]),
            res_blocks=model["res_blocks"],
            attention_downsamples=tuple(model["attention_downsamples"]),
        )
    except KeyError as error:
        raise UserError(f"the model section has no {error.args[0]!r}: add it to the workload.") from error
    if "volume" in model:
        architecture.check_volume(model["volume"])
    return architecture
