"""The rows of the table ``cells`` of all cells, found by what they are: an index over millions of rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpustudy.analysis.dataset import Group

_KEY = ["gpu", "config", "quantity", "scope"]


class CellValue(NamedTuple):
    """A quantity of one cell, with what its row says of the spread within the cell.

    Attributes:
        value: in the unit of the table.
        low: lower end of the interval, if any.
        high: upper end.
        interval: method of the interval.
        n: observations behind the value.
    """

    value: float
    low: float | None = None
    high: float | None = None
    interval: str | None = None
    n: int | None = None


class CellRows:
    """Finds rows that have a value by gpu, config, quantity and scope."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame[frame["value"].notna()]

    def rows(
        self, group: Group, quantity: str, scope: str, kernel_class: str | None, phase: str | None
    ) -> dict[int, CellValue]:
        """Return the value of each repeat whose row has exactly this class and phase (None: no class, no phase)."""
        found = {}
        for at in self._positions(group, quantity, scope):
            if self._classes[at] == kernel_class and self._phases[at] == phase:
                found[int(self._repeats[at])] = self._value(at)
        return found

    def parts(self, group: Group, quantity: str, scope: str) -> Iterator[tuple[int, str | None, str | None, float]]:
        """Yield repeat, class, phase and value of every row of a quantity."""
        for at in self._positions(group, quantity, scope):
            yield int(self._repeats[at]), self._classes[at], self._phases[at], float(self._values[at])

    def by_stage(self, group: Group, quantity: str, scope: str) -> Iterator[tuple[str, float]]:
        """Yield stage and value of every row of a quantity that several stages have."""
        for at in self._positions(group, quantity, scope):
            yield self._stages[at], float(self._values[at])

    def origins(self, group: Group, quantity: str, scope: str) -> frozenset[str]:
        """Return the origins of the rows of a quantity."""
        positions = self._positions(group, quantity, scope)
        return frozenset(self._frame["origin"].iloc[positions]) if len(positions) else frozenset()

    def names(self, group: Group, prefix: str, scope: str) -> list[str]:
        """Return the quantities of ``group`` in ``scope`` whose name begins with ``prefix``, sorted."""
        wanted = (group.gpu, group.config, scope)
        return sorted(
            quantity
            for gpu, config, quantity, of_scope in self._index
            if (gpu, config, of_scope) == wanted and quantity.startswith(prefix)
        )

    def classes(self, group: Group, quantity: str, scope: str) -> list[str]:
        """Return the kernel classes that a quantity of ``group`` has rows for, sorted."""
        return sorted({name for _, name, _, _ in self.parts(group, quantity, scope) if name is not None})

    @cached_property
    def _index(self) -> dict[tuple[str, str, str, str], NDArray[np.intp]]:
        if self._frame.empty:
            return {}
        groups = self._frame.groupby(_KEY, observed=True, sort=False)
        numbers = groups.ngroup().to_numpy(dtype=np.intp)
        order: NDArray[np.intp] = np.argsort(numbers, kind="stable").astype(np.intp)
        ends = np.cumsum(np.bincount(numbers))
        keys = self._frame.iloc[order[ends - 1]][_KEY].astype(object).to_numpy()
        return {
            (str(key[0]), str(key[1]), str(key[2]), str(key[3])): order[begin:end]
            for key, begin, end in zip(keys, np.concatenate([[0], ends[:-1]]), ends, strict=True)
        }

    def _positions(self, group: Group, quantity: str, scope: str) -> NDArray[np.intp]:
        none: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        return self._index.get((group.gpu, group.config, quantity, scope), none)

    def _value(self, at: int) -> CellValue:
        low, high, n = (float(numbers[at]) for numbers in self._spread)
        has_interval = not (np.isnan(low) or np.isnan(high))
        return CellValue(
            float(self._values[at]),
            low if has_interval else None,
            high if has_interval else None,
            self._intervals[at] if has_interval else None,
            None if np.isnan(n) else int(n),
        )

    @cached_property
    def _spread(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        low, high, n = (self._frame[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in ("low", "high", "n"))
        return low, high, n

    @cached_property
    def _repeats(self) -> NDArray[np.int32]:
        return self._frame["repeat"].to_numpy(dtype=np.int32)

    @cached_property
    def _values(self) -> NDArray[np.float64]:
        return self._frame["value"].to_numpy(dtype=np.float64)

    @cached_property
    def _stages(self) -> NDArray[np.object_]:
        return _texts(self._frame["stage"])

    @cached_property
    def _classes(self) -> NDArray[np.object_]:
        return _texts(self._frame["kernel_class"])

    @cached_property
    def _phases(self) -> NDArray[np.object_]:
        return _texts(self._frame["phase"])

    @cached_property
    def _intervals(self) -> NDArray[np.object_]:
        return _texts(self._frame["interval"])


def _texts(column: pd.Series[str]) -> NDArray[np.object_]:
    """Return a column of categories as an array of texts, with None where it is null (code -1: the last)."""
    names = np.array([*column.cat.categories, None], dtype=np.object_)
    return names[column.cat.codes.to_numpy()]
