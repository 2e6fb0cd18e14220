"""Drawing what ``snakemake --report`` shows before it looks: it ends at the first file that is not there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gpustudy.study.workplan import Workplan

_REPORT = re.compile(r"--report(=.*)?")


def draw_for_report(plan: Workplan, words: Sequence[str]) -> None:
    """Draw every figure and table that is missing or not current, where ``words`` ask Snakemake for its report.

    Figures exist for whatever cells there are, with none at all too; no cell is run for it. The process ends where
    one cannot be drawn, after the sentence that says why.

    Args:
        plan: the work plan; its markers say which products are current.
        words: Snakemake's command line.
    """
    if not any(_REPORT.fullmatch(word) for word in words):
        return
    for verb, names, suffix in (("figure", plan.figure_names, ".svg"), ("table", plan.table_names, ".html")):
        folder = plan.results / f"{verb}s"
        wanted = [
            name
            for name in names
            if not (Path(plan.markers[name]).is_file() and (folder / f"{name}{suffix}").is_file())
        ]
        if wanted:
            print(f"Drawing {len(wanted)} {verb}s of the cells at hand for the report.", file=sys.stderr)
            command = [sys.executable, "-m", "gpustudy", verb, *wanted, "-o", str(folder)]
            done = subprocess.run(command, stdout=subprocess.DEVNULL)
            if done.returncode:
                raise SystemExit(done.returncode)
