"""Micro-batches at the same time, and weights cast once, compute what micro-batches in turn compute."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace

import pytest
import torch

from gpustudy.medddpm.cast_weights import CAST_MODULES, CastWeights
from gpustudy.medddpm.loader import PreparedVolumes
from gpustudy.medddpm.micro_batch_threads import MicroBatchThreads, add_gradients
from gpustudy.medddpm.switches import set_switches
from gpustudy.medddpm.trainer import Trainer, TrainOptions, TrainSettings
from tests.medddpm.conftest import fill_by_name

SETTINGS = TrainSettings(iterations=6, accumulation=3, learning_rate=1e-3, ema_every=2, ema_start=3)

THREADS = 3
"""Of each test here, so that each of three micro-batches at the same time has one, as ``run`` gives one in turn."""


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


def trainer_of(model, prepared, options, settings=SETTINGS):
    return Trainer(copy.deepcopy(model), settings, PreparedVolumes(prepared), seed=7, options=options)


@pytest.fixture
def fused_adam():
    try:
        torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], fused=True)
    except RuntimeError:
        pytest.skip("this torch has no fused Adam on the CPU")


def run(model, prepared, options, steps=3):
    """Losses of ``steps`` steps and the weights after them; in turn on one thread."""
    if not options.concurrent:
        torch.set_num_threads(1)
    with trainer_of(model, prepared, options) as trainer:
        losses = [trainer.step().micro_losses for _ in range(steps)]
        weights = [parameter.detach().clone() for parameter in trainer.model.parameters()]
        return losses, weights, [value.clone() for value in trainer.ema.state_dict().values()]


def assert_equal_bit_for_bit(one, other):
    assert one[0] == other[0]
    for ours, theirs in zip(one[1] + one[2], other[1] + other[2], strict=True):
        assert torch.equal(ours, theirs)


BF16 = TrainOptions(autocast_dtype=torch.bfloat16, channels_last=True)


@pytest.mark.parametrize("options", [TrainOptions(), BF16], ids=["float32", "bf16"])
@pytest.mark.parametrize("switches", [{}, {"block_recompute": True}, {"lean_norm": True, "fast_convolution": True}])
def test_at_the_same_time_and_in_turn_are_equal_bit_for_bit(options, switches, small_model, prepared):
    fill_by_name(small_model)
    set_switches(small_model, **switches)
    concurrent = run(small_model, prepared, replace(options, concurrent=True))
    assert_equal_bit_for_bit(concurrent, run(small_model, prepared, options))


@pytest.mark.parametrize("concurrent", [False, True])
@pytest.mark.parametrize("switches", [{}, {"block_recompute": True}, {"lean_norm": True, "fast_convolution": True}])
def test_weights_cast_once_and_in_every_micro_batch_are_equal_bit_for_bit(concurrent, switches, small_model, prepared):
    fill_by_name(small_model)
    set_switches(small_model, **switches)
    once = run(small_model, prepared, replace(BF16, cast_once=True, concurrent=concurrent))
    assert_equal_bit_for_bit(once, run(small_model, prepared, BF16))


def test_a_restored_trainer_goes_on_bit_for_bit(small_model, prepared, tmp_path):
    options = replace(BF16, cast_once=True, concurrent=True)
    whole = run(small_model, prepared, options)
    with trainer_of(small_model, prepared, options) as first:
        first.step()
        torch.save(first.state_dict(), tmp_path / "state.pt")
    with trainer_of(fill_by_name(small_model), prepared, options) as second:
        second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        losses = [second.step().micro_losses for _ in range(2)]
        assert second.threads is not None
        weights = [parameter.detach().clone() for parameter in second.model.parameters()]
        assert_equal_bit_for_bit((losses, weights, list(second.ema.state_dict().values())), (whole[0][1:], *whole[1:]))


def test_a_closed_trainer_starts_its_threads_again_and_leaves_none(small_model, prepared):
    trainer = trainer_of(small_model, prepared, TrainOptions(concurrent=True))
    for _ in range(2):
        trainer.step()
        assert sum(thread.name.startswith("micro-batch") for thread in threading.enumerate()) == 3
        trainer.close()
        assert not any(thread.name.startswith("micro-batch") for thread in threading.enumerate())


def test_concurrency_stops_where_it_is_asked_to(small_model, prepared):
    with trainer_of(small_model, prepared, TrainOptions(concurrent=True)) as trainer:
        trainer.step()
        trainer.stop_concurrency()
        trainer.step()
        assert trainer.threads is None


def test_the_cast_copy_follows_its_model(small_model):
    cast = CastWeights(fill_by_name(small_model), torch.bfloat16)
    with torch.no_grad():
        for parameter in small_model.parameters():
            parameter.mul_(1.5)
    cast.refresh()
    modules = dict(cast.network.named_modules())
    names = [name for name, module in small_model.named_modules() if isinstance(module, CAST_MODULES)]
    assert len(names) > 10
    for name, parameter in small_model.named_parameters():
        ours = modules[name.rpartition(".")[0]].get_parameter(name.rpartition(".")[2])
        if name.rpartition(".")[0] in names and name.endswith("weight"):
            assert torch.equal(ours, parameter.to(torch.bfloat16))
        else:
            assert ours is parameter


def test_each_thread_has_its_share_and_the_caller_keeps_its_own():
    threads = MicroBatchThreads(2)
    try:
        both = threading.Barrier(2, timeout=60)  # each waits for the other: they are two threads at the same time
        assert threads.map(lambda _: (both.wait() >= 0, torch.get_num_threads())[1], range(2)) == [1, 1]  # 3 // 2
        assert (threads.share, threads.most_at_once) == (1, 2)
        assert torch.get_num_threads() == THREADS
    finally:
        threads.close()


def test_more_micro_batches_than_threads_have_one_each():
    threads = MicroBatchThreads(5)
    assert threads.map(lambda index: (index, torch.get_num_threads()), range(5)) == [(index, 1) for index in range(5)]
    threads.close()


def test_an_error_in_a_micro_batch_reaches_the_caller():
    threads = MicroBatchThreads(2)
    with pytest.raises(ZeroDivisionError):
        threads.map(lambda index: 1 / index, range(2))
    assert threads.map(str, range(2)) == ["0", "1"]  # and the threads live on
    threads.close()


def test_gradients_are_added_in_the_parameters_dtype():
    parameters = [torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))]
    add_gradients(parameters, [torch.tensor([256.0], dtype=torch.bfloat16), None])
    add_gradients(parameters, [torch.tensor([1.0], dtype=torch.bfloat16), None])
    assert parameters[0].grad.item() == 257  # bfloat16 has no 257
    assert parameters[1].grad is None


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_a_gradient_in_another_memory_format_moves_the_weight_that_it_belongs_to(fused, count, fused_adam):
    """Adam's first step is the learning rate, against the gradient's sign (Kingma and Ba 2015, section 2.1).

    Fused Adam takes gradients as they lie in memory; the weight's gradients of ``fastconv`` lie otherwise than weights.
    """
    generator = torch.Generator().manual_seed(5)
    before = torch.randn(4, 6, 3, 3, 3, generator=generator).contiguous(memory_format=torch.channels_last_3d)
    gradient = torch.randn(3, 4, 6, 3, 3, generator=generator).movedim(0, 2)
    parameter = torch.nn.Parameter(before.clone(memory_format=torch.preserve_format))
    for _ in range(count):
        add_gradients([parameter], [gradient])
    torch.optim.Adam([parameter], lr=0.25, fused=fused).step()
    torch.testing.assert_close(before - parameter.detach(), 0.25 * gradient.sign())


def test_fused_adam_goes_on_from_moments_in_another_memory_format(small_model, prepared, fused_adam):
    fill_by_name(small_model)
    with trainer_of(small_model, prepared, TrainOptions()) as trainer:
        for _ in range(2):
            trainer.step()
        state = copy.deepcopy(trainer.state_dict())
    weights = []
    for fused in (False, True):
        options = TrainOptions(channels_last=True, fused_adam=fused)
        with trainer_of(small_model, prepared, options) as trainer:
            trainer.load_state_dict(copy.deepcopy(state))
            assert trainer.optimizer.param_groups[0]["fused"] is (fused or None)
            trainer.step()
            weights.append([parameter.detach().clone() for parameter in trainer.model.parameters()])
    for ours, theirs in zip(*weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
