"""Relations between the sections of a config that no single field can check."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpustudy.analysis.names import DOCUMENTS, FIGURES, TABLES
from gpustudy.base.errors import UserError
from gpustudy.base.words import nearest
from gpustudy.cell.optimisation_names import OPTIMISATIONS, incompatible_pair
from gpustudy.data.definitions import image_channels, mask_channels, resolve
from gpustudy.study.mistakes import Location, dotted
from gpustudy.study.models import Study, Workload

SIDE_MULTIPLE = 16
"""Every side of a volume must divide by 16, so that each published variant can halve it level by level."""

MOST_CELLS = 30_000
"""Most cells of a study: three times the ten thousand that planning, keys and archives are made for."""

RULES = (
    "all",
    "figures",
    "tables",
    "report",
    "prepare_data",
    "make_metrics",
    "write_report",
    "write_evidence",
    "write_appendix",
    "images",
    "build_image",
)
"""Names of Snakemake rules, which no gpu or config may take."""


class RelationError(UserError):
    """An impossible relation; ``location`` is its path in the config."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(message)
        self.location = location


def check(study: Study, root: Path) -> None:
    """Check all relations of ``study``.

    Args:
        study: the validated config.
        root: the root of the checkout, whose folder names are no names for gpus or configs.

    Raises:
        RelationError: the first impossible relation.
    """
    for location, message in _found(study, root):
        raise RelationError(location, message)


def _found(study: Study, root: Path) -> Iterator[tuple[Location, str]]:
    yield from _unknown_references(study)
    yield from _impossible_configs(study)
    yield from _impossible_workloads(study)
    yield from _impossible_gpus(study)
    yield from _impossible_stacks(study)
    yield from _impossible_sites(study)
    yield from _clashing_names(study, root)
    yield from _too_many_cells(study)


def _too_many_cells(study: Study) -> Iterator[tuple[Location, str]]:
    """Yield the product of gpus, configs and repeats where no plan of it would end."""
    counts = {"gpus": len(study.gpus), "configs": len(study.configs), "repeats": study.repeats}
    cells = math.prod(counts.values())
    if cells > MOST_CELLS:
        product = " x ".join(f"{number} {name}" for name, number in counts.items())
        yield ("repeats",), f"{product} are {cells} cells, above the limit of {MOST_CELLS}: take fewer of them."


def _unknown_references(study: Study) -> Iterator[tuple[Location, str]]:
    """Yield references to names that no section defines."""
    references: list[tuple[Location, str, str, Iterable[str]]] = []
    for name, gpu in study.gpus.items():
        references.append((("gpus", name, "workload"), gpu.workload, "workload", study.workloads))
        references.append((("gpus", name, "stack"), gpu.stack, "stack", study.stacks))
        for index, optimisation in enumerate(gpu.null_control):
            references.append((("gpus", name, "null_control", index), optimisation, "optimisation", OPTIMISATIONS))
    for name, site in study.sites.items():
        for index, gpu_name in enumerate(site.gpus):
            references.append((("sites", name, "gpus", index), gpu_name, "gpu", study.gpus))
    for name, config in study.configs.items():
        for index, optimisation in enumerate(config.optimisations):
            references.append((("configs", name, "optimisations", index), optimisation, "optimisation", OPTIMISATIONS))
    for name, workload in study.workloads.items():
        references.append((("workloads", name, "data"), workload.data, "data set", study.data))
    for location, word, kind, known in references:
        if word not in known:
            yield location, f"unknown {kind} '{word}': {nearest(word, known)}"


def _impossible_configs(study: Study) -> Iterator[tuple[Location, str]]:
    for name, config in study.configs.items():
        names = config.optimisations
        if len(set(names)) < len(names):
            yield ("configs", name, "optimisations"), f"an optimisation is named twice in {names}: name it once."
        if (why := incompatible_pair(names)) is not None:
            yield ("configs", name, "optimisations"), f"{why}: keep one."
        if "cast_once" in names and not {"bf16", "fp16"} & set(names):
            yield (
                ("configs", name, "optimisations"),
                "'cast_once' has no lower precision to cast to: add 'bf16' or 'fp16', or take it out.",
            )


def _impossible_workloads(study: Study) -> Iterator[tuple[Location, str]]:
    for name, workload in study.workloads.items():
        yield from _impossible_volume(study, name, workload)
        if workload.quality.ddim_steps > workload.train.timesteps:
            yield (
                ("workloads", name, "quality", "ddim_steps"),
                f"ddim_steps is {workload.quality.ddim_steps}, but train.timesteps is {workload.train.timesteps}: "
                "sample in at most as many steps.",
            )
        levels = len(workload.model.channel_mult)
        factors = [2**level for level in range(levels)]
        for index, factor in enumerate(workload.model.attention_downsamples):
            if factor not in factors:
                yield (
                    ("workloads", name, "model", "attention_downsamples", index),
                    f"no level is downsampled by {factor}: a U-Net of {levels} levels has {factors}.",
                )


