"""The catalogue's expressions: arithmetic over metrics, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustudy.metrics.expressions import Term, parse


def evaluate(text: str, **metrics: float) -> float:
    expression = parse(text)
    values = {term: np.array([metrics[term.metric]]) for term in expression.terms}
    return float(np.broadcast_to(expression.evaluate(values), (1,))[0])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", 6.0),
        ("a + b * 2", 10.0),
        ("(a + b) * 2", 16.0),
        ("a - b - 1", 3.0),  # from left to right
        ("a / b / 3", 1.0),
        ("100 * b / (a + b)", 25.0),
        ("0.5*a", 3.0),
    ],
)
def test_arithmetic_follows_the_usual_order(text: str, value: float) -> None:
    assert evaluate(text, a=6.0, b=2.0) == value


def test_names_of_metrics_keep_their_dots_and_colons() -> None:
    terms = parse("a__b.sum.per_second / group:memory__x.avg{FFMA|HFMA2_32I}").terms
    assert terms == (Term("a__b.sum.per_second"), Term("group:memory__x.avg", frozenset({"FFMA", "HFMA2_32I"})))


def test_a_denominator_of_zero_gives_no_value() -> None:
    assert np.isnan(evaluate("a / b", a=1.0, b=0.0))


def test_a_missing_value_stays_missing() -> None:
    assert np.isnan(evaluate("a + b", a=1.0, b=float("nan")))


@pytest.mark.parametrize(
    "text", ["", "a +", "(a", "a)", "a b", "a ** 2", "-", "f(a)", "a{}", "a{x}", "'a'", "a;b", "1e5"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expression"):
        parse(text)


@given(st.text(alphabet="abc_.:+-*/(){}|AB019 '\"[]=", max_size=25))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parse(text)
    except ValueError:
        return


@given(st.lists(st.sampled_from(["a", "b", "2", "3.5"]), min_size=1, max_size=6), st.data())
def test_expressions_agree_with_python(operands: list[str], data: st.DataObject) -> None:
    text = operands[0]
    for operand in operands[1:]:
        text += data.draw(st.sampled_from([" + ", " - ", " * ", " / "])) + operand
    assert evaluate(text, a=7.0, b=4.0) == pytest.approx(eval(text, {"a": 7.0, "b": 4.0}))
