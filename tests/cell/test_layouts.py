"""Formats, conversions and the module of each operator call, in forward and in backward."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import torch
from torch import nn

from gpustudy.cell.layouts import LayoutRecorder, memory_format, recorded_layouts, write_layouts


class Small(nn.Module):
    """Two convolutions with a change of layout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv3d(2, 4, 3, padding=1)
        self.inner = nn.Sequential(nn.SiLU(), nn.Conv3d(4, 4, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.first(x).contiguous(memory_format=torch.channels_last_3d)) + 1.0


def test_formats_are_told_apart() -> None:
    x = torch.zeros(2, 4, 3, 5, 7)
    assert memory_format(x) == "contiguous"
    assert memory_format(x.contiguous(memory_format=torch.channels_last_3d)) == "channels_last_3d"
    assert memory_format(torch.zeros(2, 1, 3, 5, 7)) == "both"  # one channel
    assert memory_format(x.transpose(2, 4)) == "other"
    assert memory_format(torch.zeros(3, 4).t()) == "other"


def test_every_kind_of_conversion_is_named() -> None:
    x = torch.zeros(2, 4, 3, 5, 7)
    last = x.contiguous(memory_format=torch.channels_last_3d)
    with LayoutRecorder() as recorder:
        last.contiguous()
        x.contiguous(memory_format=torch.channels_last_3d)
        last.to(torch.float64, memory_format=torch.contiguous_format)
        x.copy_(last)
        x.clone()  # a copy that keeps the layout is no conversion
        last.to(torch.float64)
    assert [row["conversion"] for row in recorder.rows] == ["contiguous", "contiguous", "to", "copy_", None, None]


def test_modules_are_known_in_forward_and_in_backward() -> None:
    model = Small()
    x = torch.randn(1, 2, 4, 4, 4)
    with recorded_layouts(model) as recorder:
        recorder.phase = "forward"
        loss = model(x).sum()
        recorder.phase = "backward"
        loss.backward()
    rows = [(row["phase"], row["op"], row["module"]) for row in recorder.rows]
    assert ("forward", "aten.convolution", "first") in rows
    assert ("forward", "aten.convolution", "inner.1") in rows
    conversions = [row for row in recorder.rows if row["phase"] == "forward" and row["conversion"]]
    assert [(row["module"], row["conversion"]) for row in conversions] == [("", "contiguous")]  # Small.forward's own
    backward = [module for phase, op, module in rows if phase == "backward" and op == "aten.convolution_backward"]
    known = hasattr(torch._C, "_current_autograd_node")
    assert backward == (["inner.1", "first"] if known else ["", ""])


def test_hooks_are_gone_afterwards() -> None:
    model = Small()
    with recorded_layouts(model):
        pass
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_file_holds_a_line_per_call(tmp_path: Path) -> None:
    with LayoutRecorder() as recorder:
        torch.zeros(2, 3).add(1)
    write_layouts(tmp_path, recorder.rows)
    with gzip.open(tmp_path / "layouts.jsonl.gz", "rt") as stream:
        rows = [json.loads(line) for line in stream]
    assert [row["op"] for row in rows] == ["aten.zeros", "aten.add"]
    assert rows[1]["inputs"] == [{"shape": [2, 3], "dtype": "float32", "format": "contiguous"}]
