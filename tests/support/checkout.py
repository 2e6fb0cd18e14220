"""A copy of this checkout in a folder of its own, to edit and to run Snakemake in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
_PARTS = ("Snakefile", "config.yaml", "containers", "envs", "workflow")
_PROFILES = ("local", "expanse", "stampede3", "stampede3-node", "jetstream2")

TINY = {
    "repeats": 1,
    "gpus": {"cpu": {"threads": 1}},
    "workloads": {
        "demo": {
            "model": {"channel_mult": [1, 1], "attention_downsamples": [2]},
            "train": {"iterations": 2, "warmup_iterations": 1},
            "census": {"iterations": 1},
            "quality": {"samples": 2, "ddim_steps": 2},
        }
    },
    "data": {"mni152-demo": {"count": 2}},
}
"""An overlay with which a real cell takes seconds."""


@dataclass(frozen=True)
class Checkout:
    """A copied checkout.

    Attributes:
        root: its root.
    """

    root: Path

    def environment(self, **extra: str) -> dict[str, str]:
        """Return an environment in which nothing but this copy's package is seen."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("GPUSTUDY_", "PYTEST_"))
        }
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
        environment["PYTHONPATH"] = str(self.root / "workflow")
        environment["TMPDIR"] = str(self.root.parent)  # locks of devices lie there: no waiting for other tests
        return environment | extra

    def snakemake(self, *arguments: str, check: bool = True, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run ``snakemake --cores 2`` with ``arguments`` in the copy and return what it printed (stderr merged)."""
        command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
        return self._run(command, check, extra)

    def gpustudy(self, *arguments: str, check: bool = True, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a ``gpustudy`` verb in the copy and return what it printed (stderr merged)."""
        return self._run([sys.executable, "-m", "gpustudy", *arguments], check, extra)

    def overlay(self, content: dict[str, object], name: str = "overlay.yaml") -> str:
        """Write ``content`` as an overlay file and return its name."""
        (self.root / name).write_text(yaml.safe_dump(content))
        return name

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace ``old``, which must be there, by ``new`` in a file of the copy."""
        path = self.root / file
        text = path.read_text()
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new, 1))

    def _run(self, command: list[str], check: bool, extra: dict[str, str]) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=self.root,
            env=self.environment(**extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
        assert not check or done.returncode == 0, done.stdout
        return done


def copy_checkout(target: Path) -> Checkout:
    """Copy what the workflow needs of this checkout, without results, to ``target``."""
    target.mkdir(parents=True, exist_ok=True)
    for part in (*_PARTS, *_PROFILES):
        source = REPOSITORY / part
        if source.is_symlink():
            (target / part).symlink_to(source.readlink())
        elif source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
        else:
            shutil.copy2(source, target / part)
    return Checkout(target)


def planned(output: str) -> dict[str, int]:
    """Return rule -> number of jobs that ``snakemake -n -q rules`` printed; empty when nothing is to be done."""
    jobs: dict[str, int] = {}
    lines = iter(output.splitlines())
    for line in lines:
        if line.split() == ["job", "count"]:
            next(lines)
            for row in lines:
                words = row.split()
                if len(words) != 2 or words[0] == "total":
                    break
                jobs[words[0]] = int(words[1])
            break
    return jobs
