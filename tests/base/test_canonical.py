"""Canonical JSON and keys: equal meanings have one text, unequal ones do not."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustudy.base.canonical import canonical_json, key_of

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def test_text_is_what_a_hand_would_write():
    assert canonical_json({"b": [1.0, 2.5], "a": "é"}) == '{"a":"é","b":[1,2.5]}'


def test_key_is_the_head_of_the_sha256_of_that_text():
    expected = hashlib.sha256(b'{"a":1}').hexdigest()[:12]
    assert key_of({"a": 1.0}) == expected


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), ([1, 2], (1, 2)), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (-0.0, 0)]
)
def test_equal_meanings_have_one_key(one, other):
    assert key_of(one) == key_of(other)


@pytest.mark.parametrize(("one", "other"), [(1, "1"), (True, 1), (None, "null"), ([1, 2], [2, 1]), (1, 1.0000001)])
def test_other_meanings_have_other_keys(one, other):
    assert key_of(one) != key_of(other)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_without_a_json_form_are_refused(value):
    with pytest.raises(ValueError, match="not a finite number"):
        key_of({"a": [value]})


def test_keys_that_are_no_text_are_refused():
    with pytest.raises(TypeError, match="not a string"):
        key_of({1: 2})


@given(json_values)
def test_canonical_text_is_its_own_canonical_text(value):
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text
