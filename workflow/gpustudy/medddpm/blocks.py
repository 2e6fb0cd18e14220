"""The blocks of the Med-DDPM U-Net, with the published names, shapes and operator sequence.

Shapes are ``(B, C, D, H, W)``. Every block carries a few public attributes, its switches (listed in
``gpustudy.medddpm.switches``), that choose a faster form of the same mathematics; their defaults are the
published sequence.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's own documentation uses
from torch import Tensor, nn

from gpustudy.base.errors import UserError
from gpustudy.medddpm.autocast import autocast_dtype, without_autocast
from gpustudy.medddpm.fastconv import fast_convolution, is_miscomputed
from gpustudy.medddpm.lean import norm_silu_convolution
from gpustudy.medddpm.recompute import recomputed

NORM_GROUPS = 32
"""Groups of every normalisation (Med-DDPM); each width is a multiple of it."""

NORM_EPSILON = 1e-5
"""Added to the variance of a group (Med-DDPM, also PyTorch's default)."""

EMBEDDING_MAX_PERIOD = 1000
"""Longest period of the timestep embedding, in timesteps (Med-DDPM; not the usual 10,000)."""

KERNEL_SIDE = 3
"""Side of every convolution kernel but those of skip connections (Med-DDPM)."""

AttentionKernel = Literal["explicit", "sdpa"]


def timestep_embedding(timesteps: Tensor, width: int) -> Tensor:
    """Return sinusoids of the raw timestep index, cosines first (Med-DDPM).

    Args:
        timesteps: integers 0..T-1, shape (B,).
        width: number of features; an odd one ends in a zero.

    Returns:
        float32, shape (B, width).
    """
    half = width // 2
    index = torch.arange(half, dtype=torch.float32, device=timesteps.device)
    angles = timesteps[:, None].float() * torch.exp(-math.log(EMBEDDING_MAX_PERIOD) * index / half)  # (B, half)
    embedding = torch.cat([angles.cos(), angles.sin()], dim=1)
    return F.pad(embedding, (0, width - 2 * half))


def zero_parameters(module: nn.Module) -> None:
    """Set weight and bias to zero, so that the branch ending in ``module`` starts as nothing (Med-DDPM)."""
    for parameter in module.parameters():
        nn.init.zeros_(parameter)


class GroupNorm(nn.GroupNorm):
    """Normalisation over 32 groups of channels.

    Attributes:
        in_float32: compute in float32 and cast back (published); otherwise in the dtype of the input, with
            statistics still accumulated in float32 by the kernel.
    """

    def __init__(self, channels: int) -> None:
        if channels % NORM_GROUPS:
            raise UserError(
                f"a width of {channels} channels does not divide into {NORM_GROUPS} normalisation groups: "
                f"choose base_channels and channel_mult so that every width is a multiple of {NORM_GROUPS}."
            )
        super().__init__(NORM_GROUPS, channels, eps=NORM_EPSILON)
        self.in_float32 = True

    def forward(self, x: Tensor) -> Tensor:  # (B, C, ...) -> same
        """Normalise ``x``; the result has its dtype."""
        if self.in_float32:
            normal = F.group_norm(x.float(), self.num_groups, self.weight.float(), self.bias.float(), self.eps)
            return normal.type(x.dtype)
        with without_autocast(x.device.type):  # autocast would raise it to float32 again
            return F.group_norm(x, self.num_groups, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


class Convolution(nn.Conv3d):
    """A convolution of side 3 that keeps the sides of the volume.

    Attributes:
        fast: convolve one sample on the CPU by the forms of ``fastconv`` (published: no).
    """

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(channels_in, channels_out, KERNEL_SIDE, padding=1)
        self.fast = False

    def forward(self, x: Tensor) -> Tensor:  # (B, C_in, D, H, W) -> (B, C_out, D, H, W)
        """Convolve ``x``."""
        dtype = autocast_dtype(x.device.type) or self.weight.dtype
        if self.bias is None or not (self.fast or is_miscomputed(x, dtype)):
            return super().forward(x)
        with without_autocast(x.device.type):
            return fast_convolution(x.to(dtype), self.weight.to(dtype), self.bias.to(dtype))


class NormConvolution(nn.Sequential):
    """Normalisation, SiLU (dropout of 0) and a convolution.

    Attributes:
        lean: keep only the input for backward and compute the rest again there (published: no).
    """

    def __init__(self, channels_in: int, channels_out: int, dropout: bool = False) -> None:
        # the dropout does nothing, but gives the convolution its published index 3
        between = [nn.SiLU(), nn.Dropout(p=0.0)] if dropout else [nn.SiLU()]
        super().__init__(GroupNorm(channels_in), *between, Convolution(channels_in, channels_out))
        self.lean = False

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        """Normalise, activate and convolve ``x`` (B, C_in, D, H, W), and add ``shift`` (B, C_out) to all voxels."""
        if not self.lean:
            for module in self:
                x = module(x)
            return x if shift is None else _shifted(x, shift)
        norm, conv = self[0], self[-1]
        assert isinstance(norm, GroupNorm)
        assert isinstance(conv, Convolution)
        bias = conv.bias
        assert bias is not None
        if shift is not None and len(shift) == 1:  # for one sample it is a part of the bias
            bias, shift = bias + shift[0], None
        affine, kernel = (norm.weight, norm.bias), (conv.weight, bias)
        x = norm_silu_convolution(x, affine, NORM_GROUPS, NORM_EPSILON, norm.in_float32, kernel, conv.fast)
        return x if shift is None else _shifted(x, shift)


def _shifted(x: Tensor, shift: Tensor) -> Tensor:  # (B, C, D, H, W) and (B, C) -> (B, C, D, H, W)
    return x + shift[:, :, None, None, None].type(x.dtype)


class ResBlock(nn.Module):
    """Two convolutions with the timestep embedding added in between, and a skip connection.

    Args:
        channels_in: channels of the input, a multiple of 32.
        channels_out: channels of the output, a multiple of 32.
        embedding_channels: features of the timestep embedding.

    Attributes:
        recompute: recompute the block in backward instead of keeping its activations (published: no).
    """

    def __init__(self, channels_in: int, channels_out: int, embedding_channels: int) -> None:
        super().__init__()
        self.in_layers = NormConvolution(channels_in, channels_out)
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(embedding_channels, channels_out))
        self.out_layers = NormConvolution(channels_out, channels_out, dropout=True)
        zero_parameters(self.out_layers[-1])
        self.skip_connection: nn.Module = nn.Identity()
        if channels_in != channels_out:
            self.skip_connection = nn.Conv3d(channels_in, channels_out, 1)
        self.recompute = False

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """Map (B, C_in, D, H, W) and the embedding (B, E) to (B, C_out, D, H, W)."""
        if self.recompute and torch.is_grad_enabled():
            return recomputed(self._forward, x, embedding)
        return self._forward(x, embedding)

    def _forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        h = self.in_layers(x, self.emb_layers(embedding))
        result: Tensor = self.skip_connection(x) + self.out_layers(h)
        return result


class AttentionBlock(nn.Module):
    """Self-attention of all voxels with one head, added to its input.

    Args:
        channels: channels of input and output, a multiple of 32; also the width of the head.

    Attributes:
        kernel: ``explicit`` (published): two matrix products around a float32 softmax, which keeps the
            N x N weights; ``sdpa``: PyTorch's fused attention, equal up to rounding.
        recompute: recompute the block in backward instead of keeping its activations (published: yes).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = GroupNorm(channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj_out = nn.Conv1d(channels, channels, 1)
        zero_parameters(self.proj_out)
        self.kernel: AttentionKernel = "explicit"
        self.recompute = True

    def forward(self, x: Tensor) -> Tensor:  # (B, C, D, H, W) -> same
        """Add to every voxel what it attends to."""
        if self.recompute and torch.is_grad_enabled():
            return recomputed(self._forward, x)
        return self._forward(x)

    def _forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(x.shape[0], x.shape[1], -1)  # (B, C, N)
        q, k, v = self.qkv(self.norm(tokens)).chunk(3, dim=1)  # (B, C, N) each
        attended = _fused_attention(q, k, v) if self.kernel == "sdpa" else _explicit_attention(q, k, v)
        result: Tensor = tokens + self.proj_out(attended)
        return result.reshape(x.shape)


def _explicit_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # (B, C, N) each -> (B, C, N)
    """Attention as published: q and k scaled by C^-1/4 each, softmax over the keys in float32."""
    scale = q.shape[1] ** -0.25
    weights = torch.einsum("bct,bcs->bts", q * scale, k * scale)  # (B, N, N)
    weights = torch.softmax(weights.float(), dim=-1).type(weights.dtype)
    return torch.einsum("bts,bcs->bct", weights, v)


def _fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # (B, C, N) each -> (B, C, N)
    """The same by ``scaled_dot_product_attention``, whose default scale is C^-1/2, as (B, 1, N, C).

    The copies are small beside the N x N weights that PyTorch keeps without them: its fused kernels take no tensor
    whose last axis is not contiguous.
    """
    q, k, v = (tensor.transpose(1, 2)[:, None].contiguous() for tensor in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2)


class Downsample(nn.Module):
    """Halves all three sides (rounding up) by a strided convolution of the same width."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.op = nn.Conv3d(channels, channels, KERNEL_SIDE, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, D, H, W) -> (B, C, D/2, H/2, W/2)
        """Halve the sides of ``x``."""
        halved: Tensor = self.op(x)
        return halved


class Upsample(nn.Module):
    """Doubles all three sides by trilinear interpolation in the dtype of the input, then a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = Convolution(channels, channels)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, D, H, W) -> (B, C, 2D, 2H, 2W)
        """Double the sides of ``x``."""
        doubled: Tensor = self.conv(F.interpolate(x, scale_factor=2, mode="trilinear"))
        return doubled


class Stage(nn.Sequential):
    """Blocks in a row, of which the residual ones also take the timestep embedding."""

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:  # type: ignore[override]  # one input more
        """Run the blocks on ``x`` (B, C, D, H, W) and ``embedding`` (B, E)."""
        block: Any
        for block in self:
            x = block(x, embedding) if isinstance(block, ResBlock) else block(x)
        return x
