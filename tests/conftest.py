"""What all tests share: where real inputs lie, when they are at hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gpustudy.study.load import Effective

REPOSITORY = Path(__file__).resolve().parent.parent
_SHARED = Path(os.environ.get("GPUSTUDY_SHARED", REPOSITORY.parent / "shared"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real inputs (reports, traces, reference numbers); skips where it is absent."""
    folder = _SHARED / "data"
    if not folder.is_dir():
        pytest.skip("the shared real inputs are not beside this checkout (set GPUSTUDY_SHARED)")
    return folder


@pytest.fixture(scope="session")
def shared_facts() -> Path:
    """The folder of fact tables (metric availability, claims); skips where it is absent."""
    folder = _SHARED / "facts"
    if not folder.is_dir():
        pytest.skip("the shared fact tables are not beside this checkout (set GPUSTUDY_SHARED)")
    return folder


@pytest.fixture(scope="session")
def crafted_study(tmp_path_factory: pytest.TempPathFactory) -> Effective:
    """The whole crafted study: v100, a100, h100 and cpu, five configs, three repeats. Not to be written to."""
    from tests.support.crafted_study import craft_study, crafted_effective  # the stack of the paper lacks pyarrow

    return craft_study(crafted_effective(tmp_path_factory.mktemp("crafted-study") / "results"))
