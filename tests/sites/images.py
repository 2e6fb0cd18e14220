"""A container image for tests, built by the project's own rule: Debian's root file system, and the stack's wheels.

No registry is reachable where tests run: the base image is made here by debootstrap, once per machine, and given to
the build as a file (GPUSTUDY_BASE_IMAGES). As a program it does the slow parts beforehand:

    PYTHONPATH=workflow python -m tests.sites.images
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpustudy.base.digests import file_sha256
from tests.support.checkout import REPOSITORY, Checkout
from tests.support.places import cannot_be_had

CACHE = Path(os.environ.get("GPUSTUDY_TEST_CACHE", Path.home() / ".cache" / "gpustudy-tests"))
RECIPE = "containers/debian.Dockerfile"
PYTHON = "3.11"
"""Debian 12's, in the image; the wheels are fetched for it."""
STEP_TIMEOUT_S = 900
APPTAINER = "/usr/local/bin/apptainer"

_RECIPE = """\
# For tests: Debian's own Python, and the pinned packages from a folder of wheels.
FROM debian:bookworm@sha256:{digest}

COPY envs/current.txt /opt/stack/pins.txt
COPY wheels /opt/stack/wheels
ENV PYTHONNOUSERSITE=1
RUN python3 -m venv /opt/stack/venv \\
    && /opt/stack/venv/bin/pip install --no-index --no-compile --find-links /opt/stack/wheels -r /opt/stack/pins.txt \\
    && rm -rf /opt/stack/wheels
ENV PATH=/opt/stack/venv/bin:$PATH
"""


def give_test_image(checkout: Checkout) -> tuple[dict[str, object], dict[str, str]]:
    """Put recipe and wheels into ``checkout``.

    Returns:
        The overlay with which the ``current`` stack is built from them, and the environment that a build needs.
    """
    base = base_image()
    (checkout.root / RECIPE).write_text(_RECIPE.format(digest=base.stem.removeprefix("sha256-")))
    if not (checkout.root / "wheels").exists():
        shutil.copytree(wheels(), checkout.root / "wheels", copy_function=os.link)
    return {"stacks": {"current": {"recipe": RECIPE}}}, {"GPUSTUDY_BASE_IMAGES": str(base.parent)}


def base_image() -> Path:
    """Return the base image of the tests as a .sif, with the root file system as a .tar beside it; make them once."""
    folder = CACHE / "bases"
    with _alone("base"):
        made = sorted(folder.glob("sha256-*.sif"))
        if made and made[0].with_suffix(".tar").exists():
            return made[0]
        root = CACHE / "rootfs"
        shutil.rmtree(root, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        packages = "python3,python3-venv,ca-certificates"
        _run("debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(root))
        for entry in (root / "dev").iterdir():  # device nodes cannot be unpacked by ordinary users later
            entry.unlink() if entry.is_symlink() or not entry.is_dir() else shutil.rmtree(entry)
        for leftover in (*root.glob("var/cache/apt/archives/*.deb"), *root.glob("var/lib/apt/lists/*_*")):
            leftover.unlink()
        image, archive = folder / "base.part.sif", folder / "base.part.tar"
        _run(APPTAINER, "build", "--force", str(image), str(root))
        _run("tar", "--create", "--file", str(archive), "--directory", str(root), ".")
        shutil.rmtree(root)
        name = f"sha256-{file_sha256(image)}"
        archive.rename(folder / f"{name}.tar")
        return image.rename(folder / f"{name}.sif")


def wheels() -> Path:
    """Return a folder with the wheels of envs/current.txt for the Python of the image; fetch them once."""
    pins = REPOSITORY / "envs" / "current.txt"
    folder = CACHE / f"wheels-{file_sha256(pins)[:12]}"
    with _alone("wheels"):
        if not folder.exists():
            part = folder.with_suffix(".part")
            index = os.environ.get("TORCH_INDEX")
            extra = ["--extra-index-url", index] if index else []
            words = ["--quiet", "--only-binary=:all:", "--python-version", PYTHON, "--dest", str(part), *extra]
            _run(sys.executable, "-m", "pip", "download", *words, "--requirement", str(pins))
            part.rename(folder)
    return folder


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Let one test run at a time make what is kept; others wait for it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=STEP_TIMEOUT_S)
    if done.returncode:
        cannot_be_had(f"base for a test image ({' '.join(command[:2])} ...)", done.stdout[-4000:])


if __name__ == "__main__":
    print(base_image())
    print(wheels())
