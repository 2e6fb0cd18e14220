"""What a claim is: the models behind ``claims.yaml``, with unknown keys refused and every relation checked."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from gpustudy.analysis.claim_values import DERIVED
from gpustudy.analysis.dataset import BASELINE
from gpustudy.analysis.quantities import SCOPES
from gpustudy.base.errors import UserError
from gpustudy.base.words import nearest
from gpustudy.metrics.catalogue import load_catalogue
from gpustudy.metrics.cells import QUANTITIES

CLAIMS_FILE = Path(__file__).with_name("claims.yaml")

COUNTER_SCOPES = SCOPES
"""Scopes that a counter's number may be meant in; the paper names none of them."""

Text = Annotated[str, Field(min_length=1)]
Operator = Literal["at_least", "at_most", "between", "up", "down", "equals", "same"]


@cache
def known_quantities() -> frozenset[str]:
    """Return every quantity that a check can name: of the counters, of the table ``cells``, and those made of them."""
    return frozenset((*(quantity.name for quantity in load_catalogue().quantities), *QUANTITIES, *DERIVED))


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Reference(_Section):
    """What a ratio or difference is taken to: another config of the same gpu, or another gpu."""

    gpu: Text | None = Field(None, description="gpu of the reference; the cell's own where it is not named")
    config: Text = Field(BASELINE, description="config of the reference")


class Check(_Section):
    """One thing that must be so for a reading to hold."""

    quantity: Text | list[Text] = Field(description="a quantity of the tables or of claim_values; of several, each one")
    measure: Literal["value", "ratio", "difference"] = Field("value", description="itself, or against the reference")
    classes: list[Text] = Field([], description="kernel classes, where the quantity is one of classes")
    gpus: list[Text] | None = Field(None, description="the claim's where it is not named")
    configs: list[Text] | None = Field(None, description="the claim's where it is not named")
    reference: Reference = Field(Reference(), description="what ratios and differences are taken to")
    over: Literal["every", "any"] = Field(
        "every", description="whether every cell must be so, or one is enough ('up to')"
    )
    operator: Operator = Field(description="up and down: beyond the noise floor; same: equal in all cells")
    expected: float | list[float] | Text | None = Field(
        None, description="the paper's value: a number, the two ends of a range, or a text; none for up, down, same"
    )
    factor: float | None = Field(None, gt=1, description="tolerance: expected / factor to expected * factor")
    margin: float | None = Field(None, ge=0, description="tolerance: expected - margin to expected + margin")
    because: Text = Field(description="the reason for the tolerance, or for taking the words to mean this number")
    bound: Literal["least_instructions", "least_cycles"] | None = Field(
        None, description="physical bound that the ratio cannot undercut in the scope total"
    )

    @property
    def quantities(self) -> tuple[str, ...]:
        """The quantities, each of which must be so."""
        return (self.quantity,) if isinstance(self.quantity, str) else tuple(self.quantity)

    @property
    def accepted(self) -> tuple[float, float]:
        """The range of values that fit, both ends included; infinite where the operator leaves an end open."""
        if isinstance(self.expected, list):
            low, high = self.expected
        elif isinstance(self.expected, float):
            low = high = self.expected
        else:
            raise ValueError(f"operator {self.operator} has no range")
        if self.factor is not None:
            low, high = low / self.factor, high * self.factor
        if self.margin is not None:
            low, high = low - self.margin, high + self.margin
        if self.operator == "at_least":
            return low, float("inf")
        return (float("-inf"), high) if self.operator == "at_most" else (low, high)

    @field_validator("quantity")
    @classmethod
    def _is_known(cls, quantity: str | list[str]) -> str | list[str]:
        known = known_quantities()
        for name in [quantity] if isinstance(quantity, str) else quantity:
            if name not in known:
                raise ValueError(f"unknown quantity '{name}': {nearest(name, known)}")
        return quantity

    @model_validator(mode="after")
    def _fits(self) -> Check:
        wanted = {"at_least": "a number", "at_most": "a number", "between": "a number or two", "equals": "a text"}
        kinds = {"at_least": (float,), "at_most": (float,), "between": (float, list), "equals": (str,)}
        if not isinstance(self.expected, kinds.get(self.operator, (type(None),))):
            raise ValueError(f"operator {self.operator} takes {wanted.get(self.operator, 'nothing')} as 'expected'")
        if isinstance(self.expected, list) and (len(self.expected) != 2 or self.expected[0] > self.expected[1]):
            raise ValueError("a range is two numbers, the smaller one first")
        if self.operator == "between" and isinstance(self.expected, float) and self.factor is self.margin is None:
            raise ValueError("a single expected number needs a tolerance: factor or margin")
        if self.operator in ("up", "down") and self.measure == "value":
            raise ValueError(f"operator {self.operator} needs measure ratio or difference")
        if self.bound and self.measure != "ratio":
            raise ValueError("a bound is one of ratios")
        return self


