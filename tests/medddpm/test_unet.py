"""The network is the published one: names, order, shapes, parameters, FLOPs, blocks, first output."""

from __future__ import annotations

import pytest
import torch

from gpustudy.base.errors import UserError
from gpustudy.medddpm import UNet3D
from gpustudy.medddpm.blocks import AttentionBlock, Downsample, ResBlock, Upsample, timestep_embedding
from tests.medddpm.conftest import SMALL_MODEL, fill_by_name

WHOLE_HEAD_DOCUMENT = SMALL_MODEL | {
    "base_channels": 64,
    "channel_mult": [1, 1, 2, 3, 4],
    "attention_downsamples": [8],
    "volume": [128, 128, 128],
}


def on_meta(build):
    with torch.device("meta"):
        return build()


@pytest.mark.parametrize(
    ("build", "parameters", "tensors"),
    [
        (UNet3D.whole_head, 40_226_433, 246),
        (lambda: UNet3D.from_document(WHOLE_HEAD_DOCUMENT), 40_226_433, 246),
        (UNet3D.brats, 57_562_564, 338),
        (lambda: UNet3D(3, 1, channel_mult=(1, 2, 3, 4), attention_downsamples=(4,)), 39_053_121, 208),
        (lambda: UNet3D(3, 1, base_channels=32, attention_downsamples=()), 9_953_409, 228),
    ],
)
def test_variants_have_the_published_number_of_parameters_and_tensors(build, parameters, tensors):
    model = on_meta(build)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert len(model.state_dict()) == tensors


@pytest.mark.parametrize(("build", "table"), [(UNet3D.whole_head, "128"), (UNet3D.brats, "brats")])
def test_names_order_and_shapes_are_those_of_the_published_tables(build, table, tensor_rows):
    ours = [(name, tuple(value.shape)) for name, value in on_meta(build).state_dict().items()]
    assert ours == tensor_rows(f"medddpm_state_dict_{table}.tsv")


@pytest.mark.parametrize(
    ("build", "volume", "flops"),
    [
        (UNet3D.whole_head, (128, 128, 128), 5.537e12),
        (UNet3D.whole_head, (64, 64, 64), 6.878e11),
        (UNet3D.whole_head, (32, 32, 32), 8.591e10),
        (lambda: UNet3D(3, 1, channel_mult=(1, 2, 3, 4), attention_downsamples=(4,)), (64, 64, 64), 1.210e12),
        (UNet3D.brats, (144, 192, 192), 2.126e13),
    ],
)
def test_a_forward_pass_has_the_published_flops(build, volume, flops):
    counter_mode = pytest.importorskip("torch.utils.flop_counter", reason="torch 2.0 has no counter of FLOPs")
    model = on_meta(build)
    x = torch.empty(1, model.architecture.in_channels, *volume, device="meta")
    with counter_mode.FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x, torch.zeros(1, dtype=torch.long, device="meta"))
    assert counter.get_total_flops() == pytest.approx(flops, rel=5e-4)  # the sheet gives four digits


def test_a_fresh_network_outputs_exactly_zero(small_model):
    x = torch.randn(2, 3, 8, 8, 8)
    assert torch.count_nonzero(small_model(x, torch.tensor([0, 249]))) == 0


@pytest.mark.parametrize("width", [32, 64])
def test_timestep_embedding_equals_the_reference(width, reference):
    ours = timestep_embedding(torch.tensor(reference["temb/t"]), width)
    torch.testing.assert_close(ours, torch.tensor(reference[f"temb/dim{width}"]), rtol=0, atol=2e-6)


def test_timestep_embedding_by_hand_has_cosines_first_and_pads_an_odd_width():
    ours = timestep_embedding(torch.tensor([2]), 5)
    second = 2 * 1000**-0.5  # frequency exp(-ln(1000) * 1/2)
    by_hand = torch.tensor([[2.0, second, 2.0, second]])
    expected = torch.cat([by_hand[:, :2].cos(), by_hand[:, 2:].sin(), torch.zeros(1, 1)], dim=1)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("res_32to64", lambda: ResBlock(32, 64, 128)),
        ("res_32to32", lambda: ResBlock(32, 32, 128)),
        ("attn_32", lambda: AttentionBlock(32)),
        ("down_32", lambda: Downsample(32)),
        ("up_32", lambda: Upsample(32)),
    ],
)
def test_blocks_equal_the_reference(name, block, reference):
    block = fill_by_name(block())
    x, embedding = (torch.tensor(reference[f"block/{key}"]) for key in ("res_x", "res_emb"))
    ours = block(x, embedding) if isinstance(block, ResBlock) else block(x)
    torch.testing.assert_close(ours, torch.tensor(reference[f"block/{name}"]), rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("volume", [(8, 8, 9), (8, 7, 8), (0, 8, 8)])
def test_sides_that_do_not_divide_are_refused_with_the_nearest_that_do(volume, small_model):
    with pytest.raises(UserError, match="multiple of 2: crop or pad it to"):
        small_model(torch.zeros(1, 3, *volume), torch.tensor([0]))


def test_a_volume_that_does_not_divide_is_refused_before_the_network_is_built():
    with pytest.raises(UserError, match=r"side H of the volume is 100.*multiple of 16.*96 or 112"):
        UNet3D.from_document(WHOLE_HEAD_DOCUMENT | {"volume": [128, 100, 128]})


def test_widths_that_do_not_divide_into_groups_are_refused():
    with pytest.raises(UserError, match=r"base_channels 48 .* 48, not a multiple of 32"):
        UNet3D(3, 1, base_channels=48)


@pytest.mark.parametrize("change", [{"res_blocks": 0}, {"out_channels": 0}, {"out_channels": 4}, {"channel_mult": ()}])
def test_impossible_counts_are_refused(change):
    with pytest.raises(UserError):
        UNet3D(**({"in_channels": 3, "out_channels": 1} | change))


def test_a_missing_key_of_the_model_section_is_named():
    with pytest.raises(UserError, match="res_blocks"):
        UNet3D.from_document({key: value for key, value in SMALL_MODEL.items() if key != "res_blocks"})


def test_an_input_without_its_mask_is_refused(small_model):
    with pytest.raises(UserError, match="1 channels, the model takes 3"):
        small_model(torch.zeros(1, 1, 8, 8, 8), torch.tensor([0]))
