"""Which operator ran on which memory format, and where in the model layouts were converted.

A dispatch mode sees every operator call below autograd and autocast, that is with the tensors that the kernel
gets. It slows a step down and must never be on while times are taken.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gpustudy.base.atomic import atomic_path

LAYOUTS_FILE = "layouts.jsonl.gz"
VOLUME_DIMENSIONS = 5
"""Dimensions of (B, C, D, H, W), the tensors that have a channels-last form here."""

_COPIES = {"clone": "clone", "_to_copy": "to", "copy_": "copy_"}
"""Operators that copy a tensor, and the name of the conversion when the copy has another format."""

FAST_COMPRESSION = 3
"""gzip level: rows repeat so much that a higher one gains little and takes seconds."""

Row = dict[str, Any]


def memory_format(tensor: Tensor) -> str:
    """Return ``contiguous``, ``channels_last_3d``, ``both`` (one channel or one voxel) or ``other``."""
    contiguous = tensor.is_contiguous()
    volume = tensor.dim() == VOLUME_DIMENSIONS
    channels_last = volume and tensor.is_contiguous(memory_format=torch.channels_last_3d)
    if contiguous:
        return "both" if channels_last else "contiguous"
    return "channels_last_3d" if channels_last else "other"


class ModulePath:
    """Knows which module of a model is running, also in backward.

    In forward, hooks keep the stack of running modules. When a module ends, the autograd nodes that it made are
    marked with its name; in backward the node that runs tells the module. PyTorch tells the running node from
    version 2.1 on; before, backward operators have no module.
    """

    def __init__(self, model: nn.Module) -> None:
        self._stack: list[str] = []
        self._of_node: dict[Any, str] = {}
        self._current_node = getattr(torch._C, "_current_autograd_node", None)
        self._handles = []
        for name, module in model.named_modules():
            if name:
                self._handles.append(module.register_forward_pre_hook(self._entered(name)))
                self._handles.append(module.register_forward_hook(self._left))

    def close(self) -> None:
        """Remove the hooks and forget the autograd nodes."""
        for handle in self._handles:
            handle.remove()
        self._of_node.clear()

    def now(self) -> str:
        """Return the path of the running module, or an empty text outside the model."""
        if self._stack:
            return self._stack[-1]
        node = self._current_node() if self._current_node is not None else None
        return self._of_node.get(node, "") if node is not None else ""

    def _entered(self, name: str) -> Any:
        def hook(module: nn.Module, inputs: Sequence[Any]) -> None:
            for value in inputs:  # what came before the module is not its own
                self._mark(value, self._stack[-1] if self._stack else "")
            self._stack.append(name)

        return hook

    def _left(self, module: nn.Module, inputs: Sequence[Any], output: Any) -> None:
        self._mark(output, self._stack.pop())

    def _mark(self, value: Any, name: str) -> None:
        """Give the autograd nodes behind ``value``, back to those that have a name already, this name."""
        pending = [value.grad_fn] if isinstance(value, Tensor) else []
        while pending:
            node = pending.pop()
            if node is not None and node not in self._of_node:
                self._of_node[node] = name
                pending.extend(following for following, _ in node.next_functions)


class LayoutRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Keeps a row for every operator call: phase, module, operator, formats of its tensors, conversion.

    Args:
        path: tells the running module, or None to leave modules out.

    Attributes:
        rows: the calls in order.
        phase: name given to the rows that follow; set it from outside.
    """

    def __init__(self, path: ModulePath | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.rows: list[Row] = []
        self.phase = "other"
        self._path = path

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        inputs = [describe(tensor) for tensor in _tensors((*args, *kwargs.values()))]  # before an in-place operator
        output = func(*args, **kwargs)
        outputs = [describe(tensor) for tensor in _tensors([output])]
        name = func.overloadpacket.__name__
        result = outputs[0] if outputs else None
        self.rows.append(
            {
                "phase": self.phase,
                "module": self._path.now() if self._path is not None else "",
                "op": f"{func.namespace}.{name}",
                "inputs": inputs,
                "output": result,
                "conversion": _conversion(name, inputs, result, kwargs),
            }
        )
        return output


def describe(tensor: Tensor) -> Row:
    """Return shape, dtype and memory format of ``tensor``."""
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "format": memory_format(tensor),
    }


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among ``values``, also those one level down in lists."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, Tensor))


def _conversion(name: str, inputs: list[Row], output: Row | None, kwargs: Mapping[str, Any]) -> str | None:
    """Return what converted the layout, or None when the operator copies nothing or keeps the format."""
    if name not in _COPIES or output is None or not inputs:
        return None
    source = inputs[-1] if name == "copy_" else inputs[0]
    formats = {source["format"], output["format"]}
    if "both" in formats or len(formats) == 1 or len(output["shape"]) != VOLUME_DIMENSIONS:
        return None
    if name == "clone" and kwargs.get("memory_format") not in (None, torch.preserve_format):
        return "contiguous"  # what Tensor.contiguous() and reshape() become
    return _COPIES[name]


@contextmanager
def recorded_layouts(model: nn.Module) -> Iterator[LayoutRecorder]:
    """Record every operator call inside the block; the hooks on ``model`` are removed at its end."""
    path = ModulePath(model)
    recorder = LayoutRecorder(path)
    try:
        with recorder:
            yield recorder
    finally:
        path.close()


def write_layouts(directory: Path, rows: Iterable[Row]) -> None:
    """Write ``layouts.jsonl.gz``: a line per operator call."""
    with (
        atomic_path(directory / LAYOUTS_FILE) as temporary,
        gzip.open(temporary, "wt", encoding="utf-8", compresslevel=FAST_COMPRESSION) as stream,
    ):
        stream.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
