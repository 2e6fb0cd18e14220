"""The models behind ``config.yaml``: every section typed, every field described, unknown keys refused.

Field descriptions are the comments of the generated default ``config.yaml`` (see ``render``). Relations
between sections are checked in ``relations``.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
"""Names of gpus and configs: they become Snakemake targets and folder names."""
SiteName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
"""Names of sites: they are names of profiles too."""
Architecture = Annotated[str, Field(pattern=r"^(sm_\d{2,3}|cpu)$")]
DataName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
_MOST = 2**31 - 1
"""Largest count or seed: what torch and numpy take everywhere."""
_MOST_MEMORY_GIB = 2**20
Positive = Annotated[int, Field(ge=1, le=_MOST)]
NotNegative = Annotated[int, Field(ge=0, le=_MOST)]
Volume = Annotated[list[Positive], Field(min_length=3, max_length=3)]


def _number(value: object) -> object:
    """Read ``1e-5`` as YAML 1.2 does: PyYAML follows 1.1 and gives a string where the dot is missing."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+[eE][-+]?\d+", value):
        return float(value)
    return value


Number = Annotated[float, BeforeValidator(_number)]


class Section(BaseModel):
    """A section of the config: unknown keys and wrong types are refused, values are fixed once read."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Gpu(Section):
    """A processor that the study measures."""

    description: str = Field("", description="For people; in no key.")
    device: Literal["cuda", "cpu"] = Field("cuda", description="PyTorch's device type.")
    architecture: Architecture = Field(description="NVIDIA's compute capability as sm_NN, or cpu.")
    device_name: str = Field(
        "", description="Text that the device's own name must contain, so that no cell runs on another GPU."
    )
    memory_gib: Number | None = Field(
        None,
        gt=0,
        le=_MOST_MEMORY_GIB,
        description="Device memory in GiB; a workload estimated above it is refused before it starts.",
    )
    threads: Positive | None = Field(
        None, description="CPU only: PyTorch's intra-op threads. Part of the key, as it decides the time."
    )
    workload: Name = Field(description="Which workload this gpu's cells run.")
    stack: Name = Field(description="Which software stack this gpu's cells run in.")
    null_control: list[Name] = Field(
        [],
        description="Optimisations this device cannot apply but whose cells are run without them, as a null control.",
    )


class Slurm(Section):
    """How a site's Slurm is asked for one cell, and what it grants."""

    partition: str = Field(description="Partition that cells run in.")
    gpus_by: Literal["gpus", "node"] = Field(
        "gpus", description="How a GPU is asked for: gpus: --gpus=1; node: never by name, jobs get whole nodes."
    )
    gpu_models: dict[Name, str] = Field(
        {}, description="Gpus that are asked for by a name of Slurm's here (--gpus=NAME:1); others by number alone."
    )
    nodes: Positive | None = Field(
        1, description="Nodes to name in a job (--nodes); null leaves the option out. A cell uses one."
    )
    sends_memory: bool = Field(True, description="Whether memory is asked for (--mem); some sites reject the option.")
    extra: str = Field(
        "", description="More options of sbatch, as one text; such as a reservation or a quality of service."
    )
    max_minutes: Positive = Field(description="Longest job of the partition; a cell that needs more is refused here.")
    max_running: Positive = Field(description="Jobs of one user that run at once.")
    max_queued: Positive = Field(description="Jobs of one user that are queued or running; the profile's 'jobs'.")


class Rate(Section):
    """What a site charges: one of the two rates, and the least that a job costs."""

    unit: str = Field("SU", description="Name of the site's unit.")
    per_gpu_hour: Number | None = Field(None, gt=0, description="Units per hour of one GPU.")
    per_node_hour: Number | None = Field(None, gt=0, description="Units per hour of a whole node or machine.")
    minimum_units: Number = Field(0, ge=0, description="Least units that a job is charged.")
    minimum_minutes: NotNegative = Field(0, description="Least minutes that a job is charged.")
    source: str = Field(description="Where the rate is published.")
    date: str = Field(pattern=r"^\d{4}-\d{2}$", description="Month in which it was read there.")


class Site(Section):
    """A place where jobs run. It alone says which gpus it has, and how they are asked for. In no key."""

    description: str = Field("", description="For people; in no key.")
    gpus: list[Name] = Field(description="The gpus whose cells can run here; cells of all others are foreign.")
    executor: Literal["local", "slurm"] = Field(description="How jobs are started: on this machine, or by Slurm.")
    runtime: Literal["none", "apptainer", "docker"] = Field(
        description="Container runtime of a cell's stages; none: the pinned packages of this environment."
    )
    gpus_per_node: NotNegative | None = Field(
        None, description="GPUs of one node or machine; cells that run at once share them. null: not stated."
    )
    cpus_per_gpu: Positive | None = Field(None, description="Cores of a node that go with one GPU.")
    memory_per_gpu_gib: Number | None = Field(
        None,
        gt=0,
        le=_MOST_MEMORY_GIB,
        description="Host memory in GiB that goes with one GPU: the most a cell may ask.",
    )
    default_minutes: Positive = Field(
        120, description="Minutes asked for a stage whose time cannot be estimated, as no peak of its gpu is known."
    )
    retries: NotNegative = Field(
        0, description="Times that a cell is tried again after a failure of the place; outcomes are never repeated."
    )
    scratch: str | None = Field(
        None, description="Fast folder for images and temporary files; $NAME is taken from the environment."
    )
    container_module: str | None = Field(
        None, description="Environment module that brings the container runtime ('module load ...')."
    )
    slurm: Slurm | None = Field(None, description="For executor slurm: how cells are asked for.")
    rate: Rate | None = Field(None, description="What the site charges; null: nothing, or not known.")


