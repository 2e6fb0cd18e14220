"""What the cells of a study ask of the site that runs them, in the form that Snakemake's rules take.

Stages say what they need (one GPU of a kind, minutes, memory: ``estimate``); the site says how that is asked for
(``sites`` in config.yaml). All stages of a cell ask for the same place, as they run in one job, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Protocol

from gpustudy.base.errors import UserError
from gpustudy.launch.estimate import StageEstimate, estimate_stage
from gpustudy.launch.own import own_site
from gpustudy.study.cells import MEASURING_STAGES, Cell, Keys
from gpustudy.study.load import Effective

_IMAGE_MINUTES = 120
"""For fetching some GB, installing them and compressing the result. Assumption: no site has been timed."""
_IMAGE_MEMORY_GIB = 8
"""Assumption: pip and mksquashfs, which takes a quarter of a machine's memory by default, work in less too."""
MIB_PER_GIB = 1024

_ALL_CORES = 10_000
"""More than any machine has: Snakemake cuts a job's threads to the cores of the run."""


class CellWildcards(Protocol):
    """The wildcard of a cell's rules that decides what it asks for."""

    gpu: str


Resource = Callable[[CellWildcards, int], int | str] | int | str
"""A value of a rule's ``resources``: fixed, or a function of wildcards and attempt."""


