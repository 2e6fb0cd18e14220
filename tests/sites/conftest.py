"""Real components that several site tests share."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import cannot_be_had
from tests.support.slurm import Slurm


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A Slurm of one node, started for this session and stopped after it."""
    if os.geteuid() != 0:
        pytest.skip("a Slurm of one's own needs root")
    if not shutil.which("apt-get"):
        pytest.skip("slurm_up.sh installs Slurm on Debian only")
    # not below pytest's own folders, which nobody but root may enter: munged and MariaDB run as their own users
    folder = Path(tempfile.mkdtemp(prefix="gpustudy-slurm-"))
    folder.chmod(0o755)
    cluster = Slurm(folder)
    try:
        try:
            cluster.up()
        except (AssertionError, subprocess.TimeoutExpired) as error:
            cannot_be_had("Slurm of one's own", str(error))
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)
