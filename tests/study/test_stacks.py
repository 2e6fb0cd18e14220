"""Which processors each stack runs: data, with a reason for each gap."""

from __future__ import annotations

import re

import pytest

from gpustudy.base.errors import UserError
from gpustudy.study.models import Stack


def stack(*architectures: str, **gaps: str) -> Stack:
    fields = {"recipe": "r", "pins": "p", "architectures": list(architectures), "gaps": gaps}
    return Stack.model_validate(fields)


@pytest.mark.parametrize(
    ("kernels", "device", "runs"),
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_86", True),  # same major number, higher minor: the binary runs
        ("sm_86", "sm_80", False),
        ("sm_86", "sm_89", True),
        ("sm_89", "sm_90", False),
        ("sm_100", "sm_103", True),
        ("sm_100", "sm_120", False),
        ("sm_10", "sm_100", False),
        ("cpu", "cpu", True),
        ("cpu", "sm_70", False),
        ("sm_70", "cpu", False),
    ],
)
def test_a_device_runs_kernels_of_its_major_number_up_to_its_minor(kernels, device, runs):
    assert stack(kernels).runs(device) is runs


def test_the_gpus_of_the_paper_run_its_stack_and_a_v100_no_cuda_13(study_of):
    stacks = study_of().study.stacks
    assert all(stacks["paper"].runs(architecture) for architecture in ("sm_70", "sm_80", "sm_90", "cpu"))
    assert not stacks["current"].runs("sm_70")
    assert stacks["current"].gaps["sm_70"] == "CUDA 13 has left Volta out"
    assert stacks["current_cu126"].runs("sm_70")


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        (
            {"gpus": {"v100": {"stack": "current"}}},
            "'gpus.v100.stack': stack 'current' does not run sm_70 (CUDA 13 has left Volta out): "
            "take stack paper or current_cu126.",
        ),
        (
            {"gpus": {"b200": {"architecture": "sm_100", "workload": "paper", "stack": "paper"}}},
            "'gpus.b200.stack': stack 'paper' does not run sm_100 (CUDA 11.8 is older than Blackwell): "
            "take stack current.",
        ),
        (
            {"gpus": {"k80": {"architecture": "sm_37", "workload": "paper", "stack": "paper"}}},
            "(its torch has kernels for cpu, sm_50, sm_60, sm_70, sm_75, sm_80, sm_86, sm_90): "
            "describe a stack that does.",
        ),
        (
            {"stacks": {"paper": {"gaps": {"sm_89": "no"}}}},
            "'stacks.paper.gaps.sm_89': stack 'paper' runs sm_89: take the gap out.",
        ),
        ({"stacks": {"paper": {"architectures": []}}}, "'stacks.paper.architectures' is []"),
        ({"stacks": {"paper": {"architectures": ["volta"]}}}, "'stacks.paper.architectures[0]' is 'volta'"),
    ],
)
def test_a_gpu_whose_stack_cannot_run_it_is_refused_with_the_reason(overlay, message, study_of):
    with pytest.raises(UserError, match=re.escape(message)):
        study_of(overlay)


def test_no_cell_becomes_stale_by_what_a_stack_is_said_to_run(study_of):
    from gpustudy.study.cells import Cell, Keys

    cell = Cell("v100", "baseline", 1)
    more = study_of({"stacks": {"paper": {"architectures": ["cpu", "sm_70", "sm_80", "sm_90"], "gaps": {}}}})
    assert Keys(more).document_key(cell, "train") == Keys(study_of()).document_key(cell, "train")