class Config(Section):
    """A named list of optimisations."""

    description: str = Field("", description="For people; in no key.")
    optimisations: list[Name] = Field(description="Names from the registry ('gpustudy config --optimisations').")
    pytorch_defaults: bool = Field(
        False, description="true: leave PyTorch's own switches as they come; false: start from plain float32."
    )


class Model(Section):
    """The U-Net. Published whole-head values: 64, [1,1,2,3,4], 1 block, attention at 8."""

    image_channels: Positive = Field(1, description="Channels of the image, and of the predicted noise.")
    mask_channels: Positive = Field(2, description="Channels of the condition mask.")
    base_channels: Positive = Field(64, multiple_of=32, description="Width of the first level; a multiple of 32.")
    channel_mult: Annotated[list[Positive], Field(min_length=2, max_length=5)] = Field(
        [1, 1, 2, 3, 4], description="Width of each level as a multiple of base_channels; one level per entry."
    )
    res_blocks: Positive = Field(1, description="Residual blocks per level.")
    attention_downsamples: list[Positive] = Field(
        [8], description="Levels with attention, by their downsampling factor (1, 2, 4, 8, 16)."
    )
    volume: Volume = Field(
        [128, 128, 128], description="Depth, height and width in voxels; every side divisible by 16."
    )


class Train(Section):
    """Training. Published values: Adam 1e-5, accumulation 2, batch 1, L1 loss, 250 timesteps, EMA 0.995."""

    iterations: Positive = Field(25, description="Measured optimiser steps.")
    warmup_iterations: Positive = Field(2, description="Optimiser steps before the measured ones.")
    accumulation: Positive = Field(2, description="Micro-batches per optimiser step.")
    batch_size: Positive = Field(1, description="Volumes per micro-batch.")
    learning_rate: Number = Field(1e-5, gt=0, description="Adam's learning rate.")
    loss: Literal["l1", "l2"] = Field("l1", description="Mean absolute or mean squared error of the noise.")
    timesteps: Positive = Field(250, description="Length of the cosine noise schedule.")
    ema_decay: Number = Field(0.995, gt=0, lt=1, description="Decay of the averaged weights.")
    ema_every: Positive = Field(10, description="Optimiser steps between updates of the averaged weights.")
    ema_start: NotNegative = Field(
        2000, description="Optimiser steps during which the averaged weights are plain copies."
    )


class Census(Section):
    """The census: every operator or kernel launch of a few steady steps, from the PyTorch profiler."""

    warmup_iterations: Positive = Field(1, description="Optimiser steps before the profiled ones.")
    iterations: Positive = Field(2, description="Profiled optimiser steps.")
    layouts: bool = Field(True, description="Also record every operator's memory format, in a run of its own.")


class Counters(Section):
    """Hardware counters of chosen launches, by Nsight Compute. For cuda devices; see docs/counters.md."""

    metrics: Literal["catalogue"] | list[str] = Field(
        "catalogue", description="ncu metrics to collect; catalogue: what the metric catalogue needs on this device."
    )
    sections: list[str] = Field([], description="ncu sections to collect as well, for its guided analysis.")
    replay: Literal["kernel", "application"] = Field("kernel", description="What is repeated for further passes.")
    cache_control: Literal["all", "none", "both"] = Field(
        "all", description="Flush caches before each pass, leave them, or a run with each."
    )
    clock_control: Literal["base", "none"] = Field("base", description="Lock the clocks to base, or leave them.")
    launches_per_stratum: Positive | None = Field(
        3, description="Most launches of one kernel and shape to profile per step; null profiles every launch."
    )
    iterations: Positive = Field(1, description="Optimiser steps to profile.")
    warmup_iterations: Positive = Field(2, description="Optimiser steps before them.")
    stall_timeout_s: Number = Field(300, gt=0, description="Seconds without progress after which ncu is ended.")
    ncu_version: str | None = Field(None, description="Beginning of the version to insist on, such as 2024.1.")


class Quality(Section):
    """Samples from the trained weights."""

    samples: Annotated[int, Field(ge=2, le=_MOST)] = Field(8, description="Volumes to sample, each from its own mask.")
    ddim_steps: Positive = Field(25, description="DDIM steps per sample.")
    seed: NotNegative = Field(
        7, description="Seed of the noise that sampling starts from; the same for every gpu and config."
    )


