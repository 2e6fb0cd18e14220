"""Prints, after the table of times, what each benchmark found as ratios: times alone do not compare machines."""

from __future__ import annotations

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    session = getattr(terminalreporter.config, "_benchmarksession", None)
    benchmarks = [] if session is None else [one for one in session.benchmarks if one.extra_info]
    if benchmarks:
        terminalreporter.section("ratios")
    for one in benchmarks:
        terminalreporter.write_line(one.name)
        for name, value in one.extra_info.items():
            terminalreporter.write_line(f"    {name}: {value}")
