"""The network with its weights in a lower precision, cast once per optimiser step instead of in every micro-batch.

The float32 weights stay with the model, its optimiser and its moving average ("master weights", Micikevicius et al.
2018, section 3.1). What is computed is what autocast computes: it casts the same weights to the same values.
"""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import nn

_Model = TypeVar("_Model", bound=nn.Module)

CAST_MODULES = (nn.Conv1d, nn.Conv3d, nn.Linear)
"""Modules of the network whose weights autocast gives a lower precision."""


class CastWeights(Generic[_Model]):
    """A copy of a model that shares all parameters but the weights of ``CAST_MODULES``, which it holds in ``dtype``.

    Args:
        model: on its device, in its memory format, with its switches set.
        dtype: lower precision.

    Attributes:
        network: the copy, to be called under autocast to ``dtype``.
    """

    def __init__(self, model: _Model, dtype: torch.dtype) -> None:
        self.network = copy.deepcopy(model)
        self._pairs: list[tuple[nn.Parameter, nn.Parameter]] = []
        for theirs, ours in zip(model.modules(), self.network.modules(), strict=True):
            for name, parameter in theirs.named_parameters(recurse=False):
                if isinstance(theirs, CAST_MODULES) and name == "weight":  # biases are added in float32 in places
                    cast = nn.Parameter(parameter.detach().to(dtype))
                    self._pairs.append((parameter, cast))
                    setattr(ours, name, cast)
                else:
                    setattr(ours, name, parameter)

    def refresh(self) -> None:
        """Take over the model's weights; to be called whenever they have changed."""
        with torch.no_grad():
            for parameter, cast in self._pairs:
                cast.copy_(parameter)
