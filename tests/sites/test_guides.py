"""The guides of the sites, followed line by line at emulated ones.

What is changed of a line is what the emulation lacks: cells of the cpu stand for those of the GPU, without containers
(``test_slurm_study`` has them), in a workload of seconds and with shorter waits.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.checkout import REPOSITORY, TINY, Checkout, copy_checkout
from tests.support.slurm import ACCOUNT, FAST_POLLING, Slurm

pytestmark = pytest.mark.sites

STEP_S = 240
"""Seconds for one line of a guide."""
OVERLAY = "guide.yaml"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, slurm) -> Checkout:
    copied = copy_checkout(tmp_path_factory.mktemp("guides") / "study")
    path = copied.root / "config.yaml"
    study = yaml.safe_load(path.read_text())
    study["configs"] = {"baseline": study["configs"]["baseline"]}
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    own = {"runtime": "none", "scratch": str(copied.root.parent)}
    sites = {"expanse": {"gpus": ["v100", "cpu"], **own}}
    sites |= {site: {"gpus": ["cpu"], **own} for site in ("stampede3-node", "jetstream2")}
    copied.overlay({**TINY, "sites": sites}, OVERLAY)
    return copied


def lines_of(guide: str, section: str) -> list[str]:
    """The command lines of a section of a guide, its scripts left out."""
    text = (REPOSITORY / "docs" / f"{guide}.md").read_text()
    (body,) = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
    return [line for block in blocks if not block.startswith("#!") for line in block.splitlines()]


def follow(checkout: Checkout, slurm: Slurm, line: str, *more: str) -> str:
    """Run one line in the checkout and return what it printed."""
    words = shlex.split(line, comments=True)
    module = [sys.executable, "-m", words[0]] if words[0] in ("gpustudy", "snakemake") else [words[0]]
    done = subprocess.run(
        [*module, *words[1:], *more],
        cwd=checkout.root,
        env=checkout.environment(**slurm.variables, GPUSTUDY_ACCOUNT=ACCOUNT, USER="root"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=STEP_S,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}"
    return done.stdout


def with_overlay(line: str) -> str:
    """Put the overlay into a line of Snakemake, before its targets."""
    call, separator, targets = line.split("#")[0].rstrip().partition(" -- ")
    return f"{call} --configfile {OVERLAY} {shlex.join(FAST_POLLING)}{separator}{targets}"


def test_expanse_from_the_plan_to_the_archive(checkout, slurm, tmp_path):
    plan, dry_run, one_config, everything, *_ = [
        line for line in lines_of("run-on-expanse", "Run") if line.startswith(("gpustudy", "snakemake"))
    ]
    assert "Cost at site expanse" in follow(checkout, slurm, plan, "--configfile", OVERLAY)
    assert "run_train" in follow(checkout, slurm, with_overlay(dry_run))
    assert one_config.split("#")[0].split() == ["snakemake", "--profile", "expanse", "--", "baseline"]
    follow(checkout, slurm, with_overlay(one_config.replace("baseline", "cpu")))
    assert everything.startswith("snakemake --profile expanse ")
    slurm.wait_until_empty()
    export, verify = lines_of("run-on-expanse", "Take the results home")
    follow(checkout, slurm, export.replace("v100", "cpu"), "--configfile", OVERLAY)
    follow(checkout, slurm, verify.replace("v100", "cpu"))
    home = copy_checkout(tmp_path / "home")
    for name in ("config.yaml", OVERLAY, "cpu.zip"):
        (home.root / name).write_bytes((checkout.root / name).read_bytes())
    follow(home, slurm, "gpustudy archive import cpu.zip", "--configfile", OVERLAY)
    status = follow(home, slurm, "gpustudy status --gpu cpu --json", "--configfile", OVERLAY)
    assert status.count('"state": "done"') >= 1
    assert "missing" not in status


def test_stampede3_inside_one_job(checkout, slurm):
    text = (REPOSITORY / "docs" / "run-on-stampede3.md").read_text()
    (script,) = re.findall(r"^```\n(#!/bin/bash\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    python = shlex.quote(sys.executable)
    for old, new in (
        ("module load tacc-apptainer", "module() { :; }; module load tacc-apptainer"),
        ("source .venv/bin/activate", f'gpustudy() {{ {python} -m gpustudy "$@"; }}'),
        ("gpustudy preflight stampede3-node", f"gpustudy preflight stampede3-node --configfile {OVERLAY}"),
        ("snakemake --profile stampede3-node", f"{python} -m snakemake --profile stampede3-node --configfile {OVERLAY} "
         "second.yaml --cores 2 -- cpu"),
    ):  # fmt: skip
        assert old in script
        script = script.replace(old, new)
    (checkout.root / "h100.sbatch").write_text(script)
    checkout.overlay({"repeats": 2}, "second.yaml")
    (submit,) = [line for line in lines_of("run-on-stampede3", "Run, inside one job") if line.startswith("sbatch")]
    follow(checkout, slurm, submit.replace("$GPUSTUDY_ACCOUNT", ACCOUNT).replace("sbatch -A", "sbatch --wait -A"))
    (log,) = checkout.root.glob("gpustudy.*.log")
    assert "The study would run here." in log.read_text()
    done = list(Path(checkout.root / "results/cells/cpu/baseline").glob("r2/*/status.json"))
    assert len(done) == 3, log.read_text()
    assert not slurm.queue()


def test_jetstream2_from_the_preflight_to_the_archive(checkout, slurm):
    checkout.overlay({"repeats": 3}, "third.yaml")
    (preflight,) = [line for line in lines_of("run-on-jetstream2", "Once") if line.startswith("gpustudy preflight")]
    assert "The study would run here." in follow(checkout, slurm, preflight, "--configfile", OVERLAY)
    _, plan, one_config, _ = [
        line for line in lines_of("run-on-jetstream2", "Run") if line.startswith(("gpustudy", "snakemake"))
    ]
    assert "Cost at site jetstream2" in follow(checkout, slurm, plan, "--configfile", OVERLAY, "third.yaml")
    call, targets = one_config.split("#")[0].split(" -- ")
    follow(checkout, slurm, f"{call} --configfile {OVERLAY} third.yaml --cores 2 -- {targets}")
    export, verify = lines_of("run-on-jetstream2", "Take the results home")
    follow(checkout, slurm, export.replace("--gpu a100", "--gpu cpu"), "--configfile", OVERLAY, "third.yaml")
    follow(checkout, slurm, verify)
