"""The table of failures: every row is recognised by its text, and causes win over their consequences."""

from __future__ import annotations

import pytest

from gpustudy.cell.ncu_failures import (
    FAILED,
    FATAL,
    IGNORE,
    INFRASTRUCTURE,
    ROWS,
    UNAVAILABLE,
    WARN,
    fatal_row,
    killing_row,
    row,
    warning_rows,
)
from tests.cell.ncu_texts import FINDINGS, GOOD_LOG, TEXTS

CASES = [(name, text) for name, texts in TEXTS.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), CASES, ids=[f"{name}-{index}" for index, (name, _) in enumerate(CASES)])
def test_text_leads_to_its_row(name: str, text: str) -> None:
    expected = row(name)
    if expected.outcome in FATAL:
        assert fatal_row(text) is expected
    elif expected.outcome == WARN:
        assert expected in warning_rows(text)
        assert fatal_row(text) is None
    else:
        assert expected.outcome == IGNORE
        assert expected.matches(text)
        assert fatal_row(text) is None
        assert not warning_rows(text)


def test_every_row_has_a_text_or_is_a_finding() -> None:
    assert {r.name for r in ROWS} == set(TEXTS) | set(FINDINGS)
    assert all(bool(r.patterns) == (r.name not in FINDINGS) for r in ROWS)
    assert len({r.name for r in ROWS}) == len(ROWS)


def test_all_twenty_one_known_troubles_are_rows() -> None:
    assert {r.number for r in ROWS} - {0} == set(range(1, 22))


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("permission", UNAVAILABLE),
        ("driver-busy", UNAVAILABLE),
        ("driver", UNAVAILABLE),
        ("lock-file", INFRASTRUCTURE),
        ("application", INFRASTRUCTURE),
        ("no-kernels", FAILED),
        ("no-backward", FAILED),
        ("replay-memory", FAILED),
        ("launch-failed", FAILED),
        ("stall", FAILED),
        ("names-changed", WARN),
    ],
)
def test_outcome_of_row(name: str, outcome: str) -> None:
    assert row(name).outcome == outcome


def test_busy_driver_alone_is_tried_again() -> None:
    assert [r.name for r in ROWS if r.is_retried] == ["driver-busy"]


def test_program_that_trains_on_without_counters_is_killed() -> None:
    assert killing_row(TEXTS["permission"][0]) is row("permission")
    assert killing_row(TEXTS["no-kernels"][0]) is None


def test_good_log_has_no_fatal_row() -> None:
    assert fatal_row(GOOD_LOG) is None
    assert [r.name for r in warning_rows(GOOD_LOG)] == ["missing-metrics"]


def test_every_row_says_what_to_do_in_one_sentence() -> None:
    for r in ROWS:
        assert r.detail.endswith(".")
        assert "\n" not in r.detail
        assert r.sentence
        assert r.next_step
