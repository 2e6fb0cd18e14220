"""``gpustudy status``: the gpu x config matrix of cell states."""

from __future__ import annotations

import argparse
from collections import Counter

from gpustudy.study.states import Survey
from gpustudy.verbs.common import add_study_options, effective_of, print_json, require_known


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_study_options(parser)
    parser.add_argument("--gpu", action="append", default=[], help="show this gpu alone (may be repeated)")
    parser.epilog = "examples:\n  gpustudy status\n  gpustudy status --gpu cpu --json\n  gpustudy status --site expanse"


def run(arguments: argparse.Namespace) -> int:
    """Print the matrix."""
    from gpustudy.archive.garbage import old_results
    from gpustudy.study.cells import Keys
    from gpustudy.study.states import survey

    effective = effective_of(arguments)
    keys = Keys(effective)
    require_known("gpu", arguments.gpu, effective.study.gpus)
    seen = survey(effective, keys)
    shown = [state for state in seen.cells if not arguments.gpu or state.gpu in arguments.gpu]
    if arguments.json:
        print_json(
            [
                {
                    "gpu": state.gpu,
                    "config": state.config,
                    "repeat": state.repeat,
                    "state": state.state,
                    "reason": state.reason,
                    "null_control": state.null_control,
                    "accepted": state.accepted,
                    "stages": {stage.stage: {"state": stage.state, "key": stage.key} for stage in state.stages},
                }
                for state in shown
            ]
        )
        return 0
    print("\n".join(_matrix(seen, arguments.gpu)))
    old = old_results(effective, seen)
    if old:
        size = sum(garbage.size for garbage in old)
        print(f"Old results that nothing needs: {size / 1e6:.1f} MB in {len(old)} folders ('gpustudy gc' lists them).")
    return 0


def _matrix(seen: Survey, chosen: list[str]) -> list[str]:
    gpus = [gpu for gpu in seen.study.gpus if not chosen or gpu in chosen]
    counts: dict[tuple[str, str], Counter[str]] = {}
    for state in seen.cells:
        word = f"{state.state}{' (accepted)' if state.accepted else ''}"
        counts.setdefault((state.gpu, state.config), Counter())[word] += 1
    rows = [["", *seen.study.configs]]
    for gpu in gpus:
        words = [counts[gpu, config] for config in seen.study.configs]
        rows.append([gpu, *(", ".join(f"{number} {name}" for name, number in word.items()) for word in words)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    reasons: dict[str, list[str]] = {}
    for state in seen.cells:
        if state.reason and state.gpu in gpus:
            reasons.setdefault(state.reason.replace(f"{state.cell} ", ""), []).append(str(state.cell))
    here = ", ".join(seen.study.sites[seen.site].gpus)
    lines += ["", f"Seen from site {seen.site}, which can run: {here}."]
    return lines + [f"  {', '.join(cells)}: {reason}" for reason, cells in sorted(reasons.items())]
