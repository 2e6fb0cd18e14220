"""One text for one meaning: the JSON form behind every key, and the digest made from it."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

KEY_HEX_DIGITS = 12
"""Length of a key: 48 bits, so that 10,000 keys collide with a chance below 2e-7."""


def normalise(value: Any) -> Any:
    """Return ``value`` with equal meanings made equal: ``1.0`` becomes ``1``, tuples become lists.

    Raises:
        TypeError: a value that JSON cannot hold, or a mapping key that is not a string.
        ValueError: a number that is not finite.
    """
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number and has no canonical form")
        return int(value) if value.is_integer() else value
    if isinstance(value, (list, tuple)):
        return [normalise(item) for item in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"mapping key {key!r} is not a string")
        return {key: normalise(item) for key, item in value.items()}
    raise TypeError(f"{type(value).__name__} has no canonical form")


def canonical_json(value: Any) -> str:
    """Return the one JSON text of ``value``: keys sorted, no white space, numbers normalised."""
    return json.dumps(
        normalise(value),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )


def key_of(document: Any) -> str:
    """Return the key of ``document``: the first 12 hex digits of the SHA-256 of its canonical JSON."""
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()[:KEY_HEX_DIGITS]
