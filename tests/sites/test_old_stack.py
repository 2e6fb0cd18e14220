"""The cell side on the stack of the paper: torch 2.0.1 and numpy 1.26, in an environment of its own.

tests/sites/setup.sh makes .venv-paper from envs/paper.txt (about 2 GB, once); without it the test skips.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.checkout import REPOSITORY

pytestmark = pytest.mark.sites

PYTHON = REPOSITORY / ".venv-paper" / "bin" / "python"
LIMIT_S = 600
CELL_TESTS = ("train", "census", "quality", "switches", "optimisations", "layouts")
NETWORK_TESTS = ("unet", "diffusion", "published", "trainer", "micro_batches", "switches", "lean", "fastconv", "memory")


@pytest.fixture(scope="module")
def python() -> str:
    if not PYTHON.exists():
        pytest.skip(f"no {PYTHON}: run 'GPUSTUDY_OLD_STACK=1 bash tests/sites/setup.sh' to make it from envs/paper.txt")
    return str(PYTHON)


def test_the_environment_is_the_pinned_one(python):
    code = "import torch, numpy; print(torch.__version__.split('+')[0], numpy.__version__)"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["2.0.1", "1.26.4"]


@pytest.mark.parametrize(("room", "parts"), [("cell", CELL_TESTS), ("medddpm", NETWORK_TESTS)])
def test_the_cell_side_runs_on_the_papers_stack(python, room, parts):
    files = [f"tests/{room}/test_{part}.py" for part in parts]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not sites", *files]
    # the environment of this run would lead to its own packages
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ended = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-1000:]
