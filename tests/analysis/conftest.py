"""The crafted study that most tests of this room look at, built once."""

from __future__ import annotations

import pytest

from gpustudy.analysis.dataset import Dataset
from tests.analysis.crafted import full_study


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The data set of ``crafted.full_study``."""
    return Dataset(full_study(tmp_path_factory.mktemp("full")))
