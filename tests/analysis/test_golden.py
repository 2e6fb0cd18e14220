"""Every figure looks as it did when a person last looked at it."""

from __future__ import annotations

import numpy as np
import pytest

from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.names import FIGURES
from tests.analysis.golden import FOLDER, picture, pixels

SEEN = 0.15
"""Difference of a pixel that an eye sees, of the range from black to white."""

TOLERATED = 0.0005
"""Share of the pixels that may differ so: the smoothing of edges moves a little between versions of the library."""


@pytest.mark.parametrize("name", FIGURES)
def test_figure_looks_as_it_was_approved(name: str, counted: Dataset) -> None:
    approved = FOLDER / f"{name}.png"
    assert approved.is_file(), f"make it with 'python -m tests.analysis.golden {name}' and look at it"
    drawn, known = pixels(picture(name, counted)), pixels(approved.read_bytes())
    assert drawn.shape == known.shape
    different = float(np.mean(np.abs(drawn - known).max(axis=-1) > SEEN))
    assert different <= TOLERATED, f"{different:.2%} of the pixels differ: see 'python -m tests.analysis.golden {name}'"


def test_no_picture_is_left_of_a_figure_that_is_gone() -> None:
    assert {path.stem for path in FOLDER.glob("*.png")} == set(FIGURES)
