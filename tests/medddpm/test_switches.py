"""Every switch is another form of the same mathematics: same output, same gradients."""

from __future__ import annotations

import pytest
import torch

from gpustudy.base.errors import UserError
from gpustudy.medddpm.blocks import NormConvolution
from gpustudy.medddpm.switches import SWITCHES, read_switches, set_switches
from tests.medddpm.conftest import fill_by_name

CHANGES = [(name, value) for name, switch in SWITCHES.items() for value in switch.values if value != switch.published]


def output_and_gradients(model, batch):
    model.zero_grad()
    x = torch.randn(batch, 3, 8, 8, 8, generator=torch.Generator().manual_seed(1))
    output = model(x, torch.tensor([3, 200])[:batch])
    output.square().mean().backward()
    return output.detach(), {name: weight.grad.clone() for name, weight in model.named_parameters()}


def test_the_default_is_the_published_sequence(small_model):
    assert read_switches(small_model) == {name: switch.published for name, switch in SWITCHES.items()}


@pytest.mark.parametrize("batch", [1, 2])  # PyTorch's CPU convolution has a form of its own for one sample
@pytest.mark.parametrize(("name", "value"), CHANGES)
def test_a_switch_changes_neither_output_nor_gradients(name, value, batch, small_model):
    fill_by_name(small_model)  # a fresh network has zero gradients nearly everywhere
    before = output_and_gradients(small_model, batch)
    set_switches(small_model, **{name: value})
    assert read_switches(small_model)[name] == value
    after = output_and_gradients(small_model, batch)
    torch.testing.assert_close(after[0], before[0], rtol=1e-4, atol=1e-4)
    largest = max(float(gradient.abs().max()) for gradient in before[1].values())
    for tensor, gradient in before[1].items():
        torch.testing.assert_close(after[1][tensor], gradient, rtol=1e-3, atol=1e-6 * largest)


def kept_bytes(model, side=8):
    """Bytes that autograd keeps for backward, the parameters' left out."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in parameters:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(torch.randn(1, 3, side, side, side), torch.tensor([3]))
    del output
    return sum(kept.values())


def test_attention_is_recomputed_by_default(small_model):
    recomputing = kept_bytes(small_model)
    set_switches(small_model, attention_recompute=False)
    assert kept_bytes(small_model) > recomputing


HAS_FUSED = hasattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu")


@pytest.mark.skipif(not HAS_FUSED, reason="PyTorch before 2.2 has no fused attention on the CPU")
def test_fused_attention_keeps_no_weight_per_pair_of_tokens(small_model):
    set_switches(small_model, attention_recompute=False)
    explicit = kept_bytes(small_model, side=16)
    set_switches(small_model, attention_kernel="sdpa")
    blocks, tokens = 4, 8**3
    assert explicit - kept_bytes(small_model, side=16) > 0.8 * blocks * tokens**2 * 4  # float32


def test_recomputed_attention_runs_whole_in_backward(small_model):
    calls = []
    for module in small_model.modules():
        if type(module).__name__ == "AttentionBlock":
            module.proj_out.register_forward_hook(lambda *_: calls.append(1))
    output_and_gradients(small_model, batch=1)
    blocks = sum(type(module).__name__ == "AttentionBlock" for module in small_model.modules())
    assert len(calls) == 2 * blocks


def test_mixed_switches_are_read_as_mixed(small_model):
    small_model.middle_block[1].kernel = "sdpa"
    assert read_switches(small_model)["attention_kernel"] == "mixed"


@pytest.mark.parametrize("values", [{"attention": "sdpa"}, {"attention_kernel": "flash"}])
def test_unknown_switches_and_values_are_refused(values, small_model):
    with pytest.raises(UserError):
        set_switches(small_model, **values)


def test_lean_norm_keeps_only_inputs(small_model):
    set_switches(small_model, attention_recompute=False)
    plain = kept_bytes(small_model)
    set_switches(small_model, lean_norm=True)
    assert kept_bytes(small_model) < 0.7 * plain


@pytest.mark.parametrize("in_float32", [True, False])
def test_the_lean_form_equals_the_plain_one_under_autocast(in_float32):
    torch.manual_seed(0)
    block = NormConvolution(32, 32)
    block[0].in_float32 = in_float32
    results = []
    for lean in (False, True):
        block.lean = lean
        x = torch.randn(1, 32, 4, 4, 4, generator=torch.Generator().manual_seed(2)).bfloat16().requires_grad_()
        block.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = block(x)
        output.float().square().mean().backward()
        results.append([output.float(), x.grad.float(), *(weight.grad for weight in block.parameters())])
    assert output.dtype == torch.bfloat16
    for plain, lean in zip(*results, strict=True):
        torch.testing.assert_close(lean, plain, rtol=0.1, atol=0.02 * float(plain.detach().abs().max()))


def test_the_lean_form_takes_channels_last_with_any_stride_of_the_batch():
    """A batch of one may carry any stride; PyTorch's kernels judge the memory format by it."""
    torch.manual_seed(0)
    block = fill_by_name(NormConvolution(32, 32))
    usual = torch.randn(1, 32, 2, 2, 2)
    last = usual.contiguous(memory_format=torch.channels_last_3d)
    odd = last.as_strided(last.shape, (32, *last.stride()[1:]))
    expected = block(usual)
    block.lean = True
    for x in (usual, last, odd):
        x = x.detach().requires_grad_()
        torch.testing.assert_close(block(x), expected)
        block(x).sum().backward()


@pytest.mark.skipif(not hasattr(torch, "compiler"), reason="PyTorch 2.0 compiles no recomputed part")
@pytest.mark.parametrize(
    "values", [{}, {"block_recompute": True}, {"lean_norm": True, "attention_kernel": "sdpa"}], ids=str
)
def test_a_compiler_sees_the_whole_network_as_one_graph(values, small_model):
    """Recomputed parts once split it, up to a network of which next to nothing was compiled."""
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph.forward

    set_switches(fill_by_name(small_model), **values)
    before = output_and_gradients(small_model, 1)
    torch._dynamo.reset()
    small_model.forward = torch.compile(small_model.forward, backend=keep, dynamic=False)
    after = output_and_gradients(small_model, 1)
    assert len(graphs) == 1
    torch.testing.assert_close(after[0], before[0], rtol=1e-4, atol=1e-4)
    largest = max(float(gradient.abs().max()) for gradient in before[1].values())
    for tensor, gradient in before[1].items():
        torch.testing.assert_close(after[1][tensor], gradient, rtol=1e-3, atol=1e-6 * largest)
