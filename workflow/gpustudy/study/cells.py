"""Cells and their stages: the canonical document behind every key, known before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gpustudy.base.canonical import key_of
from gpustudy.base.errors import UserError
from gpustudy.data.lock import data_key, read_lock
from gpustudy.study.load import ROOT, Effective
from gpustudy.study.mistakes import nearest
from gpustudy.study.models import Gpu, Workload
from gpustudy.study.sources import METRICS_SOURCES, STAGE_SOURCES, digest_of, file_sums, files_of
from gpustudy.study.stacks import CHECKED_PACKAGES, read_pins, stack_key

DOCUMENT_SCHEMA = 1
BYTES_PER_GIB = 2**30

PREVIOUS: Mapping[str, str | None] = {"train": None, "census": "train", "counters": "census", "quality": "train"}
"""Stage -> the stage whose result it starts from, and whose key is in its own."""

_READ_OF_WORKLOAD = {
    "train": ("model", "train"),
    "census": ("model", "train", "census"),
    "quality": ("model", "train", "quality"),
}
"""Stage -> the sections of the workload that it reads; no others are in its key."""


@dataclass(frozen=True, order=True)
class Cell:
    """One (gpu, config, repeat) of the study."""

    gpu: str
    config: str
    repeat: int

    def __str__(self) -> str:
        """Return ``GPU/CONFIG/rN``, as verbs take it."""
        return f"{self.gpu}/{self.config}/r{self.repeat}"


class Keys:
    """Documents and keys of every stage of every cell, as seen from one site."""

    def __init__(self, effective: Effective, root: Path = ROOT) -> None:
        self._study, self._site, self._root = effective.study, effective.site, root
        self._keys: dict[tuple[Cell, str], str] = {}
        self._data_keys: dict[str, str] = {}
        self._stack_keys: dict[str, str] = {}

    @cached_property
    def runnable(self) -> frozenset[str]:
        """The gpus whose cells can run at this site."""
        return frozenset(self._study.sites[self._site].gpus)

    def cells(self) -> Iterator[Cell]:
        """Yield every cell of the study, repeats innermost."""
        for gpu in self._study.gpus:
            for config in self._study.configs:
                for repeat in range(1, self._study.repeats + 1):
                    yield Cell(gpu, config, repeat)

    def stages(self, gpu: str) -> tuple[str, ...]:
        """Return the stages of a gpu's cells, in the order in which they run."""
        return ("train", "census", "quality")

    def require(self, cell: Cell, stage: str | None = None) -> None:
        """Refuse a cell or stage that the study does not have.

        Raises:
            UserError: naming the nearest known one.
        """
        repeats = [str(repeat) for repeat in range(1, self._study.repeats + 1)]
        for kind, word, known in (
            ("gpu", cell.gpu, self._study.gpus),
            ("config", cell.config, self._study.configs),
            ("repeat", str(cell.repeat), repeats),
        ):
            if word not in known:
                raise UserError(f"{cell}: the study has no {kind} '{word}': {nearest(word, known)}")
        if stage is not None and stage not in self.stages(cell.gpu):
            raise UserError(f"{cell}: no stage '{stage}': {nearest(stage, self.stages(cell.gpu))}")

    def data_key(self, name: str) -> str:
        """Return the key of a data set: from its definition and its lock, not from prepared arrays."""
        if name not in self._data_keys:
            definition = self._study.data[name].model_dump(mode="json")
            self._data_keys[name] = data_key(definition, read_lock(name))
        return self._data_keys[name]

    def stage_key(self, cell: Cell, stage: str) -> str:
        """Return the key of one stage of one cell."""
        if (cell, stage) not in self._keys:
            self._keys[cell, stage] = key_of(self.document(cell, stage))
        return self._keys[cell, stage]

    def document(self, cell: Cell, stage: str) -> dict[str, Any]:
        """Return everything that decides the result of one stage of one cell, and nothing else."""
        gpu, config = self._study.gpus[cell.gpu], self._study.configs[cell.config]
        workload = self._study.workloads[gpu.workload]
        previous = PREVIOUS[stage]
        sources = STAGE_SOURCES[stage]
        return {
            "schema": DOCUMENT_SCHEMA,
            "stage": stage,
            "gpu": _gpu_slice(cell.gpu, gpu, config.optimisations),
            "config": config.model_dump(mode="json", exclude={"description"}),
            "repeat": cell.repeat,
            "seed": self._study.seed + cell.repeat,
            "workload": _workload_slice(workload, stage),
            "data": {"name": workload.data, "key": self.data_key(workload.data)},
            "stack": self._stack_slice(cell.gpu),
            "sources": {"digest": digest_of(sources), "files": list(files_of(sources))},
            "previous": {"stage": previous, "key": self.stage_key(cell, previous)} if previous else None,
        }

    def cell_file(self, cell: Cell, stage: str) -> dict[str, Any]:
        """Return what a stage is given as ``cell.json``: key, document, and labels that are in no key."""
        return {
            "key": self.stage_key(cell, stage),
            "labels": {"config": cell.config, "source_files": file_sums(STAGE_SOURCES[stage])},
            "document": self.document(cell, stage),
        }

    def metrics_key(self, raw_key: str, stage: str, replaced_raw: str | None = None) -> str:
        """Return the key of the metrics made from one stage's raw files.

        Args:
            raw_key: key of the raw files.
            stage: name of the stage.
            replaced_raw: SHA-256 of the raw status file, where raw files were replaced under the same key.
        """
        document = {"raw": raw_key, "sources": digest_of(METRICS_SOURCES[stage])}
        return key_of(document | ({"replaced_raw": replaced_raw} if replaced_raw else {}))

    def _stack_slice(self, gpu: str) -> dict[str, Any]:
        name = self._study.gpus[gpu].stack
        stack = self._study.stacks[name]
        if gpu not in self._stack_keys:
            self._stack_keys[gpu] = stack_key(stack, self._root, self._runs_in_container(gpu))
        pins = read_pins(self._root / stack.pins)
        checked = {package: pins[package] for package in CHECKED_PACKAGES if package in pins}
        return {"name": name, "key": self._stack_keys[gpu], "pins": checked}

    def _runs_in_container(self, gpu: str) -> bool:
        """Tell whether a gpu's cells run in a container: here, else at the first site that lists the gpu."""
        sites = [self._study.sites[self._site], *self._study.sites.values()]
        runtime = next((site.runtime for site in sites if gpu in site.gpus), "apptainer")
        return runtime != "none"


def _gpu_slice(name: str, gpu: Gpu, optimisations: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "device": gpu.device,
        "architecture": gpu.architecture,
        "device_name": gpu.device_name,
        "threads": gpu.threads,
        "null_control": [name for name in optimisations if name in gpu.null_control],
        "memory_bytes": None if gpu.memory_gib is None else int(gpu.memory_gib * BYTES_PER_GIB),
    }


def _workload_slice(workload: Workload, stage: str) -> dict[str, Any]:
    return workload.model_dump(mode="json", include=set(_READ_OF_WORKLOAD[stage]))
