"""Published checkpoints load into the network that their names and shapes tell; a misfit names the argument."""

from __future__ import annotations

import pickle
import re
import warnings

import pytest
import torch

from gpustudy.base.errors import UserError
from gpustudy.medddpm import Diffusion, UNet3D, load_published
from gpustudy.medddpm.published import NETWORK_PREFIX, infer_architecture, to_published
from tests.medddpm.conftest import GARBAGE, SMALL_MODEL, fill_by_name


def checkpoint_of(model, step=3):
    """A checkpoint in the published layout, whose raw weights differ from the averaged ones."""
    ema = {name: value.clone() for name, value in model.state_dict().items()}
    raw = {name: value + 1 for name, value in ema.items()}
    return to_published(raw, ema, Diffusion(250), step)


def test_a_checkpoint_has_the_published_names_and_shapes(tensor_rows):
    with torch.device("meta"):
        state = UNet3D.whole_head().state_dict()
    content = to_published({}, {name: torch.empty(value.shape) for name, value in state.items()}, Diffusion(250), 0)
    ours = [(name, tuple(value.shape)) for name, value in content["ema"].items()]
    assert ours == tensor_rows("medddpm_checkpoint_128_full.tsv")


@pytest.mark.parametrize("build", [UNet3D.whole_head, UNet3D.brats])
def test_the_architecture_is_told_by_names_and_shapes(build):
    with torch.device("meta"):
        model = build()
    assert infer_architecture(model.state_dict()) == model.architecture


def test_a_file_loads_with_its_averaged_weights(small_model, tmp_path):
    fill_by_name(small_model)
    path = tmp_path / "model_small.pt"
    torch.save(checkpoint_of(small_model), path)
    loaded = load_published(path)
    assert loaded.architecture == small_model.architecture
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, small_model.state_dict()[name]), name


def test_a_bare_state_dict_loads_too(small_model):
    fill_by_name(small_model)
    for state in (small_model.state_dict(), {NETWORK_PREFIX + k: v for k, v in small_model.state_dict().items()}):
        assert torch.equal(load_published(state).out[2].weight, small_model.out[2].weight)


def variant(**changes):
    with torch.device("meta"):
        return UNet3D.from_document({key: value for key, value in (SMALL_MODEL | changes).items() if key != "volume"})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mask_channels": 0}, "expects 3 input channels, the model has 1: was the condition mask left out"),
        ({"mask_channels": 4}, "expects 3 input channels, the model has 5"),
        ({"image_channels": 2, "mask_channels": 1}, "expects 1 output channels, the model has 2"),
        ({"base_channels": 64}, "expects 32 base channels, the model has 64"),
        ({"channel_mult": [1, 2, 2]}, "expects 32,64 channels per level, the model has 32,64,64"),
        ({"res_blocks": 2}, "expects 1 residual blocks per level, the model has 2"),
        ({"attention_downsamples": []}, "expects 2 .*attention, the model has none: set attention_downsamples"),
    ],
)
def test_a_misfit_names_the_argument_that_differs(changes, sentence, small_model):
    with pytest.raises(UserError, match=sentence):
        load_published(checkpoint_of(small_model), variant(**changes))


def test_the_brats_checkpoint_into_a_model_without_mask_is_told():
    with torch.device("meta"):
        brats, plain = UNet3D.brats().state_dict(), UNet3D(1, 1)
    with pytest.raises(UserError, match="checkpoint expects 8 input channels, the model has 1: was the condition mask"):
        load_published({"ema": {NETWORK_PREFIX + name: value for name, value in brats.items()}}, plain)


def test_a_missing_and_a_strange_tensor_are_named(small_model):
    state = dict(small_model.state_dict())
    missing = {name: value for name, value in state.items() if name != "middle_block.1.qkv.bias"}
    with pytest.raises(UserError, match=r"no tensor middle_block\.1\.qkv\.bias"):
        load_published(missing)
    with pytest.raises(UserError, match=r"a tensor label_emb\.weight"):
        load_published(state | {"label_emb.weight": torch.zeros(1)})


def test_a_tensor_of_another_shape_is_named(small_model):
    state = dict(small_model.state_dict()) | {"time_embed.0.weight": torch.zeros(128, 64)}
    with pytest.raises(UserError, match=r"time_embed\.0\.weight has shape \(128, 64\)"):
        load_published(state)


