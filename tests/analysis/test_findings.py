"""The sentences say what the numbers say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.findings import sentences
from gpustudy.study.load import Effective
from gpustudy.study.states import survey
from tests.analysis.crafted import TF32_REASON, Crafted

EXPECTED = (
    "25 of 60 cells are done; the others: 15 foreign-missing, 14 foreign-stale, 6 unsupported.",
    "On a100, a step of baseline takes 1.00 s (95% interval 0.951 s to 1.05 s, 3 repeats).",
    "On a100, opt1 is faster than baseline: 2.00x (95% interval 2.00x to 2.00x, 3 repeats).",
    "On a100, opt2 is slower than baseline: 0.80x its speed (95% interval 0.78x to 0.82x, 3 repeats).",
    "On a100, default (accepted) takes the same time as baseline, within the noise floor of 2%: 1.00x "
    "(95% interval 1.00x to 1.00x, 3 repeats).",
    "On a100, opt2 converts memory layouts 48 times an iteration, writing 5.00 GiB.",
    f"On cpu, opt1 and opt12 are unsupported: {TF32_REASON}",
    "On cpu, the class with most of the profiled time is convolution (80% in default, 80% in baseline, 80% in opt2).",
    "On v100, default, baseline, opt1, opt2 and opt12 are missing (foreign): v100 cells are measured at expanse and "
    "imported here.",
)


@pytest.mark.parametrize("sentence", EXPECTED)
def test_known_sentence(sentence: str, full: Dataset) -> None:
    assert sentence in sentences(full)


def test_an_ambiguous_ratio_is_neither_same_nor_different(full: Dataset) -> None:
    (sentence,) = [text for text in sentences(full) if text.startswith("On a100, opt12 c") and "baseline" in text]
    assert sentence.startswith("On a100, opt12 cannot be told from baseline, nor called equal to it: 1.00x")


def test_one_repeat_draws_no_conclusion(tmp_path: Path) -> None:
    crafted = Crafted(tmp_path)
    crafted.done("cpu", "baseline", 1, [1.0, 1.0])
    crafted.done("cpu", "opt2", 1, [0.1, 0.1])
    assert (
        "On cpu, opt2 cannot be told from baseline, nor called equal to it: 10.00x (one repeat, no interval)."
        in sentences(Dataset(crafted.survey()))
    )


def test_no_cells_is_a_sentence_too(tmp_path: Path) -> None:
    assert sentences(Dataset(Crafted(tmp_path).survey())) == [
        "The study has no cells: add a gpu and a config to config.yaml."
    ]


def test_all_done_needs_no_list_of_others(tmp_path: Path) -> None:
    crafted = Crafted(tmp_path)
    crafted.done("cpu", "baseline", 1, [1.0])
    assert sentences(Dataset(crafted.survey()))[0] == "1 of 1 cells are done."


def test_measurements_come_before_claims_and_claims_before_what_is_missing(full: Dataset) -> None:
    found = sentences(full)
    first = {start: next(place for place, text in enumerate(found) if text.startswith(start))
             for start in ("On a100, a step", "Of the paper's 39 claims", "On v100, default")}  # fmt: skip
    assert sorted(first.values()) == list(first.values())


def test_claims_are_counted_named_and_the_main_ones_told(crafted_study: Effective) -> None:
    found = sentences(Dataset(survey(crafted_study)))
    (counted,) = [text for text in found if text.startswith("Of the paper's 39 claims")]
    assert (
        "3 are implausible on these data; 1 is not measured (crafted data: this says nothing of the paper)." in counted
    )
    assert (
        "Implausible: A01 (SM cycles), A02 (dynamic instructions), O2-2 (SM cycles and dynamic instructions)." in found
    )
    (ranking,) = [text for text in found if "This is SUPPORTED" in text and "robust, immediate baseline" in text]
    assert "step_s of a100/opt1 over a100/baseline: 0.2889 x" in ranking


def test_nothing_measured_says_what_the_claims_are_about(tmp_path: Path) -> None:
    crafted = Crafted(tmp_path)
    crafted.absent("cpu", "baseline", 1, "missing")
    assert "None of the paper's 39 claims is measured yet: they are about v100, a100 and h100." in sentences(
        Dataset(crafted.survey())
    )
