"""The diffusion: noising, loss, ancestral sampling as published, and DDIM with any number of steps.

Images are ``(B, C_image, D, H, W)`` in [-1, 1], condition masks ``(B, C_mask, D, H, W)``, timesteps integers
0..T-1 of shape ``(B,)``. Noise is drawn by CPU generators, so that it is the same on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's own documentation uses
from torch import Tensor, nn

from gpustudy.base.errors import UserError
from gpustudy.medddpm.schedule import cosine_betas, schedule_constants

Network = Callable[[Tensor, Tensor], Tensor]
"""Maps the model input (B, C_image + C_mask, D, H, W) and timesteps (B,) to noise (B, C_image, D, H, W)."""

Loss = Literal["l1", "l2"]

StepWatch = Callable[[int], None]
"""Called after each sampling step with the number of steps done."""


def model_input(noisy: Tensor, mask: Tensor | None) -> Tensor:
    """Return what the network sees: the image channels first, then the condition mask's (Med-DDPM)."""
    return noisy if mask is None else torch.cat([noisy, mask], dim=1)


class Diffusion(nn.Module):
    """Gaussian diffusion with the cosine schedule, predicting the noise.

    Args:
        timesteps: T, the number of noise levels.

    Attributes:
        betas: float32 (T,); it and the 12 arrays derived from it are buffers with the published names.

    Raises:
        UserError: fewer than one timestep.
    """

    betas: Tensor
    alphas_cumprod: Tensor
    sqrt_alphas_cumprod: Tensor
    sqrt_one_minus_alphas_cumprod: Tensor
    sqrt_recip_alphas_cumprod: Tensor
    sqrt_recipm1_alphas_cumprod: Tensor
    posterior_log_variance_clipped: Tensor
    posterior_mean_coef1: Tensor
    posterior_mean_coef2: Tensor

    def __init__(self, timesteps: int = 250) -> None:
        super().__init__()
        self.timesteps = timesteps
        self._constants = schedule_constants(cosine_betas(timesteps))
        for name, values in self._constants.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32))

    def q_sample(self, image: Tensor, timesteps: Tensor, noise: Tensor) -> Tensor:
        """Return sqrt(abar_t) image + sqrt(1 - abar_t) noise (Ho et al. 2020, equation 4)."""
        signal = _per_sample(self.sqrt_alphas_cumprod, timesteps)
        spread = _per_sample(self.sqrt_one_minus_alphas_cumprod, timesteps)
        return signal * image + spread * noise

    def loss(
        self, network: Network, image: Tensor, mask: Tensor | None, timesteps: Tensor, noise: Tensor, kind: Loss = "l1"
    ) -> Tensor:
        """Return the mean error of the predicted noise, a scalar: absolute (``l1``, published) or squared (``l2``)."""
        predicted = network(model_input(self.q_sample(image, timesteps, noise), mask), timesteps)
        return noise_error(predicted, noise, kind)

    def sample(
        self,
        network: Network,
        shape: tuple[int, ...],
        mask: Tensor | None,
        generator: torch.Generator,
        watch: StepWatch | None = None,
    ) -> Tensor:
        """Draw images by ancestral sampling as published: T steps, x_0 clamped, fixed small variance.

        Args:
            network: the noise predictor, on the device of this module's buffers.
            shape: (B, C_image, D, H, W) of the result.
            mask: condition mask (B, C_mask, D, H, W), or None.
            generator: of the CPU. One draw for x_T and one per step, that of t = 0 included (its noise is
                multiplied by 0).
            watch: called after each step.

        Returns:
            float32 images of ``shape``, in [-1, 1].
        """
        x = self._draw(shape, generator)
        with torch.no_grad():
            for done, t in enumerate(reversed(range(self.timesteps)), start=1):
                clean = self._predict_clean(network, x, mask, t)
                mean = self.posterior_mean_coef1[t] * clean + self.posterior_mean_coef2[t] * x
                spread = (0.5 * self.posterior_log_variance_clipped[t]).exp() * float(t > 0)
                x = mean + spread * self._draw(shape, generator)
                if watch is not None:
                    watch(done)
        return x

    def sample_ddim(
        self,
        network: Network,
        shape: tuple[int, ...],
        mask: Tensor | None,
        generator: torch.Generator,
        steps: int,
        eta: float = 0.0,
        watch: StepWatch | None = None,
    ) -> Tensor:
        """Draw images by DDIM (Song et al. 2021, equations 12 and 16) from the same weights.

        The noise is derived again from the clamped x_0, so that with all T steps and ``eta`` 1 this is ancestral
        sampling, up to rounding and draw for draw.

        Args:
            network: as for ``sample``.
            shape: as for ``sample``.
            mask: as for ``sample``.
            generator: as for ``sample``.
            steps: number of network calls, 1 to T, at timesteps spread evenly from T-1 to 0.
            eta: 0 is deterministic after the first draw, 1 has the variance of ancestral sampling.
            watch: called after each step.

        Returns:
            float32 images of ``shape``, in [-1, 1].

        Raises:
            UserError: a number of steps or an eta out of range.
        """
        if not 0 <= eta <= 1:
            raise UserError(f"eta is {eta:g}: give a value from 0 (deterministic) to 1 (as ancestral sampling).")
        x = self._draw(shape, generator)
        with torch.no_grad():
            for done, (t, now, following) in enumerate(self._ddim_levels(steps), start=1):
                clean = self._predict_clean(network, x, mask, t)
                noise = (x - now**0.5 * clean) / (1 - now) ** 0.5
                variance = eta**2 * (1 - following) / (1 - now) * (1 - now / following)
                x = following**0.5 * clean + max(1 - following - variance, 0.0) ** 0.5 * noise
                x = x + variance**0.5 * self._draw(shape, generator)
                if watch is not None:
                    watch(done)
        return x

    def _ddim_levels(self, steps: int) -> Iterator[tuple[int, float, float]]:
        """Yield t, abar_t and the abar of the step after it (1 after the last)."""
        if not 1 <= steps <= self.timesteps:
            raise UserError(f"ddim steps is {steps}: give a number from 1 to the model's {self.timesteps} timesteps.")
        chosen = np.linspace(self.timesteps - 1, 0, steps).round().astype(int)
        levels = self._constants["alphas_cumprod"]
        following = [float(levels[t]) for t in chosen[1:]] + [1.0]
        for t, after in zip(chosen, following, strict=True):
            yield int(t), float(levels[t]), after

    def _predict_clean(self, network: Network, x: Tensor, mask: Tensor | None, t: int) -> Tensor:
        """Return the clamped estimate of x_0 at timestep ``t`` (Ho et al. 2020, equation 15)."""
        timesteps = torch.full((x.shape[0],), t, dtype=torch.long, device=x.device)
        noise = network(model_input(x, mask), timesteps).float()
        return (self.sqrt_recip_alphas_cumprod[t] * x - self.sqrt_recipm1_alphas_cumprod[t] * noise).clamp(-1, 1)

    def _draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Return standard normal noise, drawn on the CPU and moved to the buffers' device."""
        return torch.randn(shape, generator=generator).to(self.betas.device)


def noise_error(predicted: Tensor, noise: Tensor, kind: Loss) -> Tensor:
    """Return the mean absolute (``l1``) or squared (``l2``) error, a float32 scalar."""
    measure = {"l1": F.l1_loss, "l2": F.mse_loss}[kind]
    return measure(predicted.float(), noise)


def _per_sample(values: Tensor, timesteps: Tensor) -> Tensor:
    """Return values[t] of each sample, shaped (B, 1, 1, 1, 1)."""
    return values[timesteps][:, None, None, None, None]
