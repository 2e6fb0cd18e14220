"""The tables of a crafted counters stage: every launch of a crafted step, profiled, through the real totals.

Each launch gets the quantities of the catalogue that its kind decides; all others are not collected, as in a report
of few sections. Totals, medians and windows are then what ``metrics.ncu.totals`` makes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpustudy.metrics.catalogue import Quantity, load_catalogue
from gpustudy.metrics.cells import Row, cell_row
from gpustudy.metrics.ncu.evaluate import ABSENT, HAS_VALUE, NOT_COLLECTED, Evaluated, reason_texts
from gpustudy.metrics.ncu.totals import STAGE, total_rows
from gpustudy.metrics.priority import Estimate, scores
from gpustudy.metrics.schemas import Identity, write_table
from tests.support.crafted_kernels import STALLS, Device, Kernel, launches_of

FIRST_LAUNCHES = 10
"""Launches of scope ``first_n`` here: a crafted step has fewer than the hundred of a real one."""
REPORT = "report.ncu-rep"
WARP = 32
SECTOR_BYTES = 32

Values = dict[str, float]


def counter_tables(out: Path, identity: Identity, device: Device, kernels: Sequence[Kernel]) -> list[Row]:
    """Write counters, counter_values, rules and priority into ``out`` and return the rows of the cells table."""
    catalogue = load_catalogue()
    launches = [kernel for kernel in launches_of(kernels) if kernel.phase != "data"]
    quantities = [_quantities(kernel, device) for kernel in launches]
    evaluated = _evaluated(quantities, catalogue.quantities, device)
    classes = [kernel.kernel_class for kernel in launches]
    _write_counters(out, identity, device, launches, quantities, evaluated)
    estimates = [
        Estimate(kernel.name, values["duration_ns"], kernel.kind.rule[2], kernel.kind.rule[2])
        for kernel, values in zip(launches, quantities, strict=True)
    ]
    write_table(
        out / "priority.parquet",
        "priority",
        [
            {"report": REPORT, "name": str(name), "class": classes[[one.name for one in launches].index(str(name))],
             "ncu_version": "2024.1.1"} | vars(score)
            for name, score in scores(estimates).items()
        ],
        identity,
    )  # fmt: skip
    rows = [
        cell_row(STAGE, "profiled_launches", len(launches)),
        cell_row(STAGE, "failed_launches", 0),
        cell_row(STAGE, "coverage_pct", 100.0),
        *total_rows(evaluated, catalogue, classes, np.ones(len(launches)), first=FIRST_LAUNCHES),
    ]
    by_class = [Estimate(**(vars(one) | {"group": name})) for one, name in zip(estimates, classes, strict=True)]
    for name, score in scores(by_class).items():
        rows += [
            cell_row(STAGE, f"priority_{part}", getattr(score, part), kernel_class=str(name), n=score.launches)
            for part in ("score_ns", "score_mean_ns", "score_share_pct")
        ]
    return rows


def _quantities(kernel: Kernel, device: Device) -> Values:
    """Return the quantities of one launch by the catalogue's names."""
    kind = kernel.kind
    duration_ns = kernel.us * 1000 * device.slowness
    elapsed = duration_ns * 1e-9 * device.clock_hz
    active = 0.9 * elapsed
    warp = kind.ipc * active * device.sms
    thread = warp * WARP
    dram = kind.dram / 100 * 1e3 * duration_ns  # of a crafted peak of 1000 bytes/ns
    l2_sectors = 2 * dram / SECTOR_BYTES
    l1_sectors = 2 * l2_sectors
    found: Values = {
        "duration_ns": duration_ns, "elapsed_cycles": elapsed, "sm_active_cycles": active,
        "sm_active_cycles_all": active * device.sms, "sm_elapsed_cycles_all": elapsed * device.sms,
        "sm_frequency_hz": device.clock_hz, "warp_instructions": warp, "thread_instructions": thread,
        "threads_per_instruction": WARP, "ipc": kind.ipc, "ipc_elapsed": kind.ipc * active / elapsed,
        "ipc_issued": kind.ipc * 1.02, "issued_pct": 25 * kind.ipc * 1.02, "issue_active": kind.ipc * 1.02 / 4,
        "tensor_pipe_pct": kind.tensor, "tensor_pipe_fp_pct": kind.tensor,
        "tensor_pipe_fp_elapsed_pct": kind.tensor * active / elapsed, "tensor_pipe_mma_only_pct": kind.tensor,
        "fma_pipe_pct": kind.fma, "alu_pipe_pct": kind.alu, "lsu_pipe_pct": 10.0,
        "sm_throughput_pct": kind.sm, "memory_throughput_pct": kind.memory, "dram_throughput_pct": kind.dram,
        "dram_bytes": dram, "dram_read_bytes": 0.6 * dram, "dram_write_bytes": 0.4 * dram,
        "dram_bytes_per_s": dram / duration_ns * 1e9,
        "l1_hit_pct": kind.l1, "l1_sector_hits": kind.l1 / 100 * l1_sectors,
        "l1_sector_misses": (1 - kind.l1 / 100) * l1_sectors, "l1_global_load_hit_pct": kind.l1,
        "l2_hit_pct": kind.l2, "l2_sector_hits": kind.l2 / 100 * l2_sectors,
        "l2_sector_misses": (1 - kind.l2 / 100) * l2_sectors, "l2_sectors": l2_sectors,
        "l2_read_hit_pct": kind.l2, "l2_write_hit_pct": kind.l2,
        "sector_use_global_load_pct": 70.0, "sector_use_global_store_pct": 90.0,
        "achieved_occupancy_pct": kind.occupancy, "theoretical_occupancy_pct": min(100.0, kind.occupancy + 15),
        "warp_latency_cycles": sum(_stalls(kernel).values()),
        "mma_share_pct": kind.mma, "opcode_mma": kind.mma / 100 * warp, "opcode_hgmma": 0.0,
        "opcode_ffma": 0.6 * warp if kind.fma > 50 else 0.05 * warp, "opcode_fp32_fused": 0.5 * warp * (kind.fma > 50),
        "opcode_fp32_unfused": 0.05 * warp, "opcode_load_store": 0.15 * warp, "opcode_control": 0.05 * warp,
        "opcode_imad": 0.1 * warp, "opcode_hfma2": 0.0,
        "tensor_instructions": kind.mma / 100 * warp, "tensor_instructions_fp": kind.mma / 100 * warp,
        "tf32_operations": kind.mma / 100 * warp * 2048, "branch_uniformity_pct": 99.0,
        "warp_instructions_branch": 0.02 * warp, "threads": 216 * 256, "waves_per_sm": 216 / device.sms / 8,
        "sm_count": device.sms, "estimated_speedup_pct": kind.rule[2] or 0.0, "replay_passes": 40,
        "eligible_warps": 0.5 * kind.ipc, "active_warps": kind.occupancy / 100 * 16,
    }  # fmt: skip
    found |= {f"thread_instructions_{part}": share * thread for part, share in kind.mix}
    for reason, warps in _stalls(kernel).items():
        found[f"stall_{reason}"] = warps
        found[f"stall_{reason}_cycles"] = warps * warp * 1.02
    return found


