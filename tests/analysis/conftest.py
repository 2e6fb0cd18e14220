"""The crafted studies that most tests of this room look at, each built once."""

from __future__ import annotations

import pytest

from gpustudy.analysis.dataset import Dataset
from gpustudy.study.states import survey
from tests.analysis.crafted import full_study, load_study_of_checkout
from tests.analysis.golden import golden_dataset
from tests.support.crafted_study import Truth, craft_study, crafted_effective


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The data set of ``crafted.full_study``."""
    return Dataset(full_study(tmp_path_factory.mktemp("full")))


@pytest.fixture(scope="session")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The crafted study of ``tests.support``, with counters: no v100, no opt2 on the h100, no TF32 on the cpu."""
    return golden_dataset(tmp_path_factory.mktemp("counted"))


@pytest.fixture(scope="session")
def every_config(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """One repeat of all configs of config.yaml on the v100, where most of them are null controls, and the a100."""
    names = load_study_of_checkout().configs
    effective = crafted_effective(tmp_path_factory.mktemp("every-config") / "results", configs=names)
    return Dataset(survey(craft_study(effective, Truth(absent={"h100", "cpu"}, repeats=1))))
