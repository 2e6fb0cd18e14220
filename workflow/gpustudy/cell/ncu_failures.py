"""Every known way in which profiling PyTorch training with Nsight Compute goes wrong, as data.

A row says how the trouble shows (texts of ncu or of the profiled program, or a finding of the counters stage), what
it means for the cell, and what to do. The rows stand in order of precedence: the first fatal row that matches tells
the outcome, so a cause stands before its consequences (``The application returned an error code``, ``No kernels
were profiled``). Texts are those of public logs and of ncu 2024.1.1; docs/counters.md explains them at length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

UNAVAILABLE = "unavailable"
"""A fact about the place: the stage ends as unavailable(reason); the cell keeps its timing and its census."""
FAILED = "failed"
"""A fact about this workload under the profiler: the stage ends as failed(reason)."""
INFRASTRUCTURE = "infrastructure"
"""Neither: the stage writes nothing and exits non-zero, so that the site's rule may try again."""
WARN = "warn"
"""The data are good; the row is recorded beside them in command.json."""
IGNORE = "ignore"
"""Harmless."""
FATAL = (UNAVAILABLE, FAILED, INFRASTRUCTURE)


@dataclass(frozen=True)
class FailureRow:
    """One known trouble.

    Attributes:
        name: short code; the status's reason where the row is fatal.
        outcome: one of the constants above.
        sentence: what happened, for a person.
        next_step: what to do about it.
        patterns: regular expressions; any one of them in a log is the trouble. Empty for findings of the stage.
        number: row of the project's list of 21 troubles; 0 for those added since.
        is_retried: try once more before it counts (another tool may have held the counters for a moment).
        kills: stop the profiled program as soon as the text shows: it would train on to no purpose.
    """

    name: str
    outcome: str
    sentence: str
    next_step: str
    patterns: tuple[str, ...] = ()
    number: int = 0
    is_retried: bool = False
    kills: bool = False

    def matches(self, text: str) -> bool:
        """Whether ``text`` shows this trouble."""
        return any(re.search(pattern, text, re.MULTILINE) for pattern in self.patterns)

    @property
    def detail(self) -> str:
        """The sentence with its next step."""
        return f"{self.sentence}: {self.next_step}."