class Workload(Section):
    """What a cell trains, and for how long."""

    description: str = Field("", description="For people; in no key.")
    data: DataName = Field(description="Which data set it trains on.")
    model: Model = Field(description="The U-Net.")
    train: Train = Field(description="The train stage.")
    census: Census = Field(description="The census stage.")
    counters: Counters = Field(Counters(), description="The counters stage; cells of a cpu have none.")
    quality: Quality = Field(description="The quality stage.")


Resize = Literal["crop_pad", "resample"] | None
_VOLUME = "Depth, height and width in voxels; every side divisible by 16."
_RESIZE = "How an image of another shape becomes the volume; null refuses it."
_COMPAT = "'published' repeats the published implementation's oddities on purpose."
_CASES = "Text file with one case id per line to take; null takes all."


class Mni152Data(Section):
    """Volumes made from nilearn's MNI152 template by deformation, intensity change and a synthetic lesion."""

    kind: Literal["mni152"] = Field(description="Real anatomy that a package carries; needs no download.")
    volume: Volume = Field(description=_VOLUME)
    count: Positive = Field(8, description="Volumes to make.")
    seed: NotNegative = Field(20260619, description="Seed of deformations, intensities and lesions.")
    flips: bool = Field(True, description="Flip head to foot and front to back at random.")


class WholeHeadData(Section):
    """A folder of images and a folder of masks (1 brain, 2 tumour) with the same file names."""

    kind: Literal["whole_head"] = Field(description="The layout of the published whole-head model.")
    images: str = Field(description="Folder of T1 images.")
    masks: str = Field(description="Folder of label maps.")
    volume: Volume = Field([128, 128, 128], description=_VOLUME)
    resize: Resize = Field(None, description=_RESIZE)
    compat: Literal["published"] | None = Field(None, description=_COMPAT)
    cases: str | None = Field(None, description=_CASES)


class BratsData(Section):
    """BraTS2021 files: t1, t1ce, t2, flair and seg, in one folder per modality or per case."""

    kind: Literal["brats"] = Field(description="BraTS2021 folders.")
    folder: str = Field(description="Folder that holds them at any depth.")
    volume: Volume = Field([144, 192, 192], description=_VOLUME)
    preprocessed: bool = Field(False, description="Labels are already 1 to 4 and images already in [-1, 1].")
    resize: Resize = Field("crop_pad", description=_RESIZE)
    compat: Literal["published"] | None = Field(None, description=_COMPAT)
    cases: str | None = Field(None, description=_CASES)


class NiftiData(Section):
    """Any folder of images with a folder of label maps, of any number of classes."""

    kind: Literal["nifti"] = Field(description="Any NIfTI folders.")
    images: str = Field(description="Folder of images.")
    labels: str = Field(description="Folder of label maps with the same file names.")
    volume: Volume = Field(description=_VOLUME)
    classes: dict[str, str] | None = Field(None, description="Label: name, a mask channel each; null takes all.")
    resize: Resize = Field(None, description=_RESIZE)
    compat: Literal["published"] | None = Field(None, description=_COMPAT)
    cases: str | None = Field(None, description=_CASES)


DataSet = Annotated[Mni152Data | WholeHeadData | BratsData | NiftiData, Field(discriminator="kind")]
"""A data set of any kind."""


class Stack(Section):
    """A software stack that cells run in. Its key: the recipe, the base image's digest and the pins."""

    description: str = Field("", description="For people; in no key.")
    recipe: str = Field(description="Container recipe, relative to the root of the checkout.")
    pins: str = Field(description="Pinned packages (name==version), relative to the root of the checkout.")
    cuda: Annotated[str, Field(pattern=r"^\d+(\.\d+)?$")] | None = Field(
        None, description="CUDA release that its torch is built for; decides the oldest driver. In no key."
    )
    architectures: Annotated[list[Architecture], Field(min_length=1)] = Field(
        description="What its torch has kernels for; a device of the same major number and a higher minor one "
        "runs them."
    )
    gaps: dict[Architecture, str] = Field(
        {}, description="Architectures that it cannot run: why, and which stack to take. In no key."
    )

    def runs(self, architecture: str) -> bool:
        """Tell whether a device of ``architecture`` can run this stack's kernels.

        Source: CUDA C++ Programming Guide, "Binary Compatibility".
        """
        return any(architecture[:-1] == known[:-1] and architecture[-1] >= known[-1] for known in self.architectures)


class Study(Section):
    """The whole study."""

    repeats: Positive = Field(3, description="Repeats of every cell. Repeat r uses the seed base + r.")
    seed: NotNegative = Field(2026, description="Seed base of data order and noise, the same for every gpu and config.")
    gpus: dict[Name, Gpu] = Field(description="The processors. A new one is one entry here and its name at a site.")
    sites: dict[SiteName, Site] = Field(description="Where jobs run. A gpu may be at several sites. In no key.")
    configs: dict[Name, Config] = Field(description="Named lists of optimisations.")
    workloads: dict[Name, Workload] = Field(description="What is trained.")
    data: dict[DataName, DataSet] = Field(description="Data sets; see docs/data-sets.md for all kinds.")
    stacks: dict[Name, Stack] = Field(description="Software stacks.")
