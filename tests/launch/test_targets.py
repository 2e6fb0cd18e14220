"""A mistyped target of Snakemake is told with the nearest one; names, rules and files pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustudy.base.errors import UserError
from gpustudy.launch.targets import check_targets
from gpustudy.study.load import Effective, read_yaml, validate
from gpustudy.study.workplan import Workplan


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Workplan:
    study = validate([(repository / "config.yaml", read_yaml(repository / "config.yaml"))])
    return Workplan(Effective(study, "local", tmp_path_factory.mktemp("targets") / "results"))


@pytest.mark.parametrize(
    ("target", "near"),
    [("step_tim", "step_time"), ("sumary", "summary"), ("opt21", "opt2"), ("cpus", "cpu"), ("reprot", "report")],
)
def test_a_mistyped_target_is_answered_with_the_nearest(target: str, near: str, plan: Workplan) -> None:
    with pytest.raises(UserError, match=rf"there is no target '{target}': did you mean '{near}\w*'\?"):
        check_targets(plan, ["all", target])


def test_names_rules_and_files_pass(plan: Workplan) -> None:
    check_targets(plan, ["all", "figures", "cpu", "a100", "opt12", "speedup", "states", "appendix", "report"])
    check_targets(plan, ["make_metrics", "draw_speedup", "make_summary", "write_report", "gather_tables"])
    check_targets(plan, ["results/metrics/cpu/opt2/r1/train-0/metrics.json", "report.html"])
