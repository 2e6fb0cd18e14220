"""The fast convolutions equal PyTorch's, and are used where its own CPU kernel is slow or does more work."""

from __future__ import annotations

import pytest
import torch

from gpustudy.medddpm import fastconv, matrix, minimal
from gpustudy.medddpm.blocks import Convolution, NormConvolution
from gpustudy.medddpm.fastconv import backward_form, forward_form, is_minimal, is_slow, plain_backward
from gpustudy.medddpm.switches import set_switches


def operators_of(function):
    with torch.profiler.profile() as profile:
        function()
    return {event.key: event.count for event in profile.key_averages()}


@pytest.mark.parametrize(("side", "slow"), [(16, True), (18, False)])
def test_a_small_sample_is_one_that_pytorch_convolves_by_its_slow_form(side, slow):
    """64 channels and two sides of 16 are 16,384 elements, of 18 are 20,736; the rule's limit is 20,480."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    convolution = Convolution(64, 32)
    x = torch.randn(1, 64, side, side, side)
    assert is_slow(x) == slow
    assert ("aten::slow_conv3d_forward" in operators_of(lambda: convolution(x))) == slow
    plain = convolution(x)
    convolution.fast = True
    halved = operators_of(lambda: convolution(x))
    assert "aten::slow_conv3d_forward" not in halved
    assert "aten::mkldnn_convolution" in halved
    torch.testing.assert_close(convolution(x), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "channels_out", "volume", "slabs"),
    [
        (64, 32, (32, 32, 32), 1),
        (64, 32, (32, 32, 16), 3),
        (32, 64, (26, 56, 20), 2),
        (64, 32, (8, 6, 8), 1),
        (32, 64, (4, 6, 8), 0),
        (32, 32, (2, 2, 4), 0),
    ],
)
def test_fast_forms_equal_the_plain_convolution_forward_and_backward(
    channels, channels_out, volume, slabs, monkeypatch
):
    """In float32 against float64: both forms and their edges, one slab and several (0: halved)."""
    if slabs:
        elements = channels * volume[0] // 2 * volume[1] * volume[2]
        monkeypatch.setattr(minimal, "SLAB_ELEMENTS", elements // slabs)
        monkeypatch.setattr(fastconv, "SLOW_ELEMENTS", 1000)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1, channels, *volume, generator=generator)
    weight = torch.randn(channels_out, channels, 3, 3, 3, generator=generator) / (27 * channels) ** 0.5
    bias = torch.randn(channels_out, generator=generator)
    gradient = torch.randn(1, channels_out, *volume, generator=generator)
    assert is_slow(x) != is_minimal(x, channels_out)
    assert is_minimal(x, channels_out) == (slabs > 0)
    assert not slabs or len(minimal.slabs(x, 2, fastconv.SLOW_ELEMENTS)) == slabs
    exact = torch.nn.functional.conv3d(x.double(), weight.double(), bias.double(), padding=1)
    torch.testing.assert_close(forward_form(x, weight, bias).double(), exact, rtol=1e-4, atol=1e-4)
    expected = plain_backward(gradient.double(), x.double(), weight.double())
    for ours, theirs in zip(backward_form(gradient, x, weight), expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))


MATRIX_CASES = [
    ("few", (1, 48, 2, 2, 2), 40),
    ("few", (3, 16, 1, 2, 4), 5),
    ("thin", (1, 24, 6, 5, 8), 1),
    ("thin", (1, 16, 2, 9, 3), 2),
]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
@pytest.mark.parametrize(("form", "shape", "channels_out"), MATRIX_CASES)
def test_matrix_products_equal_the_plain_convolution_forward_and_backward(form, shape, channels_out, layout):
    """In float64, where PyTorch's own form is another: volumes with sides of every kind, more than one sample."""
    generator = torch.Generator().manual_seed(5)

    def drawn(*sides):
        return torch.randn(sides, generator=generator, dtype=torch.float64).contiguous(memory_format=layout)

    x, weight = drawn(*shape), drawn(channels_out, shape[1], 3, 3, 3)
    bias, gradient = torch.randn(channels_out, dtype=torch.float64), drawn(shape[0], channels_out, *shape[2:])
    forward, backward = getattr(matrix, f"{form}_forward"), getattr(matrix, f"{form}_backward")
    found = forward(x, weight, bias)
    assert found.is_contiguous(memory_format=layout)
    torch.testing.assert_close(found, torch.nn.functional.conv3d(x, weight, bias, padding=1), rtol=1e-12, atol=1e-12)
    found, expected = backward(gradient, x, weight), plain_backward(gradient, x, weight)
    assert found[0].is_contiguous(memory_format=layout)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("volume", "channels_out", "form"), [((2, 2, 2), 32, "few"), ((8, 8, 8), 1, "thin")])
