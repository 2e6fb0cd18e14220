"""The crafted studies that most tests of this room look at, each built once."""

from __future__ import annotations

import pytest

from gpustudy.analysis.dataset import Dataset
from tests.analysis.crafted import full_study
from tests.analysis.golden import golden_dataset


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The data set of ``crafted.full_study``."""
    return Dataset(full_study(tmp_path_factory.mktemp("full")))


@pytest.fixture(scope="session")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The crafted study of ``tests.support``, with counters: no v100, no opt2 on the h100, no TF32 on the cpu."""
    return golden_dataset(tmp_path_factory.mktemp("counted"))
