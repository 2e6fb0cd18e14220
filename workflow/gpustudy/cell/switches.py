"""The global switches of PyTorch that a config decides: TF32 through exactly one interface, cuDNN's autotuning.

Two interfaces to TF32 exist and mixing them raises: ``fp32_precision`` per operator (from torch 2.9 on) and
``allow_tf32`` before. Which one is decided by what the module has, never by its version.
Documentation: "TF32 on Ampere devices" in PyTorch's notes on CUDA semantics.
"""

from __future__ import annotations

from typing import Any


class PerOperator:
    """TF32 through ``fp32_precision``: convolutions, recurrent layers and matrix products each have their own."""

    interface = "fp32_precision"

    def __init__(self, torch_module: Any) -> None:
        backends = torch_module.backends
        self._operators = {
            "cudnn.conv": backends.cudnn.conv,
            "cudnn.rnn": backends.cudnn.rnn,  # set alike: torch refuses to read cudnn.allow_tf32 where they differ
            "cuda.matmul": backends.cuda.matmul,
        }

    def set_tf32(self, on: bool) -> None:
        """Turn TF32 on or off for every operator."""
        for operator in self._operators.values():
            operator.fp32_precision = "tf32" if on else "ieee"

    def read(self) -> dict[str, Any]:
        """Return the effective precision of each operator: ``tf32``, ``ieee`` or ``none`` (the default)."""
        return {name: operator.fp32_precision for name, operator in self._operators.items()}


class AllowTf32:
    """TF32 through ``allow_tf32`` of cuDNN and of matrix products."""

    interface = "allow_tf32"

    def __init__(self, torch_module: Any) -> None:
        backends = torch_module.backends
        self._operators = {"cudnn": backends.cudnn, "cuda.matmul": backends.cuda.matmul}

    def set_tf32(self, on: bool) -> None:
        """Turn TF32 on or off for cuDNN and matrix products."""
        for operator in self._operators.values():
            operator.allow_tf32 = on

    def read(self) -> dict[str, Any]:
        """Return whether cuDNN and matrix products may use TF32."""
        return {name: operator.allow_tf32 for name, operator in self._operators.items()}


def tf32_interface(torch_module: Any) -> PerOperator | AllowTf32:
    """Return the one interface to TF32 that this torch has."""
    backends = torch_module.backends
    per_operator = hasattr(getattr(backends.cudnn, "conv", None), "fp32_precision")
    return PerOperator(torch_module) if per_operator else AllowTf32(torch_module)


def read_switches(torch_module: Any) -> dict[str, Any]:
    """Return the effective values of every global switch that bears on speed or numerics."""
    interface = tf32_interface(torch_module)
    backends = torch_module.backends
    return {
        "tf32": {"interface": interface.interface, "values": interface.read()},
        "cudnn.enabled": backends.cudnn.enabled,
        "cudnn.benchmark": backends.cudnn.benchmark,
        "cudnn.deterministic": backends.cudnn.deterministic,
        "deterministic_algorithms": torch_module.are_deterministic_algorithms_enabled(),
        "reduced_precision_reduction": {
            "fp16": backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
            "bf16": backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        },
        "threads": torch_module.get_num_threads(),
    }
