"""Lean normalisation of channels-last bfloat16 on the CPU, which has a backward of its own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's own documentation uses

from gpustudy.medddpm.lean import _norm_backward_channels_last, norm_silu_convolution

GROUPS, EPSILON = 32, 1e-5


@pytest.mark.parametrize("volume", [(16, 16, 16), (4, 6, 8)])
@pytest.mark.parametrize("fast", [True, False])
def test_channels_last_bfloat16_is_close_to_float32(volume, fast):
    generator = torch.Generator().manual_seed(5)
    channels, channels_out = 64, 32
    # a mean far from 0, where sums of raw products would cancel
    x = (torch.randn(1, channels, *volume, generator=generator) + 3).bfloat16()
    x = x.contiguous(memory_format=torch.channels_last_3d).requires_grad_()
    norm = [torch.randn(channels, generator=generator).requires_grad_() for _ in range(2)]
    weight = (torch.randn(channels_out, channels, 3, 3, 3, generator=generator) / 40).requires_grad_()
    bias = torch.randn(channels_out, generator=generator).requires_grad_()
    gradient = torch.randn(1, channels_out, *volume, generator=generator)
    inputs = (x, *norm, weight, bias)

    with torch.autocast("cpu", torch.bfloat16):
        found = norm_silu_convolution(x, (norm[0], norm[1]), GROUPS, EPSILON, False, (weight, bias), fast)
    assert found.dtype == torch.bfloat16
    ours = (found, *torch.autograd.grad(found, inputs, gradient.bfloat16()))

    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    exact = F.conv3d(F.silu(F.group_norm(wide[0], GROUPS, wide[1], wide[2], EPSILON)), wide[3], wide[4], padding=1)
    theirs = (exact, *torch.autograd.grad(exact, wide, gradient.double()))
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.double() - other).norm() < 0.015 * other.norm()


def test_the_gradient_of_the_scale_survives_a_mean_far_from_zero():
    """Ten standard deviations: sums of the raw products would be off by 3 %, the values' own rounding costs 2 %."""
    generator = torch.Generator().manual_seed(5)
    channels, side = 64, 16
    shape = (1, channels, side, side, side)
    x, gradient = (
        (torch.randn(shape, generator=generator) + mean).bfloat16().contiguous(memory_format=torch.channels_last_3d)
        for mean in (10, 0)
    )
    scale = torch.randn(channels, generator=generator)
    _, mean, rstd = torch.native_group_norm(x, scale, torch.zeros(channels), 1, channels, side**3, GROUPS, EPSILON)
    found = _norm_backward_channels_last(gradient, x, mean, rstd, scale)[1]
    wide = scale.double().requires_grad_()
    (exact,) = torch.autograd.grad(F.group_norm(x.double(), GROUPS, wide, eps=EPSILON), wide, gradient.double())
    assert (found - exact).norm() < 0.025 * exact.norm()
