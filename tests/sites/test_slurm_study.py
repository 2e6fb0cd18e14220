"""The CPU study end to end at emulated sites: real Slurm, real Apptainer, an image built by the project's own rule.

One checkout for all: each site makes the cells of one more repeat, in the image that the first one built.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sites.images import APPTAINER, give_test_image
from tests.support.checkout import TINY, Checkout, copy_checkout
from tests.support.slurm import ACCOUNT, FAST_POLLING, Run

pytestmark = pytest.mark.sites

CONFIGS = ("baseline", "opt2")
STAGES = ("train", "census", "quality")
STUDY_S = 900
"""Seconds for one site's cells: image, two cells and their tables."""

BANNER = """#!/bin/sh
cat <<'TEXT'

-----------------------------------------------------------------
          Welcome to the Stampede3 Supercomputer
-----------------------------------------------------------------

No reservation for this job
--> Verifying valid submit host (login3)...OK
--> Verifying valid jobname...OK
--> Checking available allocation (TG-ABC123456)...OK
TEXT
exec {real} "$@"
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, slurm) -> Checkout:
    """A copy with two configs, the test image's recipe and a scratch folder."""
    if not Path(APPTAINER).exists():
        pytest.skip(f"no {APPTAINER}: run 'bash tests/sites/apptainer_up.sh'")
    copied = copy_checkout(tmp_path_factory.mktemp("sites") / "study")
    path = copied.root / "config.yaml"
    study = yaml.safe_load(path.read_text())
    study["configs"] = {name: study["configs"][name] for name in CONFIGS}
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    (copied.root.parent / "scratch").mkdir()
    return copied


@pytest.fixture(scope="module")
def image(checkout) -> tuple[dict[str, object], dict[str, str]]:
    """The overlay of the test image, and what a run needs in its environment."""
    overlay, variables = give_test_image(checkout)
    return overlay, {**variables, "GPUSTUDY_SCRATCH": str(checkout.root.parent / "scratch")}


def overlay(checkout: Checkout, image: dict[str, object], site: str, gpus: list[str], repeats: int) -> str:
    """Write the overlay of one site and return its name."""
    content: dict[str, Any] = {**TINY, **image, "repeats": repeats, "sites": {site: {"gpus": gpus}}}
    return checkout.overlay(content, name=f"{site}-{'-'.join(gpus)}.yaml")


def require_cells(checkout: Checkout, repeat: int) -> list[dict[str, Any]]:
    """Check that all stages of a repeat's cells are done, in the image that is there; return their provenance."""
    (sif,) = checkout.root.glob("results/images/*.sif")
    record = json.loads(sif.with_name(f"{sif.name}.json").read_text())
    found = []
    for config in CONFIGS:
        for stage in STAGES:
            (folder,) = checkout.root.glob(f"results/cells/cpu/{config}/r{repeat}/{stage}-*")
            assert json.loads((folder / "status.json").read_text())["state"] == "done", folder
            found.append(json.loads((folder / "provenance.json").read_text()))
    assert {provenance["image_sha256"] for provenance in found} == {record["sha256"]}
    return found


def test_the_study_runs_with_the_profile_expanse(checkout, slurm, image):
    content, variables = image
    both = overlay(checkout, content, "expanse", ["v100", "cpu"], repeats=1)
    run = Run(checkout, slurm, "--profile", "expanse", *FAST_POLLING, "--configfile", both, "--", "cpu", **variables)
    assert run.finish(STUDY_S) == 0, run.printed
    slurm.wait_until_empty()
    provenance = require_cells(checkout, repeat=1)
    jobs = {entry["job_id"] for entry in provenance}
    assert len(jobs) == len(CONFIGS), "one job per cell"
    assert {tuple(job[:2]) for job in slurm.last_jobs(2)} == {(job, "COMPLETED") for job in jobs}
    assert {entry["torch"].split("+")[0] for entry in provenance} == {"2.13.0"}


def test_figures_and_report_are_rebuilt_from_current_cells(checkout, slurm, image):
    content, variables = image
    alone = overlay(checkout, content, "expanse", ["cpu"], repeats=1)
    before = slurm.last_jobs(1)
    run = Run(checkout, slurm, "--profile", "expanse", *FAST_POLLING, "--configfile", alone, **variables)
    assert run.finish(STUDY_S) == 0, run.printed
    assert slurm.last_jobs(1) == before, "nothing was submitted"
    assert "baseline" in (checkout.root / "results/report.html").read_text()
    assert (checkout.root / "results/figures/step_time.svg").exists()


def test_the_study_runs_where_tacc_refuses_memory_and_gpus(checkout, slurm, image, tmp_path):
    content, variables = image
    login = tmp_path / "bin"
    login.mkdir()
    (login / "sbatch").write_text(BANNER.format(real=shutil.which("sbatch")))
    (login / "sbatch").chmod(0o755)
    path = os.pathsep.join([str(Path(sys.executable).parent), str(login), os.environ["PATH"]])
    both = overlay(checkout, content, "stampede3", ["h100", "cpu"], repeats=2)
    options = ("--profile", "stampede3", *FAST_POLLING, "--configfile", both, "--", "cpu")
    run = Run(checkout, slurm, *options, **variables, PATH=path)
    assert run.finish(STUDY_S) == 0, run.printed
    slurm.wait_until_empty()
    jobs = {entry["job_id"] for entry in require_cells(checkout, repeat=2)}
    asked = slurm.ask("sacct", "-X", "-n", "--parsable2", "--format=JobID,Partition,State", "-j", ",".join(jobs))
    assert sorted(asked.split()) == sorted(f"{job}|h100|COMPLETED" for job in jobs)


def test_the_study_runs_whole_inside_one_job(checkout, slurm, image):
    content, variables = image
    both = overlay(checkout, content, "stampede3-node", ["h100", "cpu"], repeats=3)
    log = checkout.root / "job.log"
    command = f"{sys.executable} -m snakemake --profile stampede3-node --configfile {both} -- cpu"
    exports = ",".join(["ALL", *(f"{name}={value}" for name, value in variables.items())])
    submit = ("sbatch", "--wait", "--parsable", "-A", ACCOUNT, "-p", "h100", "-N", "1", "-n", "1", "-t", "20")
    job = slurm.ask(
        *submit, "-D", str(checkout.root), "-o", str(log), f"--export={exports}", "--wrap", command, limit_s=STUDY_S
    )
    provenance = require_cells(checkout, repeat=3)
    assert {entry["job_id"] for entry in provenance} == {job.strip()}, log.read_text()
    assert slurm.last_jobs(1)[0][:2] == [job.strip(), "COMPLETED"]
