"""The figures and tables of the study by name: what each shows and under which heading it stands.

Standard library only: the Snakefile reads these names at parse, each is a target of its own
(``snakemake --cores all -- step_time``).
"""

from __future__ import annotations

from dataclasses import dataclass

FIGURE_SUFFIXES = (".svg", ".pdf", ".json")
"""Files of one figure: for the screen, for the paper, and its caption with the cells it was made from."""

TABLE_SUFFIXES = (".csv", ".tex", ".html", ".json")
"""Files of one table: for programs, for the paper, for the report, and its caption with its cells."""


@dataclass(frozen=True)
class Product:
    """One figure or table.

    Attributes:
        title: a few words, without a full stop.
        caption: what is shown, in which unit, and what the marks mean; whole sentences.
        category: heading under which the reports list it.
        stages: stages of the cells whose tables it is made from.
    """

    title: str
    caption: str
    category: str
    stages: tuple[str, ...]


TIME = "Time"
MEMORY = "Memory"
TRAINING = "Training and samples"
STUDY = "Study"

FIGURES = {
    "step_time": Product(
        "Step time",
        "Time of one optimiser step, for each GPU and config. A small circle is one repeat: the median of its "
        "measured steps, warm-up left out. The diamond is the geometric mean of the repeats, the line its 95% t "
        "interval over repeats; with a single repeat the line is dotted, a bootstrap interval over that run's steps, "
        "and says nothing about other runs.",
        TIME,
        ("train",),
    ),
    "speedup": Product(
        "Speed-up over baseline",
        "Step time of baseline divided by that of the config, on the same GPU and paired by repeat (equal seeds): "
        "geometric mean and 95% t interval of the logarithms. Right of 1 is faster. The grey band is the noise "
        "floor. FASTER, SLOWER or SAME stand where the whole interval lies on one side of the band or inside it, "
        "AMBIGUOUS where it crosses an edge or where fewer than two pairs exist.",
        TIME,
        ("train",),
    ),
    "class_time": Product(
        "Time by class and phase",
        "Time per optimiser step by class of kernel (on the CPU: of operator, self time) for the forward pass (F), "
        "the backward pass (B), the optimiser (O) and the rest (R: loading, and what lies outside these), from the "
        "profiled steps of the census; mean of the repeats. Profiling slows a step down, so the sums are compared "
        "with each other and not with the step time.",
        TIME,
        ("census",),
    ),
    "layout_conversions": Product(
        "Memory-layout conversions",
        "Operator calls of one training iteration that copied a tensor into another memory format, by the call that "
        "did it, and the bytes they wrote; mean of the repeats. Taken by a dispatch mode in a run of its own, "
        "above the kernels: conversions inside a library call are not among them.",
        TIME,
        ("census",),
    ),
    "peak_memory": Product(
        "Peak memory",
        "Largest memory in use during training: on a GPU, bytes allocated on the device; on the CPU, resident "
        "memory of the process. Bars are means of the repeats, lines their 95% t intervals, circles the repeats.",
        MEMORY,
        ("train",),
    ),
    "loss_curves": Product(
        "Training loss",
        "Loss of every optimiser step, warm-up included, for each GPU and config: mean of the repeats, the band "
        "spans them. Equal seeds give equal data and noise to every GPU and config, so the curves should coincide "
        "but for rounding.",
        TRAINING,
        ("train",),
    ),
    "quality": Product(
        "Sample quality",
        "Quality of generated volumes for each GPU and config: mean of the repeats with its 95% t interval; with a "
        "single repeat, the value with the interval that its metric itself carries, if any (dotted). p values are "
        "not averaged: a circle is a repeat. MS-SSIM of generated pairs far above that of real pairs means samples "
        "too much alike; MMD compares coarse averages of the volumes; intensity distance is the Wasserstein "
        "distance within a label; mask fidelity is the Dice overlap with the foreground of the condition, for real "
        "volumes the most that its threshold allows. The samples show whether configs differ, not how good a "
        "fully trained model would be.",
        TRAINING,
        ("quality",),
    ),
    "samples": Product(
        "Generated samples",
        "A row is a volume: its middle axial, coronal and sagittal slice, then those of the real volume whose mask "
        "it was conditioned on. The first repeat that has samples, for each GPU and config.",
        TRAINING,
        ("quality",),
    ),
}
"""Name of a figure -> what it is."""

TABLES = {
    "summary": Product(
        "Summary",
        "One row for each GPU and config: repeats used, step time with its 95% interval over repeats, speed-up "
        "over baseline paired by repeat, verdict, peak memory, the class that takes most of the profiled time, and "
        "layout conversions per iteration.",
        STUDY,
        ("train", "census"),
    ),
    "states": Product(
        "States of all cells",
        "One row for each cell: its state, the reason, and the keys of its stages. Only stages that are done with "
        "current keys enter figures and tables.",
        STUDY,
        (),
    ),
    "stacks": Product(
        "Software and devices",
        "One row for each distinct device and software stack found at run time, with the cells measured on it.",
        STUDY,
        ("train", "census", "quality"),
    ),
}
"""Name of a table -> what it is."""
