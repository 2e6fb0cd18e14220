"""The exponential moving average of the weights, which sampling uses."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Ema:
    """A second set of weights that follows the trained ones, as published.

    Args:
        model: the trained model; its parameters are read at every update.
        decay: share of the old average that an update keeps.
        every: optimiser steps from one update to the next.
        start: until this optimiser step an update copies the weights instead.
    """

    def __init__(self, model: nn.Module, decay: float, every: int, start: int) -> None:
        self._decay, self._every, self._start = decay, every, start
        self._weights = dict(model.named_parameters())
        self._average = {name: weight.detach().clone() for name, weight in self._weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Follow the weights after optimiser step ``step``, counted from 0."""
        if step % self._every:
            return
        if step < self._start:
            for name, weight in self._weights.items():
                self._average[name].copy_(weight)
            return
        average, weights = list(self._average.values()), [weight.detach() for weight in self._weights.values()]
        torch._foreach_mul_(average, self._decay)
        torch._foreach_add_(average, weights, alpha=1 - self._decay)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the average by parameter name, as a state dict for the model."""
        return dict(self._average)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over an average of the same names and shapes."""
        if state.keys() != self._average.keys():
            raise ValueError("the average is of another model: its parameters have other names")
        with torch.no_grad():
            for name, value in state.items():
                self._average[name].copy_(value)
