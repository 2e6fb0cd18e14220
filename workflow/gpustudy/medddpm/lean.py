"""Normalisation, SiLU and convolution as one function that keeps only its input for backward.

The mathematics is the blocks'; only the order of rounding may differ. Used where a block's switch asks for it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's own documentation uses
from torch import Tensor
from torch.autograd.function import once_differentiable

from gpustudy.medddpm.autocast import autocast_dtype, without_autocast
from gpustudy.medddpm.fastconv import backward_form, forward_form, plain_backward


def norm_silu_convolution(
    x: Tensor,
    norm: tuple[Tensor, Tensor],
    groups: int,
    eps: float,
    in_float32: bool,
    conv: tuple[Tensor, Tensor],
    fast: bool,
) -> Tensor:
    """Return conv(silu(norm(x))), keeping only ``x`` for backward, where the rest is computed again.

    Args:
        x: (B, C_in, D, H, W).
        norm: weight and bias of the normalisation, (C_in,) each.
        groups: groups of the normalisation.
        eps: added to the variance of a group.
        in_float32: normalise in float32, whatever the dtype of ``x``.
        conv: weight (C_out, C_in, 3, 3, 3) and bias (C_out,) of the convolution; under autocast they are cast.
        fast: convolve by the forms of ``fastconv``.
    """
    dtype = autocast_dtype(x.device.type) or conv[0].dtype
    with without_autocast(x.device.type):
        weight, bias = (parameter.to(dtype) for parameter in conv)
        apply: Any = _NormSiluConvolution.apply  # PyTorch leaves it untyped
        result: Tensor = apply(x, *norm, weight, bias, groups, eps, in_float32, fast)
    return result


class _NormSiluConvolution(torch.autograd.Function):
    """Normalisation, SiLU and convolution with padding 1 as one differentiable function."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        weight: Tensor,
        bias: Tensor,
        groups: int,
        eps: float,
        in_float32: bool,
        fast: bool,
    ) -> Tensor:
        values = _dense(x.float() if in_float32 else x)
        scale, shift = (_affine(parameter, values) for parameter in (norm_weight, norm_bias))
        batch, channels, *sides = values.shape
        voxels = sides[0] * sides[1] * sides[2]
        normal, mean, rstd = torch.native_group_norm(values, scale, shift, batch, channels, voxels, groups, eps)
        active = F.silu(normal, inplace=True).to(weight.dtype)
        ctx.save_for_backward(x, norm_weight, norm_bias, weight, mean, rstd)
        ctx.groups, ctx.in_float32, ctx.fast = groups, in_float32, fast
        return forward_form(active, weight, bias) if fast else F.conv3d(active, weight, bias, padding=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, norm_weight, norm_bias, weight, mean, rstd = ctx.saved_tensors
        values = _dense(x.float() if ctx.in_float32 else x)
        normal = _normalised(values, norm_weight, norm_bias, mean, rstd)
        active = F.silu(normal).to(weight.dtype)
        gradients = backward_form if ctx.fast else plain_backward
        grad_active, grad_weight, grad_bias = gradients(gradient, active, weight)
        assert grad_active is not None
        grad_active = grad_active.to(normal.dtype)
        torch.ops.aten.silu_backward.grad_input(grad_active, normal, grad_input=grad_active)  # in place: it is ours
        gradient = _dense(grad_active, values)
        del active, grad_active, normal
        grad_x, grad_scale, grad_shift = _norm_backward(gradient, values, mean, rstd, norm_weight)
        grads = (grad_x.to(x.dtype), grad_scale.to(norm_weight.dtype), grad_shift.to(norm_bias.dtype))
        return (*grads, grad_weight, grad_bias, None, None, None, None)


def _normalised(values: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, rstd: Tensor) -> Tensor:
    """Return the normalisation of ``values`` from the kept statistics (B, groups): one multiply-add.

    Without ``weight`` and ``bias`` (both None) its mean is 0 and its variance 1 in every group.
    """
    batch, channels, *_ = values.shape
    groups = mean.shape[1]
    mean, scale = mean.unsqueeze(-1), rstd.unsqueeze(-1)  # (B, groups, 1)
    if weight is None or bias is None:
        scale = scale.expand(batch, groups, channels // groups)
        shift = -mean * scale
    else:
        scale = scale * weight.view(groups, -1)  # (B, groups, channels of a group)
        shift = bias.view(groups, -1) - mean * scale
    scale, shift = (term.reshape(batch, channels, 1, 1, 1).to(values.dtype) for term in (scale, shift))
    return torch.addcmul(shift, values, scale)


def _affine(parameter: Tensor, values: Tensor) -> Tensor:
    """Return a parameter as the kernels take it; those of the CPU keep float32 beside a lower precision."""
    return parameter if values.device.type == "cpu" else parameter.to(values.dtype)


def _norm_backward(
    gradient: Tensor, values: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of a normalisation's input, weight and bias, from its kept statistics (B, groups)."""
    batch, channels, *sides = values.shape
    if values.device.type == "cpu" and batch == 1 and values.dtype == torch.bfloat16 and not values.is_contiguous():
        return _norm_backward_channels_last(gradient, values, mean, rstd, weight)
    voxels, groups = sides[0] * sides[1] * sides[2], mean.shape[1]
    gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_group_norm_backward(
        gradient, values, mean, rstd, _affine(weight, values), batch, channels, voxels, groups, [True] * 3
    )
    return gradients


def _norm_backward_channels_last(
    gradient: Tensor, values: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for one channels-last sample in bfloat16, for which PyTorch's CPU kernel takes 20 times as long.

    With n the normalised values of a group and g the gradient times the weight, it is
    rstd * (g - mean(g) - n * mean(g * n)), as for batch normalisation (Ioffe and Szegedy 2015, section 3).
    The sums are of n, not of the values: those of a mean far from 0 would cancel.
    """
    groups = mean.shape[1]
    normal = _normalised(values, None, None, mean, rstd)
    grad_weight, grad_bias = _channel_sums(gradient * normal), _channel_sums(gradient)  # (C,) each, float32
    elements = values.numel() // groups
    spread = rstd.float().view(groups, 1)
    factor = spread * weight.view(groups, -1)  # (groups, channels of a group)
    offset, slope = (
        (sums * weight).view(groups, -1).sum(1, keepdim=True) / elements * spread for sums in (grad_bias, grad_weight)
    )
    slope, offset, factor = (
        term.expand_as(factor).reshape(1, -1, 1, 1, 1).to(values.dtype) for term in (slope, -offset, factor)
    )
    centred = torch.addcmul(offset, normal, slope, value=-1, out=normal)
    return centred.addcmul_(gradient, factor), grad_weight, grad_bias


def _channel_sums(tensor: Tensor) -> Tensor:  # (1, C, D, H, W) -> (C,)
    """Sum a channels-last tensor over its voxels: each plane in its dtype (which rounds once), planes in float32."""
    _, channels, depth, *_ = tensor.shape
    return tensor.permute(0, 2, 3, 4, 1).reshape(depth, -1, channels).sum(dim=1).float().sum(dim=0)


def _dense(tensor: Tensor, like: Tensor | None = None) -> Tensor:
    """Return ``tensor`` as the normalisation kernels need it.

    On the CPU that is the memory format of ``like`` (or its own), elsewhere contiguous. A channels-last tensor
    also gets the strides of its format where a side of 1 left other ones: the kernels look at them.
    """
    model = tensor if like is None else like
    if model.device.type != "cpu" or model.is_contiguous():
        return tensor.contiguous()
    if not model.is_contiguous(memory_format=torch.channels_last_3d):
        return tensor.contiguous()
    _, channels, depth, height, width = tensor.shape
    row, plane = width * channels, height * width * channels
    last = tensor.contiguous(memory_format=torch.channels_last_3d)
    return last.as_strided(last.shape, (depth * plane, 1, plane, row, channels))
