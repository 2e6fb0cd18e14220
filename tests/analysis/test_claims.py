"""The claims on crafted worlds: in one the paper is right, in one it is wrong; single numbers turn single verdicts."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustudy.analysis.claim_models import load_claims
from gpustudy.analysis.claims import (
    AMBIGUOUS,
    CONTRADICTED,
    IMPLAUSIBLE,
    NOT_MEASURED,
    SUPPORTED,
    Judgement,
    evidence,
    judge_all,
)
from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.evidence import by_verdict
from gpustudy.base.errors import UserError
from gpustudy.study.load import Effective
from gpustudy.study.states import survey
from tests.analysis.claim_truths import against_the_paper, as_the_paper_says
from tests.support.crafted_study import Truth, craft_study, crafted_effective

CLAIMS = 39
"""Claims of the paper, as counted from its text."""
CONFIGS = ("baseline", "opt1", "opt2", "opt12")


def judged(dataset: Dataset) -> dict[str, Judgement]:
    return {one.claim.id: one for one in judge_all(dataset)}


def a_world(folder: Path, truth: Truth) -> dict[str, Judgement]:
    truth.repeats = 2
    truth.absent.add("cpu")
    return judged(Dataset(survey(craft_study(crafted_effective(folder, configs=CONFIGS), truth))))


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    return a_world(tmp_path_factory.mktemp("right"), as_the_paper_says())


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    return a_world(tmp_path_factory.mktemp("wrong"), against_the_paper())


@pytest.fixture(scope="module")
def plain(crafted_study: Effective) -> dict[str, Judgement]:
    """The crafted study as its kernels make it."""
    return judged(Dataset(survey(crafted_study)))


@pytest.fixture
def told(crafted_study: Effective, tmp_path: Path) -> Callable[[Truth, str], Judgement]:
    """Judge one claim where a truth sets some answers of the crafted study."""

    def judge(truth: Truth, name: str) -> Judgement:
        effective = craft_study(crafted_effective(tmp_path / "told"), truth, base=crafted_study.results)
        (one,) = judge_all(Dataset(survey(effective)), [name])
        return one

    return judge


def test_all_claims_are_there(shared_facts: Path) -> None:
    with (shared_facts / "paper_claims.csv").open(newline="") as stream:
        listed = [row["id"] for row in csv.DictReader(stream)]
    assert [claim.id for claim in load_claims()] == listed
    assert len(listed) == CLAIMS


def test_every_claim_says_what_it_is_judged_by() -> None:
    for claim in load_claims():
        assert all((claim.sentence, claim.source, claim.metric, claim.figures)), claim.id
        for reading in claim.readings:
            assert reading.scopes or claim.scopes, claim.id


OPEN_IN_ANY_WORLD = {
    "S05": AMBIGUOUS,  # 250 timesteps are hundreds, the 50 steps of the study's sampler are not
    "S06": NOT_MEASURED,  # an extrapolation
}


def test_where_the_paper_is_right_its_claims_are_supported(right: dict[str, Judgement]) -> None:
    verdicts = {name: one.verdict for name, one in right.items()}
    assert verdicts == dict.fromkeys(verdicts, SUPPORTED) | OPEN_IN_ANY_WORLD
    assert len(verdicts) == CLAIMS


def test_where_the_paper_is_wrong_its_claims_are_contradicted(wrong: dict[str, Judgement]) -> None:
    still = {
        "S01": SUPPORTED,  # the devices are as they are
        "S03": SUPPORTED,  # so is the length of the run
        "S05": AMBIGUOUS,
        "S06": NOT_MEASURED,
    }
    verdicts = {name: one.verdict for name, one in wrong.items()}
    assert verdicts == dict.fromkeys(verdicts, CONTRADICTED) | still


def test_a_number_that_no_physics_allows_is_implausible_and_says_in_which_scope(plain: dict[str, Judgement]) -> None:
    one = plain["O2-2"]
    assert one.verdict == IMPLAUSIBLE
    assert {finding.scope for finding in one.findings if finding.outcome == "impossible"} == {"total"}
    assert "physical bound" in one.why
    # 18 convolutions of 40 GFLOP, two of 20 and two products of 2: 382 G multiply-adds, 32 an FFMA, over what the
    # crafted baseline executes in 133 ms of arithmetic and 15.3 ms of the rest, twice as long on the V100
    number = next(number for finding in one.findings for number in finding.numbers
                  if (number.quantity, number.gpu, number.scope) == ("warp_instructions", "v100", "total"))  # fmt: skip
    executed = 2.4 * 0.9 * 2.0 * 1.53e9 * 80 * 0.133 + 0.5 * 0.9 * 2.0 * 1.53e9 * 80 * 0.0153
    assert number.bound == pytest.approx(764e9 / 2 / 32 / executed, rel=1e-3)


def test_single_launches_that_show_it_make_it_ambiguous(told: Callable[[Truth, str], Judgement]) -> None:
    truth = Truth()
    for gpu in ("v100", "a100", "h100"):
        for quantity in ("sm_active_cycles", "warp_instructions"):
            truth.values[gpu, "baseline", quantity, "launch_median"] = 1e6
            truth.values[gpu, "opt2", quantity, "launch_median"] = 1.5e4
    one = told(truth, "O2-2")
    assert one.verdict == AMBIGUOUS
    assert "Holds as launch_median" in one.why
    assert "Beyond a physical bound as total" in one.why


def test_a_measured_total_under_the_bound_is_not_believed(told: Callable[[Truth, str], Judgement]) -> None:
    truth = Truth()
    for gpu in ("v100", "a100", "h100"):
        truth.values[gpu, "opt2", "warp_instructions", "total"] = 1.0
    one = told(truth, "A02")
    assert one.verdict == IMPLAUSIBLE
    assert "did not do equal work" in "".join(number.why for finding in one.findings for number in finding.numbers)


def test_a_single_repeat_decides_nothing(crafted_study: Effective, tmp_path: Path) -> None:
    truth = Truth(repeats=1)
    effective = craft_study(crafted_effective(tmp_path), truth, base=crafted_study.results)
    (one,) = judge_all(Dataset(survey(effective)), ["K01"])
    assert one.verdict == AMBIGUOUS
    assert "one repeat has no interval" in one.why


def test_a_gpu_without_data_leaves_a_claim_about_all_open(told: Callable[[Truth, str], Judgement]) -> None:
    one = told(Truth(absent={"h100"}), "K01")
    assert one.verdict == AMBIGUOUS
    assert "h100/baseline" in one.why
    (group,) = by_verdict([one])
    rows = [text for shown in group.claims for reading in shown.readings for text, _ in reading.numbers]
    assert any("h100/baseline: not measured" in text for text in rows)  # what leaves it open is in the evidence too


def test_one_gpu_is_enough_for_up_to(told: Callable[[Truth, str], Judgement]) -> None:
    truth = Truth(absent={"h100"})
    for scope in ("total", "launch_mean", "launch_median", "first_n"):
        for quantity in ("sm_active_cycles", "elapsed_cycles"):
            truth.values["a100", "baseline", quantity, scope] = 1e12
            truth.values["a100", "opt1", quantity, scope] = 2e11
    assert told(truth, "O1-1").verdict == SUPPORTED


def test_cpu_cells_measure_nothing_of_a_gpu(crafted_study: Effective, tmp_path: Path) -> None:
    truth = Truth(absent={"v100", "a100", "h100"})
    effective = craft_study(crafted_effective(tmp_path / "cpu"), truth, base=crafted_study.results)
    verdicts = {one.claim.id: one.verdict for one in judge_all(Dataset(survey(effective)))}
    assert set(verdicts.values()) == {NOT_MEASURED}


def test_no_cell_at_all_gives_every_claim_as_not_measured(tmp_path: Path) -> None:
    found = judge_all(Dataset(survey(crafted_effective(tmp_path))))
    assert {one.verdict for one in found} == {NOT_MEASURED}
    assert not any(one.crafted or one.cells for one in found)
    (told,) = [one.why for one in found if one.claim.id == "O1-2"]
    assert "a100/opt1: of multiply-adds alone the ratio would be at least 0.0312" in told  # 32 / 1024


def test_without_counted_operations_no_bound_judges_a_measured_total(tmp_path: Path) -> None:
    truth = Truth(lacking={"census", "quality"}, absent={"v100", "h100", "cpu"}, repeats=2)
    for scope in ("total", "launch_mean", "launch_median", "first_n"):
        truth.values["a100", "baseline", "warp_instructions", scope] = 1e12
        truth.values["a100", "opt2", "warp_instructions", scope] = 0.5e12  # under 1, the bound of ideal work
    found = judge_all(Dataset(survey(craft_study(crafted_effective(tmp_path, configs=CONFIGS), truth))), ["A02"])
    assert found[0].verdict in (CONTRADICTED, AMBIGUOUS)
    assert all(number.bound is None for finding in found[0].findings for number in finding.numbers)


def test_a_model_never_supports_a_claim(crafted_study: Effective) -> None:
    dataset = Dataset(survey(crafted_study))
    dataset.quantities = dataset.quantities.assign(origin="modelled")  # type: ignore[misc]  # over the cached property
    verdicts = {one.claim.id: one.verdict for one in judge_all(dataset)}
    by_provenance = {"S02", "S04"}
    assert {verdict for name, verdict in verdicts.items() if name not in by_provenance} == {NOT_MEASURED}


def test_a_modelled_reason_is_told(plain: dict[str, Judgement]) -> None:
    assert plain["S06"].verdict == NOT_MEASURED
    assert "8.25 h" in plain["S06"].why  # 0.297 s on the crafted V100 x 100,000 / 3600


def test_evidence_names_cells_numbers_and_the_crafted_origin(plain: dict[str, Judgement]) -> None:
    content = json.loads(json.dumps(evidence(tuple(plain.values())), allow_nan=False))
    assert content["crafted"] is True
    assert sorted(name for names in content["verdicts"].values() for name in names) == sorted(plain)
    g3 = next(claim for claim in content["claims"] if claim["id"] == "G3")
    assert "h100/opt2/r3" in g3["cells"]
    number = g3["findings"][0]["numbers"][0]
    assert (number["origin"], number["repeats"]) == ("crafted", [1, 2, 3])
    assert number["estimate"]["value"] == pytest.approx(0.0429 / 0.1485, rel=1e-3)


def test_a_null_control_is_named_where_its_number_stands(plain: dict[str, Judgement]) -> None:
    texts = [str(number) for finding in plain["O12-2"].findings for number in finding.numbers]
    assert any("of v100/opt12 (null control): " in text for text in texts)
    assert any("of h100/opt12: " in text for text in texts)


def test_an_unknown_claim_is_told_with_the_nearest(crafted_study: Effective) -> None:
    with pytest.raises(UserError, match="unknown claim 'O1-99': did you mean 'O1-9'"):
        judge_all(Dataset(survey(crafted_study)), ["O1-99"])
