"""The gate: first calls of each operator signature per step, forward and backward, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpustudy.cell.ncu_gate import OperatorGate, describe, gated
from tests.cell.ncu_window import CountingWindow


@pytest.fixture
def window() -> CountingWindow:
    return CountingWindow()


def test_first_call_of_each_signature(window: CountingWindow) -> None:
    gate = OperatorGate({"aten::add": 1}, 0, window)
    small, large = torch.ones(2), torch.ones(3)

    def step() -> None:
        small + small  # only the call matters
        small + small
        large + large
        small * small

    gated(step, gate)
    assert window.opened == 2  # one add of each shape; no multiplication: its quota is 0
    gated(step, gate)
    assert window.opened == 4  # each step gives its own sample


def test_quota_counts_calls_of_a_signature(window: CountingWindow) -> None:
    gate = OperatorGate({"aten::mul": 3}, 0, window)
    value = torch.ones(2)

    def step() -> None:
        for factor in range(10):
            value * float(factor)  # factors differ, kernels do not

    gated(step, gate)
    assert window.opened == 3


def test_backward_and_optimiser_are_seen_with_their_phase(window: CountingWindow) -> None:
    gate = OperatorGate({}, 1, window)
    model = torch.nn.Sequential(torch.nn.Conv3d(1, 2, 3), torch.nn.SiLU(), torch.nn.Conv3d(2, 1, 3))
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        for _ in range(2):
            with gate.in_phase("forward"):
                loss = model(torch.ones(1, 1, 8, 8, 8)).abs().mean()
            with gate.in_phase("backward"):
                loss.backward()
        with gate.in_phase("optimiser"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    gated(step, gate)
    assert set(gate.profiled) == {"forward", "backward", "optimiser"}
    # the second micro-batch repeats the first one's signatures: nothing of its forward is profiled again
    assert gate.profiled["forward"] <= gate.calls["forward"] / 2
    assert all(gate.profiled[phase] > 0 for phase in gate.profiled)


def test_window_closes_when_an_operator_fails(window: CountingWindow) -> None:
    gate = OperatorGate({}, 1, window)
    with pytest.raises(RuntimeError):
        gated(lambda: torch.ones(2) @ torch.ones(3), gate)
    assert not window.is_open


def test_results_are_those_without_the_gate(window: CountingWindow) -> None:
    torch.manual_seed(0)
    layer, value = torch.nn.Conv3d(1, 2, 3), torch.randn(1, 1, 5, 5, 5)
    assert torch.equal(gated(lambda: layer(value), OperatorGate({}, 1, window)), layer(value))


def test_heartbeat_is_touched(window: CountingWindow, tmp_path: Path) -> None:
    gate = OperatorGate({}, 1, window, tmp_path / "heartbeat")
    gated(lambda: torch.ones(2) + 1, gate)
    assert (tmp_path / "heartbeat").exists()


def test_description_tells_layouts_and_strides_apart_but_not_values() -> None:
    plain = torch.zeros(1, 2, 4, 4, 4)
    assert describe(plain) == describe(torch.ones(1, 2, 4, 4, 4))
    assert describe(plain) != describe(plain.to(memory_format=torch.channels_last_3d))
    assert describe(plain) != describe(plain.half())
    assert describe((1, 2.5, [plain], None, "x")) == describe((1, 7.5, [plain + 1], None, "x"))
    assert describe((1,)) != describe((2,))  # a stride of 1 or 2 runs another kernel
