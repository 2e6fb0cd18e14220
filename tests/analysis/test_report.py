"""The report is one valid HTML file that loads nothing, for whatever cells there are."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import html5lib
import pytest

from gpustudy.analysis.claim_models import load_claims, paper
from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.names import DOCUMENTS, FIGURES, TABLES
from gpustudy.analysis.overview import grouped
from gpustudy.analysis.pictures import _Drawn as Drawn
from gpustudy.analysis.pictures import lean, pictures
from gpustudy.analysis.report import render, write_report
from tests.analysis.crafted import TF32_REASON, Crafted

MOST_BYTES = 5 * 2**20
"""What the report may weigh, so that it can be mailed."""


@pytest.fixture(scope="module")
def report(full: Dataset) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUSTUDY_GIT_COMMIT", "0" * 40)  # the checkout may move while the tests run
        yield render(full)


def unsupported(root: Path) -> Dataset:
    crafted = Crafted(root)
    crafted.absent("cpu", "opt1", 1, "unsupported", TF32_REASON)
    return Dataset(crafted.survey())


def cpu_alone(root: Path) -> Dataset:
    crafted = Crafted(root, origin="measured")
    crafted.done("cpu", "baseline", 1, [1.0, 1.1])
    return Dataset(crafted.survey())


def no_cells(root: Path) -> Dataset:
    return Dataset(Crafted(root).survey())


def without_data_uris(text: str) -> str:
    return re.sub(r"data:image/svg\+xml;base64,[A-Za-z0-9+/=]+", "data:", text)


def test_nothing_is_loaded(report: str) -> None:
    assert len(report.encode()) <= MOST_BYTES
    text = without_data_uris(report)
    assert not re.findall(r"https?://|//[a-z]+\.", text)
    assert set(re.findall(r'(?:src|href)="([^"]*)"', text)) <= {"data:", "data:,"} | set(
        re.findall(r'"(#[\w-]+)"', text)
    )
    assert "default-src 'none'" in text


def test_links_lead_to_places_that_exist_once(report: str) -> None:
    ids = Counter(re.findall(r'\bid="([^"]+)"', report))
    assert [name for name, count in ids.items() if count > 1] == []
    targets = re.findall(r'(?:href="#|aria-labelledby=")([^"]+)"', report)
    assert set(targets) <= set(ids)


def test_all_parts_are_there(report: str) -> None:
    for name in FIGURES:
        assert f'id="figure-{name}"' in report
        assert f"snakemake --cores all -- {name}" in report
    for name in TABLES:
        place = "claims" if name == "claims" else f"title-{name}"  # the claims have a section of their own
        assert f'id="{place}"' in report
    for name in DOCUMENTS:
        assert f"snakemake --cores all -- {name}" in report
    assert report.count("CRAFTED DATA: not a measurement") >= 1 + len(FIGURES)


def test_gpus_with_results_stand_before_those_without(report: str) -> None:
    matrix = report[report.index('<table class="matrix">') : report.index('<dl class="legend">')]
    assert re.findall(r'<th scope="row">(\w+)', matrix) == ["a100", "h100", "cpu", "v100"]


def test_findings_on_one_gpu_stand_together() -> None:
    found = grouped(["3 cells.", "On b, x.", "On a, y.", "On ab, z.", "On b, w."], ["b", "a", "c"])
    assert found.general == ("3 cells.", "On ab, z.")
    assert found.by_gpu == {"b": ("On b, x.", "On b, w."), "a": ("On a, y.",)}


def test_glance_tells_every_verdict_in_words(report: str) -> None:
    glance = report[report.index('id="glance"') : report.index('id="findings"')]
    rows = re.findall(r'<th scope="row">([^<]+)</th><td class="number">([^<]+)</td>.*?badge (\w+)', glance)
    assert rows[:5] == [
        ("default (accepted)", "1.00 s", "same"),
        ("baseline", "1.00 s", "reference"),
        ("opt1", "500 ms", "faster"),
        ("opt2", "1.25 s", "slower"),
        ("opt12", "997 ms", "ambiguous"),
    ]
    bars = re.findall(r"<span style=\"width: (\d+)%", glance)
    assert bars[:4] == ["80", "80", "40", "100"]


def test_the_workload_stands_beside_the_times(report: str) -> None:
    glance = report[report.index('id="glance"') : report.index('id="findings"')]
    told = dict(re.findall(r'<th scope="rowgroup" colspan="6">(\w+) <small>([^<]+)</small>', glance))
    assert told["a100"].startswith("workload paper: volumes of 128x128x128, network of 64-64-128-192-256 channels, 25 ")
    assert told["cpu"].startswith("workload demo: volumes of 16x16x16, ")


def test_headings_at_a_glance_go_where_their_columns_go(report: str) -> None:
    """On a small screen the bars are hidden: their heading must go with them."""
    glance = report[report.index('<table class="glance">') : report.index('id="findings"')]
    heading = glance[: glance.index("</thead>")]
    row = next(line for line in glance.splitlines() if line.startswith('<tr><th scope="row">'))
    is_bar = [
        ['class="bar"' in tag for tag in re.findall(r"<t[hd][^>]*>", part)]
        for part in (heading[heading.index("<tr>") :], row)
    ]
    assert is_bar[0] == is_bar[1]
    assert sum(is_bar[0]) == 1


def test_the_paper_ends_in_a_full_stop(report: str) -> None:
    assert f"{paper()}. Each sentence" in report


def test_figures_without_any_data_are_named_and_not_drawn(tmp_path: Path) -> None:
    text = render(cpu_alone(tmp_path))
    drawn = set(re.findall(r'<figure id="figure-(\w+)"', text))
    without = {"floor", "profiling_cost"}  # no peaks of any CPU are known; crafted cells took no wall time
    assert {name for name in FIGURES if FIGURES[name].stages[0] != "counters"} - without == drawn
    assert set(re.findall(r'<li id="figure-(\w+)"', text)) == set(FIGURES) - drawn


def test_every_figure_names_its_cells(report: str) -> None:
    step_time = report[report.index('<figure id="figure-step_time"') :]
    cells = re.search(r"Made from (.*?)\.</p>", step_time)
    assert cells is not None
    parts = cells[1].split("; ")
    assert parts[1:] == ["h100: opt1 r1", "cpu: default r1 r2 r3, baseline r1 r2 r3, opt2 r1 r2 r3"]


def test_lean_figures_look_the_same() -> None:
    svg = (
        b'<svg>\n <metadata>made by</metadata>\n <!-- text -->\n <g transform="scale(0.015625 -0.015625)">\n'
        b'  <path d="M 1.23456 -0.98765 \nL 7 8" style="stroke-width: 1"/>\n  <text x="1.005">a b</text>\n </g></svg>'
    )
    assert lean(svg).decode() == (
        '<svg><g transform="scale(0.015625 -0.015625)"><path d="M 1.23 -0.98 \nL 7 8" style="stroke-width: 1"/>'
        '<text x="1.00">a b</text></g></svg>'
    )


def test_heavy_figures_become_pixels_until_the_budget_holds(full: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {
        "light": {None: 10, 200: 30, 120: 20},
        "heavy": {None: 900, 200: 80, 120: 40},
        "dense": {None: 500, 200: 90, 120: 60},
    }

    def draw(name: str, dataset: Dataset, dpi: int | None) -> Drawn:
        return Drawn(b"x" * sizes[name][dpi], "svg+xml" if dpi is None else "png", 500)

    monkeypatch.setattr("gpustudy.analysis.pictures._draw", draw)
    names = list(sizes)

    def kinds(most_bytes: int) -> list[str]:
        drawn = pictures(full, names, most_bytes)
        return [name for name in names if drawn[name].is_raster]

    assert kinds(1410) == []
    assert kinds(1409) == ["heavy"]  # the heaviest first
    assert kinds(589) == ["heavy", "dense"]
    assert kinds(170) == ["heavy", "dense"]  # at the lower resolution; light would only grow


def test_kernel_explorer_holds_the_rows_as_data(report: str) -> None:
    text = re.search(r'<script type="application/json" id="kernel-data">(.*?)</script>', report, re.DOTALL)
    assert text is not None
    content = json.loads(text[1])
    assert content["rows"] == 6 * (5 + 1 + 3)  # kernels x (a100, h100, cpu configs with a census)
    assert [column["name"] for column in content["columns"]][:6] == [
        "gpu", "config", "phase", "class", "name", "step_ns",
    ]  # fmt: skip


def test_claims_stand_by_verdict_with_their_evidence(report: str) -> None:
    claims = report[report.index('<section id="claims"') : report.index('<h2 id="figures-1-title')]
    assert len(re.findall(r'<details class="claim" id="claim-', claims)) == len(load_claims()) == 39
    counts = {mark: int(count) for mark, count in re.findall(r'<h3 id="claims-([a-z-]+)">.*?</span> (\d+):', claims)}
    assert sum(counts.values()) == 39
    assert list(counts)[-1] == "not-measured"  # what nothing decides stands last
    faster = claims[claims.index('id="claim-O12-1"') :]
    assert "gpustudy claims O12-1 --explain" in faster


def test_without_cells_no_claim_is_judged(tmp_path: Path) -> None:
    text = render(no_cells(tmp_path))
    assert re.findall(r'<h3 id="claims-([a-z-]+)">', text) == ["not-measured"]


def test_matrix_shows_each_repeat_in_words_and_symbols(report: str) -> None:
    matrix = report[report.index('<table class="matrix">') : report.index('<dl class="legend">')]
    counts: Counter[str] = Counter()
    for state, repeats in re.findall(r'class="badge ([a-z-]+)".*?<small>(r[^<]*)</small>', matrix):
        counts[state] += len(repeats.split(", "))
    assert counts == {"done": 25, "foreign-missing": 15, "foreign-stale": 14, "unsupported": 6}
    assert '<span aria-hidden="true">✓</span> done (null control)</span> <small>r1' in matrix


@pytest.mark.parametrize("survey", [no_cells, unsupported, cpu_alone])
def test_any_set_of_cells_gives_valid_html(survey: object, tmp_path: Path) -> None:
    assert callable(survey)
    text = render(survey(tmp_path))
    html5lib.HTMLParser(strict=True).parse(text)
    assert ("CRAFTED DATA" in text) is False


def test_full_report_is_valid_html(report: str) -> None:
    html5lib.HTMLParser(strict=True).parse(report)


def test_report_is_the_same_twice(full: Dataset, report: str, tmp_path: Path) -> None:
    write_report(full.survey, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == report


def test_text_from_outside_is_escaped(tmp_path: Path) -> None:
    crafted = Crafted(tmp_path)
    crafted.absent("cpu", "baseline", 1, "failed", '<script>alert("no")</script>')
    text = render(Dataset(crafted.survey()))
    assert '<script>alert("no")' not in text
    html5lib.HTMLParser(strict=True).parse(text)
