"""The cosine noise schedule and the constants that follow from it, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpustudy.base.errors import UserError

COSINE_OFFSET = 0.008
"""Keeps the first noise levels from vanishing (Nichol & Dhariwal 2021, section 3.2; Med-DDPM)."""

BETA_CEILING = 0.999
"""Largest beta (Nichol & Dhariwal 2021, section 3.2; Med-DDPM)."""

VARIANCE_FLOOR = 1e-20
"""Smallest posterior variance of which a logarithm is taken (Med-DDPM)."""

Float64Array = npt.NDArray[np.float64]


def cosine_betas(timesteps: int) -> Float64Array:
    """Return the cosine schedule beta_0..beta_{T-1} (Nichol & Dhariwal 2021, equation 17).

    beta_i = 1 - abar_{i+1}/abar_i, at most 0.999, with abar_i = f(i)/f(0) and
    f(i) = cos^2(((i/T) + s)/(1 + s) * pi/2), s = 0.008, i = 0..T.

    Raises:
        UserError: fewer than one timestep.
    """
    if timesteps < 1:
        raise UserError(f"timesteps is {timesteps}: give the diffusion at least one.")
    fraction = np.arange(timesteps + 1, dtype=np.float64) / timesteps
    signal = np.cos((fraction + COSINE_OFFSET) / (1 + COSINE_OFFSET) * np.pi / 2) ** 2
    signal = signal / signal[0]
    betas: Float64Array = np.clip(1 - signal[1:] / signal[:-1], 0, BETA_CEILING)
    return betas


def schedule_constants(betas: Float64Array) -> dict[str, Float64Array]:
    """Return the 13 arrays (T,) of a published checkpoint, by their names there and in their order.

    The last, ``posterior_mean_coef3``, is used by nothing; it is kept so that a checkpoint is whole.
    """
    alphas = 1 - betas
    cumulative: Any = np.cumprod(alphas)
    previous = np.append(1.0, cumulative[:-1])
    variance = betas * (1 - previous) / (1 - cumulative)
    weight_of_noisy = (1 - previous) * np.sqrt(alphas) / (1 - cumulative)
    return {
        "betas": betas,
        "alphas_cumprod": cumulative,
        "alphas_cumprod_prev": previous,
        "sqrt_alphas_cumprod": np.sqrt(cumulative),
        "sqrt_one_minus_alphas_cumprod": np.sqrt(1 - cumulative),
        "log_one_minus_alphas_cumprod": np.log(1 - cumulative),
        "sqrt_recip_alphas_cumprod": np.sqrt(1 / cumulative),
        "sqrt_recipm1_alphas_cumprod": np.sqrt(1 / cumulative - 1),
        "posterior_variance": variance,
        "posterior_log_variance_clipped": np.log(np.maximum(variance, VARIANCE_FLOOR)),
        "posterior_mean_coef1": betas * np.sqrt(previous) / (1 - cumulative),
        "posterior_mean_coef2": weight_of_noisy,
        "posterior_mean_coef3": 1 - weight_of_noisy,
    }