def _impossible_volume(study: Study, name: str, workload: Workload) -> Iterator[tuple[Location, str]]:
    volume = workload.model.volume
    for index, side in enumerate(volume):
        if side % SIDE_MULTIPLE:
            nearest_side = max(SIDE_MULTIPLE, SIDE_MULTIPLE * math.floor(side / SIDE_MULTIPLE + 0.5))
            yield (
                ("workloads", name, "model", "volume", index),
                f"side {side} is not divisible by {SIDE_MULTIPLE}: take {nearest_side}.",
            )
    if workload.data in study.data and study.data[workload.data].volume != volume:
        yield (
            ("workloads", name, "model", "volume"),
            f"the volume is {volume}, but data set '{workload.data}' gives {study.data[workload.data].volume}: "
            "make them equal.",
        )
    if workload.data in study.data:
        yield from _impossible_channels(study, name, workload)


def _impossible_channels(study: Study, name: str, workload: Workload) -> Iterator[tuple[Location, str]]:
    """Yield channel counts that the data set does not give; label maps may decide later how many masks there are."""
    definition = resolve(workload.data, study.data[workload.data].model_dump(mode="json"))
    given = {"image_channels": image_channels(definition), "mask_channels": mask_channels(definition)}
    for field, channels in given.items():
        wanted = getattr(workload.model, field)
        if channels is not None and len(channels) != wanted:
            yield (
                ("workloads", name, "model", field),
                f"{field} is {wanted}, but data set '{workload.data}' gives {len(channels)} ({', '.join(channels)}): "
                "make them equal.",
            )


def _impossible_gpus(study: Study) -> Iterator[tuple[Location, str]]:
    for name, gpu in study.gpus.items():
        if (gpu.device == "cpu") != (gpu.architecture == "cpu"):
            yield (
                ("gpus", name, "architecture"),
                f"architecture '{gpu.architecture}' does not go with device '{gpu.device}': "
                "cpu goes with cpu, sm_NN with cuda.",
            )
        if (gpu.device == "cpu") != (gpu.threads is not None):
            yield ("gpus", name, "threads"), "threads are stated for a cpu, and for a cpu alone: add or remove them."


def _impossible_stacks(study: Study) -> Iterator[tuple[Location, str]]:
    """Yield gpus whose stack has no kernels for them, with the reason, and reasons for gaps that are none."""
    for name, stack in study.stacks.items():
        for architecture in stack.gaps:
            if stack.runs(architecture):
                yield ("stacks", name, "gaps", architecture), f"stack '{name}' runs {architecture}: take the gap out."
    for name, gpu in study.gpus.items():
        stack = study.stacks[gpu.stack]
        if not stack.runs(gpu.architecture):
            why = stack.gaps.get(gpu.architecture, f"its torch has kernels for {', '.join(stack.architectures)}")
            others = [other for other, known in study.stacks.items() if known.runs(gpu.architecture)]
            todo = f"take stack {' or '.join(others)}" if others else "describe a stack that does"
            yield ("gpus", name, "stack"), f"stack '{gpu.stack}' does not run {gpu.architecture} ({why}): {todo}."


def _impossible_sites(study: Study) -> Iterator[tuple[Location, str]]:
    for name, site in study.sites.items():
        if (site.executor == "slurm") != (site.slurm is not None):
            yield (
                ("sites", name, "slurm"),
                f"executor '{site.executor}' {'needs' if site.executor == 'slurm' else 'takes no'} section 'slurm': "
                "it says how Slurm is asked, so add or remove it, or change the executor.",
            )
        rate = site.rate
        if rate is not None and (rate.per_gpu_hour is None) == (rate.per_node_hour is None):
            yield (
                ("sites", name, "rate"),
                "a site charges per GPU or per node: give per_gpu_hour or per_node_hour, one.",
            )


def _clashing_names(study: Study, root: Path) -> Iterator[tuple[Location, str]]:
    """Yield gpus and configs whose name is taken: both are Snakemake targets at the root of the checkout."""
    taken = dict.fromkeys(RULES, "a rule of the workflow")
    taken |= dict.fromkeys(FIGURES, "a figure") | dict.fromkeys(TABLES, "a table")
    taken |= dict.fromkeys(DOCUMENTS, "a document")
    for kind, names in (("gpu", study.gpus), ("config", study.configs)):
        for name in names:
            section = f"{kind}s"
            if name in taken:
                yield (section, name), f"{kind} '{name}' is named like {taken[name]}: choose another name."
            if (root / name).exists():
                yield (section, name), f"{kind} '{name}' is named like a folder at the root: choose another name."
            taken[name] = f"a {kind}"


def sentence(error: RelationError, file: Path) -> UserError:
    """Return ``error`` as a sentence with its file and path."""
    return UserError(f"{file}: '{dotted(error.location)}': {error}")
