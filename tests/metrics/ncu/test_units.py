"""Units in all spellings of seven years."""

from __future__ import annotations

import pytest

from gpustudy.metrics.ncu.units import to_base, unit_by_name


@pytest.mark.parametrize(
    ("unit", "base", "factor"),
    [
        ("nsecond", "ns", 1),
        ("ns", "ns", 1),
        ("usecond", "ns", 1e3),
        ("ms", "ns", 1e6),
        ("second", "ns", 1e9),
        ("byte", "byte", 1),
        ("Kbyte", "byte", 1e3),
        ("Gbyte/second", "byte/s", 1e9),
        ("Mbyte/s", "byte/s", 1e6),
        ("byte_per_second", "byte/s", 1),
        ("cycle/nsecond", "hz", 1e9),
        ("cycle/second", "hz", 1),
        ("Ghz", "hz", 1e9),
        ("hz", "hz", 1),
        ("byte/block", "byte/block", 1),
        ("Kbyte/block", "byte/block", 1e3),
        ("register/thread", "register/thread", 1),
        ("register_per_thread", "register/thread", 1),
        ("inst/cycle", "inst/cycle", 1),
        ("sectors", "sector", 1),
        ("/cycle", "1/cycle", 1),
        ("1/s", "1/s", 1),
        ("%", "%", 1),
        ("", "", 1),
    ],
)
def test_every_spelling_has_its_base_unit(unit: str, base: str, factor: float) -> None:
    assert to_base(unit) == (base, factor)


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("gpu__time_duration.sum", "ns"),
        ("dram__bytes_read.sum", "byte"),
        ("dram__bytes.sum.per_second", "byte/s"),
        ("sm__cycles_elapsed.avg.per_second", "hz"),
        ("smsp__inst_executed.sum", "inst"),
        ("lts__t_sector_hit_rate.pct", "%"),
        ("launch__grid_size", ""),
    ],
)
def test_a_name_tells_its_unit_where_it_can(metric: str, unit: str) -> None:
    assert unit_by_name(metric) == unit
