"""Expressions over metrics, as the catalogue writes them: names, numbers, ``+ - * /``, brackets, opcode sums.

``name{FFMA|FMUL}`` is the sum over those instances of a metric whose opcode (the part before the first dot) is listed;
a metric that is there but has none of them gives a true 0. Nothing is evaluated as Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
"""One value a launch; NaN where there is none."""

Evaluate = Callable[[Mapping["Term", Values]], Values]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)(?![\w.])|(?P<name>[A-Za-z_][\w:]*(?:\.\w+)*)(?:\{(?P<opcodes>[A-Z0-9_|]+)\})?"
    r"|(?P<operator>[-+*/()]))"
)


class Term(NamedTuple):
    """A metric in an expression: its whole value, or the sum over the instances of some opcodes."""

    metric: str
    opcodes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Expression:
    """A parsed expression.

    Attributes:
        text: as written.
        terms: the metrics that it needs.
        evaluate: gives the value of each launch from its terms' values; NaN where a term is missing or a
            denominator is 0.
    """

    text: str
    terms: tuple[Term, ...]
    evaluate: Evaluate


class _Token(NamedTuple):
    kind: str
    text: str
    opcodes: str


def parse(text: str) -> Expression:
    """Parse an expression.

    >>> [term.metric for term in parse("100 * dram__bytes.sum / (1 + gpu__time_duration.sum)").terms]
    ['dram__bytes.sum', 'gpu__time_duration.sum']

    Raises:
        ValueError: it is no expression.
    """
    parser = _Parser(text)
    evaluate = parser.sum()
    parser.expect_end()
    return Expression(text, tuple(dict.fromkeys(parser.terms)), evaluate)


class _Parser:
    """Recursive descent: sum := product (+|- product)*; product := factor (*|/ factor)*; factor := term | (sum)."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._position = text, _tokens(text), 0
        self.terms: list[Term] = []

    def sum(self) -> Evaluate:
        left = self._product()
        while operator := self._take("+", "-"):
            left = _binary(np.add if operator == "+" else np.subtract, left, self._product())
        return left

    def expect_end(self) -> None:
        if self._position < len(self._tokens):
            raise self._error()

    def _product(self) -> Evaluate:
        left = self._factor()
        while operator := self._take("*", "/"):
            left = _binary(np.multiply if operator == "*" else _divide, left, self._factor())
        return left

    def _factor(self) -> Evaluate:
        if self._take("("):
            inner = self.sum()
            if not self._take(")"):
                raise self._error()
            return inner
        if self._position == len(self._tokens) or self._tokens[self._position].kind == "operator":
            raise self._error()
        token = self._tokens[self._position]
        self._position += 1
        if token.kind == "number":
            constant = np.float64(token.text)
            return lambda values: constant  # type: ignore[return-value]  # numpy broadcasts a scalar
        term = Term(token.text, frozenset(token.opcodes.split("|")) if token.opcodes else frozenset())
        self.terms.append(term)
        return lambda values: values[term]

    def _take(self, *operators: str) -> str:
        if self._position < len(self._tokens) and self._tokens[self._position].text in operators:
            self._position += 1
            return self._tokens[self._position - 1].text
        return ""

    def _error(self) -> ValueError:
        found = self._tokens[self._position].text if self._position < len(self._tokens) else "its end"
        return ValueError(f"expression {self._text!r}: unexpected {found}")


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"expression {text!r}: cannot read {text[position:]!r}")
        kind = match.lastgroup if match.lastgroup != "opcodes" else "name"
        tokens.append(_Token(kind or "", match[kind or 0], match["opcodes"] or ""))
        position = match.end()
    return tokens


def _binary(operation: Callable[[Values, Values], Values], left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda values: operation(left(values), right(values))


def _divide(left: Values, right: Values) -> Values:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(right == 0, np.nan, left / right)
