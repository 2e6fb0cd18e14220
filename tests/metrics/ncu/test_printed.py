"""Numbers in the locales that ncu was run in."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustudy.metrics.ncu.printed import MixedLocaleError, read_number, uses_decimal_comma
from tests.metrics.ncu.csv_builder import LOCALES, printed


@pytest.mark.parametrize(
    ("text", "decimal_comma", "number"),
    [
        ("12,319,469", False, "12319469"),
        ("4,963,609,951.19", False, "4963609951.19"),
        ("17.424.096", True, "17424096"),
        ("76,79", True, "76.79"),
        ("6.219.038.720", True, "6219038720"),
        ("277.276032", True, "277.276032"),  # scaled values stay in the C locale, also in a German file
        ("22 084 542", True, "22084542"),
        ("1\u202f234,50", True, "1234.50"),
        ("1'234'567", False, "1234567"),
        ("1.234", True, "1234"),
        ("1.234", False, "1.234"),
        ("-3.5e-05", False, "-0.000035"),
        ("(!) 101.25", False, "101.25"),
        ("nan", False, "NaN"),
        ("-nan", False, "NaN"),
        ("(!) nan", False, "NaN"),
        ("inf", False, "Infinity"),
    ],
)
def test_a_number_is_read_in_its_locale(text: str, decimal_comma: bool, number: str) -> None:
    found = read_number(text, decimal_comma=decimal_comma)
    assert str(found) == str(Decimal(number))


@pytest.mark.parametrize("text", ["n/a", "", "CachePreferNone", "0-23", "1,2,3", "(1, 2)", "NVIDIA A100"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert read_number(text, decimal_comma=False) is None


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1,234", "56.78"], False),
        (["1,234", "1234567"], False),
        (["17.424.096", "277.276032"], True),
        (["76,79", "1.234"], True),
        (["22 084 542", "76,79"], True),
        (["3.008000"], False),
        ([], False),
    ],
)
def test_the_locale_is_inferred_from_all_numbers_of_a_file(texts: list[str], expected: bool) -> None:
    assert uses_decimal_comma(texts) is expected


def test_numbers_of_two_locales_in_one_file_are_refused() -> None:
    with pytest.raises(MixedLocaleError, match="two locales"):
        uses_decimal_comma(["12,319,469", "17.424.096"])


@given(
    value=st.decimals(min_value=0, max_value=10**15, places=2),
    locale=st.sampled_from(sorted(LOCALES)),
)
def test_every_printed_number_is_read_back(value: Decimal, locale: str) -> None:
    text = printed(value, locale)
    evidence = printed(Decimal("1234567.25"), locale)
    decimal_comma = uses_decimal_comma([text, evidence])
    assert decimal_comma is (locale in ("de", "fr"))
    assert read_number(text, decimal_comma=decimal_comma) == value