class Requests:
    """What each stage asks for at one site.

    Args:
        effective: the study as seen from the site.
        in_job: this is the Snakemake inside a job of Slurm, which tries nothing again: the job's own run does.
    """

    def __init__(self, effective: Effective, in_job: bool = False) -> None:
        self._in_job = in_job
        self._study, self._name = effective.study, effective.site
        self._site = effective.study.sites[effective.site]
        self._keys = Keys(effective)
        self._estimates: dict[tuple[str, str], StageEstimate] = {}

    @property
    def is_slurm(self) -> bool:
        """Whether jobs are started by Slurm."""
        return self._site.executor == "slurm"

    @property
    def retries(self) -> int:
        """How often a cell is tried again after a failure of the place."""
        return 0 if self._in_job else self._site.retries

    @property
    def group(self) -> str | None:
        """The group of a cell's stages: Slurm runs it in one job. None where no jobs are started."""
        return "{gpu}-{config}-r{repeat}" if self.is_slurm else None

    @cached_property
    def account(self) -> str:
        """The account that is charged; empty where none is set, which a run refuses before it submits anything."""
        return own_site(self._study, self._name).account or ""

    def estimate(self, gpu: str, stage: str) -> StageEstimate:
        """Return the estimate of one stage of a gpu's cells."""
        if (gpu, stage) not in self._estimates:
            self._estimates[gpu, stage] = estimate_stage(self._study, self._site, gpu, stage)
        return self._estimates[gpu, stage]

    def resources(self, stage: str) -> dict[str, Resource]:
        """Return the ``resources`` of the rule of one stage.

        ``gpu`` and ``mem_mb`` count against the limits of a local run; the rest is for Slurm alone.
        """
        asked: dict[str, Resource] = {
            "gpu": lambda wildcards, attempt: self.gpus(wildcards.gpu),
            "mem_mb": lambda wildcards, attempt: self.memory_mb(wildcards.gpu, stage, attempt),
            "runtime": lambda wildcards, attempt: self.minutes(wildcards.gpu, stage, attempt),
        }
        slurm = self._site.slurm
        if slurm is None:
            return asked
        asked["cpus_per_task"] = lambda wildcards, attempt: self.cores(wildcards.gpu)
        asked["gpu_model"] = lambda wildcards, attempt: (
            slurm.gpu_models.get(wildcards.gpu, "") if self.gpus(wildcards.gpu) else ""
        )
        asked["slurm_partition"] = slurm.partition
        asked["slurm_extra"] = slurm.extra
        asked["slurm_account"] = lambda wildcards, attempt: self.account
        return asked if slurm.nodes is None else asked | {"nodes": slurm.nodes}

    def image_resources(self) -> dict[str, Resource]:
        """Return the ``resources`` of the rule that builds an image: a job like that of a cell.

        Login nodes are no place for it: some have no container runtime, and all are shared. A partition of GPUs takes
        only jobs that ask for one.
        """
        gpus = self._site.gpus
        gpu = next((name for name in gpus if self._study.gpus[name].device == "cuda"), gpus[0] if gpus else None)
        slurm = self._site.slurm
        if slurm is None or gpu is None:
            return {"runtime": _IMAGE_MINUTES}
        asked: dict[str, Resource] = {
            "gpu": self.gpus(gpu),
            "mem_mb": _IMAGE_MEMORY_GIB * MIB_PER_GIB if slurm.sends_memory else 0,
            "runtime": min(_IMAGE_MINUTES, slurm.max_minutes),
            "cpus_per_task": self.cores(gpu),
            "slurm_partition": slurm.partition,
            "slurm_extra": slurm.extra,
            "slurm_account": lambda wildcards, attempt: self.account,
        }
        return asked if slurm.nodes is None else asked | {"nodes": slurm.nodes}

    def threads(self, stage: str) -> Callable[[CellWildcards], int]:
        """Return the ``threads`` of a stage's rule: here, all cores where it measures on the CPU, to be alone."""

        def threads(wildcards: CellWildcards) -> int:
            if self._site.executor == "slurm":
                return self.cores(wildcards.gpu)
            is_alone = stage in MEASURING_STAGES and self._study.gpus[wildcards.gpu].device == "cpu"
            return _ALL_CORES if is_alone else 1

        return threads

    def gpus(self, gpu: str) -> int:
        """Return how many GPUs a cell names in its request: none on a CPU, and none where nodes are whole."""
        slurm = self._site.slurm
        return int(self._study.gpus[gpu].device == "cuda" and (slurm is None or slurm.gpus_by == "gpus"))

    def cores(self, gpu: str) -> int:
        """Return the cores that a cell asks for: the share of a GPU, or its threads on a CPU."""
        described = self._study.gpus[gpu]
        return (described.threads if described.device == "cpu" else self._site.cpus_per_gpu) or 1

    def memory_mb(self, gpu: str, stage: str, attempt: int = 1) -> int:
        """Return the MiB of host memory to ask for: more at each attempt, a GPU's share at most; 0 asks for none."""
        if self._site.slurm is not None and not self._site.slurm.sends_memory:
            return 0
        needed = self.estimate(gpu, stage).memory_gib_asked
        share = self._site.memory_per_gpu_gib
        growing = needed * attempt
        return round((growing if share is None else max(needed, min(growing, share))) * MIB_PER_GIB)

    def minutes(self, gpu: str, stage: str, attempt: int = 1) -> int:
        """Return the minutes to ask for: more at each attempt, while all stages of the cell fit the longest job."""
        asked = self.estimate(gpu, stage).minutes_asked
        limit = self._site.slurm.max_minutes if self._site.slurm else None
        whole = sum(self.estimate(gpu, name).minutes_asked for name in self._keys.stages(gpu))
        factor = attempt if limit is None else max(1.0, min(attempt, limit / whole))
        return int(asked * factor)

    def check(self, pending: Iterable[tuple[Cell, list[str]]], limits: Mapping[str, int]) -> None:
        """Refuse cells that ask for more than the site, or this run, grants: Snakemake and Slurm would not say so.

        Args:
            pending: the cells that would run, each with its stages that are not current.
            limits: upper limits of this run by resource (``--resources``), which Snakemake cuts requests to.

        Raises:
            UserError: naming the first cell, what it needs and what is granted.
        """
        for cell, stages in pending:
            self._check_limits(cell, stages, limits)
            self._check_site(cell, stages)

    def _check_site(self, cell: Cell, stages: list[str]) -> None:
        share, slurm = self._site.memory_per_gpu_gib, self._site.slurm
        memory = max(self.estimate(cell.gpu, stage).memory_gib_asked for stage in stages)
        if share is not None and memory > share:
            raise UserError(
                f"{cell} needs about {memory} GiB of host memory (modelled), site {self._name} grants {share:g} GiB "
                "with one GPU: take a smaller volume or model, or correct 'memory_per_gpu_gib' of the site."
            )
        minutes = sum(self.estimate(cell.gpu, stage).minutes_asked for stage in stages)
        if slurm is not None and minutes > slurm.max_minutes:
            raise UserError(
                f"{cell} needs about {minutes} minutes (modelled, {', '.join(stages)}), partition {slurm.partition} of "
                f"site {self._name} grants {slurm.max_minutes}: take fewer iterations or samples, or another partition."
            )

    def _check_limits(self, cell: Cell, stages: list[str], limits: Mapping[str, int]) -> None:
        asked = {
            "gpu": self.gpus(cell.gpu),
            "mem_mb": max(self.memory_mb(cell.gpu, stage) for stage in stages),
        }
        for resource, amount in asked.items():
            if resource in limits and amount > limits[resource]:
                raise UserError(
                    f"{cell} needs {resource}={amount}, this run is limited to {resource}={limits[resource]}: raise "
                    "the limit ('resources' of the profile, or --resources), or choose other targets."
                )
