"""Every figure, looked at through its marks and words; nothing clipped, nothing on top of another, same bytes."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.markers import CARETLEFT, CARETRIGHT
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from gpustudy.analysis import style
from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.draw import draw_figure, figure_of
from gpustudy.analysis.families import look_of_class
from gpustudy.analysis.names import FIGURES
from gpustudy.base.errors import UserError
from gpustudy.metrics.classes import CLASSES
from tests.analysis.crafted import CONFIGS, TF32_REASON, Crafted

TOUCH_PX = 1.0
"""Overlap of two texts, in pixels, that nobody sees."""


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


def boxes_of(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Bbox]]:
    """Every text that is really drawn, with its place in pixels."""
    found: list[tuple[str, Bbox]] = []
    draw = Text.draw

    def note(text: Text, renderer: Any) -> None:
        if text.get_visible() and text.get_text().strip():
            found.append((text.get_text(), text.get_window_extent(renderer)))
        draw(text, renderer)

    monkeypatch.setattr(Text, "draw", note)
    FigureCanvasAgg(figure).draw()
    return found


def one_repeat(root: Path) -> Dataset:
    crafted = Crafted(root)
    crafted.done("cpu", "baseline", 1, [0.03, 0.031, 0.032, 0.029])
    crafted.done("cpu", "opt2", 1, [0.04, 0.041, 0.042, 0.039], conversions=[("to", 3, 1000)])
    return Dataset(crafted.survey())


def all_unsupported(root: Path) -> Dataset:
    crafted = Crafted(root)
    for config in ("opt1", "opt12"):
        for repeat in (1, 2, 3):
            crafted.absent("cpu", config, repeat, "unsupported", TF32_REASON)
    return Dataset(crafted.survey())


def no_cells(root: Path) -> Dataset:
    return Dataset(Crafted(root).survey())


def many_states(root: Path) -> Dataset:
    """Long names and one repeat in each state: the worst case for the room that words have."""
    crafted = Crafted(root)
    for config in CONFIGS:
        crafted.done("a100-sxm4-80gb", config, 1, [1.234, 1.3], stages=("train",), null_control=("tf32",))
        crafted.absent("a100-sxm4-80gb", config, 2, "failed", "out of memory")
        crafted.absent("a100-sxm4-80gb", config, 3, "stale")
        for repeat, state in enumerate(("failed", "stale", "foreign-missing"), start=1):
            crafted.absent("h100", config, repeat, state)
    return Dataset(crafted.survey())


SURVEYS = {"one repeat": one_repeat, "all unsupported": all_unsupported, "no cells": no_cells, "states": many_states}


COUNTED = [name for name, product in FIGURES.items() if product.stages[0] == "counters"]
"""Figures of hardware counters."""


@pytest.mark.parametrize("survey", [*SURVEYS, "full", "counted", "every_config"])
@pytest.mark.parametrize("name", FIGURES)
def test_no_text_is_clipped_or_covered(
    name: str, survey: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset: Dataset = SURVEYS[survey](tmp_path) if survey in SURVEYS else request.getfixturevalue(survey)
    with style.look():
        figure = figure_of(name, dataset)
        boxes = boxes_of(figure, monkeypatch)
    page = figure.bbox
    assert boxes
    for text, box in boxes:
        inside = (
            box.x0 >= -TOUCH_PX
            and box.y0 >= -TOUCH_PX
            and box.x1 <= page.x1 + TOUCH_PX
            and box.y1 <= page.y1 + TOUCH_PX
        )
        assert inside, f"{text!r} is clipped: {box} of {page}"
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        shared = Bbox.intersection(first, second)
        covered = shared is not None and shared.width > TOUCH_PX and shared.height > TOUCH_PX
        assert not covered, f"{one!r} and {other!r} lie on each other"


@pytest.mark.parametrize("name", FIGURES)
def test_every_gpu_and_config_keeps_its_place(name: str, full: Dataset, counted: Dataset) -> None:
    of_counters = name in COUNTED
    words = (
        ("missing (foreign)", "not a stage here")
        if of_counters
        else ("missing (foreign)", "stale (foreign)", "unsupported")
    )
    with style.look():
        texts = texts_of(figure_of(name, counted if of_counters else full))
    for word in words:
        assert any(word in text for text in texts), word
    for gpu in ("v100", "a100", "h100", "cpu"):
        assert any(gpu in text for text in texts), gpu


@pytest.mark.parametrize("name", FIGURES)
def test_crafted_data_say_so_and_measured_do_not(name: str, full: Dataset, tmp_path: Path) -> None:
    measured = Crafted(tmp_path, origin="measured")
    measured.done("cpu", "baseline", 1, [1.0])
    with style.look():
        assert style.CRAFTED_BANNER in texts_of(figure_of(name, full))
        assert style.CRAFTED_BANNER not in texts_of(figure_of(name, Dataset(measured.survey())))


@pytest.mark.parametrize("name", ["class_time", "samples"])  # hatches, legend; pictures
def test_equal_data_give_equal_bytes(name: str, full: Dataset, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        draw_figure(name, full.survey, tmp_path / folder)
    sums = [
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / folder).iterdir()}
        for folder in ("one", "two")
    ]
    assert sums[0] == sums[1]
    assert sorted(sums[0]) == [f"{name}.json", f"{name}.pdf", f"{name}.svg"]


def test_places_are_rounded(full: Dataset) -> None:
    """The layout's solver differs in the last bits from run to run, and identifiers in an SVG hash them."""
    with style.look():
        figure = figure_of("quality", full)
        style.svg_of(figure)
    places = [value for axes in figure.axes for value in axes.get_position(original=True).bounds]
    assert places == pytest.approx([round(value, 6) for value in places], abs=1e-12)


