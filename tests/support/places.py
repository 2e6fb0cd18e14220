"""What happens where a real component cannot be had: its tests skip and say why, or fail where it is required."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

REQUIRED = "GPUSTUDY_REQUIRE_SITES"
"""Environment variable with which a component that does not come up fails its tests: set it to change its scripts."""


def cannot_be_had(component: str, said: str) -> NoReturn:
    """Skip the test that needs ``component``, with the last line of what its script or program said."""
    reason = f"no {component} here: {(said.strip().splitlines() or ['it said nothing'])[-1]}"
    if os.environ.get(REQUIRED):
        pytest.fail(f"{reason}\n{said}")
    pytest.skip(reason)
