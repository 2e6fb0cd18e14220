"""The study of this checkout, seen from a site, with overlays given as mappings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpustudy.study.load import Effective, effective, read_yaml
from tests.support.checkout import REPOSITORY


def seen_from(site: str, *overlays: dict[str, Any], results: Path = Path("results")) -> Effective:
    """Return the study with ``overlays`` laid over ``config.yaml``."""
    layers = [(Path("config.yaml"), read_yaml(REPOSITORY / "config.yaml"))]
    layers += [(Path(f"overlay{index}.yaml"), overlay) for index, overlay in enumerate(overlays)]
    return replace(effective(layers, site), results=results)