def test_look_leaves_matplotlib_as_it_was() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    with style.look():
        assert mpl.rcParams["pdf.fonttype"] == 42
    assert dict(mpl.rcParams) == before


def panel(figure: Figure, gpu: str) -> dict[str, list[tuple[float, float]]]:
    """The marks of a gpu's panel: kind of mark -> (x, y) of its points."""
    axes = next(axes for axes in figure.axes if axes.get_title(loc="left") == gpu)
    marks: dict[str, list[tuple[float, float]]] = {}
    for line in axes.lines:
        kind = line.get_marker() if line.get_marker() not in ("None", "", None) else line.get_linestyle()
        marks.setdefault(str(kind), []).extend(
            zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True)
        )
    return marks


def test_step_time_shows_the_known_times(full: Dataset) -> None:
    with style.look():
        marks = panel(figure_of("step_time", full), "a100")
    row = CONFIGS.index("baseline")
    assert sorted(x for x, y in marks["o"] if y == row) == pytest.approx([0.98, 1.0, 1.02])
    middle = statistics.geometric_mean([0.98, 1.0, 1.02])
    assert [x for x, y in marks["D"] if y == row] == pytest.approx([middle])
    spread = statistics.stdev([math.log(0.98), 0.0, math.log(1.02)])
    factor = math.exp(4.302652729911275 * spread / 3**0.5)  # t of two degrees of freedom, on logarithms
    assert [x for x, y in marks["-"] if y == row] == pytest.approx([middle / factor, middle * factor])


def test_speedup_shows_every_verdict(full: Dataset) -> None:
    with style.look():
        texts = texts_of(figure_of("speedup", full))
    for text in ("1.00x SAME, n=3", "2.00x FASTER, n=3", "0.80x SLOWER, n=3", "1.00x AMBIGUOUS, n=3", "no baseline"):
        assert text in texts


def test_one_repeat_has_a_dotted_interval(tmp_path: Path) -> None:
    with style.look():
        figure = figure_of("step_time", one_repeat(tmp_path))
    marks = panel(figure, "cpu")
    assert "-" not in marks
    assert len(marks["--"]) == 4  # matplotlib's name for a dash pattern; two configs, two ends each
    assert "30.5 ms, n=1" in texts_of(figure)


@pytest.mark.parametrize("name", ["step_time", "speedup"])
def test_a_wide_interval_is_cut_and_does_not_fill_the_axis(name: str, tmp_path: Path) -> None:
    crafted = Crafted(tmp_path)
    for repeat, baseline, other in ((1, 1.0, 1.1), (2, 1.0, 10.0), (3, 2.0, 1.2)):
        crafted.done("cpu", "baseline", repeat, [baseline])
        crafted.done("cpu", "opt2", repeat, [other])  # three times this far apart: the interval is 0.1 to 60 s
    with style.look():
        figure = figure_of(name, Dataset(crafted.survey()))
    (axes,) = (axes for axes in figure.axes if axes.get_title(loc="left") == "cpu")
    low, high = axes.get_xlim()
    largest = {"step_time": 10.0, "speedup": 1.1}[name]
    assert largest < high < 2 * largest
    marks = panel(figure, "cpu")
    assert (high, 1.0) in marks[str(CARETRIGHT)]  # opt2 is the second row
    if name == "speedup":
        assert marks[str(CARETLEFT)] == [(low, 1.0)]


