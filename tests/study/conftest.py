"""A study on the real config, with results in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustudy.study.load import Effective, effective, read_yaml

StudyOf = Callable[..., Effective]


@pytest.fixture
def study_of(repository: Path, tmp_path: Path) -> StudyOf:
    """Return a function: overlays (dicts) and a site -> the study as seen there, results in ``tmp_path``."""
    base = read_yaml(repository / "config.yaml")

    def build(*overlays: dict[str, Any], site: str = "local") -> Effective:
        layers = [(Path("config.yaml"), base)]
        layers += [(Path(f"overlay{index}.yaml"), overlay) for index, overlay in enumerate(overlays)]
        return replace(effective(layers, site), results=tmp_path / "results")

    return build


@pytest.fixture
def in_checkout(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that holds the config alone, as the working directory."""
    (tmp_path / "config.yaml").write_text((repository / "config.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUSTUDY_CONFIG", raising=False)
    return tmp_path


def write_yaml(path: Path, content: Any) -> Path:
    """Write ``content`` as YAML."""
    path.write_text(yaml.safe_dump(content))
    return path
