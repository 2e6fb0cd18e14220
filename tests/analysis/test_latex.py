r"""LaTeX tables: no float longer than a page, none wider, nothing lost, nothing that LaTeX takes for a command."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.latex import escape, to_latex
from gpustudy.analysis.names import TABLES
from gpustudy.analysis.tables import Column, Table, Value, build
from gpustudy.study.load import Effective
from gpustudy.study.states import survey

NAME, TEXT = Column("name", ("name",)), Column("why", ("why",), is_long=True)


def table(columns: tuple[Column, ...], rows: int, text: str) -> Table:
    return Table("t", "Title", "Caption.", columns, tuple(tuple(Value(f"{text}{row}") for _ in columns)
                                                           for row in range(rows)))  # fmt: skip


def test_a_short_table_is_one_float_with_one_label() -> None:
    text = to_latex(table((NAME, TEXT), 3, "r"))
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == text.count(r"\label{tab:t}") == 1
    assert r"\resizebox" not in text


def test_a_long_table_goes_on_under_the_same_number() -> None:
    text = to_latex(table((NAME,), 150, "row "))
    floats = text.count(r"\begin{table*}")
    assert floats == 3  # 66 lines a page
    assert text.count(r"\label") == 1
    assert text.count(r"\addtocounter{table}{-1}") == text.count("(continued)") == floats - 1
    assert re.findall(r"^row (\d+) ", text, re.MULTILINE) == [str(number) for number in range(150)]


def test_rows_of_sentences_fill_a_page_sooner() -> None:
    assert to_latex(table((NAME, TEXT), 20, "word " * 100)).count(r"\begin{table*}") > 1


def test_a_table_wider_than_the_page_is_scaled() -> None:
    columns = tuple(Column(f"a rather long title {number}", (f"c{number}",)) for number in range(10))
    assert r"\resizebox{\linewidth}{!}{%" in to_latex(table(columns, 2, "x"))


def test_a_column_that_is_not_printed_stands_in_the_other_forms_alone() -> None:
    hidden = Column("hidden", ("hidden",), is_printed=False)
    assert "hidden" not in to_latex(table((NAME, hidden), 1, "x"))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a_b", r"a\_b"),
        ("50%", r"50\%"),
        ("x<y|z", r"x\textless{}y\textbar{}z"),
        ("m\N{SUPERSCRIPT TWO}", r"m\textsuperscript{2}"),
    ],
)
def test_signs_are_printed_as_they_are(text: str, printed: str) -> None:
    assert escape(text) == printed


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed here")
def test_every_table_can_be_typeset(crafted_study: Effective, tmp_path: Path) -> None:
    dataset = Dataset(survey(crafted_study))
    body = "\n".join(rf"{to_latex(build(name, dataset))}\clearpage" for name in TABLES)
    head = r"\documentclass[twocolumn]{article}\usepackage{booktabs}\usepackage{graphicx}\begin{document}"
    (tmp_path / "all.tex").write_text(f"{head}\n{body}\n\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