class Reading(_Section):
    """One way to understand the sentence; all its checks must hold, in each scope by itself."""

    name: Text = Field(description="a few words: how the sentence is understood here")
    scopes: list[Text] | None = Field(None, description="the claim's where it is not named")
    checks: list[Check] = Field(min_length=1, description="what must be so, all of it")


class Claim(_Section):
    """One sentence of the paper, and what the tables must hold for it to be so."""

    id: Text = Field(pattern=r"^[A-Z]+[0-9]*(-[0-9]+)?$", description="as in the list of claims")
    sentence: Text = Field(description="what the paper says, in short")
    source: Text = Field(description="where it says so")
    metric: Text = Field(description="what it is about, in words")
    gpus: list[Text] = Field(description="gpus it is about; empty for all of the study")
    configs: list[Text] = Field(description="configs it is about; empty for all of the study")
    scopes: list[Text] = Field(list(COUNTER_SCOPES), description="scopes that each reading is judged in")
    readings: list[Reading] = Field(min_length=1, description="ways to understand it; where they disagree: AMBIGUOUS")
    ambiguity: str = Field("", description="what the sentence leaves open, or contradicts elsewhere in the paper")
    figures: list[Text] = Field([], description="figures and tables that show its numbers")

    @model_validator(mode="after")
    def _names_differ(self) -> Claim:
        names = [reading.name for reading in self.readings]
        if len(set(names)) < len(names):
            raise ValueError("two readings have one name")
        return self


class _File(_Section):
    paper: Text
    claims: list[Claim]

    @model_validator(mode="after")
    def _ids_differ(self) -> _File:
        ids = [claim.id for claim in self.claims]
        if doubled := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"claim {doubled[0]} is there twice")
        return self


@cache
def load_claims(path: Path = CLAIMS_FILE) -> tuple[Claim, ...]:
    """Read and check the claims.

    Raises:
        UserError: the file is no YAML, or a claim is wrong; the sentence names it and the key.
    """
    return read_claims(path).claims


@cache
def paper(path: Path = CLAIMS_FILE) -> str:
    """Return how the paper is cited."""
    return read_claims(path).paper


class ClaimsFile(BaseModel):
    """The content of a claims file."""

    paper: str
    claims: tuple[Claim, ...]


def read_claims(path: Path) -> ClaimsFile:
    """Read a claims file.

    Raises:
        UserError: it is no YAML or holds a mistake.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read as claims ({str(error).splitlines()[0]}): restore it.") from error
    try:
        checked = _File.model_validate(_floats(content))
    except ValidationError as error:
        raise _mistake(path, content, error) from error
    return ClaimsFile(paper=checked.paper, claims=tuple(checked.claims))


def _floats(content: Any, key: str = "") -> Any:
    """Let a whole number stand for a float where numbers are expected: ``expected: 5``."""
    if isinstance(content, dict):
        return {name: _floats(value, str(name)) for name, value in content.items() if not str(name).startswith("x-")}
    if isinstance(content, list):
        return [_floats(value, key) for value in content]
    is_number = isinstance(content, int) and not isinstance(content, bool)
    return float(content) if is_number and key in ("expected", "factor", "margin") else content


def _mistake(path: Path, content: Any, error: ValidationError) -> UserError:
    first = min(error.errors(), key=lambda found: (found["type"] != "extra_forbidden", len(found["loc"])))
    location = list(first["loc"])
    name = ""
    if len(location) > 1 and location[0] == "claims" and isinstance(location[1], int):
        entry = content["claims"][location[1]]
        name = f"claim {entry.get('id', location[1]) if isinstance(entry, dict) else location[1]}: "
        location = location[2:]
    where = ".".join(str(part) for part in location)
    said = "unknown key" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
    advice = "" if said.endswith(("?", ".")) else ": correct it."
    return UserError(f"{path}: {name}{where or 'the entry'}: {said[0].lower() + said[1:]}{advice}")
