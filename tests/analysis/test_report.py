"""The report is one valid HTML file that loads nothing, for whatever cells there are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import html5lib
import pytest

from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.names import FIGURES, TABLES
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
        assert f'id="table-{name}"' in report
    assert report.count("CRAFTED DATA: not a measurement") >= 1 + len(FIGURES)


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
