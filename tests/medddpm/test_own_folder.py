"""The README's three lines for one's own NIfTI folder, run as they stand but for sizes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

from tests.support.checkout import REPOSITORY

nibabel = pytest.importorskip("nibabel")

SIDE = 16
SMALL = {
    "train": "--iterations 2 --base-channels 32 --channel-mult 1,1 --attention-downsamples 2 --timesteps 4",
    "sample": "--ddim-steps 2",
    "data": f"--volume {SIDE} {SIDE} {SIDE}",  # the last one given counts
}


def three_lines() -> list[list[str]]:
    readme = (REPOSITORY / "README.md").read_text()
    block = re.search(r"own NIfTI folder.*?```\n(.*?)```", readme, re.DOTALL)
    assert block is not None
    return [shlex.split(line) for line in block[1].strip().splitlines()]


def craft_folder(folder, count=2):
    """Crafted images of noise, brighter inside a ball, and the ball as their label map."""
    generator = np.random.default_rng(1)
    axis = np.arange(20) - 9.5
    ball = (axis[:, None, None] ** 2 + axis[:, None] ** 2 + axis**2 < 49).astype(np.uint8)
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True)
    for case in range(count):
        image = (generator.random(ball.shape) + ball).astype(np.float32)
        for kind, array in (("images", image), ("labels", ball)):
            nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), folder / kind / f"case{case}.nii.gz")


def test_the_three_lines_of_the_readme_train_on_a_folder(tmp_path):
    craft_folder(tmp_path / "mydata")
    lines = three_lines()
    assert len(lines) == 3
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "workflow")}
    for program, verb, *rest in lines:
        assert program == "gpustudy"
        command = [sys.executable, "-m", "gpustudy", verb, *rest, *SMALL[verb].split()]
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
    with np.load(tmp_path / "runs" / "first" / "samples" / "samples.npz") as samples:
        assert samples["samples"].shape == (1, 1, SIDE, SIDE, SIDE)
        assert np.abs(samples["samples"]).max() <= 1
        assert samples["masks"].max() == 1
