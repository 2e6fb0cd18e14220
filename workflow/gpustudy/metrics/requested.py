"""The ncu metrics that the catalogue needs, per architecture, as a list that the workflow can read at parse.

``requested_metrics.json`` is written from the catalogue by ``gpustudy dictionary``; standard library only here.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

REQUESTED_FILE = Path(__file__).with_name("requested_metrics.json")
ANY_ARCHITECTURE = "any"
"""Stands for architectures that the catalogue does not name."""


def requested_metrics(architecture: str) -> list[str]:
    """Return the ncu metrics to collect on ``architecture`` (``sm_80``), sorted."""
    lists = _lists()
    return list(lists.get(architecture, lists[ANY_ARCHITECTURE]))


@cache
def _lists() -> dict[str, list[str]]:
    content: dict[str, list[str]] = json.loads(REQUESTED_FILE.read_text())
    return content
