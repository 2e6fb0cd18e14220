"""One look for every figure: sizes of a two-column paper, colours for everyone, the same bytes every time.

Nothing here touches matplotlib's global state: figures are made and saved inside ``look()``, without pyplot.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustudy.base.atomic import write_bytes

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLUMN_IN = 3.33
"""Width of one column of the ACM two-column format, in inches."""

TEXT_IN = 7.0
"""Width of its text block, in inches."""

ROW_IN = 0.19
"""Height of one row of a panel, in inches: a line of 7-point type with room around it."""

RASTER_DPI = 200
"""Resolution of pictures inside a figure, in dots per inch."""

_PLACE_DIGITS = 6
"""Digits of an axes' place, as a share of the figure: a millionth of a page is below any printer."""

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
"""Okabe & Ito's palette for colour-blind readers (jfly.uni-koeln.de/color), without black."""

HATCHES = ("", "////", "-----", "xxxx", "\\\\\\\\", "..", "++", "||||")
"""Second mark of an area beside its colour, for print in grey; lines where they do: each dot weighs in an SVG."""

LINES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (2, 2)), (0, (8, 2)))
"""Second mark of a line beside its colour."""

MARKERS = ("D", "o", "^", "s", "v", "P")
"""Second mark of a point beside its colour."""

INK, QUIET, STRIP, RULE = "#1a1a1a", "#5c5c5c", "#ededed", "#d9d9d9"
"""Text and marks; secondary text; the ground of a row that has nothing to show; lines of a grid and between rows."""

CRAFTED_BANNER = "CRAFTED DATA: not a measurement"
"""Stands on everything that was made from values nobody measured."""

_RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib: the same glyphs on every machine
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 3,
    "axes.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.edgecolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "hatch.linewidth": 0.4,
    "hatch.color": INK,
    "lines.linewidth": 1.0,
    "figure.dpi": RASTER_DPI,
    "savefig.dpi": RASTER_DPI,
    "svg.hashsalt": "gpustudy",  # identifiers from content, not from chance
    "svg.fonttype": "path",  # the same look where the font is absent
    "pdf.fonttype": 42,  # TrueType: publishers refuse type 3
}


@contextmanager
def look() -> Iterator[None]:
    """Hold the study's look: make and save figures inside."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()  # a reader's own matplotlibrc has no say
        mpl.rcParams.update(_RC)
        yield


def save(figure: Figure, stem: Path) -> None:
    """Write ``figure`` as SVG and PDF beside each other: no date inside, so equal figures are equal bytes."""
    write_bytes(stem.with_suffix(".svg"), svg_of(figure))
    out = io.BytesIO()
    figure.savefig(out, format="pdf", metadata={"CreationDate": None, "Creator": "gpustudy"})
    write_bytes(stem.with_suffix(".pdf"), out.getvalue())


def svg_of(figure: Figure) -> bytes:
    """Return ``figure`` as an SVG file."""
    _settle(figure)
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "gpustudy"})
    return out.getvalue()


def _settle(figure: Figure) -> None:
    """Lay the figure out once and round the places of its axes.

    The layout's solver leaves differences around 1e-16 from run to run, which would change the identifiers in an SVG.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = (round(value, _PLACE_DIGITS) for value in axes.get_position(original=True).bounds)
        axes.set_position((left, bottom, width, height))


def plain_log(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers, as many as its span asks for: 0.01, 0.1, 1 or 0.9, 1, 1.1."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    low, high = (float(end) for end in axis.get_view_interval())
    decades = math.log10(high / low)
    if decades < _EVEN_DECADES:
        ticks = [float(tick) for tick in MaxNLocator(_EVEN_TICKS, steps=[1, 2, 5, 10]).tick_values(low, high)]
    else:
        steps = next(steps for most, steps in _LOG_STEPS if decades < most)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [step * 10.0**power for power in powers for step in steps]
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


_EVEN_DECADES, _EVEN_TICKS = 0.35, 5
"""Span of a logarithmic axis, in decades, below which its ticks are evenly spaced numbers, and about how many."""

_LOG_STEPS = ((0.9, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)), (1.8, (1.0, 2.0, 5.0)), (math.inf, (1.0,)))
"""Span in decades -> ticks within a decade for axes that span less."""

_LEAST_S = 0.9995
"""From here on times are told in seconds, in seconds: what would read as 1000 ms does not."""


def time_unit(largest_s: float) -> tuple[float, str]:
    """Return what to multiply seconds by, and the unit, for values up to ``largest_s``."""
    return (1.0, "s") if largest_s >= _LEAST_S else (1e3, "ms")


def byte_unit(largest: float) -> tuple[float, str]:
    """Return what to divide bytes by, and the unit, for values up to ``largest``."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = 0
    while largest >= 1024 and power < len(units) - 1:
        largest, power = largest / 1024, power + 1
    return 1024.0**power, units[power]


def duration(seconds: float, like: float | None = None) -> str:
    """Return a time for people, such as 1.25 s or 32.0 ms; in the unit that fits ``like``, if given."""
    scale, unit = time_unit(abs(seconds if like is None else like))
    return f"{number(seconds * scale)} {unit}"


def amount_of_bytes(count: float) -> str:
    """Return an amount of memory for people, such as 16 GiB."""
    divisor, unit = byte_unit(count)
    return f"{number(count / divisor)} {unit}"


def count(value: float) -> str:
    """Return a mean of counts for people: whole where it is, else with one decimal."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.1f}"


def number(value: float, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` significant digits and no exponent where it can be read without."""
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits}g}"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    text = f"{value:.{max(digits - whole, 0)}f}"
    return text if whole else f"{value:#.{digits}g}"