STEM, HEAD, FIRST = "input_blocks.0.0.weight", "out.2.weight", "input_blocks.1.0.out_layers.3.weight"
NO_WEIGHTS = [
    (STEM, torch.zeros(()), "has shape \\(\\) in the checkpoint, which is no 3D convolution's"),
    (STEM, torch.zeros(32), "has shape \\(32,\\) in the checkpoint, which is no 3D convolution's"),
    (STEM, torch.zeros(0, 3, 3, 3, 3), "has shape \\(0, 3, 3, 3, 3\\) in the checkpoint, which is no"),
    (HEAD, torch.zeros(()), "has shape \\(\\)"),
    (FIRST, torch.zeros(()), "has shape \\(\\)"),
    (STEM, torch.zeros(32, 3, 3, 3, 3).to_sparse(), "is a torch.sparse_coo tensor of torch.float32"),
    (STEM, torch.zeros(32, 3, 3, 3, 3, dtype=torch.complex64), "is a torch.strided tensor of torch.complex64"),
    (STEM, torch.zeros(32, 3, 3, 3, 3, dtype=torch.int64), "is a torch.strided tensor of torch.int64"),
    (STEM, torch.zeros(32, 3, 3, 3, 3, device="meta"), "is a meta tensor"),
    (STEM, torch.full((32, 3, 3, 3, 3), torch.nan), "holds values that are not finite"),
    ("time_embed.0.bias", torch.full((128,), -torch.inf), "holds values that are not finite"),
    ("time_embed.0.bias", torch.full((128,), 1e300, dtype=torch.float64), "holds values that are not finite"),
    ("input_blocks.99999999999999999999999.0.weight", torch.zeros(1), "that the network lacks"),
    (f"input_blocks.{'9' * 5000}.0.weight", torch.zeros(1), "that the network lacks"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), NO_WEIGHTS)
def test_a_tensor_that_holds_no_weights_is_named(name, value, sentence, small_model):
    state = small_model.state_dict() | {name: value}
    with pytest.raises(UserError, match=f"{re.escape(name)} {sentence}"):
        load_published(state)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_named(small_model):
    nested = torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)])
    with pytest.raises(UserError, match=r"time_embed\.0\.bias is a nested tensor"):
        load_published(small_model.state_dict() | {"time_embed.0.bias": nested})


class Payload:
    """Leaves a mark when a loader that trusts its file brings it to life."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return type(self.mark).touch, (self.mark,)


def test_nothing_in_a_checkpoint_is_run(tmp_path, small_model):
    mark, path = tmp_path / "mark", tmp_path / "hostile.pt"
    torch.save(checkpoint_of(small_model) | {"extra": Payload(mark)}, path)
    torch.load(path, weights_only=False)
    mark.unlink()  # the payload works
    assert_named_as_no_tensors(path)
    path.write_bytes(pickle.dumps({"ema": Payload(mark)}, protocol=4))
    assert_named_as_no_tensors(path)
    assert not mark.exists()


def assert_named_as_no_tensors(path):
    with warnings.catch_warnings(), pytest.raises(UserError) as refused:
        warnings.simplefilter("error")
        load_published(path)
    said = f"{path} holds something other than tensors and is not loaded: check its path, or fetch it again."
    assert str(refused.value) == said


@pytest.mark.parametrize("content", GARBAGE)
def test_bytes_that_are_no_checkpoint_are_refused(content, tmp_path):
    path = tmp_path / "garbage.pt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"garbage\.pt .*: check its path, or fetch it again\.$"):
        load_published(path)


def test_files_that_are_no_checkpoint_are_refused(tmp_path, small_model):
    text, pickled, cut = tmp_path / "text.pt", tmp_path / "pickled.pt", tmp_path / "cut.pt"
    text.write_text("not a checkpoint")
    pickled.write_bytes(pickle.dumps(SystemExit(3), protocol=2))
    torch.save(checkpoint_of(small_model), cut)
    cut.write_bytes(cut.read_bytes()[:5000])
    for path in (text, pickled, cut, tmp_path / "absent.pt"):
        with pytest.raises(UserError, match=path.name):
            load_published(path)
    for content in ({"ema": 3}, {"ema": {}}, {"step": 1}):
        with pytest.raises(UserError, match="Med-DDPM checkpoint"):
            load_published(content)