ROWS: tuple[FailureRow, ...] = (
    FailureRow(
        "permission",
        UNAVAILABLE,
        "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM)",
        "ask the site to load the driver with NVreg_RestrictProfilingToAdminUsers=0, or start the container with "
        "--cap-add=SYS_ADMIN (https://developer.nvidia.com/ERR_NVGPUCTRPERM); rented machines usually cannot",
        (r"ERR_NVGPUCTRPERM",),
        number=1,
        kills=True,
    ),
    FailureRow(
        "driver-busy",
        UNAVAILABLE,
        "another tool, mostly DCGM, holds the counters of this driver",
        "run 'dcgmi profile --pause' before and 'dcgmi profile --resume' after, or ask the site for a node without it "
        "(a Slurm constraint often names one), then retry the stage",
        (r"Profiling failed because a driver resource was unavailable",),
        number=2,
        is_retried=True,
        kills=True,
    ),
    FailureRow(
        "driver",
        UNAVAILABLE,
        "this Nsight Compute does not work with the driver of this machine",
        "put an Nsight Compute of the driver's age on PATH (one that is newer than the driver says either that the "
        "driver is not compatible or, misleadingly, that libcuda is a stub)",
        (
            r"Cuda driver is not compatible with Nsight Compute",
            r"Nsight Compute failed to connect to the CUDA driver",
            r"==ERROR== Driver could not be loaded",
            r"Failed to load Nsight Compute CUDA modules",
        ),
        number=15,
        kills=True,
    ),
    FailureRow(
        "profiler-library",
        UNAVAILABLE,
        "the counter library does not start on this machine (seen under gVisor and with a mismatched driver)",
        "run the stage on the bare machine or in a container that passes the driver's profiling interface through",
        (
            r"Failed to initialize the profiler: LibraryNot",
            r"Failed to prepare kernel for profiling",
            r"Profiling is not supported on (this )?device",
        ),
        kills=True,
    ),
    FailureRow(
        "clock-control",
        UNAVAILABLE,
        "the clocks of this device cannot be locked (MIG slices, vGPUs and missing rights forbid it)",
        "set workload.counters.clock_control to 'none' for this study and never mix the two in one table",
        (r"Cannot lock GPU clock frequencies", r"^==ERROR==.*permission to change clocks"),
        number=18,
        kills=True,
    ),
    FailureRow(
        "lock-file",
        INFRASTRUCTURE,
        "ncu could not make its lock file in the temporary folder",
        "free space or rights in the temporary folder of the job, or name another one by TMPDIR, and run again",
        (r"Failed to open/create lock file", r"InterprocessLockFailed"),
        number=14,
        kills=True,
    ),
    FailureRow(
        "metric",
        FAILED,
        "ncu does not know a metric of workload.counters.metrics on this device",
        "compare the names with 'ncu --query-metrics' of this version and mend the metric catalogue",
        (r"==ERROR== Failed to find metric",),
        kills=True,
    ),
    FailureRow(
        "section",
        FAILED,
        "ncu does not know a section of workload.counters.sections",
        "compare the names with 'ncu --list-sections' of this version and mend the config",
        (r"==ERROR== Option '--section [^']*' did not match any section",),
    ),
    FailureRow(
        "ncu-options",
        UNAVAILABLE,
        "this Nsight Compute does not take the options of the stage",
        "put a version from 2021.2 on onto PATH",
        (r"==ERROR== unrecogni[sz]ed option",),
    ),
    FailureRow(
        "replay-memory",
        FAILED,
        "ncu could not save the device memory that a kernel may change, which it needs to replay it",
        "ask for fewer metrics (one pass needs no copy), set workload.counters.replay to 'application', or take a "
        "smaller volume",
        (
            r"Unhandled C\+\+ exception: bad allocation",
            r"==ERROR== UnknownError",
            r"Failed to save memory for replay",
            r"ContextSaveFailed",
        ),
        number=4,
    ),
    FailureRow(
        "launch-failed",
        FAILED,
        "a kernel that runs alone failed while it was replayed",
        "run the cell under compute-sanitizer, or set workload.counters.replay to 'application'",
        (r"==ERROR== LaunchFailed",),
        number=16,
    ),
    FailureRow(
        "torch-library",
        INFRASTRUCTURE,
        "the program could not load a library of torch while the profiler was attached",
        "add torch's own lib folder to LD_LIBRARY_PATH (a fault of torch builds of 2019 and of tools that replace "
        "dlopen) and run again",
        (r"Error in dlopen.*lib(caffe2_nvrtc|thnvrtc)", r"lib(caffe2_nvrtc|thnvrtc)\S*: cannot open shared object"),
        number=21,
    ),
    FailureRow(
        "interrupted",
        INFRASTRUCTURE,
        "ncu was ended by a signal",
        "look at the job's time limit and run again",
        (r"==PROF== Received signal",),
    ),
    FailureRow(
        "stall",
        FAILED,
        "the profiled program made no progress for the stall timeout and was ended",
        "profile one process alone (a kernel that waits for another process never ends under ncu), or raise "
        "workload.counters.stall_timeout_s",
        number=3,
    ),
    FailureRow(
        "no-backward",
        FAILED,
        "no kernel of the backward pass was profiled",
        "never select by NVTX push/pop ranges (backward runs on a thread of its own), and look at application.log",
        number=5,
    ),
    FailureRow(
        "application",
        INFRASTRUCTURE,
        "the profiled program ended with an error",
        "read application.log, whose last lines follow, and run again",
        (r"==ERROR== The application returned an error code \(-?\d+\)",),
        number=17,
    ),
    FailureRow(
        "no-kernels",
        FAILED,
        "ncu profiled no kernel",
        "look at application.log for a program that ended early, and check that the device is one that ncu supports",
        (
            r"==(WARNING|ERROR)== No kernels were profiled",
            r"Profiling kernels launched by child processes requires the --target-processes all option",
            r"specified NVTX include expressions match only",
        ),
        number=5,
    ),
    FailureRow(
        "slow-launch",
        WARN,
        "a kernel took unusually long to launch, as kernels do that wait for another process",
        "profile one process alone, or exclude communication kernels",
        (r"Launching the workload is taking more time than expected",),
        number=3,
    ),
    FailureRow(
        "memory-spill",
        WARN,
        "ncu backed up device memory into host memory, so that profiling was slow and less memory was free than in "
        "training",
        "ask for fewer metrics, or set workload.counters.replay to 'application'",
        (r"Backing up device memory in system memory",),
        number=4,
    ),
    FailureRow(
        "many-launches",
        WARN,
        "far more launches were profiled than planned, as when autotuning runs inside the profiled window",
        "raise workload.counters.warmup_iterations until autotuning is over",
        number=6,
    ),
    FailureRow(
        "names-changed",
        WARN,
        "the profiler changed which kernels run (kernel_names.json lists them)",
        "compare only kernels that both runs have, and leave cudnn_benchmark out of configs to be profiled",
        number=7,
    ),
    FailureRow(
        "clocks-free",
        WARN,
        "clocks were not locked, so that durations vary with temperature and load",
        "never compare these durations with those at base clocks",
        (r"Running with unmodified GPU clocks",),
        number=8,
    ),
    FailureRow(
        "clocks-left-locked",
        WARN,
        "an earlier ncu was killed and had left the clocks locked; this one reset them",
        "distrust timings taken on this device in between",
        (r"Found outstanding GPU clock reset",),
        number=8,
    ),
    FailureRow(
        "cold-caches",
        WARN,
        "caches were flushed before every pass, so that reuse between kernels does not show in hit rates",
        "collect with workload.counters.cache_control 'both' before arguing about cache hits",
        number=9,
    ),
    FailureRow(
        "graph",
        WARN,
        "a CUDA graph was profiled as one result, without grid, block or the names of its kernels",
        "leave CUDA graphs out of configs to be profiled",
        (r'==PROF== Profiling "(graph|cmdlist|range)" - ',),
        number=10,
    ),
    FailureRow(
        "application-replay",
        WARN,
        "the program ran once per pass, and launches that did not match in all passes were dropped",
        "compare the number of launches with the census before using totals",
        number=11,
    ),
    FailureRow(
        "other-process",
        WARN,
        "ncu connected to a process that is not Python",
        "check that the report holds launches of the training process alone",
        (r"==PROF== Connected to process \d+ \((?!.*python[^/]*\)).+\)",),
        number=12,
    ),
    FailureRow(
        "child-without-cuda",
        IGNORE,
        "a child process ended without using the device (data loaders do)",
        "nothing to do",
        (r"Target process \d+ terminated before first instrumented API call",),
        number=13,
    ),
    FailureRow(
        "shared-device",
        WARN,
        "the device is a MIG slice, on which some metrics do not exist and clocks cannot be locked",
        "compare it with slices of the same size only",
        (r"on a MIG instance, it is not possible to collect metrics", r"^\s*MIG \S+\s+Device\s+\d+: \(UUID: MIG-"),
        number=18,
    ),
    FailureRow(
        "home",
        WARN,
        "ncu could not write its section files into HOME and used those of its installation",
        "nothing to do: the sections are the stock ones",
        (r"Could not deploy stock .*files", r"Could not determine user home directory for section deployment"),
        number=19,
    ),
    FailureRow(
        "missing-metrics",
        WARN,
        "this device lacks some of the metrics asked for; they are absent from the report",
        "nothing to do: the tables say null with a reason",
        (r"(Unable|Failed) to access the following \d+ metrics",),
    ),
    FailureRow(
        "out-of-range",
        WARN,
        "a percentage above 100 or a negative value is in the report, as happens when passes differ",
        "keep it as it is: column 'doubtful' of table counters names such values",
        number=20,
    ),
)
"""The table, in order of precedence."""

CONSEQUENCES = ("interrupted", "application", "no-kernels")
"""Rows that also show after another trouble, or because the watchdog ended the run."""

_BY_NAME = {row.name: row for row in ROWS}


def row(name: str) -> FailureRow:
    """Return the row of that name."""
    return _BY_NAME[name]


def fatal_row(text: str) -> FailureRow | None:
    """Return the first row, in order of precedence, that ends the stage and shows in ``text``; None if none does."""
    return next((row for row in ROWS if row.outcome in FATAL and row.matches(text)), None)


def killing_row(text: str) -> FailureRow | None:
    """Return the first row for which the program must not be waited for, or None."""
    return next((row for row in ROWS if row.kills and row.matches(text)), None)


def warning_rows(text: str) -> tuple[FailureRow, ...]:
    """Return the rows to record beside good data."""
    return tuple(row for row in ROWS if row.outcome == WARN and row.matches(text))
