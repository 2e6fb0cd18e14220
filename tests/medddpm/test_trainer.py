"""A step is the published one: averaged micro-batches, Adam, moving average; and it is repeatable."""

from __future__ import annotations

import copy
import math
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from gpustudy.base.errors import UserError
from gpustudy.medddpm import Diffusion
from gpustudy.medddpm.loader import MicroBatches, PreparedVolumes
from gpustudy.medddpm.trainer import Trainer, TrainOptions, TrainSettings, make_grad_scaler
from tests.medddpm.conftest import fill_by_name

SETTINGS = TrainSettings(iterations=6, learning_rate=1e-3, ema_every=2, ema_start=3)


def trainer_of(model, prepared, settings=SETTINGS, **more):
    return Trainer(copy.deepcopy(model), settings, PreparedVolumes(prepared), seed=7, **more)


def weights_of(trainer):
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_defaults_are_the_published_ones():
    published = TrainSettings()
    assert (published.iterations, published.accumulation, published.batch_size) == (50_000, 2, 1)
    assert (published.learning_rate, published.loss, published.timesteps) == (1e-5, "l1", 250)
    assert (published.ema_decay, published.ema_every, published.ema_start) == (0.995, 10, 2000)


def test_the_first_loss_of_a_fresh_network_is_that_of_no_prediction(small_model, prepared):
    with trainer_of(small_model, prepared, replace(SETTINGS, batch_size=3)) as trainer:
        result = trainer.step()
    assert result.iteration == 1
    assert len(result.micro_losses) == 2
    assert result.loss == pytest.approx(math.sqrt(2 / math.pi), abs=0.05)  # E|n| = 0.798, over 3072 voxels


def test_a_step_by_hand(small_model, prepared):
    """Two micro-batches, gradients of the mean loss, one step of Adam written out."""
    with trainer_of(small_model, prepared) as trainer:
        result = trainer.step()
        after = dict(trainer.model.named_parameters())
        diffusion, by_hand = Diffusion(250), copy.deepcopy(small_model)
        sequence = MicroBatches(PreparedVolumes(prepared), 1, 250, seed=7)
        losses = [
            diffusion.loss(by_hand, batch.image, batch.mask, batch.timesteps, batch.noise)
            for batch in (sequence[0], sequence[1])
        ]
        (sum(losses) / 2).backward()
        assert result.micro_losses == pytest.approx([loss.item() for loss in losses], rel=1e-6)
        for name, weight in by_hand.named_parameters():
            gradient = weight.grad.double()
            expected = weight.detach().double() - 1e-3 * gradient / (gradient.abs() + 1e-8)  # Adam's first step
            torch.testing.assert_close(after[name].detach().double(), expected, rtol=1e-4, atol=2e-6)


def test_accumulated_micro_batches_equal_one_large_batch(small_model, prepared):
    """The large batch is made of the micro-batches' own samples, timesteps and noise."""
    fill_by_name(small_model)
    sequence = MicroBatches(PreparedVolumes(prepared), 1, 250, seed=7)
    parts = [sequence[index] for index in range(4)]
    image, mask, timesteps, noise = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("image", "mask", "timesteps", "noise")
    )
    large = copy.deepcopy(small_model)
    Diffusion(250).loss(large, image, mask, timesteps, noise).backward()
    gradients = []

    @contextmanager
    def before_the_optimiser(name):
        if name == "optimiser":
            gradients.extend(weight.grad.clone() for weight in trainer.model.parameters())
        yield

    with trainer_of(small_model, prepared, replace(SETTINGS, accumulation=4), phase=before_the_optimiser) as trainer:
        trainer.step()
    largest = max(float(weight.grad.abs().max()) for weight in large.parameters())
    for ours, weight in zip(gradients, large.parameters(), strict=True):
        torch.testing.assert_close(ours, weight.grad, rtol=1e-3, atol=1e-6 * largest)


def test_the_moving_average_by_hand(small_model, prepared):
    """Steps 0, 2 copy (before 3); step 4 averages; odd steps do nothing."""
    with trainer_of(small_model, prepared, replace(SETTINGS, ema_decay=0.75)) as trainer:
        averages, weights = [], []
        for _ in range(6):
            trainer.step()
            averages.append([value.clone() for value in trainer.ema.state_dict().values()])
            weights.append(weights_of(trainer))
    assert equal(averages[0], weights[0])
    assert equal(averages[1], weights[0])
    assert equal(averages[2], weights[2])
    assert equal(averages[3], weights[2])
    for average, old, new in zip(averages[4], weights[2], weights[4], strict=True):
        torch.testing.assert_close(average, 0.75 * old + 0.25 * new)
    assert not equal(averages[4], averages[3])
    assert equal(averages[5], averages[4])


