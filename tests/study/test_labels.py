"""Labels have the names of the data set that a gpu's cells train on."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustudy.study.labels import label_names
from gpustudy.study.load import read_yaml, validate
from gpustudy.study.models import Study

OWN = """
data:
  mine: {{kind: nifti, images: images, labels: labels, volume: [16, 16, 16]{classes}}}
workloads: {{demo: {{data: mine}}}}
"""


def study(repository: Path, tmp_path: Path, classes: str) -> Study:
    path, overlay = repository / "config.yaml", tmp_path / "mine.yaml"
    overlay.write_text(OWN.format(classes=classes))
    return validate([(path, read_yaml(path)), (overlay, read_yaml(overlay))])


def test_fixed_kinds_name_their_labels(repository: Path) -> None:
    path = repository / "config.yaml"
    names = label_names(validate([(path, read_yaml(path))]), "cpu")
    assert names[0] == "background"
    assert len(names) > 1


@pytest.mark.parametrize(
    ("classes", "expected"), [("", {}), (', classes: {"1": liver, "2": tumour}', {1: "liver", 2: "tumour"})]
)
def test_own_folders_name_them_by_their_classes(
    repository: Path, tmp_path: Path, classes: str, expected: dict[int, str]
) -> None:
    assert label_names(study(repository, tmp_path, classes), "cpu") == expected


def test_a_gpu_that_the_study_does_not_know_has_no_names(repository: Path, tmp_path: Path) -> None:
    assert label_names(study(repository, tmp_path, ""), "b200") == {}
