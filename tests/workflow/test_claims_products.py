"""Claims, evidence and artifact description as targets of the real Snakemake, on crafted results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

from gpustudy.study.load import Effective
from tests.support.checkout import copy_checkout
from tests.support.crafted_study import CONFIGS


def test_each_is_a_target_and_is_made_once(crafted_study: Effective, tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "copy")
    config = yaml.safe_load((checkout.root / "config.yaml").read_text())
    config["configs"] = {name: config["configs"][name] for name in CONFIGS}
    (checkout.root / "config.yaml").write_text(yaml.safe_dump(config))
    shutil.copytree(crafted_study.results, checkout.root / "results")

    checkout.snakemake("claims", "evidence", "appendix")

    results = checkout.root / "results"
    verdicts = json.loads((results / "claims.json").read_text())["verdicts"]
    assert sum(map(len, verdicts.values())) == 39
    assert "O2-2" in verdicts["IMPLAUSIBLE"]
    assert "IMPLAUSIBLE (crafted)" in (results / "tables/claims.csv").read_text()
    appendix = (results / "appendix.md").read_text()
    assert "CRAFTED DATA" in appendix
    assert (results / "appendix.tex").stat().st_size > 0
    assert "Nothing to be done" in checkout.snakemake("claims", "evidence", "appendix").stdout
