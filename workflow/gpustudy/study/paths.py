"""Where results lie. The key is part of the path: a result is current when the path with its key exists."""

from __future__ import annotations

from pathlib import Path

CELLS = "cells"
METRICS = "metrics"
DATA = "data"
IMAGES = "images"
MARKERS = ".keys"
ASIDE = ".aside"
METRICS_FILE = "metrics.json"
"""Last file of a metrics directory: its tables, their sums, and the raw files that they were made from."""


def cell_folder(room: str, gpu: str, config: str, repeat: int) -> str:
    """Return the folder of one cell in ``cells`` or ``metrics``, relative to the results."""
    return f"{room}/{gpu}/{config}/r{repeat}"


def cell_directory(results: Path, room: str, gpu: str, config: str, repeat: int) -> Path:
    """Return the folder of one cell in ``results/cells`` or ``results/metrics``."""
    return results / cell_folder(room, gpu, config, repeat)


def stage_directory(results: Path, room: str, gpu: str, config: str, repeat: int, stage: str, key: str) -> Path:
    """Return the folder of one stage of one cell with one key."""
    return cell_directory(results, room, gpu, config, repeat) / f"{stage}-{key}"


def data_directory(results: Path, name: str, key: str) -> Path:
    """Return the folder of a prepared data set."""
    return results / DATA / f"{name}-{key}"


def image_path(results: Path, stack: str, key: str, runtime: str = "apptainer") -> Path:
    """Return the image of a stack: a .sif for Apptainer; for Docker, whose daemon keeps it, a file that names it."""
    return results / IMAGES / f"{stack}-{key}{'.sif' if runtime == 'apptainer' else '.docker.json'}"


def marker(results: Path, product: str, key: str) -> Path:
    """Return the marker that a figure, table or report was drawn from exactly what its key covers."""
    return results / MARKERS / f"{product}-{key}"
