"""A stand-in nvidia-smi: its recorded outputs for machines of several kinds, as a runner and as a program on PATH."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpustudy.launch.tools import ASK_TIMEOUT_S, Answer

UUIDS = tuple(f"GPU-{digit * 8}-2222-3333-4444-555555555555" for digit in "abcd")
INSTANCES = tuple(f"MIG-{digit * 8}-6666-7777-8888-999999999999" for digit in "12")

V100 = "Tesla V100-SXM2-32GB"
A100 = "NVIDIA A100-SXM4-40GB"
H100 = "NVIDIA H100 96GB HBM3"
MEMORY_MIB = {V100: 32768, A100: 40960, H100: 97871}


def listing(*names: str, mig: str = "Disabled", memory_mib: int | None = None) -> str:
    """What the query of ``devices`` gives on a machine with GPUs of these names."""
    rows = (
        f"{index}, {UUIDS[index]}, {name}, {mig}, {memory_mib or MEMORY_MIB[name]}, 550.54.15"
        for index, name in enumerate(names)
    )
    return "".join(f"{row}\n" for row in rows)


MIG_LIST = f"""GPU 0: {A100} (UUID: {UUIDS[0]})
  MIG 3g.20gb     Device  0: (UUID: {INSTANCES[0]})
  MIG 3g.20gb     Device  1: (UUID: {INSTANCES[1]})
"""
"""``nvidia-smi -L`` where MIG has divided an A100 in two."""


class Recorded:
    """Gives recorded answers by the beginning of the command line; a command without one is not on PATH."""

    def __init__(self, answers: Mapping[str, str | Answer]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []

    def __call__(self, command: Sequence[str], timeout_s: float = ASK_TIMEOUT_S) -> Answer:
        line = " ".join(command)
        self.asked.append(line)
        fitting = [start for start in self.answers if line.startswith(start)]
        if not fitting:
            return Answer(127, err=f"{command[0]} is not on PATH")
        answer = self.answers[max(fitting, key=len)]
        return answer if isinstance(answer, Answer) else Answer(0, answer)


def machine(*names: str, **more: str) -> Recorded:
    """A runner on a machine with GPUs of these names."""
    return Recorded({"nvidia-smi --query-gpu": listing(*names, **more), "nvidia-smi -L": MIG_LIST})


def install(folder: Path, *names: str) -> None:
    """Write a program ``nvidia-smi`` into ``folder`` that lists GPUs of these names."""
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{listing(*names)}END\n")
    program.chmod(0o755)
