"""What changed between two sides: verdicts beyond noise, by class and kernel, on tables with known answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gpustudy.analysis.changes import Change, Comparison, compare
from gpustudy.analysis.sides import Side
from gpustudy.study.states import Survey
from tests.analysis.crafted import CLASS_NS, Crafted

REPEATS = (1, 2, 3)
SPREAD = (0.99, 1.0, 1.01)
"""What each repeat multiplies a time with: the same on both sides, so that pairing takes it out."""


def side(
    root: Path, factors: Sequence[float], *, gpu: str = "cpu", config: str = "baseline", slower: float = 1.0
) -> Side:
    crafted = Crafted(root)
    for repeat, spread, factor in zip(REPEATS, SPREAD, factors, strict=False):
        crafted.done("cpu", "baseline", repeat, [spread * factor] * 5, slower=slower, peak_bytes=1000)
    return Side(str(root), crafted.survey())


def step_time(found: Comparison) -> Change:
    (pair,) = found.pairs
    assert pair.step_time is not None
    return pair.step_time


@pytest.mark.parametrize(
    ("factors", "verdict", "ratio"),
    [
        ((0.8, 0.8, 0.8), "FASTER", 1.25),
        ((1.25, 1.25, 1.25), "SLOWER", 0.8),
        ((1.01, 1.0, 0.99), "AMBIGUOUS", 1.0),  # logarithms -0.01, 0, 0.01: the interval is +-2.5 %, the floor 2 %
        ((1.001, 1.0, 0.999), "SAME", 1.0),
    ],
)
def test_step_times_have_the_verdict_of_their_interval(
    factors: tuple[float, ...], verdict: str, ratio: float, tmp_path: Path
) -> None:
    found = step_time(compare(side(tmp_path / "a", (1.0, 1.0, 1.0)), side(tmp_path / "b", factors)))
    assert found.verdict == verdict
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(ratio, rel=1e-3)
    assert found.ratio.n == 3


def test_the_noise_floor_decides_what_is_the_same(tmp_path: Path) -> None:
    one, two = side(tmp_path / "a", (1.0, 1.0, 1.0)), side(tmp_path / "b", (1.05, 1.05, 1.05))
    assert step_time(compare(one, two)).verdict == "SLOWER"
    assert step_time(compare(one, two, noise_floor=0.1)).verdict == "SAME"


def test_one_repeat_decides_nothing(tmp_path: Path) -> None:
    found = step_time(compare(side(tmp_path / "a", (1.0,)), side(tmp_path / "b", (3.0,))))
    assert found.verdict == "AMBIGUOUS"
    assert found.ratio is not None
    assert found.ratio.low is None


def test_both_values_are_over_the_repeats_of_the_ratio(tmp_path: Path) -> None:
    one, two = side(tmp_path / "a", (1.0, 1.0, 10.0)), side(tmp_path / "b", (2.0, 2.0))  # the third repeat is missing
    found = step_time(compare(one, two))
    assert found.before == pytest.approx((0.99 * 1.0) ** 0.5)
    assert found.after == pytest.approx(2 * (0.99 * 1.0) ** 0.5)
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(0.5)


def test_classes_and_kernels_are_compared_by_their_time_in_a_step(tmp_path: Path) -> None:
    (pair,) = compare(side(tmp_path / "a", (1.0,) * 3), side(tmp_path / "b", (1.0,) * 3, slower=1.5)).pairs
    classes = {one.what: one for one in pair.classes}
    assert pair.classes[0].what == "convolution"  # the largest difference first
    assert classes["convolution"].before == pytest.approx(0.8)
    assert classes["convolution"].after == pytest.approx(1.2)
    assert classes["convolution"].verdict == "SLOWER"
    assert (pair.kernels[0].what, pair.kernels[0].phase) == ("convolution_kernel", "backward")
    assert len(pair.kernels) == len(CLASS_NS)


def test_a_kernel_of_one_side_alone_is_told_and_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = side(tmp_path / "a", (1.0,) * 3)
    monkeypatch.delitem(CLASS_NS, ("backward", "elementwise"))
    monkeypatch.setitem(CLASS_NS, ("backward", "layout"), 90_000_000)
    monkeypatch.setitem(CLASS_NS, ("backward", "dust"), 900_000)  # under a thousandth of the step
    (pair,) = compare(one, side(tmp_path / "b", (1.0,) * 3)).pairs
    told = {one.what: one.verdict for one in pair.kernels}
    assert told["elementwise_kernel"] == "ONLY A"
    assert told["layout_kernel"] == "ONLY B"
    assert "dust_kernel" not in told


def test_memory_is_more_or_less_and_not_faster(tmp_path: Path) -> None:
    one, two = side(tmp_path / "a", (1.0,) * 3), Crafted(tmp_path / "b")
    for repeat in REPEATS:
        two.done("cpu", "baseline", repeat, [1.0] * 5, peak_bytes=2000)
    (pair,) = compare(one, Side("b", two.survey())).pairs
    (memory,) = pair.others
    assert (memory.what, memory.verdict) == ("peak memory", "MORE")
    assert memory.before == pytest.approx(1000)
    assert memory.after == pytest.approx(2000)


def test_groups_are_paired_by_gpu_and_config_but_for_what_was_chosen(tmp_path: Path) -> None:
    crafted = Crafted(tmp_path)
    for gpu in ("a100", "h100"):
        for config in ("baseline", "opt1"):
            crafted.done(gpu, config, 1, [1.0])
    crafted.done("h100", "opt2", 1, [1.0])
    whole = crafted.survey()

    def chosen(gpu: str | None, config: str | None) -> Side:
        cells = tuple(cell for cell in whole.cells if gpu in (None, cell.gpu) and config in (None, cell.config))
        return Side("", Survey(whole.study, whole.site, whole.results, cells), gpu, config)

    def pairs(one: Side, two: Side) -> list[tuple[str, str]]:
        return [(pair.first, pair.second) for pair in compare(one, two).pairs]

    assert pairs(chosen("a100", None), chosen("h100", None)) == [
        ("a100/baseline", "h100/baseline"), ("a100/opt1", "h100/opt1"),
    ]  # fmt: skip
    assert pairs(chosen(None, "baseline"), chosen(None, "opt1")) == [
        ("a100/baseline", "a100/opt1"), ("h100/baseline", "h100/opt1"),
    ]  # fmt: skip
    assert pairs(chosen("a100", "baseline"), chosen("h100", "opt2")) == [("a100/baseline", "h100/opt2")]
    assert len(pairs(chosen(None, None), chosen(None, None))) == 5
    assert compare(chosen("a100", None), chosen("h100", None)).only_second == ("h100/opt2",)


def test_crafted_values_are_said_to_be_so(tmp_path: Path) -> None:
    assert compare(side(tmp_path / "a", (1.0,)), side(tmp_path / "b", (1.0,))).crafted
