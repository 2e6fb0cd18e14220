"""The schedule has the published values; noising, loss and sampling are those of the papers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gpustudy.base.errors import UserError
from gpustudy.medddpm import Diffusion
from gpustudy.medddpm.schedule import cosine_betas

SHAPE = (2, 1, 4, 4, 4)


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear_network(x, timesteps):
    """Stands for a trained network: depends on image, mask and timestep, and is cheap."""
    return 0.8 * x[:, :1] + 0.1 * x[:, 1:2] + 0.001 * timesteps[:, None, None, None, None]


def test_betas_have_the_published_values():
    betas = cosine_betas(250)
    assert betas.shape == (250,)
    np.testing.assert_allclose(betas[0], 1.9427e-4, rtol=1e-4)
    np.testing.assert_allclose(betas[247:], [0.5555268, 0.7499903, 0.999], rtol=1e-6)


def test_betas_of_four_timesteps_by_hand():
    f = [math.cos((i / 4 + 0.008) / 1.008 * math.pi / 2) ** 2 for i in range(5)]
    by_hand = [min(1 - f[i + 1] / f[i], 0.999) for i in range(4)]
    np.testing.assert_allclose(Diffusion(4).betas.numpy(), by_hand, rtol=1e-6)


def test_buffers_equal_the_reference_bit_for_bit(reference):
    for name, values in Diffusion(250).state_dict().items():
        np.testing.assert_array_equal(values.numpy(), reference[f"sched250/{name}"], err_msg=name)
    np.testing.assert_allclose(cosine_betas(250), reference["sched250/betas_f64"], rtol=0, atol=1e-14)


def test_q_sample_by_hand():
    diffusion = Diffusion(250)
    image, noise = torch.full(SHAPE, 0.5), torch.full(SHAPE, -1.0)
    noisy = diffusion.q_sample(image, torch.tensor([0, 249]), noise)
    abar = np.cumprod(1 - cosine_betas(250))
    for sample, t in enumerate((0, 249)):
        expected = math.sqrt(abar[t]) * 0.5 - math.sqrt(1 - abar[t])
        assert noisy[sample].unique().item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("kind", "expected"), [("l1", math.sqrt(2 / math.pi)), ("l2", 1.0)])
def test_the_loss_of_a_zero_prediction_is_the_moment_of_the_noise(kind, expected):
    noise = torch.randn(1, 1, 64, 64, 64, generator=generator())
    loss = Diffusion(250).loss(
        lambda x, _: torch.zeros_like(x[:, :1]), torch.zeros_like(noise), None, torch.tensor([9]), noise, kind
    )
    assert loss.item() == pytest.approx(expected, rel=0.01)  # 0.798 for l1


def test_the_loss_of_a_perfect_prediction_is_zero():
    noise = torch.randn(SHAPE, generator=generator())
    loss = Diffusion(250).loss(lambda *_: noise, torch.zeros(SHAPE), torch.zeros(SHAPE), torch.tensor([1, 2]), noise)
    assert loss.item() == 0


def test_sampling_recovers_the_image_of_an_oracle():
    diffusion = Diffusion(250)
    image = torch.linspace(-0.9, 0.9, 64).reshape(1, 1, 4, 4, 4)

    def oracle(x, timesteps):
        abar = diffusion.alphas_cumprod[timesteps][:, None, None, None, None]
        return (x - abar.sqrt() * image) / (1 - abar).sqrt()

    for sampled in (
        diffusion.sample(oracle, image.shape, None, generator()),
        diffusion.sample_ddim(oracle, image.shape, None, generator(), steps=7),
    ):
        torch.testing.assert_close(sampled, image, rtol=0, atol=1e-3)


def test_ancestral_sampling_by_hand_for_two_timesteps():
    diffusion = Diffusion(2)
    mask = torch.ones(SHAPE)
    sampled = diffusion.sample(linear_network, SHAPE, mask, generator())
    betas = cosine_betas(2)
    abar = np.cumprod(1 - betas)
    draws = generator()
    x = torch.randn(SHAPE, generator=draws).double()
    for t, before in ((1, abar[0]), (0, 1.0)):
        noise = 0.8 * x + 0.1 + 0.001 * t
        clean = ((x - math.sqrt(1 - abar[t]) * noise) / math.sqrt(abar[t])).clamp(-1, 1)
        mean = betas[t] * math.sqrt(before) / (1 - abar[t]) * clean
        mean = mean + (1 - before) * math.sqrt(1 - betas[t]) / (1 - abar[t]) * x
        spread = math.sqrt(betas[t] * (1 - before) / (1 - abar[t]))
        x = mean + spread * torch.randn(SHAPE, generator=draws).double()
    torch.testing.assert_close(sampled.double(), x, rtol=1e-5, atol=1e-5)


def test_sampling_draws_once_per_step_the_last_included():
    draws = generator()
    Diffusion(5).sample(linear_network, SHAPE, torch.ones(SHAPE), draws)
    by_hand = generator()
    for _ in range(1 + 5):
        torch.randn(SHAPE, generator=by_hand)
    assert torch.equal(draws.get_state(), by_hand.get_state())


def test_ddim_with_all_steps_and_full_variance_is_ancestral_sampling():
    diffusion, mask = Diffusion(250), torch.ones(SHAPE)
    ancestral = diffusion.sample(linear_network, SHAPE, mask, generator())
    ddim = diffusion.sample_ddim(linear_network, SHAPE, mask, generator(), steps=250, eta=1.0)
    assert ancestral.std() > 0.01
    torch.testing.assert_close(ddim, ancestral, rtol=1e-3, atol=1e-4)
    other = diffusion.sample_ddim(linear_network, SHAPE, mask, generator(), steps=250, eta=0.5)
    assert not torch.allclose(other, ancestral, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("steps", [1, 2, 10, 249])
def test_ddim_takes_any_number_of_steps_from_the_noisiest_to_the_cleanest(steps):
    seen = []

    def network(x, timesteps):
        seen.append(int(timesteps[0]))
        return linear_network(x, timesteps)

    sampled = Diffusion(250).sample_ddim(network, SHAPE, torch.ones(SHAPE), generator(), steps=steps)
    assert len(seen) == steps == len(set(seen))
    assert seen == sorted(seen, reverse=True)
    assert seen[0] == 249
    assert steps == 1 or seen[-1] == 0
    assert sampled.abs().max() <= 1


@pytest.mark.parametrize("change", [{"steps": 0}, {"steps": 251}, {"eta": 1.5}])
def test_ddim_refuses_what_is_out_of_range(change):
    with pytest.raises(UserError):
        Diffusion(250).sample_ddim(linear_network, SHAPE, torch.ones(SHAPE), generator(), **({"steps": 10} | change))


def test_a_diffusion_without_timesteps_is_refused():
    with pytest.raises(UserError):
        Diffusion(0)
