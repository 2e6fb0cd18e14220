"""Figures as the report holds them: data URIs that together stay below a budget, so that the file can be mailed."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpustudy.analysis import style
from gpustudy.analysis.draw import figure_of
from gpustudy.analysis.names import FIGURES

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset

PX_PER_IN = 150
"""Width of a figure on the screen, in CSS pixels an inch of its width on paper: 7-point type as large as the text."""

MOST_BYTES = 2_800_000
"""All figures together, before base64 makes them a third larger: leaves the rest of 5 MB to tables and explorer."""

_DPI = (200, 120)
"""Resolutions of a figure that is too heavy as SVG, in dots per inch: the first that fits the budget is taken."""


@dataclass(frozen=True)
class Picture:
    """One figure.

    Attributes:
        source: data URI.
        width_px: width on the screen in CSS pixels.
        is_raster: whether it was too heavy as SVG and is shown as PNG.
    """

    source: str
    width_px: int
    is_raster: bool

    @property
    def is_wide(self) -> bool:
        """Whether it is wider than a column of the paper, and on a small screen better scrolled than shrunk."""
        return self.width_px > (style.COLUMN_IN + style.TEXT_IN) / 2 * PX_PER_IN


@dataclass(frozen=True)
class _Drawn:
    data: bytes
    kind: str
    width_px: int


def pictures(dataset: Dataset, names: list[str], most_bytes: int = MOST_BYTES) -> dict[str, Picture]:
    """Draw the figures ``names`` now; the heaviest become PNG until all together weigh at most ``most_bytes``.

    Those that would show words alone are left out.
    """
    drawn = {name: one for name in names if (one := _draw(name, dataset, None)) is not None}
    for dpi in _DPI:
        for name in sorted(drawn, key=lambda name: len(drawn[name].data), reverse=True):
            if sum(len(one.data) for one in drawn.values()) <= most_bytes:
                break
            raster = _draw(name, dataset, dpi)
            if raster is not None and len(raster.data) < len(drawn[name].data):
                drawn[name] = raster
    return {
        name: Picture(
            f"data:image/{one.kind};base64,{base64.b64encode(one.data).decode()}", one.width_px, one.kind == "png"
        )
        for name, one in drawn.items()
    }


def has_data(name: str, dataset: Dataset) -> bool:
    """Say whether any cell has what the figure cannot do without; without it, it would show words alone."""
    needed = FIGURES[name].stages[0]
    return any(
        stage.stage == needed and stage.state == "done" and stage.metrics is not None
        for cell in dataset.survey.cells
        for stage in cell.stages
    )


_COORDINATES = re.compile(r'( (?:d|x|y|points)=")([^"]*)"')
_FURTHER_DIGITS = re.compile(r"(\.\d\d)\d+")
_NOT_SEEN = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|(?<=>)\s+(?=<)", re.DOTALL)


def lean(svg: bytes) -> bytes:
    """Return an SVG file without what nobody sees: a quarter less to carry.

    Coordinates keep two decimals, a hundredth of a point; transforms keep all. Comments, metadata and the space between
    elements go.
    """
    text = _NOT_SEEN.sub("", svg.decode())

    def shortened(found: re.Match[str]) -> str:
        return found[1] + _FURTHER_DIGITS.sub(r"\1", found[2]) + '"'

    return _COORDINATES.sub(shortened, text).encode()


def _draw(name: str, dataset: Dataset, dpi: int | None) -> _Drawn | None:
    """Draw one figure as SVG, or as PNG of ``dpi``; None where it has nothing but words."""
    with style.look():
        figure = figure_of(name, dataset)
        if not any(axes.axison for axes in figure.axes):
            return None
        width_px = round(figure.get_figwidth() * PX_PER_IN)
        if dpi is None:
            return _Drawn(lean(style.svg_of(figure)), "svg+xml", width_px)
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=dpi, metadata={"Software": "gpustudy"})
        return _Drawn(out.getvalue(), "png", width_px)
