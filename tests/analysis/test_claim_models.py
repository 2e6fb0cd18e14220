"""The claims file: what it refuses, in one sentence that names the claim and the key."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustudy.analysis.claim_bounds import BOUNDS, bounded
from gpustudy.analysis.claim_models import COUNTER_SCOPES, Check, load_claims, read_claims
from gpustudy.analysis.claim_values import DERIVED
from gpustudy.analysis.names import FIGURES, TABLES
from gpustudy.base.errors import UserError
from gpustudy.metrics.classes import CLASSES

CHECK = {"quantity": "ipc", "measure": "ratio", "operator": "up", "because": "any rise"}
CLAIM = {
    "id": "X1", "sentence": "S.", "source": "here", "metric": "ipc", "gpus": ["a100"], "configs": ["opt1"],
    "readings": [{"name": "one", "checks": [CHECK]}],
}  # fmt: skip


def read(folder: Path, change: dict[str, Any] | None = None, check: dict[str, Any] | None = None) -> None:
    claim = copy.deepcopy(CLAIM) | (change or {})
    if check is not None:
        claim["readings"] = [{"name": "one", "checks": [CHECK | check]}]
    path = folder / "claims.yaml"
    path.write_text(yaml.safe_dump({"paper": "P.", "claims": [claim]}))
    read_claims(path)


def test_a_minimal_claim_is_read(tmp_path: Path) -> None:
    read(tmp_path)


@pytest.mark.parametrize(
    ("change", "check", "said"),
    [
        ({"scopees": []}, None, "claim X1: scopees: unknown key"),
        ({"sentence": ""}, None, "claim X1: sentence"),
        ({"id": "x 1"}, None, "claim x 1: id"),
        ({"readings": []}, None, "claim X1: readings"),
        (None, {"operator": "roughly"}, "claim X1: readings.0.checks.0.operator"),
        (None, {"operator": "between"}, "operator between takes a number or two as 'expected'"),
        (None, {"operator": "between", "expected": 1}, "a single expected number needs a tolerance"),
        (None, {"operator": "between", "expected": [2, 1]}, "the smaller one first"),
        (None, {"operator": "up", "expected": 3}, "operator up takes nothing as 'expected'"),
        (None, {"measure": "value"}, "operator up needs measure ratio or difference"),
        (None, {"measure": "difference", "bound": "least_cycles"}, "a bound is one of ratios"),
        (None, {"factor": 0.5}, "factor"),
        (None, {"because": ""}, "because"),
        (
            None,
            {"quantity": "stepp_s"},
            "claim X1: readings.0.checks.0.quantity: unknown quantity 'stepp_s': did you mean 'step_s'?",
        ),
        (None, {"quantity": ["ipc", "cuda_core_pc"]}, "did you mean 'cuda_core_pct'?"),
    ],
)
def test_a_mistake_is_told_with_claim_and_key(
    tmp_path: Path, change: dict[str, Any] | None, check: dict[str, Any] | None, said: str
) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as raised:
        read(tmp_path, change, check)
    assert str(raised.value).startswith(str(tmp_path))


def test_a_file_that_is_no_yaml_is_told(tmp_path: Path) -> None:
    (tmp_path / "claims.yaml").write_text("claims: [")
    with pytest.raises(UserError, match="cannot be read as claims"):
        read_claims(tmp_path / "claims.yaml")


@pytest.mark.parametrize(
    ("check", "low", "high"),
    [
        ({"operator": "between", "expected": [0.01, 0.02], "factor": 1.5}, 0.01 / 1.5, 0.03),
        ({"operator": "between", "expected": 85.0, "margin": 5.0}, 80, 90),
        ({"operator": "at_least", "expected": 80.0}, 80, float("inf")),
        ({"operator": "at_most", "expected": 0.0, "margin": 0.02}, float("-inf"), 0.02),
    ],
)
def test_tolerances_widen_what_is_accepted(check: dict[str, Any], low: float, high: float) -> None:
    assert Check.model_validate(CHECK | check).accepted == (pytest.approx(low), pytest.approx(high))


def test_every_class_figure_and_bound_is_known() -> None:
    for claim in load_claims():
        assert set(claim.figures) <= set(FIGURES) | set(TABLES), claim.id
        for reading in claim.readings:
            for check in reading.checks:
                assert set(check.classes) <= set(CLASSES), claim.id
                assert check.bound is None or check.bound in BOUNDS


def test_every_gpu_and_config_of_a_claim_is_in_the_study_of_the_paper(repository: Path) -> None:
    study = yaml.safe_load((repository / "config.yaml").read_text())
    for claim in load_claims():
        assert set(claim.gpus) <= set(study["gpus"]), claim.id
        assert set(claim.configs) <= set(study["configs"]), claim.id


def test_bounds_are_of_totals_alone() -> None:
    assert [scope for scope in (*COUNTER_SCOPES, "total_cache_none") if bounded(scope)] == ["total", "total_cache_none"]


def test_the_document_names_every_derived_quantity(repository: Path) -> None:
    text = (repository / "docs" / "claims.md").read_text()
    assert [name for name in DERIVED if f"`{name}`" not in text] == []


def test_the_example_of_the_document_is_a_claim(repository: Path, tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", (repository / "docs" / "claims.md").read_text(), re.DOTALL)
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump({"paper": "P.", "claims": yaml.safe_load(example)}))
    (claim,) = read_claims(tmp_path / "claims.yaml").claims
    assert claim.readings[0].checks[0].accepted == (pytest.approx(0.4), pytest.approx(0.6))
