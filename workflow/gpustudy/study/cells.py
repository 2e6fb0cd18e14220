"""Cells and their stages: the canonical document behind every key, known before anything runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gpustudy.base.canonical import KEY_HEX_DIGITS, canonical_json, key_of
from gpustudy.base.errors import UserError
from gpustudy.base.status import STATUS_FILE
from gpustudy.base.words import nearest
from gpustudy.data.lock import data_key, read_lock
from gpustudy.metrics.requested import requested_metrics
from gpustudy.study.acceptances import Acceptance, Acceptances, read_acceptances
from gpustudy.study.load import ROOT, Effective
from gpustudy.study.models import Gpu, Workload
from gpustudy.study.paths import CELLS, METRICS, METRICS_FILE, cell_directory, stage_directory
from gpustudy.study.sources import METRICS_SOURCES, STAGE_SOURCES, digest_of, file_sums, files_of
from gpustudy.study.stacks import CHECKED_PACKAGES, read_pins, stack_key

DOCUMENT_SCHEMA = 1
BYTES_PER_GIB = 2**30

PREVIOUS: Mapping[str, str | None] = {"train": None, "census": "train", "counters": "census", "quality": "train"}
"""Stage -> the stage whose result it starts from, and whose key is in its own."""

MEASURING_STAGES = ("train", "census", "counters")
"""Stages whose result holds times: they have their device to themselves."""

_READ_OF_WORKLOAD = {
    "train": ("model", "train"),
    "census": ("model", "train", "census"),
    "counters": ("model", "train", "counters"),
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
    """Documents and keys of every stage of every cell, as seen from one site.

    Args:
        effective: the study, the site and the folder of results.
        root: the root of the checkout.
        acceptances: results accepted in spite of another key; None reads those of the results folder.
    """

    def __init__(self, effective: Effective, root: Path = ROOT, acceptances: Acceptances | None = None) -> None:
        self._study, self._site, self._root = effective.study, effective.site, root
        self._results = effective.results
        self.acceptances = read_acceptances(effective.results) if acceptances is None else acceptances
        self._keys: dict[tuple[Cell, str], str] = {}
        self._parts: dict[tuple[str, str, str], dict[str, str]] = {}
        self._metrics_keys: dict[tuple[str, str, str | None], str] = {}
        self._data_keys: dict[str, str] = {}
        self._stack_keys: dict[str, str] = {}
        self._image_keys: dict[str, str] = {}

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
        has_counters = self._study.gpus[gpu].device == "cuda"
        return ("train", "census", "counters", "quality") if has_counters else ("train", "census", "quality")

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

    def image_key(self, stack: str) -> str:
        """Return the key of a stack as it is in a container, known before any image is built."""
        if stack not in self._image_keys:
            self._image_keys[stack] = stack_key(self._study.stacks[stack], self._root, in_container=True)
        return self._image_keys[stack]

    def stage_key(self, cell: Cell, stage: str) -> str:
        """Return the key under which the result of one stage of one cell is current.

        It is the key of the present document; where an older result was accepted for it, the key of that one.
        """
        if (cell, stage) not in self._keys:
            accepted = self.acceptance(cell, stage)
            self._keys[cell, stage] = accepted.old if accepted else self.document_key(cell, stage)
        return self._keys[cell, stage]

    def document_key(self, cell: Cell, stage: str) -> str:
        """Return ``key_of(document(cell, stage))``, put together from parts that repeats share."""
        parts = self._constant_parts(cell, stage) | {
            name: str(value) if type(value) is int else canonical_json(value)
            for name, value in self._varying(cell, stage).items()
        }
        text = ",".join([f'"{name}":{parts[name]}' for name in sorted(parts)])
        return hashlib.sha256(f"{{{text}}}".encode()).hexdigest()[:KEY_HEX_DIGITS]

    def acceptance(self, cell: Cell, stage: str) -> Acceptance | None:
        """Return the record by which an older result stands for one stage of one cell; None where none does."""
        if not self.acceptances.records:
            return None
        fresh = self.document_key(cell, stage)
        found = self.acceptances.of(cell.gpu, cell.config, cell.repeat, stage, fresh, tables=False)
        if self._is_here(cell, stage, fresh):
            return None
        return next((record for record in found if self._is_here(cell, stage, record.old)), None)

    def document(self, cell: Cell, stage: str) -> dict[str, Any]:
        """Return everything that decides the result of one stage of one cell, and nothing else."""
        return self._constant(cell.gpu, cell.config, stage) | self._varying(cell, stage)

    def _constant(self, gpu_name: str, config_name: str, stage: str) -> dict[str, Any]:
        """Return what the documents of all repeats share."""
        gpu, config = self._study.gpus[gpu_name], self._study.configs[config_name]
        workload = self._study.workloads[gpu.workload]
        sources = STAGE_SOURCES[stage]
        return {
            "schema": DOCUMENT_SCHEMA,
            "stage": stage,
            "gpu": _gpu_slice(gpu_name, gpu, config.optimisations),
            "config": config.model_dump(mode="json", exclude={"description"}),
            "workload": _workload_slice(workload, stage, gpu.architecture),
            "data": {"name": workload.data, "key": self.data_key(workload.data)},
            "stack": self._stack_slice(gpu_name),
            "sources": {"digest": digest_of(sources), "files": list(files_of(sources))},
        }

    def _varying(self, cell: Cell, stage: str) -> dict[str, Any]:
        """Return what the documents of repeats differ in."""
        previous = PREVIOUS[stage]
        return {
            "repeat": cell.repeat,
            "seed": self._study.seed + cell.repeat,
            "previous": {"stage": previous, "key": self.stage_key(cell, previous)} if previous else None,
        }

    def _constant_parts(self, cell: Cell, stage: str) -> dict[str, str]:
        """Return the canonical JSON of each shared field: making it anew for every repeat would take seconds."""
        place = (cell.gpu, cell.config, stage)
        if place not in self._parts:
            constant = self._constant(*place)
            self._parts[place] = {name: canonical_json(value) for name, value in constant.items()}
        return self._parts[place]

    def _is_here(self, cell: Cell, stage: str, key: str) -> bool:
        """Tell whether a result of a key is in the results folder: its raw files, or its tables alone."""
        where = (cell.gpu, cell.config, cell.repeat)
        if (stage_directory(self._results, CELLS, *where, stage, key) / STATUS_FILE).is_file():
            return True
        tables = cell_directory(self._results, METRICS, *where).glob(f"{stage}-*/{METRICS_FILE}")
        return any(made_from(path) == key for path in tables)

    def cell_file(self, cell: Cell, stage: str) -> dict[str, Any]:
        """Return what a stage is given as ``cell.json``: key, document, and labels that are in no key."""
        return {
            "key": self.document_key(cell, stage),
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
        place = (raw_key, stage, replaced_raw)
        if place not in self._metrics_keys:
            document = {"raw": raw_key, "sources": digest_of(METRICS_SOURCES[stage])}
            self._metrics_keys[place] = key_of(document | ({"replaced_raw": replaced_raw} if replaced_raw else {}))
        return self._metrics_keys[place]

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


def _workload_slice(workload: Workload, stage: str, architecture: str) -> dict[str, Any]:
    sections: dict[str, Any] = workload.model_dump(mode="json", include=set(_READ_OF_WORKLOAD[stage]))
    if stage == "counters" and workload.counters.metrics == "catalogue":
        sections["counters"]["metrics"] = requested_metrics(architecture)
    return sections


def made_from(metrics_file: Path) -> str | None:
    """Return the key of the raw files that tables were made from; None where the file does not say."""
    try:
        content = json.loads(metrics_file.read_bytes())
    except (OSError, ValueError):
        return None
    return content.get("key") if isinstance(content, dict) else None
