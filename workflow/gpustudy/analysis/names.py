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
        stages: stages of the cells whose tables it is made from, first the one that it cannot do without.
    """

    title: str
    caption: str
    category: str
    stages: tuple[str, ...]


TIME = "Time"
MEMORY = "Memory"
TRAINING = "Training and samples"
COUNTERS = "Hardware counters"
BOUNDS = "Bounds"
STUDY = "Study"
CLAIMS = "Claims"

FIGURES = {
    "step_time": Product(
        "Step time",
        "Time of one optimiser step, for each GPU and config. A small circle is one repeat: the median of its "
        "measured steps, warm-up left out. The diamond is the geometric mean of the repeats, the line its 95% t "
        "interval over repeats; with a single repeat the line is dotted, a bootstrap interval over that run's steps, "
        "and says nothing about other runs. An arrow marks an interval that runs on beyond the axis.",
        TIME,
        ("train",),
    ),
    "speedup": Product(
        "Speed-up over baseline",
        "Step time of baseline divided by that of the config, on the same GPU and paired by repeat (equal seeds): "
        "geometric mean and 95% t interval of the logarithms. Right of 1 is faster. The grey band is the noise "
        "floor. FASTER, SLOWER or SAME stand where the whole interval lies on one side of the band or inside it, "
        "AMBIGUOUS where it crosses an edge or where fewer than two pairs exist. An arrow marks an interval that runs "
        "on beyond the axis.",
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
    "class_share": Product(
        "Share of the time by kind of kernel",
        "Share of the profiled time that each kind of kernel takes (on the CPU: of operator, self time), from the "
        "steps of the census: totals over the repeats, shares of their sum. A convolution's own layout kernels count "
        "as layout.",
        TIME,
        ("census",),
    ),
    "step_timeline": Product(
        "A step over time",
        "One profiled step of the first repeat: a lane for each kind of kernel, from top to bottom in the order of the "
        "legend, filled where one ran; above the lanes, the stretches of forward (F), backward (B) and optimiser (O). "
        "Parts of a six-hundredth of the longest step are filled whole. White across all lanes is idle. On the CPU an "
        "operator is drawn from its start for as long as its self time.",
        TIME,
        ("census",),
    ),
    "profiling_cost": Product(
        "Cost of measuring",
        "Wall time of the stages of a cell, start and warm-up included: means over the repeats. At the right, what the "
        "counters saw: launches profiled of all launches of a step; where there are no counters, time of a step under "
        "the profiler over that without.",
        TIME,
        ("train", "census", "counters", "quality"),
    ),
    "instruction_mix": Product(
        "Instruction mix",
        "Dynamic instructions of a step by kind, totals over the repeats. Left: thread-level instructions, predicated "
        "on, by operation; tensor instructions are among the others there. Right: warp-level instructions by opcode.",
        COUNTERS,
        ("counters",),
    ),
    "cycles_and_instructions": Product(
        "Cycles and instructions over baseline",
        "SM active cycles (mean over the SMs) and executed warp instructions, of the config over those of baseline on "
        "the same GPU, paired by repeat: geometric mean and 95% t interval of the logarithms; logarithmic axis. Four "
        "scopes, as a claim can hold in one and fail in another: the total of a step, the average launch, the median "
        "launch, and the total of the first launches. The upright stroke is the least that the counted multiply-adds "
        "need with the largest instruction of the config's precision, over what was measured for baseline (modelled): "
        "no total can lie left of it.",
        COUNTERS,
        ("counters", "census"),
    ),
    "pipe_utilisation": Product(
        "Use of tensor cores and CUDA cores",
        "Cycles in which a pipe was in use, of the active cycles of a step (tensor: all operations of the tensor pipe; "
        "FMA: float32 and integer multiply-add; ALU: integer and logic), and SM throughput, the busiest unit of an SM, "
        "of its peak over elapsed cycles: totals of a step, mean and 95% t interval over the repeats.",
        COUNTERS,
        ("counters",),
    ),
    "ipc_and_occupancy": Product(
        "Instructions per cycle and occupancy",
        "Left: executed warp instructions per active cycle of an SM, of a whole step and of the median launch. Right: "
        "warps in flight of the most that an SM can hold, as achieved over active cycles and as the launches' block "
        "sizes, registers and shared memory allow; of a whole step. Mean and 95% t interval over the repeats.",
        COUNTERS,
        ("counters",),
    ),
    "cache_and_dram": Product(
        "Caches and memory",
        "Hit rates of L1 and L2 by sectors, and DRAM throughput of its peak: of a whole step from sums, with caches "
        "flushed before each kernel and with caches left as the kernel before left them, and of the median launch. "
        "Writes count as hits in L2; asynchronous copies bypass L1. Mean and 95% t interval over the repeats.",
        COUNTERS,
        ("counters",),
    ),
    "stalls": Product(
        "Why warps wait",
        "Left: warps stalled for each reason per issued instruction. Right: warp cycles that they waited in a step, "
        "summed over all schedulers. The left number rises by itself when fewer instructions do the same work; the "
        "right one does not. 'selected' is no stall: the warp issued. Totals of a step, means over the repeats; a "
        "darker field is a larger number.",
        COUNTERS,
        ("counters",),
    ),
    "priority": Product(
        "Priority of kernels",
        "Time of a step that the profiler's guided analysis says could be saved, kernel by kernel: sum over launches "
        "of duration times the largest global estimate of its rules (modelled: an estimate, not a measurement). The "
        "kernels of each GPU with the largest scores in any config; means over the repeats; logarithmic axis.",
        COUNTERS,
        ("counters",),
    ),
    "roofline": Product(
        "Hierarchical roofline",
        "Floating-point operations per second against operations per byte moved in L1, L2 and DRAM, for each kind of "
        "kernel: three marks side by side, from totals of a step. Lines are the device's peak rates at its boost clock "
        "(TF32 and FP16: tensor cores, dense) as its maker's documents state them (study/peaks.yaml); what no document "
        "states has no line, but for the DRAM bandwidth, which then follows from the counters. Counters are taken at "
        "the base clock unless clock control is off, so that marks stay somewhat below what the device can reach.",
        BOUNDS,
        ("counters",),
    ),
    "floor": Product(
        "Physical floor of a step",
        "Bars (modelled): the least time of a step, each call of an operator taking its operations over the peak rate "
        "of its precision or the bytes it reads over the memory bandwidth, whichever is longer; by phase (left) and by "
        "kind of kernel (right). Peak rates are those of the device's documents (study/peaks.yaml). Diamonds: the "
        "measured time of a step. At the right, measured over floor. Fusing operators, or finding inputs in a cache, "
        "can undercut the floor.",
        BOUNDS,
        ("census", "train"),
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
        "memory of the process. Bars are means of the repeats, lines their 95% t intervals (an arrow: it runs on "
        "beyond the axis), circles the repeats.",
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
        "it was conditioned on. The first repeat that has samples, for each GPU and config. Cells train a few steps, "
        "after which noise is expected: the pictures show that the chain works, not how good the model can be.",
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
    "claims": Product(
        "Claims of the paper",
        "Each claim of the paper with its verdict on these data, the numbers that decide it and the cells used. "
        "SUPPORTED: every reading of the sentence holds in every scope that was measured. CONTRADICTED: none does. "
        "AMBIGUOUS: they disagree, an interval leaves it open, or cells are missing. IMPLAUSIBLE: a physical bound "
        "forbids the number for a whole step, and nothing else shows it. NOT MEASURED: no measured value decides "
        "it; modelled values never do.",
        CLAIMS,
        ("train", "census", "counters", "quality"),
    ),
    "top_kernels": Product(
        "Kernels that take the time",
        "The ten kernels (on the CPU: operators) that take most of a profiled step, for each GPU and config: "
        "launches and time of a step, a mean over the steps and repeats of the census. The priority score is the "
        "time that the largest global speed-up which Nsight Compute's rules estimate for each launch would save: a "
        "modelled value.",
        TIME,
        ("census", "counters"),
    ),
    "quality_scores": Product(
        "Quality of samples",
        "Every quality metric for each GPU and config: mean of the repeats with its 95% t interval, and the "
        "difference to baseline on the same GPU, paired by repeat.",
        TRAINING,
        ("quality",),
    ),
    "cost": Product(
        "Cost of measuring",
        "Wall time of each stage of a cell, a mean over its repeats, and of all repeats together; what that time is "
        "charged by the published rate of a site with this GPU, a job per cell, the cheapest where there are several "
        "(no file says which site measured a cell, and a bill also counts the start of each job); how much longer "
        "a step takes under the profiler of the census; and how many launches were profiled with hardware "
        "counters, of how many a step has.",
        STUDY,
        ("train", "census", "counters", "quality"),
    ),
    "floor_parts": Product(
        "Physical floor by phase and kind of kernel",
        "The least time of a step and of its parts (modelled): operations over the peak rate of their precision or "
        "bytes read over the memory bandwidth, call by call, whichever is longer. Beside it the time: of a step, "
        "measured without a profiler; of a part, that of its launches in the census. Devices without cited peak rates "
        "have no floor.",
        BOUNDS,
        ("census", "train"),
    ),
    "platforms": Product(
        "Platforms",
        "One row for each GPU of the study: the device that its cells ran on, and the peak rates that its maker "
        "states. Peak rates are cited, not measured: dense, without sparsity, at boost clock.",
        STUDY,
        ("train", "census", "counters", "quality"),
    ),
    "workloads": Product(
        "Workloads",
        "One row for each workload that is trained, as the keys of its cells cover it, and where it differs from "
        "the published whole-head training.",
        STUDY,
        (),
    ),
    "states": Product(
        "States of all cells",
        "One row for each cell, those with results first: its state, the reason, and the keys of its stages. Only "
        "stages that are done with current keys enter figures and tables.",
        STUDY,
        (),
    ),
    "stacks": Product(
        "Software and devices",
        "One row for each distinct device and software stack found at run time, how it differs from the versions "
        "that the paper states, and the cells measured on it.",
        STUDY,
        ("train", "census", "quality"),
    ),
}
"""Name of a table -> what it is."""

DOCUMENTS = {
    "evidence": ("claims.json",),
    "appendix": ("appendix.md", "appendix.tex"),
}
"""Name of a document -> its files in results: every claim with the numbers behind its verdict, for programs; and the
artifact description of a paper."""
