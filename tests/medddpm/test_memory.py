"""The estimate counts what can be counted, and a training that cannot fit is refused before it starts."""

from __future__ import annotations

import pytest
import torch

from gpustudy.base.errors import UserError
from gpustudy.medddpm import UNet3D
from gpustudy.medddpm.memory import _free_of_group, available_bytes, check_memory, estimate_training
from gpustudy.medddpm.settings import TrainSettings
from gpustudy.medddpm.switches import set_switches
from tests.medddpm.conftest import SMALL_MODEL
from tests.medddpm.test_switches import CHANGES, kept_bytes
from tests.medddpm.test_unet import WHOLE_HEAD_DOCUMENT

SETTINGS = TrainSettings(iterations=1)


def test_kept_activations_equal_those_of_a_real_forward_pass(small_model):
    parameters = sum(parameter.numel() * 4 for parameter in small_model.parameters())
    estimate = estimate_training(SMALL_MODEL, SETTINGS)
    assert estimate.weights_bytes == 5 * parameters
    assert estimate.activations_bytes == kept_bytes(small_model)


@pytest.mark.parametrize(("name", "value"), CHANGES)
def test_the_estimate_follows_every_switch(name, value, small_model):
    estimate = estimate_training(SMALL_MODEL, SETTINGS, prepare=lambda network: set_switches(network, **{name: value}))
    set_switches(small_model, **{name: value})
    assert estimate.activations_bytes == pytest.approx(kept_bytes(small_model), rel=0.02)


@pytest.mark.parametrize("kernel", ["explicit", "sdpa"])
def test_the_estimate_of_kept_attention_is_that_of_the_kernels_that_run(kernel, small_model):
    """512 tokens: the N x N weights of each block are 1 MiB, eight times its volumes."""
    switches = {"attention_kernel": kernel, "attention_recompute": False}
    document = SMALL_MODEL | {"volume": [16, 16, 16]}
    estimate = estimate_training(document, SETTINGS, prepare=lambda network: set_switches(network, **switches))
    set_switches(small_model, **switches)
    assert estimate.activations_bytes == pytest.approx(kept_bytes(small_model, side=16), rel=0.02)


def test_activations_grow_with_batch_and_volume():
    single = estimate_training(SMALL_MODEL, SETTINGS).activations_bytes
    double = estimate_training(SMALL_MODEL, TrainSettings(iterations=1, batch_size=2)).activations_bytes
    assert double == pytest.approx(2 * single, rel=0.01)
    large = estimate_training(SMALL_MODEL | {"volume": [16, 16, 16]}, SETTINGS).activations_bytes
    assert 7.5 * single < large < 12 * single


def test_micro_batches_at_the_same_time_hold_activations_and_gradients_each():
    in_turn = estimate_training(SMALL_MODEL, TrainSettings(iterations=1, accumulation=3))
    at_once = estimate_training(SMALL_MODEL, TrainSettings(iterations=1, accumulation=3), concurrent=True)
    assert at_once.activations_bytes == 3 * in_turn.activations_bytes
    assert at_once.weights_bytes == in_turn.weights_bytes * 7 / 5  # two more sets of gradients beside the five


def test_the_published_model_at_128_does_not_fit_16_gib_unless_blocks_are_recomputed():
    """The paper's V100s have 32 GB; one of 16 GB cannot train it as published."""
    estimate = estimate_training(WHOLE_HEAD_DOCUMENT, SETTINGS)
    with pytest.raises(UserError, match=r"needs about .* GiB .*the GPU has 16\.0 GiB free"):
        check_memory(estimate, 16 * 2**30, "the GPU")
    check_memory(estimate, 32 * 2**30, "the GPU")
    check_memory(estimate, None, "the GPU")
    lean = estimate_training(
        WHOLE_HEAD_DOCUMENT, SETTINGS, prepare=lambda network: set_switches(network, block_recompute=True)
    )
    assert lean.total_bytes < 0.6 * estimate.total_bytes


def test_autocast_halves_most_of_the_activations():
    full = estimate_training(SMALL_MODEL, SETTINGS)
    half = estimate_training(SMALL_MODEL, SETTINGS, autocast_dtype=torch.bfloat16)
    assert half.activations_bytes < 0.9 * full.activations_bytes
    assert half.weights_bytes > full.weights_bytes  # the cast copies


def test_the_free_memory_of_this_machine_is_told():
    free = available_bytes(torch.device("cpu"))
    assert free is None or free > 2**20


def test_a_group_limit_is_what_is_left_of_it(tmp_path):
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.max").write_text("1000\n")
    assert _free_of_group(tmp_path) == 700
    (tmp_path / "memory.max").write_text("max\n")
    assert _free_of_group(tmp_path) is None
    assert _free_of_group(tmp_path / "absent") is None


def test_the_estimate_needs_no_memory_for_the_network_itself():
    assert isinstance(UNet3D.from_document(SMALL_MODEL), UNet3D)
    huge = WHOLE_HEAD_DOCUMENT | {"base_channels": 512, "volume": [256, 256, 256]}
    assert estimate_training(huge, SETTINGS).total_bytes > 10**12
