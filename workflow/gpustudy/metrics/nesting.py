"""Nested intervals on one thread: self times, parents, and what is innermost at a moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Nesting(NamedTuple):
    """What ``nest`` found.

    Attributes:
        self_ns: per interval, the time during which it was the innermost one. Each moment that any interval
            covers belongs to exactly one of them: the self times sum to the length of the intervals' union.
        parent: per interval, the index of the interval around its start; -1 for an outermost one.
        innermost: per asked moment, the index of the innermost interval around it; -1 outside of all.
    """

    self_ns: list[int]
    parent: list[int]
    innermost: list[int]

    def around(self, index: int) -> list[int]:
        """Return the interval ``index`` and those around it, innermost first; empty for -1."""
        found = []
        while index >= 0:
            found.append(index)
            index = self.parent[index]
        return found


def nest(starts: Sequence[int], ends: Sequence[int], moments: Sequence[int] = ()) -> Nesting:
    """Nest the half-open intervals [start, end), in ns, and look up ``moments``.

    Intervals that overlap without nesting (asynchronous ranges, or a child that a clock's rounding makes
    outlast its parent) are allowed: the one that began last owns the moment.
    """
    order = sorted(range(len(starts)), key=lambda index: (starts[index], -ends[index], index))
    queries = sorted(range(len(moments)), key=moments.__getitem__)
    self_ns, parent, innermost = [0] * len(starts), [-1] * len(starts), [-1] * len(moments)
    stack: list[int] = []
    cursor = 0

    def advance(until: int) -> None:
        """Give the time up to ``until`` to its owners and close the intervals that end by then."""
        nonlocal cursor
        while stack:
            top = stack[-1]
            reached = min(ends[top], until)
            if reached > cursor:
                self_ns[top] += reached - cursor
                cursor = reached
            if ends[top] > until:
                return
            stack.pop()

    asked = 0
    for index in order:
        while asked < len(queries) and moments[queries[asked]] < starts[index]:
            advance(moments[queries[asked]])
            innermost[queries[asked]] = stack[-1] if stack else -1
            asked += 1
        advance(starts[index])
        cursor = max(cursor, starts[index])
        parent[index] = stack[-1] if stack else -1
        stack.append(index)
    for query in queries[asked:]:
        advance(moments[query])
        innermost[query] = stack[-1] if stack else -1
    advance(max(ends, default=0))
    return Nesting(self_ns, parent, innermost)