def test_a_narrow_interval_has_no_arrow(full: Dataset) -> None:
    with style.look():
        assert {str(CARETLEFT), str(CARETRIGHT)}.isdisjoint(panel(figure_of("step_time", full), "a100"))


def test_class_time_stacks_to_the_phase(full: Dataset) -> None:
    with style.look():
        figure = figure_of("class_time", full)
    axes = next(axes for axes in figure.axes if axes.get_title(loc="left") == "cpu")
    ends: dict[float, float] = {}
    for patch in axes.patches:
        if patch.get_hatch() is not None or patch.get_width() > 1:
            centre = round(patch.get_y() + patch.get_height() / 2, 3)
            ends[centre] = max(ends.get(centre, 0), patch.get_x() + patch.get_width())
    row = 5 * CONFIGS.index("baseline")  # four bars and a gap
    found = [ends[row + offset] for offset in (-1.5, -0.5, 0.5, 1.5)]
    assert found == pytest.approx([400, 560, 40, 5])  # ms: forward, backward, optimiser, rest


def test_a_class_has_the_colour_of_its_family_in_every_figure(counted: Dataset) -> None:
    def colours(name: str) -> dict[str, tuple[float, ...]]:
        with style.look():
            (legend,) = figure_of(name, counted).legends
        texts = [text.get_text() for text in legend.get_texts()]
        return dict(zip(texts, [handle.get_facecolor() for handle in legend.legend_handles], strict=True))

    classes, families, lanes = (colours(name) for name in ("class_time", "class_share", "step_timeline"))
    assert families == lanes
    assert classes["normalisation"] == families["normalisation"]
    assert classes["conv_forward"] == classes["conv_dgrad"] == families["convolution"]


def test_fields_without_samples_have_the_size_of_pictures(full: Dataset) -> None:
    with style.look():
        figure = figure_of("samples", full)
        FigureCanvasAgg(figure).draw()
    tiles = [axes.get_window_extent() for axes in figure.axes if axes.axison]
    heights = {round(tile.height) for tile in tiles}
    assert len(tiles) > 1
    assert max(heights) - min(heights) <= 1


def test_every_class_has_a_look_of_its_own() -> None:
    assert len({look_of_class(name) for name in CLASSES}) == len(CLASSES)


def test_caption_names_the_cells_used(full: Dataset, tmp_path: Path) -> None:
    draw_figure("step_time", full.survey, tmp_path)
    content = json.loads((tmp_path / "step_time.json").read_text())
    cells = {cell["cell"]: cell for cell in content["cells"]}
    assert len(cells) == 60
    assert cells["a100/opt1/r2"]["stages"] == {"train": {"key": "trai002", "used": True, "why": ""}}
    assert cells["cpu/opt1/r1"]["stages"]["train"] == {"key": "trai001", "used": False, "why": "unsupported"}
    assert content["crafted"] is True


def test_unknown_figure_names_the_nearest(full: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown figure 'step_tim': did you mean 'step_time'"):
        draw_figure("step_tim", full.survey, tmp_path)


def test_labels_of_quality_have_the_names_of_the_data_set(full: Dataset) -> None:
    with style.look():
        texts = texts_of(figure_of("quality", full))
    assert "grey matter" in texts  # label 2 of the template's tissues
    assert not any(text.startswith("label ") for text in texts)


def test_speed_ups_lie_on_a_logarithmic_axis_with_a_band(full: Dataset) -> None:
    with style.look():
        figure = figure_of("speedup", full)
    axes = next(axes for axes in figure.axes if axes.get_title(loc="left") == "a100")
    assert axes.get_xscale() == "log"
    (band,) = [patch for patch in axes.patches if patch.get_x() == pytest.approx(1 / 1.02)]
    assert band.get_x() + band.get_width() == pytest.approx(1.02)
