"""TF32 is set through exactly one interface, chosen by what torch has; fake modules stand for old and new ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpustudy.cell.switches import AllowTf32, PerOperator, read_switches, tf32_interface


class OldBackend:
    """Backends of torch 2.0: allow_tf32 alone; any other attribute would be a mistake."""

    __slots__ = ("allow_tf32",)

    def __init__(self, value: bool) -> None:
        self.allow_tf32 = value


class NewOperator:
    __slots__ = ("fp32_precision",)

    def __init__(self, value: str) -> None:
        self.fp32_precision = value


class NewBackend:
    """Backends of torch 2.9 on: touching allow_tf32 after fp32_precision raises, as the real ones do."""

    def __init__(self, **operators: NewOperator) -> None:
        self.__dict__.update(operators)

    @property
    def allow_tf32(self) -> bool:
        raise RuntimeError("mix of the legacy and new APIs")

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        raise RuntimeError("mix of the legacy and new APIs")


def old_torch() -> Any:
    backends = SimpleNamespace(cudnn=OldBackend(True), cuda=SimpleNamespace(matmul=OldBackend(False)))
    return SimpleNamespace(backends=backends)


def new_torch() -> Any:
    cudnn = NewBackend(conv=NewOperator("tf32"), rnn=NewOperator("tf32"))
    return SimpleNamespace(backends=SimpleNamespace(cudnn=cudnn, cuda=SimpleNamespace(matmul=NewOperator("none"))))


def test_old_torch_is_asked_through_allow_tf32() -> None:
    module = old_torch()
    interface = tf32_interface(module)
    assert isinstance(interface, AllowTf32)
    interface.set_tf32(False)
    assert interface.read() == {"cudnn": False, "cuda.matmul": False}
    interface.set_tf32(True)
    assert module.backends.cudnn.allow_tf32 is True
    assert module.backends.cuda.matmul.allow_tf32 is True


def test_new_torch_is_asked_per_operator_and_never_through_the_old_interface() -> None:
    interface = tf32_interface(new_torch())
    assert isinstance(interface, PerOperator)
    interface.set_tf32(False)
    assert set(interface.read().values()) == {"ieee"}
    interface.set_tf32(True)
    assert set(interface.read().values()) == {"tf32"}


@pytest.fixture
def restored() -> Any:
    interface = tf32_interface(torch)
    before = {
        name: (operator, value)
        for (name, value), operator in zip(interface.read().items(), interface._operators.values(), strict=True)
    }
    yield interface
    for operator, value in before.values():
        setattr(operator, interface.interface, value)


def test_the_installed_torch_reads_back_what_was_set(restored: Any) -> None:
    for on in (True, False):
        restored.set_tf32(on)
        assert {value in (True, "tf32") for value in read_switches(torch)["tf32"]["values"].values()} == {on}
