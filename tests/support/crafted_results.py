"""Crafted results: folders with the right keys and no measurement in them, for tests of states and planning."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpustudy.base.atomic import write_json, write_text
from gpustudy.base.digests import file_sha256
from gpustudy.base.status import STATUS_FILE, Status, write_status
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.load import Effective
from gpustudy.study.paths import CELLS, METRICS, METRICS_FILE, stage_directory


def craft(
    effective: Effective,
    gpus: Iterable[str] = ("cpu",),
    *,
    raw: bool = True,
    metrics: bool = True,
    states: dict[tuple[str, str], str] | None = None,
) -> None:
    """Write crafted results for every stage of every cell of ``gpus``.

    Args:
        effective: the study and its results folder.
        gpus: whose cells.
        raw: write raw files.
        metrics: write tables' folders.
        states: (config, stage) -> state other than ``done``.
    """
    keys = Keys(effective)
    for cell in keys.cells():
        if cell.gpu in gpus:
            for stage in keys.stages(cell.gpu):
                craft_stage(
                    effective, keys, cell, stage, raw, metrics, (states or {}).get((cell.config, stage), "done")
                )


def craft_stage(
    effective: Effective,
    keys: Keys,
    cell: Cell,
    stage: str,
    raw: bool = True,
    metrics: bool = True,
    state: str = "done",
) -> tuple[Path, Path]:
    """Write crafted raw files and tables of one stage and return both folders."""
    key = keys.stage_key(cell, stage)
    where = (effective.results, cell.gpu, cell.config, cell.repeat, stage)
    raw_folder = _folder(CELLS, where, key)
    metrics_key = keys.metrics_key(key, stage)
    metrics_folder = _folder(METRICS, where, metrics_key)
    detail = "" if state == "done" else f"crafted: {stage} is {state}."
    write_json(raw_folder / "cell.json", keys.cell_file(cell, stage))
    write_text(raw_folder / "crafted.txt", f"{cell} {stage}\n")
    write_status(raw_folder, Status(stage, key, state, detail=detail))
    content = {
        "state": state,
        "reason": detail,
        "metrics_key": metrics_key,
        "key": key,
        "stage": stage,
        "schema": 1,
        "tables": {},
    }
    content["raw"] = {"status_sha256": file_sha256(raw_folder / STATUS_FILE)}
    if metrics:
        write_json(metrics_folder / METRICS_FILE, content)
    if not raw:
        for path in raw_folder.iterdir():
            path.unlink()
        raw_folder.rmdir()
    return raw_folder, metrics_folder


def _folder(room: str, where: tuple[Path, str, str, int, str], key: str) -> Path:
    results, gpu, config, repeat, stage = where
    return stage_directory(results, room, gpu, config, repeat, stage, key)
