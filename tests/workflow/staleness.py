"""A measured study, crafted in seconds, and what Snakemake plans for it after a change.

The results are crafted: folders under the right keys with no measurement in them. What is tested is what Snakemake
itself plans (``snakemake -n``), job by job.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import yaml

from tests.support.checkout import REPOSITORY, Checkout, copy_checkout

CONFIGS = tuple(yaml.safe_load((REPOSITORY / "config.yaml").read_text())["configs"])
STAGES = ("train", "census", "quality")
REPEATS = (1, 2)

Job = tuple[str, str, str, int]
"""Rule, gpu, config, repeat of a planned job of a cell."""

_PROGRAM = """
import os, sys
from pathlib import Path
os.fsync = lambda descriptor: None
from gpustudy.analysis.names import DOCUMENTS, FIGURES, TABLES
from gpustudy.study.load import load_effective
from gpustudy.study.workplan import Workplan
from tests.support.crafted_results import craft
raw, with_products, site, *gpus = sys.argv[1:]
overlays = [Path("site.yaml")] if Path("site.yaml").exists() else []
effective = load_effective(overlays, site or None)
craft(effective, gpus, raw=raw == "raw")
plan = Workplan(effective)
names = [f"figures/{name}.{suffix}" for name in FIGURES for suffix in ("svg", "pdf")]
names += [f"tables/{name}.{suffix}" for name in TABLES for suffix in ("html", "csv", "tex")]
names += [file for files in DOCUMENTS.values() for file in files]
files = [effective.results / name for name in (*names, "report.html")]
files += map(Path, [*plan.markers.values(), plan.gathered])
files += [Path(plan.data(type("W", (), {"gpu": "cpu"})))] if "cpu" in gpus else []
for path in files if with_products else []:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
"""


def make_checkout(folder: Path) -> Checkout:
    """Return a copy of this checkout with two repeats and no results."""
    checkout = copy_checkout(folder)
    checkout.edit("config.yaml", "repeats: 3", f"repeats: {len(REPEATS)}")
    return checkout


def craft_results(
    checkout: Checkout, gpus: Iterable[str], *, raw: bool = True, products: bool = True, site: str = ""
) -> None:
    """Craft the results of all cells of ``gpus``, and the products, under the keys that the copy's own code makes."""
    path = os.pathsep.join([str(checkout.root / "workflow"), str(REPOSITORY)])
    arguments = ["raw" if raw else "tables", "products" if products else "", site, *gpus]
    subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        cwd=checkout.root,
        env=checkout.environment(PYTHONPATH=path),
        check=True,
    )


def copy_of(checkout: Checkout, folder: Path) -> Checkout:
    """Return a copy of a checkout with its results."""
    shutil.copytree(checkout.root, folder, symlinks=True)
    return Checkout(folder)


def jobs_of(checkout: Checkout, *arguments: str) -> tuple[set[Job], set[str]]:
    """Return the jobs of cells and the names of all other rules that ``snakemake -n`` plans."""
    return read_jobs(checkout.snakemake("-n", *arguments).stdout)


def read_jobs(output: str) -> tuple[set[Job], set[str]]:
    """Return the jobs of cells and the other rules' names in what ``snakemake -n`` printed."""
    cells: set[Job] = set()
    others: set[str] = set()
    assert "Building DAG" in output, output
    for block in re.split(r"\n(?=(?:local)?rule \w+:)", output)[1:]:
        rule = re.match(r"(?:local)?rule (\w+):", block)
        assert rule
        found = re.search(r"wildcards: gpu=(\w+), config=(\w+), repeat=(\d+)(?:, stage=(\w+))?", block)
        if found:
            name = f"tables_{found[4]}" if rule[1] == "make_metrics" else rule[1]
            cells.add((name, found[1], found[2], int(found[3])))
        elif rule[1] not in ("all", "gather_tables"):
            others.add(rule[1])
    return cells, others


def cells(
    stages: Sequence[str] = STAGES,
    configs: Sequence[str] = CONFIGS,
    repeats: Sequence[int] = REPEATS,
    gpu: str = "cpu",
    *,
    runs: bool = True,
) -> set[Job]:
    """The jobs of these stages: run and their tables made; or the tables alone."""
    kinds = ("run", "tables") if runs else ("tables",)
    return {
        (f"{kind}_{stage}", gpu, config, repeat)
        for kind in kinds
        for stage in stages
        for config in configs
        for repeat in repeats
    }


def rewrite_config(checkout: Checkout, change: Callable[[dict], dict]) -> None:
    """Read config.yaml, hand it to ``change``, and write what that returns, in the order it has."""
    path = checkout.root / "config.yaml"
    path.write_text(yaml.safe_dump(change(yaml.safe_load(path.read_text())), sort_keys=False))


def foreign_states(checkout: Checkout, gpu: str = "a100", *arguments: str) -> dict[str, set[str]]:
    """Return config -> states of a gpu's cells."""
    found: dict[str, set[str]] = {}
    for row in json.loads(checkout.gpustudy("status", "--json", "--gpu", gpu, *arguments).stdout):
        found.setdefault(row["config"], set()).add(row["state"])
    return found
