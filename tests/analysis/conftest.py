"""The crafted study that most tests of this room look at, built once."""

from __future__ import annotations

import pytest

from gpustudy.analysis.dataset import Dataset
from gpustudy.study.states import survey
from tests.analysis.crafted import full_study
from tests.support.crafted_study import Truth, craft_study, crafted_effective


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The data set of ``crafted.full_study``."""
    return Dataset(full_study(tmp_path_factory.mktemp("full")))


@pytest.fixture(scope="session")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The crafted study of ``tests.support``, with counters: no v100, no opt2 on the h100, no TF32 on the cpu."""
    effective = crafted_effective(tmp_path_factory.mktemp("counted") / "results")
    return Dataset(survey(craft_study(effective, Truth(absent={"v100", ("h100", "opt2")}))))
