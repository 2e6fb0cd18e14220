"""Targets of a call of Snakemake: a mistyped one is answered with the nearest, before anything is planned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpustudy.base.errors import UserError
from gpustudy.base.words import nearest
from gpustudy.study.load import ROOT
from gpustudy.study.workplan import Workplan

_RULE = re.compile(r"^ *rule (\w+):", re.MULTILINE)


def check_targets(plan: Workplan, targets: Iterable[str]) -> None:
    """Refuse a target that is neither a name that people use nor a rule nor a file.

    Args:
        plan: the work plan, which knows figures, tables, gpus and configs.
        targets: what Snakemake was asked for.

    Raises:
        UserError: naming the nearest target.
    """
    known = {
        *plan.all_products,
        *plan.config_names,
        *plan.runnable_gpus,
        *plan.foreign_gpus,
        "all",
        "figures",
        "tables",
    }
    internal = {*_rules(), *(f"draw_{name}" for name in plan.figure_names)}
    internal |= {f"make_{name}" for name in plan.table_names}
    for target in targets:
        is_file = "/" in target or "." in target or Path(target).exists()
        if not is_file and target not in known and target not in internal:
            raise UserError(f"there is no target '{target}': {nearest(target, known)}")


def _rules() -> Iterator[str]:
    """Yield the names of all rules that have one of their own."""
    for path in [ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")]:
        yield from _RULE.findall(path.read_text(encoding="utf-8"))
