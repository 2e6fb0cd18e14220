"""Operations and bytes of a step from the config alone, beside what PyTorch counts on the network itself."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gpustudy.launch.workload import forward_flops, step_flops, training_bytes
from gpustudy.medddpm.memory import estimate_training_bytes
from gpustudy.medddpm.unet import UNet3D
from gpustudy.study.models import Model, Train

MODELS = {
    "whole head": Model(),
    "BraTS": Model(image_channels=4, mask_channels=4, res_blocks=2, attention_downsamples=[], volume=[144, 192, 192]),
    "demo": Model(base_channels=32, channel_mult=[1, 1, 2], attention_downsamples=[4], volume=[16, 16, 16]),
}


def counted(model: Model, backward: bool) -> int:
    """What PyTorch's own counter says of one sample, on the meta device."""
    with torch.device("meta"):
        network = UNet3D.from_document(model.model_dump(mode="json"))
        x = torch.empty((1, model.image_channels + model.mask_channels, *model.volume))
        timesteps = torch.zeros(1, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        noise = network(x, timesteps)
        if backward:
            noise.sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("name", MODELS)
def test_a_forward_pass_has_exactly_the_operations_that_pytorch_counts(name):
    assert forward_flops(MODELS[name]) == counted(MODELS[name], backward=False)


@pytest.mark.parametrize("name", MODELS)
def test_a_step_has_the_operations_that_pytorch_counts_but_for_the_first_layers_input(name):
    whole = counted(MODELS[name], backward=True)
    assert whole <= step_flops(MODELS[name], 1) <= 1.01 * whole


def test_a_step_is_all_of_its_micro_batches():
    assert step_flops(Model(), 6) == 6 * step_flops(Model(), 1)


def test_the_published_network_on_a_whole_head_takes_5_5_teraflops_a_pass():
    assert forward_flops(Model()) == 5_536_663_142_400


@pytest.mark.parametrize("name", MODELS)
def test_memory_is_near_the_estimate_that_training_makes_and_not_far_below_it(name):
    model = MODELS[name].model_dump(mode="json")
    train = Train().model_dump(mode="json")
    careful = estimate_training_bytes(model, train)
    assert 0.95 * careful <= training_bytes(MODELS[name], 1) <= 1.35 * careful
