"""``gpustudy why``: explain one cell."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from gpustudy.verbs.common import add_study_options, effective_of, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("cell", metavar="GPU/CONFIG/rN", help="the cell to explain")
    add_study_options(parser)
    parser.epilog = "examples:\n  gpustudy why cpu/baseline/r1\n  gpustudy why a100/opt1/r2 --json"


def run(arguments: argparse.Namespace) -> int:
    """Print each stage of the cell: its state, its key, where it lies, and what made it stale."""
    from gpustudy.study.pending import stale_differences
    from gpustudy.study.workplan import Workplan, parse_cell

    plan = Workplan(effective_of(arguments))
    cell, _ = parse_cell(arguments.cell, plan.keys)
    state = next(state for state in plan.survey.cells if state.cell == cell)
    stages = []
    for stage in state.stages:
        found = stale_differences(cell, stage, plan.keys) if stage.state == "stale" else []
        stages.append((stage, found))
    if arguments.json:
        print_json(
            {
                "cell": str(cell),
                "state": state.state,
                "reason": state.reason,
                "null_control": state.null_control,
                "stages": [
                    {
                        "stage": stage.stage,
                        "state": stage.state,
                        "key": stage.key,
                        "raw": stage.raw,
                        "metrics": stage.metrics,
                        "old": stage.old,
                        "accepted": stage.acceptance.as_json() if stage.acceptance else None,
                        "differences": [asdict(difference) for difference in found],
                        "document": plan.keys.document(cell, stage.stage),
                    }
                    for stage, found in stages
                ],
            }
        )
        return 0
    print(f"{cell}: {state.state}" + (f" ({state.reason})" if state.reason else ""))
    if state.null_control:
        print(f"  null control: this device cannot apply {', '.join(state.null_control)}; the rest was run")
    for stage, found in stages:
        tables = "with tables" if stage.metrics else "without tables"
        print(f"  {stage.stage}-{stage.key}: {stage.state}" + (f", {tables}" if stage.raw or stage.metrics else ""))
        for difference in found:
            print(f"    {difference}")
        if stage.acceptance:
            print(f"    accepted by {stage.acceptance.who} on {stage.acceptance.when}: {stage.acceptance.reason}")
            print(f"    {stage.acceptance.old} stands for {stage.acceptance.new}, though these differ:")
            for field in stage.acceptance.differing:
                print(f"      {field}")
        for path in (stage.raw, stage.metrics):
            if path:
                print(f"    {path}")
        for path in stage.old:
            print(f"    of another key: {path}")
    return 0