def test_phases_are_entered_in_order(small_model, prepared):
    entered = []

    @contextmanager
    def phase(name):
        entered.append(name)
        yield

    with trainer_of(small_model, prepared, phase=phase) as trainer:
        trainer.step()
    assert entered == ["data", "forward", "backward"] * 2 + ["optimiser"]


def test_two_trainers_with_one_seed_are_equal_bit_for_bit(small_model, prepared):
    torch.set_num_threads(1)
    with trainer_of(small_model, prepared) as one, trainer_of(small_model, prepared) as other:
        assert [one.step().micro_losses for _ in range(3)] == [other.step().micro_losses for _ in range(3)]
        assert equal(weights_of(one), weights_of(other))


@pytest.mark.parametrize("stop", [1, 3])
def test_a_restored_trainer_goes_on_bit_for_bit(stop, small_model, prepared, tmp_path):
    settings = replace(SETTINGS, first_half_learning_rate=1e-2)
    with trainer_of(small_model, prepared, settings) as whole:
        losses = [whole.step().micro_losses for _ in range(6)]
    with trainer_of(small_model, prepared, settings) as first:
        for _ in range(stop):
            first.step()
        torch.save(first.state_dict(), tmp_path / "state.pt")
    with trainer_of(fill_by_name(small_model), prepared, settings) as second:
        second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        assert [second.step().micro_losses for _ in range(6 - stop)] == losses[stop:]
        assert equal(weights_of(second), weights_of(whole))
        assert equal(second.ema.state_dict().values(), whole.ema.state_dict().values())


def test_only_the_same_run_is_resumed(small_model, prepared):
    with trainer_of(small_model, prepared) as first:
        state = first.state_dict()
    longer = replace(SETTINGS, iterations=60)
    with trainer_of(small_model, prepared, longer) as second:
        second.load_state_dict(state)
    for settings in (replace(SETTINGS, loss="l2"), replace(longer, first_half_learning_rate=1e-4)):
        with trainer_of(small_model, prepared, settings) as other, pytest.raises(UserError, match="same settings"):
            other.load_state_dict(state)
    with trainer_of(small_model, prepared) as other, pytest.raises(UserError, match="seed 8, this run 7"):
        other.load_state_dict(state | {"seed": 8})


def test_the_learning_rate_schedule_halves_the_run():
    settings = TrainSettings(iterations=9, warmup_iterations=1, first_half_learning_rate=1e-4)
    assert [settings.learning_rate_at(step) for step in range(10)] == [1e-4] * 5 + [1e-5] * 5
    assert TrainSettings(iterations=9).learning_rate_at(0) == 1e-5


@pytest.mark.parametrize(
    "options",
    [
        TrainOptions(autocast_dtype=torch.bfloat16),
        TrainOptions(channels_last=True),
        TrainOptions(autocast_dtype=torch.bfloat16, grad_scaler=True, channels_last=True),
    ],
)
def test_options_change_the_losses_only_by_rounding(options, small_model, prepared):
    if options.grad_scaler and not hasattr(torch.amp, "GradScaler"):
        pytest.skip("this PyTorch scales gradients on CUDA alone")
    fill_by_name(small_model)
    with trainer_of(small_model, prepared) as plain, trainer_of(small_model, prepared, options=options) as other:
        for _ in range(2):
            assert other.step().loss == pytest.approx(plain.step().loss, rel=0.02)


def test_channels_last_reaches_the_network(small_model, prepared):
    seen = []
    with trainer_of(small_model, prepared, options=TrainOptions(channels_last=True)) as trainer:
        convolution = trainer.model.input_blocks[0][0]  # beyond the first, PyTorch 2.0 does not keep the format on CPUs
        convolution.register_forward_hook(lambda module, inputs, _: seen.extend([module.weight, inputs[0]]))
        trainer.step()
    assert all(tensor.is_contiguous(memory_format=torch.channels_last_3d) for tensor in seen)


def test_the_scaler_is_of_the_newest_api_that_there_is():
    if hasattr(torch.amp, "GradScaler"):
        assert isinstance(make_grad_scaler("cpu"), torch.amp.GradScaler)
    else:
        with pytest.raises(UserError, match="on CUDA alone"):
            make_grad_scaler("cpu")


@pytest.mark.parametrize(
    "change",
    [
        {"iterations": 0},
        {"loss": "l3"},
        {"ema_decay": 1.5},
        {"epochs": 3},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"learning_rate": math.inf},
        {"first_half_learning_rate": -1e-4},
    ],
)
def test_settings_that_make_no_sense_are_refused(change):
    with pytest.raises(UserError, match=next(iter(change))):
        TrainSettings.from_document(change)


def test_a_model_that_does_not_fit_the_volumes_is_refused(small_model, prepared):
    from gpustudy.medddpm import UNet3D

    with pytest.raises(UserError, match="mask channels"):
        Trainer(UNet3D(1, 1, 32, (1, 2)), SETTINGS, PreparedVolumes(prepared), seed=1)
