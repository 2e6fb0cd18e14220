"""All checks of a site, side by side and within a time limit: one that hangs does not hold the others up."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from functools import partial
from itertools import chain

from gpustudy.base.errors import UserError
from gpustudy.launch.preflight import gpu, node, scheduler, software, storage, trials
from gpustudy.launch.preflight.asked import Asked
from gpustudy.launch.preflight.checks import (
    FAIL,
    SKIPPED,
    Check,
    CheckFunction,
    Finding,
    Place,
    failed,
    named,
    refused,
    warned,
)

LIMIT_S = 30.0
"""Seconds that a preflight without a job takes at most, whatever hangs at the site."""
TRIALS_LIMIT_S = 180.0
"""Seconds that the trials take at most where one of them profiles a kernel."""

Named = tuple[str, CheckFunction]


def head_checks(place: Place, asked: Sequence[Asked], has_job: bool) -> list[Named]:
    """Return the checks of the machine that starts the workflow.

    Args:
        place: where to look.
        asked: what cells ask Slurm for.
        has_job: a job follows, which shows by itself whether nodes see the checkout.
    """
    stacks = sorted({one.stack for one in place.gpus.values()})
    checks: list[Named] = [("snakemake", software.check_host_software)]
    if asked:
        once = scheduler.once_slurm_answers
        checks += [
            ("scheduler", scheduler.check_scheduler),
            ("slurm configuration", once(scheduler.check_slurm_conf)),
            ("account", once(partial(scheduler.check_account, asked=asked[0]))),
            ("partition limits", once(partial(scheduler.check_partition, asked=asked[0]))),
            ("jobs at once", once(partial(scheduler.check_job_count, asked=asked[0]))),
            *((f"request {one.gpu}", once(partial(scheduler.check_request, asked=one))) for one in asked),
            ("container runtime", software.check_runtime_later),
        ]
        checks += [] if has_job else [("shared checkout", storage.check_shared)]
    checks += [(f"image {stack}", partial(software.check_image, stack=stack)) for stack in stacks]
    return [*checks, ("scratch", storage.check_scratch), ("results folder", storage.check_results)]


def node_checks(place: Place, is_elsewhere: bool) -> list[Named]:
    """Return the checks of the machine that runs cells.

    Args:
        place: where to look.
        is_elsewhere: this is another machine than the one whose head checks are made.
    """
    stacks = sorted({one.stack for one in place.gpus.values()})
    checks: list[Named] = [
        ("runtime on the node" if is_elsewhere else "container runtime", software.check_runtime),
        ("job step", node.check_step),
        *([("scratch on the node", storage.check_scratch)] if is_elsewhere else []),
        *((f"stack {stack}", partial(software.check_pins, stack=stack)) for stack in stacks),
        ("cores", node.check_cores),
        ("memory", node.check_memory),
    ]
    if not place.cuda_gpus:
        return checks
    per_gpu = (
        [(f"gpu {name}", partial(gpu.check_model, name=name, gpu=one)),
         (f"driver for {name}", partial(gpu.check_driver, name=name, gpu=one))]
        for name, one in place.cuda_gpus.items()
    )  # fmt: skip
    return [
        *checks,
        *chain.from_iterable(per_gpu),
        ("alone on the gpu", gpu.check_alone),
        ("virtual gpu", gpu.check_virtual),
        ("counter permission", gpu.check_permission),
        ("counters are free", gpu.check_dcgm),
        ("nsight compute", software.check_ncu),
        ("clocks", gpu.check_clocks),
    ]


def run_checks(place: Place, checks: Sequence[Named], limit_s: float = LIMIT_S) -> list[Check]:
    """Run all checks at once and return what they found, in their order; one that does not end in time is a warning."""
    answers: queue.SimpleQueue[tuple[int, Finding | None]] = queue.SimpleQueue()
    for index, (_, check) in enumerate(checks):
        # a thread that hangs on a dead file system cannot be ended: as a daemon it does not keep the process
        threading.Thread(target=_run, args=(place, index, check, answers), daemon=True).start()
    found: dict[int, Finding] = {}
    deadline = time.monotonic() + limit_s
    while len(found) < len(checks):
        try:
            index, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        found[index] = answer or failed("The check itself broke, with the traceback above: please report that.")
    slow = warned(f"No answer within {limit_s:.0f} s: something hangs here; try again, or ask the site's help desk.")
    return [named(name, found.get(index, slow)) for index, (name, _) in enumerate(checks)]


def run_on_node(place: Place, looks: Sequence[Named], with_counters: bool) -> list[Check]:
    """Run checks that look, then those that use the GPU: they come later, as some look whether anybody uses it.

    Args:
        place: where to look.
        looks: the checks that only look.
        with_counters: profile a kernel as well; without it all ends within ``LIMIT_S``.
    """
    deadline = time.monotonic() + LIMIT_S
    found = run_checks(place, looks)
    stacks = sorted({one.stack for one in place.gpus.values()})
    starts: list[Named] = [(f"container {stack}", partial(trials.check_container, stack=stack)) for stack in stacks]
    left_s = TRIALS_LIMIT_S if with_counters else max(1.0, deadline - time.monotonic())
    found += run_checks(place, starts, left_s)
    if not with_counters or not place.cuda_gpus:
        return found
    # ncu stops everything else on the device and locks its clocks, so that it comes last.
    profiled = next(iter(place.cuda_gpus.values()))
    return found + run_checks(place, [("counters", partial(trials.check_counters, gpu=profiled))], TRIALS_LIMIT_S)


def verdict(checks: Sequence[Check]) -> int:
    """Return the exit code: 1 where a check failed, else 0."""
    return int(any(check.level == FAIL for check in checks))


def node_is_left_out() -> Check:
    """Return the row that says what a preflight without a job cannot know."""
    return Check(
        "compute node",
        SKIPPED,
        "GPU, driver, counters, clocks and container runtime of a node are looked at by --in-job, as a job of minutes.",
    )


def _run(
    place: Place,
    index: int,
    check: CheckFunction,
    answers: queue.SimpleQueue[tuple[int, Finding | None]],
) -> None:
    answer: Finding | None = None
    try:
        answer = check(place)
    except UserError as error:
        answer = refused(error)
    finally:  # an error of the program itself goes to the thread's own handler, which prints it
        answers.put((index, answer))
