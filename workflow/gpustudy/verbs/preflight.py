"""``gpustudy preflight``: whether a site can run the study, before anything is submitted."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from gpustudy.verbs.common import add_study_options, print_json

if TYPE_CHECKING:
    from gpustudy.launch.preflight.checks import Check, Place

_LEAST_COLUMNS, _MOST_COLUMNS = 80, 140
_SECONDS_PER_MINUTE = 60


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("place", nargs="?", metavar="SITE", help="the site (default: local, or what --site says)")
    parser.add_argument(
        "--in-job",
        action="store_true",
        help="look at a compute node too, by a job of 5 minutes at most asked for as a cell is; profile a kernel",
    )
    parser.add_argument(
        "--wait", type=float, default=10.0, metavar="MINUTES", help="cancel that job when it has not ended by then (10)"
    )
    parser.add_argument("--on-node", type=Path, metavar="FILE", help=argparse.SUPPRESS)  # how the job calls this verb
    add_study_options(parser)
    parser.epilog = (
        "examples:\n  gpustudy preflight expanse\n  gpustudy preflight expanse --in-job\n"
        "  gpustudy preflight jetstream2 --json\n\n"
        "Exit code 0: nothing failed; 1: a check failed; 2: the call or the config is wrong."
    )


def run(arguments: argparse.Namespace) -> int:
    """Check the site and print a table; the exit code says whether the study would run."""
    from gpustudy.base.atomic import write_json
    from gpustudy.base.errors import UserError
    from gpustudy.launch.preflight.checks import Place, as_json
    from gpustudy.launch.preflight.survey import node_checks, run_on_node, verdict
    from gpustudy.study.load import load_effective

    if arguments.place and arguments.site and arguments.place != arguments.site:
        raise UserError(f"two sites are named ({arguments.place} and --site {arguments.site}): name one.")
    if not arguments.wait > 0:
        raise UserError(f"--wait {arguments.wait:g} is no time to wait: give minutes above 0.")
    place = Place(load_effective(arguments.configfile, arguments.place or arguments.site))
    if arguments.on_node:
        write_json(
            arguments.on_node, as_json(run_on_node(place, node_checks(place, is_elsewhere=True), with_counters=True))
        )
        return 0
    checks = _all_checks(place, arguments)
    if arguments.json:
        print_json({"site": place.effective.site, "checks": as_json(checks), "exit_code": verdict(checks)})
    else:
        print("\n".join(_table(place, checks)))
    return verdict(checks)


def _all_checks(place: Place, arguments: argparse.Namespace) -> list[Check]:
    """Return what all checks found that can be made from here."""
    from gpustudy.launch.preflight.asked import what_is_asked
    from gpustudy.launch.preflight.checks import FAIL
    from gpustudy.launch.preflight.job import checks_in_job
    from gpustudy.launch.preflight.survey import head_checks, node_checks, node_is_left_out, run_checks, run_on_node

    asked = what_is_asked(place.effective)
    is_on_node = not asked or "SLURMD_NODENAME" in place.environment  # salloc leaves its shell on the login node
    submits = arguments.in_job and not is_on_node
    head = head_checks(place, asked, has_job=submits)
    if is_on_node:
        return run_on_node(place, [*head, *node_checks(place, is_elsewhere=False)], arguments.in_job)
    found = run_checks(place, head)
    if not submits:
        return [*found, node_is_left_out()]
    if any(check.level == FAIL and check.name in ("scheduler", "account", "partition limits") for check in found):
        print("No job is submitted: Slurm would refuse it, or never start it.", file=sys.stderr)
        return [*found, node_is_left_out()]
    wait_s = arguments.wait * _SECONDS_PER_MINUTE
    job = next((one for one in asked if one.gpu in place.cuda_gpus), asked[0])
    return [*found, *checks_in_job(place, job, arguments.configfile, wait_s, lambda line: print(line, file=sys.stderr))]


def _table(place: Place, checks: list[Check]) -> list[str]:
    """Return the lines that a person reads."""
    from gpustudy.launch.preflight.checks import FAIL, LEVELS

    columns = max(_LEAST_COLUMNS, min(_MOST_COLUMNS, shutil.get_terminal_size((120, 24)).columns))
    site = place.site.description
    lines = [f"Preflight of site {place.effective.site}" + (f" ({site})" if site else "") + ".", ""]
    width = max(len(check.name) for check in checks)
    indent = " " * (9 + width + 2)
    for check in checks:
        lines += textwrap.wrap(
            check.sentence,
            columns,
            initial_indent=f"{check.level:<7}  {check.name:<{width}}  ",
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    requests = [check for check in checks if check.to_admins]
    if requests:
        lines += ["", "To send to the site's help desk:"]
        for check in requests:
            lines += textwrap.wrap(f"  {check.name}: {check.to_admins}", columns, subsequent_indent="    ")
    counts = {level: sum(check.level == level for check in checks) for level in LEVELS}
    words = ", ".join(f"{counts[level]} {level}" for level in LEVELS if counts[level])
    end = "The study would not run here: mend what failed." if counts[FAIL] else "The study would run here."
    return [*lines, "", f"{words}. {end}"]