def _stalls(kernel: Kernel) -> Values:
    return dict.fromkeys((*STALLS, "gmma"), 0.05) | dict(kernel.kind.stalls)


def _denominator(quantity: Quantity, values: Values) -> float:
    """Return what the launch's ratio is over: the same as the catalogue's first denominator."""
    l2, l1 = values["l2_sectors"], values["l1_sector_hits"] + values["l1_sector_misses"]
    if quantity.aggregate == "time_weighted" or quantity.name in ("sm_frequency_hz", "dram_bytes_per_s"):
        return values["duration_ns"]
    if quantity.name.startswith(("l1_", "sector_use")) and "throughput" not in quantity.name:
        return l1
    if quantity.name.startswith("l2_"):
        return l2
    if quantity.name.startswith("stall_") or quantity.name in ("warp_latency_cycles", "mma_share_pct"):
        return values["warp_instructions"]
    if quantity.name == "threads_per_instruction":
        return values["warp_instructions"]
    if quantity.name in ("ipc_elapsed", "sm_throughput_pct", "tensor_pipe_fp_elapsed_pct"):
        return values["elapsed_cycles"]
    return values["sm_active_cycles"]


def _evaluated(launches: Sequence[Values], quantities: Sequence[Quantity], device: Device) -> Evaluated:
    architecture = f"sm_{device.capability.replace('.', '')}"
    shape = (len(launches), len(quantities))
    found = Evaluated(
        np.full(shape, np.nan), np.full(shape, NOT_COLLECTED, np.int8), np.full(shape, np.nan), np.full(shape, np.nan)
    )
    for column, quantity in enumerate(quantities):
        for row, values in enumerate(launches):
            if architecture in quantity.absent:
                found.why[row, column] = ABSENT
            elif quantity.name in values:
                is_sum = quantity.aggregate == "sum"
                below = 1.0 if is_sum else _denominator(quantity, values)
                found.why[row, column] = HAS_VALUE
                found.values[row, column] = values[quantity.name]
                found.denominators[row, column] = below
                found.numerators[row, column] = values[quantity.name] * below / (1.0 if is_sum else quantity.scale)
    return found


