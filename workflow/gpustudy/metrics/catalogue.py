"""The metric catalogue of ``catalogue.yaml``: what each quantity is in ncu's metrics, on which architecture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpustudy.metrics.expressions import Expression, Term, parse
from gpustudy.metrics.schemas import Column

CATALOGUE_FILE = Path(__file__).with_name("catalogue.yaml")

AGGREGATES = ("sum", "ratio", "time_weighted", "none")
DURATION = "gpu__time_duration.sum"
"""The metric that time-weighted means are weighted with; in ns."""

_DEFAULT = "default"


@dataclass(frozen=True)
class Quantity:
    """One quantity of the catalogue.

    Attributes:
        name: its name, and its column in ``counters``.
        unit: base unit; ``1`` for a pure number.
        meaning: one phrase.
        aggregate: one of ``AGGREGATES``.
        better: ``higher``, ``lower`` or empty.
        expressions: architecture or ``default`` -> alternatives, best first.
        absent: architecture -> why it lacks the quantity.
        numerators: of a ratio, where its total has numerators of its own; alternatives.
        denominators: of a ratio; alternatives.
        scale: what numerator / denominator is multiplied with (100 for a percentage).
    """

    name: str
    unit: str
    meaning: str
    aggregate: str
    better: str
    expressions: Mapping[str, tuple[Expression, ...]]
    absent: Mapping[str, str]
    numerators: tuple[Expression, ...] = ()
    denominators: tuple[Expression, ...] = ()
    scale: float = 1.0

    def alternatives(self, architecture: str | None) -> tuple[Expression, ...]:
        """Return what to try on an architecture, best first."""
        return self.expressions.get(architecture or _DEFAULT, self.expressions[_DEFAULT])


@dataclass(frozen=True)
class Catalogue:
    """All quantities, and the architectures whose names were checked."""

    quantities: tuple[Quantity, ...]
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]

    def columns(self) -> tuple[Column, ...]:
        """Return the columns that the quantities are in table ``counters``."""
        return tuple(
            Column(quantity.name, "float64", quantity.unit, quantity.meaning, nullable=True)
            for quantity in self.quantities
        )

    def metrics(self) -> list[str]:
        """Return every metric that any expression names: what to read from a report."""
        return sorted({term.metric for quantity in self.quantities for term in _terms(_all(quantity))})

    def requested(self, architecture: str) -> list[str]:
        """Return the metrics to collect on an architecture: the best alternative of each quantity it has."""
        found: set[str] = set()
        for quantity in self.quantities:
            if architecture not in quantity.absent:
                best = [
                    alternatives[0]
                    for alternatives in (
                        quantity.alternatives(architecture),
                        quantity.numerators,
                        quantity.denominators,
                    )
                    if alternatives
                ]
                found |= {term.metric for term in _terms(best)}
        return sorted(found)


def _all(quantity: Quantity) -> Iterator[Expression]:
    for alternatives in quantity.expressions.values():
        yield from alternatives
    yield from quantity.numerators
    yield from quantity.denominators


def _terms(expressions: Iterable[Expression]) -> Iterator[Term]:
    return (term for expression in expressions for term in expression.terms)


@cache
def load_catalogue() -> Catalogue:
    """Read and check ``catalogue.yaml``.

    Raises:
        ValueError: an entry is wrong; the message names it.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML was built with it
    content = yaml.load(CATALOGUE_FILE.read_text(), Loader=loader)  # noqa: S506 - both loaders are safe ones
    quantities = tuple(_quantity(filled) for entry in content["quantities"] for filled in _each(dict(entry)))
    names = [quantity.name for quantity in quantities]
    if len(set(names)) < len(names):
        raise ValueError(
            f"the catalogue has a name twice: {sorted(name for name in names if names.count(name) > 1)[0]}"
        )
    return Catalogue(quantities, tuple(content["checked"]), tuple(content["unchecked"]))


def _each(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield an entry, once for every item of its ``each``, with the placeholders filled in."""
    items = entry.pop("each", None)
    if items is None:
        yield entry
        return
    for item, given in items.items():
        words = {"item": item} | (given if isinstance(given, dict) else {"meaning": given})
        yield {key: _fill(value, words) for key, value in entry.items()}


def _fill(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, str):
        return value.format(**words)
    return [_fill(one, words) for one in value] if isinstance(value, list) else value


def _quantity(entry: dict[str, Any]) -> Quantity:
    name = entry["name"]
    given = entry.pop("expressions")
    lists = given if isinstance(given, dict) else {_DEFAULT: given}
    try:
        quantity = Quantity(
            **{key: value for key, value in entry.items() if key not in ("numerators", "denominators", "absent")},
            expressions={key: tuple(map(parse, texts)) for key, texts in lists.items()},
            absent=entry.get("absent", {}),
            numerators=tuple(map(parse, entry.get("numerators", ()))),
            denominators=(parse(DURATION),)
            if entry["aggregate"] == "time_weighted"
            else tuple(map(parse, entry.get("denominators", ()))),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"catalogue entry {name}: {error}") from error
    if quantity.aggregate not in AGGREGATES:
        raise ValueError(f"catalogue entry {name}: unknown aggregate {quantity.aggregate!r}")
    if (quantity.aggregate == "ratio") != bool(entry.get("denominators")):
        raise ValueError(f"catalogue entry {name}: a ratio, and nothing else, has denominators")
    return quantity
