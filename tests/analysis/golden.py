"""Pictures of every figure of the crafted study, to compare with: each was looked at by a person before it came here.

Made anew, after a change that is meant, by ``python -m tests.analysis.golden [NAME ...]`` from the root of the
checkout; look at each before it is committed.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.image import imread
from numpy.typing import NDArray

from gpustudy.analysis import style
from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.draw import figure_of
from gpustudy.analysis.names import FIGURES
from gpustudy.base.atomic import write_bytes
from gpustudy.study.states import survey
from tests.support.crafted_study import Truth, craft_study, crafted_effective

FOLDER = Path(__file__).with_name("golden")

DPI = 64
"""Resolution of the pictures: text is still text, and twenty of them are half a megabyte."""

LACKING: set[str | tuple[str, str]] = {"v100", ("h100", "opt2")}
"""What the crafted study lacks here, so that missing cells are in the pictures too."""


def golden_dataset(folder: Path) -> Dataset:
    """Return the crafted study with its gaps, written below ``folder``."""
    effective = crafted_effective(folder / "results")
    return Dataset(survey(craft_study(effective, Truth(absent=LACKING))))


def picture(name: str, dataset: Dataset) -> bytes:
    """Return the figure ``name`` as PNG."""
    out = io.BytesIO()
    with style.look():
        figure_of(name, dataset).savefig(out, format="png", dpi=DPI, metadata={"Software": None})
    return out.getvalue()


def pixels(png: bytes) -> NDArray[np.float64]:
    """Return the picture as red, green, blue from 0 to 1: shape (height, width, 3)."""
    return np.asarray(imread(io.BytesIO(png), format="png")[..., :3], dtype=np.float64)


def main(names: list[str]) -> None:
    """Write the pictures of ``names``, of all figures without."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = golden_dataset(Path(folder))
        for name in names or list(FIGURES):
            write_bytes(FOLDER / f"{name}.png", picture(name, dataset))


if __name__ == "__main__":
    main(sys.argv[1:])
