"""FLOPs by shape: hand values, torch's own counter, and the published model's known sums."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from gpustudy.medddpm.unet import UNet3D
from gpustudy.metrics.flops import has_formula, operator_flops

CONVOLUTION = ["", "", "", "[2, 2, 2]", "[1, 1, 1]", "[1, 1, 1]", "False", "[0, 0, 0]", "1"]


class Formulas(TorchDispatchMode):
    """Sums our formulas over the operators that run inside, as if their arguments came from a trace."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = f"{func.namespace}::{func.overloadpacket.__name__}"
        if has_formula(name):
            shapes = [list(value.shape) if isinstance(value, torch.Tensor) else [] for value in args]
            values = ["" if isinstance(value, torch.Tensor) or value is None else str(value) for value in args]
            self.total += operator_flops(name, shapes, values) or 0
        return func(*args, **(kwargs or {}))


def test_convolution_by_hand() -> None:
    shapes = [[2, 3, 9, 8, 8], [16, 3, 3, 3, 3], [16]]
    assert operator_flops("aten::convolution", shapes, CONVOLUTION) == 2 * 2 * (5 * 4 * 4) * (16 * 3 * 27)


def test_transposed_convolution_counts_input_voxels() -> None:
    values = [*CONVOLUTION[:6], "True", "[0, 0, 0]", "1"]
    shapes = [[1, 16, 4, 4, 4], [16, 8, 2, 2, 2], [8]]
    assert operator_flops("aten::convolution", shapes, values) == 2 * 64 * (16 * 8 * 8)


def test_convolution_without_stride_or_output_is_unknown_not_zero() -> None:
    shapes = [[1, 3, 8, 8, 8], [16, 3, 3, 3, 3], [16]]
    assert operator_flops("aten::convolution", shapes) is None
    assert operator_flops("aten::convolution", shapes, output=[1, 16, 4, 4, 4]) == 2 * 64 * 16 * 81


@pytest.mark.parametrize(("mask", "gradients"), [("[True, True, True]", 2), ("[False, True, True]", 1)])
def test_backward_counts_the_gradients_that_are_asked_for(mask: str, gradients: int) -> None:
    shapes = [[1, 16, 8, 8, 8], [1, 3, 8, 8, 8], [16, 3, 3, 3, 3]]
    values = ["", "", "", "[16]", "[1, 1, 1]", "[1, 1, 1]", "[1, 1, 1]", "False", "[0, 0, 0]", "1", mask]
    assert operator_flops("aten::convolution_backward", shapes, values) == gradients * 2 * 512 * 16 * 81


def test_matrix_products_by_hand() -> None:
    assert operator_flops("aten::mm", [[2, 3], [3, 5]]) == 60
    assert operator_flops("aten::addmm", [[5], [2, 3], [3, 5]]) == 60
    assert operator_flops("aten::bmm", [[7, 2, 3], [7, 3, 5]]) == 7 * 60
    assert operator_flops("aten::baddbmm", [[7, 2, 5], [7, 2, 3], [7, 3, 5]]) == 7 * 60
    assert operator_flops("aten::relu", [[2, 3]]) is None


def _convolve(transposed: bool, groups: int) -> tuple[int, int]:
    """Return our count and torch's of a forward and a backward pass."""
    kind = torch.nn.ConvTranspose3d if transposed else torch.nn.Conv3d
    layer = kind(8, 12, (3, 1, 3), stride=(2, 1, 1), padding=(1, 0, 1), groups=groups)
    source = torch.randn(2, 8, 5, 6, 7, requires_grad=True)
    with FlopCounterMode(display=False) as counter, Formulas() as ours:
        layer(source).sum().backward()
    return ours.total, counter.get_total_flops()


@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_agree_with_torchs_counter(transposed: bool) -> None:
    ours, torchs = _convolve(transposed, groups=1)
    assert ours == torchs > 0


@pytest.mark.parametrize("transposed", [False, True])
def test_groups_divide_the_work(transposed: bool) -> None:
    """Also in the weight's gradient, where torch's counter forgets the groups."""
    assert _convolve(transposed, groups=4)[0] * 4 == _convolve(transposed, groups=1)[0]


def test_fused_attention_agrees_with_torchs_formulas() -> None:
    query, key, value = [2, 3, 20, 16], [2, 3, 24, 16], [2, 3, 24, 8]
    gradient = [2, 3, 20, 8]
    name = "aten::_scaled_dot_product_efficient_attention"
    assert operator_flops(name, [query, key, value]) == sdpa_flop_count(query, key, value)
    backward = operator_flops(f"{name}_backward", [gradient, query, key, value])
    assert backward == sdpa_backward_flop_count(gradient, query, key, value)


@pytest.mark.parametrize(("side", "expected"), [(128, 5.537e12), (32, 8.591e10)])
def test_a_forward_pass_of_the_published_model_has_its_known_flops(side: int, expected: float) -> None:
    with torch.device("meta"):
        model = UNet3D.whole_head()
        volume, timestep = torch.empty(1, 3, side, side, side), torch.zeros(1, dtype=torch.long)
    with torch.no_grad(), Formulas() as ours:
        model(volume, timestep)
    assert ours.total == pytest.approx(expected, rel=2e-4)
