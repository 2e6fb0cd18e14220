"""Operations of an operator by the shapes of its inputs: one multiply and one add are two operations.

Convolutions, matrix products and attention count; the rest is nothing beside them. The conventions are those of
``torch.utils.flop_counter``, against which the sums are checked: bias, padding voxels and masks are not looked at.
(The profiler's own count is 0 for 3D convolutions.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import prod

Shape = Sequence[int]
Shapes = Sequence[Shape]
Values = Sequence[str]

_MULTIPLY_ADD = 2
_CONVOLUTION_FIELDS = {"stride": 3, "padding": 4, "dilation": 5, "transposed": 6}
_BACKWARD_FIELDS = {"transposed": 7, "mask": 10}
"""Position of the plain inputs among an operator's inputs (aten/src/ATen/native/native_functions.yaml)."""


def operator_flops(name: str, shapes: Shapes, values: Values = (), output: Shape | None = None) -> int | None:
    """Return the operations of one call of an operator; None for an operator without a formula.

    Args:
        name: name of the operator, such as ``aten::convolution``.
        shapes: shape of each input; empty for an input that is no tensor.
        values: text of each plain input ("[1, 1, 1]", "False"), empty for tensors; PyTorch before 2.1 has none.
        output: shape of the output, where it is known and the inputs alone do not tell it.

    Returns:
        The operations, or None: also when the shapes do not tell them (a convolution without stride or output).
    """
    formula = _FORMULAS.get(name)
    return None if formula is None else formula(shapes, values, output)


def has_formula(name: str) -> bool:
    """Say whether ``operator_flops`` knows the operator."""
    return name in _FORMULAS


def _convolution(shapes: Shapes, values: Values, output: Shape | None) -> int | None:
    """Forward: 2 x batch x output voxels x weight elements (a transposed one: x input voxels)."""
    if len(shapes) <= 1 or not shapes[1]:
        return None
    source, weight = shapes[0], shapes[1]  # (B, Cin, *in), (Cout, Cin / groups, *kernel)
    if _value(values, _CONVOLUTION_FIELDS["transposed"]) is True:
        return _MULTIPLY_ADD * source[0] * prod(source[2:]) * prod(weight)
    voxels = _output_voxels(source[2:], weight[2:], values) if output is None else prod(output[2:])
    return None if voxels is None else _MULTIPLY_ADD * source[0] * voxels * prod(weight)


def _output_voxels(source: Shape, kernel: Shape, values: Values) -> int | None:
    """Return prod(floor((in + 2 pad - dilation (kernel - 1) - 1) / stride) + 1) over the axes."""
    stride, padding, dilation = (
        _value(values, _CONVOLUTION_FIELDS[field]) for field in ("stride", "padding", "dilation")
    )
    if not (isinstance(stride, list) and isinstance(padding, list) and isinstance(dilation, list)):
        return None
    return prod(
        (size + 2 * padding[axis % len(padding)] - dilation[axis % len(dilation)] * (kernel[axis] - 1) - 1)
        // stride[axis % len(stride)]
        + 1
        for axis, size in enumerate(source)
    )


def _convolution_backward(shapes: Shapes, values: Values, output: Shape | None) -> int | None:
    """Each of the two gradients costs as much as the forward pass; the mask says which are asked for."""
    gradient, source, weight = shapes[:3]
    mask = _value(values, _BACKWARD_FIELDS["mask"])
    wanted = sum(mask[:2]) if isinstance(mask, list) else 2
    voxels = prod((source if _value(values, _BACKWARD_FIELDS["transposed"]) is True else gradient)[2:])
    return wanted * _MULTIPLY_ADD * gradient[0] * voxels * prod(weight)


def _product(left: int, right: int) -> Callable[[Shapes, Values, Shape | None], int | None]:
    """Return the formula of a matrix product of inputs ``left`` (..., M, K) and ``right`` (..., K, N)."""

    def formula(shapes: Shapes, values: Values, output: Shape | None) -> int | None:
        if len(shapes) <= right or not shapes[left] or not shapes[right]:
            return None
        return _MULTIPLY_ADD * prod(shapes[left]) * shapes[right][-1]

    return formula


def _attention(shapes: Shapes, values: Values, output: Shape | None) -> int | None:
    """Query x key and weights x value: q (B, H, T, E), k (B, H, S, E), v (B, H, S, V)."""
    query, key, value = shapes[:3]
    return _MULTIPLY_ADD * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _attention_backward(shapes: Shapes, values: Values, output: Shape | None) -> int | None:
    """Five products: the scores again, and the gradients of weights, value, query and key."""
    _, query, key, value = shapes[:4]
    return _MULTIPLY_ADD * prod(query[:-1]) * key[-2] * (3 * query[-1] + 2 * value[-1])


def _value(values: Values, position: int) -> bool | list[int] | None:
    """Return the plain input at ``position``, parsed; None where the trace has none."""
    text = values[position] if position < len(values) else ""
    return json.loads(text.lower()) if text else None


_FLAVOURS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
_FORMULAS: dict[str, Callable[[Shapes, Values, Shape | None], int | None]] = {
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::mm": _product(0, 1),
    "aten::bmm": _product(0, 1),
    "aten::addmm": _product(1, 2),
    "aten::baddbmm": _product(1, 2),
    "aten::_addmm_activation": _product(1, 2),
    **{f"aten::_scaled_dot_product_{flavour}": _attention for flavour in _FLAVOURS},
    **{f"aten::_scaled_dot_product_{flavour}_backward": _attention_backward for flavour in _FLAVOURS},
}
