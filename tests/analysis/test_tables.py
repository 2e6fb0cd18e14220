"""One model, three forms: the numbers are the known ones, and each form is what its readers expect."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.draw import make_table
from gpustudy.analysis.names import TABLES
from gpustudy.analysis.tables import Column, Table, Value, build, to_csv, to_html, to_latex
from gpustudy.base.errors import UserError
from tests.analysis.crafted import GIB, TF32_REASON, Crafted


def rows_of(name: str, dataset: Dataset) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(build(name, dataset)))))


def test_summary_holds_the_known_numbers(full: Dataset) -> None:
    rows = {(row["gpu"], row["config"]): row for row in rows_of("summary", full)}
    assert len(rows) == 20
    baseline, opt1 = rows["a100", "baseline"], rows["a100", "opt1"]
    middle = statistics.geometric_mean([0.98, 1.0, 1.02])
    spread = statistics.stdev([math.log(0.98), 0.0, math.log(1.02)])
    factor = math.exp(4.302652729911275 * spread / 3**0.5)  # t of two degrees of freedom, on logarithms
    assert float(baseline["step_s"]) == pytest.approx(middle)
    assert float(baseline["step_low_s"]) == pytest.approx(middle / factor)
    assert float(baseline["step_high_s"]) == pytest.approx(middle * factor)
    assert (baseline["verdict"], baseline["speedup"]) == ("reference", "")
    assert (opt1["verdict"], float(opt1["speedup"])) == ("FASTER", pytest.approx(2.0, rel=1e-6))
    assert float(rows["a100", "opt2"]["peak_memory_bytes"]) == 20 * GIB
    assert float(rows["a100", "opt2"]["layout_conversions_per_iteration"]) == 48
    assert baseline["largest_class"] == "convolution (80%)"


def test_every_verdict_is_in_the_summary(full: Dataset) -> None:
    verdicts = {row["config"]: row["verdict"] for row in rows_of("summary", full) if row["gpu"] == "a100"}
    assert verdicts == {
        "default (accepted)": "SAME",
        "baseline": "reference",
        "opt1": "FASTER",
        "opt2": "SLOWER",
        "opt12": "AMBIGUOUS",
    }


def test_absent_cells_have_their_row(full: Dataset) -> None:
    rows = {(row["gpu"], row["config"]): row for row in rows_of("summary", full)}
    missing = rows["v100", "opt2"]
    assert (missing["state"], missing["repeats"], missing["step_s"]) == ("foreign-missing", "0", "")
    assert rows["cpu", "opt1"]["state"] == "unsupported"
    assert rows["h100", "opt1 (null control)"]["state"] == "done / foreign-stale"


def test_one_repeat_says_that_its_interval_is_of_one_run(tmp_path: Path) -> None:
    crafted = Crafted(tmp_path)
    crafted.done("cpu", "baseline", 1, [1.0, 1.1, 1.2])
    table = build("summary", Dataset(crafted.survey()))
    assert "(within one run)" in table.rows[0][5].text


def test_states_have_reasons_and_keys(full: Dataset) -> None:
    rows = {row["cell"]: row for row in rows_of("states", full)}
    assert len(rows) == 60
    assert rows["cpu/opt1/r3"]["reason"] == f"cpu/opt1/r3 {TF32_REASON}"
    assert rows["a100/opt1/r2"]["keys"] == "trai002 cens002 qual002"
    assert rows["h100/opt1/r1"]["marks"] == "null control"


def test_stacks_are_told_apart_by_what_was_found_at_run_time(full: Dataset) -> None:
    rows = rows_of("stacks", full)
    assert [row["device_name"] for row in rows] == ["crafted a100", "crafted h100", "crafted cpu"]
    assert rows[1]["cells"] == "h100/opt1/r1"
    assert "a100/opt2/r1,2,3" in rows[0]["cells"]
    assert "cuda" not in rows[0]  # known nowhere, so no column


def test_crafted_is_said_in_every_form(full: Dataset) -> None:
    table = build("summary", full)
    for form in (to_csv(table), to_latex(table), to_html(table)):
        assert "CRAFTED DATA" in form


@pytest.mark.parametrize("name", TABLES)
def test_html_is_well_formed(name: str, full: Dataset) -> None:
    root = ElementTree.fromstring(to_html(build(name, full)))
    columns = len(root.findall("thead/tr/th"))
    assert {len(row.findall("td")) for row in root.findall("tbody/tr")} <= {columns}


@pytest.mark.parametrize("name", TABLES)
def test_latex_has_as_many_fields_in_every_row(name: str, full: Dataset) -> None:
    text = to_latex(build(name, full))
    align = re.search(r"\\begin{tabular}{((?:[lr]|p{[^}]*})+)}", text)
    assert align
    columns = len(re.findall(r"[lr](?!in)|p{[^}]*}", align[1].replace("\\linewidth", "")))
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {len(re.split(r"(?<!\\)&", line)) for line in rows} == {columns}
    assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))


def test_special_characters_do_not_break_a_form() -> None:
    table = Table(
        "t",
        "T",
        "C",
        (Column("a & b", ("a",)), Column("x_y", ("x_y",), True)),
        ((Value('<"5%"&>'), Value("1", (1.5,))),),
    )
    assert r"a \& b & x\_y \\" in to_latex(table)
    assert r"\textless{}''5\%''\&\textgreater{}" in to_latex(table)  # as they are, < and > print as other signs
    assert "&lt;&quot;5%&quot;&amp;&gt;" in to_html(table)
    assert next(csv.reader(io.StringIO(to_csv(table).splitlines()[1]))) == ['<"5%"&>', "1.5"]


def test_table_files_are_complete(full: Dataset, tmp_path: Path) -> None:
    make_table("summary", full.survey, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"summary.{end}" for end in ("csv", "html", "json", "tex")
    ]
    with pytest.raises(UserError, match="unknown table 'sumary': did you mean 'summary'"):
        make_table("sumary", full.survey, tmp_path)
