"""``snakemake --report``: captions and categories for whatever cells there are, none at all too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpustudy.analysis.names import FIGURES, TABLES
from gpustudy.study.load import Effective, read_yaml, validate
from tests.support.checkout import copy_checkout
from tests.support.crafted_study import CONFIGS, GPUS, Truth, craft_study


def study_of(root: Path) -> Effective:
    study = validate([(root / "config.yaml", read_yaml(root / "config.yaml"))])
    return Effective(study, "local", root / "results")


@pytest.mark.parametrize("cells", ["none", "some"])
def test_the_report_of_snakemake_shows_every_figure_with_its_caption(cells: str, tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    if cells == "some":
        absent = {gpu for gpu in GPUS if gpu != "cpu"} | {("cpu", config) for config in CONFIGS if config != "baseline"}
        effective = study_of(checkout.root)
        only = {name: config for name, config in effective.study.configs.items() if name in CONFIGS}
        study = effective.study.model_copy(update={"configs": only})
        craft_study(Effective(study, "local", effective.results), Truth(absent=absent, repeats=1))
    printed = checkout.snakemake("--report", "report.html").stdout
    assert "Report created." in printed
    report = (checkout.root / "report.html").read_text()
    for name, product in (FIGURES | TABLES).items():
        suffix = "svg" if name in FIGURES else "html"
        assert f"results/{'figures' if name in FIGURES else 'tables'}/{name}.{suffix}" in report
        assert product.category in report
        assert product.caption.split(",")[0].split("'")[0] in report
    assert not (checkout.root / "results/data").exists()  # nothing was run for it
    about = json.loads((checkout.root / "results/figures/step_time.json").read_text())
    assert about["crafted"] is (cells == "some")