def _write_counters(
    out: Path,
    identity: Identity,
    device: Device,
    launches: Sequence[Kernel],
    quantities: Sequence[Values],
    evaluated: Evaluated,
) -> None:
    catalogue = load_catalogue()
    architectures = [f"sm_{device.capability.replace('.', '')}"] * len(launches)
    lacking = list(reason_texts(evaluated.why, catalogue, architectures))
    has = evaluated.why == HAS_VALUE
    counters: list[dict[str, Any]] = []
    rules: list[dict[str, Any]] = []
    values: list[dict[str, Any]] = []
    for position, kernel in enumerate(launches):
        launch = {"report": REPORT, "launch": position}
        section, rule, speedup = kernel.kind.rule
        counters.append(
            launch
            | {"kind": "kernel", "process_id": 1, "process": "python", "host": "crafted-host", "device": device.name,
               "device_id": 0, "compute_capability": device.capability, "context": 1, "stream": 7, "name": kernel.name,
               "mangled_name": None, "class": kernel.kernel_class, "phase": kernel.phase, "grid": [216, 1, 1],
               "block": [256, 1, 1], "registers_per_thread": 64, "shared_memory_bytes": 0, "nvtx": None,
               "lacking": lacking[position], "doubtful": None}
            | {
                quantity.name: float(evaluated.values[position, column]) if has[position, column] else None
                for column, quantity in enumerate(catalogue.quantities)
            }
        )  # fmt: skip
        rules.append(
            launch
            | {"section": section, "rule": rule, "type": "optimization", "title": rule, "message": "crafted",
               "speedup": speedup, "speedup_kind": None if speedup is None else "global", "origin": "report"}
        )  # fmt: skip
        values += [
            launch
            | {"metric": metric, "instance": None, "correlation": None, "value": value, "unit": unit, "text": None}
            for metric, value, unit in (
                ("gpu__time_duration.sum", quantities[position]["duration_ns"], "ns"),
                ("smsp__inst_executed.sum", quantities[position]["warp_instructions"], "inst"),
            )
        ]
    write_table(out / "counters.parquet", "counters", counters, identity, extra=catalogue.columns())
    write_table(out / "rules.parquet", "rules", rules, identity)
    write_table(out / "counter_values.parquet", "counter_values", values, identity)