def test_matrix_products_are_taken_for_few_voxels_and_for_thin_results(volume, channels_out, form, monkeypatch):
    taken = []
    for name in ("few_forward", "few_backward", "thin_forward", "thin_backward"):
        own = getattr(fastconv, name)
        monkeypatch.setattr(fastconv, name, lambda *given, name=name, own=own: (taken.append(name), own(*given))[1])
    x = torch.randn(1, 64, *volume).bfloat16().contiguous(memory_format=torch.channels_last_3d)
    weight, bias = torch.randn(channels_out, 64, 3, 3, 3).bfloat16(), torch.randn(channels_out).bfloat16()
    backward_form(forward_form(x, weight, bias), x, weight)
    assert taken == [f"{form}_forward", f"{form}_backward"]


def test_the_gradient_of_an_input_that_needs_none_is_left_out(monkeypatch):
    """The network's first convolution: its input is data."""
    convolution = Convolution(3, 32)
    convolution.fast = True
    monkeypatch.setattr(fastconv, "_fold", lambda halves: pytest.fail("the input's gradient was made"))
    convolution(torch.randn(1, 3, 8, 8, 8)).sum().backward()
    assert convolution.weight.grad is not None


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(2, 64, 32, 32, 8),
        torch.zeros(1, 64, 32, 32, 8).bfloat16(),
        torch.zeros(1, 64, 33, 32, 8),
        torch.zeros(1, 64, 32, 32, 8).contiguous(memory_format=torch.channels_last_3d),
    ],
)
def test_other_inputs_take_pytorchs_own_form(x):
    assert not is_slow(x)
    assert not is_minimal(x, 64)


@pytest.mark.parametrize(
    ("channels", "channels_out", "side", "slabs"), [(64, 32, 16, 1), (32, 64, 20, 3), (32, 32, 18, 2)]
)
def test_minimal_filtering_in_bfloat16_is_close_to_float32(channels, channels_out, side, slabs, monkeypatch):
    """bfloat16 rounds by 2^-9 (0.2 %), minimal filtering rounds sums on top; gradients have the larger ones."""
    monkeypatch.setattr(minimal, "SLAB_ELEMENTS", channels * side**3 // 2 // slabs)
    generator = torch.Generator().manual_seed(3)

    def drawn(*shape):
        return torch.randn(shape, generator=generator).bfloat16()

    x = drawn(1, channels, side, side, side).contiguous(memory_format=torch.channels_last_3d)
    weight, bias = drawn(channels_out, channels, 3, 3, 3) / 32, drawn(channels_out)
    gradient = drawn(1, channels_out, side, side, side)
    assert is_minimal(x, channels_out)
    assert not is_minimal(x.contiguous(), channels_out)
    exact = torch.nn.functional.conv3d(x.float(), weight.float(), bias.float(), padding=1)
    exact_gradients = plain_backward(gradient.float(), x.float(), weight.float())
    found = forward_form(x, weight, bias)
    assert found.is_contiguous(memory_format=torch.channels_last_3d)
    tolerances = (0.006, 0.01, 0.01, 0.006)
    every = zip((found, *backward_form(gradient, x, weight)), (exact, *exact_gradients), tolerances, strict=True)
    for ours, theirs, tolerance in every:
        assert ours.dtype == torch.bfloat16
        assert (ours.float() - theirs).norm() < tolerance * theirs.norm()


@pytest.mark.parametrize(("depth", "products"), [(16, 6), (18, 4)])
def test_gradients_take_tiles_of_four_planes_where_they_fit_and_bfloat16_results_those_of_two(depth, products):
    """F(2,3) has four products, F(4,3) six of half the planes each (Lavin and Gray 2016)."""
    x = torch.randn(1, 32, depth, 6, 6).bfloat16().contiguous(memory_format=torch.channels_last_3d)
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    weight, bias = torch.randn(32, 32, 3, 3, 3).bfloat16(), torch.zeros(32).bfloat16()
    forward = operators_of(lambda: forward_form(x, weight, bias))
    assert forward["aten::mkldnn_convolution"] == 4
    backward = operators_of(lambda: backward_form(x, x, weight))
    assert backward["aten::mkldnn_convolution"] == products
    assert backward["aten::convolution_backward"] == products


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
@pytest.mark.parametrize("volume", [(2, 2, 2), (2, 4, 4), (2, 6, 3), (2, 16, 16)])
@pytest.mark.parametrize(("fast", "lean"), [(False, False), (True, False), (False, True), (True, True)])
def test_two_planes_have_the_right_weight_gradient_in_bfloat16(layout, volume, fast, lean):
    """PyTorch 2.13 alone gives a wrong one for two planes, from memory that it never wrote."""
    torch.manual_seed(7)
    block = NormConvolution(64, 32)
    set_switches(block, fast_convolution=fast, lean_norm=lean, norm_in_float32=False)
    x = torch.randn(2, 64, *volume)
    gradient = torch.randn(2, 32, *volume)
    block(x).backward(gradient)
    expected = block[-1].weight.grad.clone()
    block.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        found = block(x.bfloat16().contiguous(memory_format=layout).requires_grad_())
    waste = [torch.full((size,), float("nan")) for size in (64, 2_048, 65_536, 1_000_000) for _ in range(8)]
    del waste  # freed memory that the kernel may be given
    found.backward(gradient.bfloat16())
    assert (block[-1].weight.grad - expected).norm() < 0.01 * expected.norm()
