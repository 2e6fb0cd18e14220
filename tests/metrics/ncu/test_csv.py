"""CSV exports: every trap of seven years of ncu, and generated exports read back exactly."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustudy.base.errors import UserError
from gpustudy.metrics.ncu.batch import NO_VALUE, NUMBER, TEXT, Batch
from gpustudy.metrics.ncu.csvpages import metric_name, read_csv
from gpustudy.metrics.ncu.units import to_base
from tests.metrics.ncu.csv_builder import IDENTITY, File, Row, details_page, printed, raw_page

ROW = Row(0, metrics=(("gpu__time_duration.sum", "ns", "5"),))
DURATION, BYTES, CYCLES = "gpu__time_duration.sum", "dram__bytes.sum", "sm__cycles_active.avg"


def read(tmp_path: Path, text: str, encoding: str = "utf-8") -> Batch:
    path = tmp_path / "export.csv"
    path.write_bytes(text.encode(encoding))
    return read_csv(path)


def numbers(batch: Batch) -> dict[tuple[int, str, int], float]:
    """(launch index, metric, instance) -> value."""
    columns = batch.columns
    return {
        (int(launch), batch.metrics[metric], int(instance)): float(value)
        for launch, metric, instance, kind, value, _, _ in zip(*columns, strict=True)
        if kind == NUMBER
    }


def one(batch: Batch, metric: str) -> tuple[int, float, str | None]:
    """Kind, value and text of the whole of a metric of the first launch."""
    index = batch.metrics.index(metric)
    columns = batch.columns
    row = next(i for i in range(len(columns.value)) if columns.metric[i] == index and columns.instance[i] == -1)
    text = columns.text[row]
    return int(columns.kind[row]), float(columns.value[row]), None if text < 0 else batch.strings[text]


def test_scaled_units_become_base_units_exactly(tmp_path: Path) -> None:
    metrics = (
        (DURATION, "usecond", "3.008000"),
        (BYTES, "Mbyte", "6.219040"),
        ("sm__x.per_second", "cycle/nsecond", "1.2"),
    )
    batch = read(tmp_path, raw_page([Row(0, metrics=metrics)]))
    assert numbers(batch) == {(0, DURATION, -1): 3008.0, (0, BYTES, -1): 6219040.0, (0, "sm__x.per_second", -1): 1.2e9}
    assert dict(zip(batch.metrics, batch.units, strict=True)) == {
        DURATION: "ns",
        BYTES: "byte",
        "sm__x.per_second": "hz",
    }


def test_a_launch_has_the_facts_of_the_columns(tmp_path: Path) -> None:
    metrics = (
        ("launch__registers_per_thread", "register/thread", "32"),
        ("launch__shared_mem_per_block_static", "byte/block", "1,024"),
    )
    metrics += (("launch__shared_mem_per_block_dynamic", "Kbyte/block", "2.048000"),)
    launch = read(tmp_path, raw_page([Row(3, metrics=metrics)])).launches[0]
    assert (launch.position, launch.process_id, launch.host, launch.context, launch.stream) == (
        3,
        4242,
        "10.0.0.7",
        1,
        7,
    )
    assert (launch.grid, launch.block, launch.architecture, launch.device_id) == ((4, 2, 1), (128, 1, 1), "sm_80", 0)
    assert (launch.registers_per_thread, launch.shared_memory_bytes) == (32, 1024 + 2048)


@pytest.mark.parametrize(
    ("text", "kind", "value", "kept"),
    [
        ("n/a", NO_VALUE, 0.0, None),
        ("(!) n/a", NO_VALUE, 0.0, None),
        ("no data", NO_VALUE, 0.0, None),
        ("nan", NUMBER, math.nan, None),
        ("-nan", NUMBER, math.nan, None),
        ("inf", NUMBER, math.inf, None),
        ("CachePreferNone", TEXT, 0.0, "CachePreferNone"),
        ("18446744073709551615", NUMBER, 2.0**64, "18446744073709551615"),
    ],
)
def test_special_values_are_told_apart(tmp_path: Path, text: str, kind: int, value: float, kept: str | None) -> None:
    found = one(read(tmp_path, raw_page([Row(0, metrics=(("a__b.sum", "", text),))])), "a__b.sum")
    assert found[0] == kind
    assert found[1] == value or (math.isnan(found[1]) and math.isnan(value))
    assert found[2] == kept


def test_instances_are_rows_of_their_own(tmp_path: Path) -> None:
    metrics = (("smsp__a.sum", "", "32 (32; 32; 29)"), ("sass__b", "inst", "128 (FFMA: 100; BRA: 28)"))
    batch = read(tmp_path, raw_page([Row(0, metrics=metrics)]))
    found = numbers(batch)
    assert [found[0, "smsp__a.sum", instance] for instance in (-1, 0, 1, 2)] == [32, 32, 32, 29]
    assert [found[0, "sass__b", instance] for instance in (-1, 0, 1)] == [128, 100, 28]
    assert [batch.strings[index] for index in batch.columns.correlation if index >= 0] == ["FFMA", "BRA"]


def test_an_empty_cell_is_no_value_of_that_launch(tmp_path: Path) -> None:
    rows = [Row(0, metrics=((DURATION, "ns", "5"),)), Row(1, metrics=((BYTES, "byte", "7"),))]
    assert numbers(read(tmp_path, raw_page(rows))) == {(0, DURATION, -1): 5.0, (1, BYTES, -1): 7.0}


@pytest.mark.parametrize(
    "name",
    ['py"thon', 'k<"a", 2>(int)', 'k(char [3]) "x","y"', "two\nlines", 'all "of","these"\nhere'],
)
def test_quotes_and_line_breaks_in_names_do_not_shift_columns(tmp_path: Path, name: str) -> None:
    row = Row(
        0,
        name=name,
        process='"py"thon,3.11 (worker)',
        metrics=((DURATION, "ns", "5"),),
        rules=(("S", "R", "OPT", 'say "hi", twice', "global", "9.5"),),
    )
    for page in (raw_page([row, Row(1, metrics=row.metrics)]), details_page([row, Row(1, metrics=row.metrics)])):
        batch = read(tmp_path, page)
        assert batch.launches[0].name == name
        assert batch.launches[0].process == row.process
        assert numbers(batch) == {(0, DURATION, -1): 5.0, (1, DURATION, -1): 5.0}


def test_ragged_rule_rows_give_rules(tmp_path: Path) -> None:
    rules = (
        ("SpeedOfLight", "SOLBottleneck", "WRN", "This kernel grid is too small", "", ""),
        ("WarpStateStats", "CPIStall", "OPT", 'A "quoted" text, with commas', "global", "11.31"),
        ("LaunchStats", "LaunchConfiguration", "INF", "fine", "local", "42"),
    )
    batch = read(tmp_path, details_page([Row(0, metrics=((DURATION, "us", "6.75"),), rules=rules)]))
    assert [(rule.rule, rule.type, rule.speedup, rule.speedup_kind) for rule in batch.rules] == [
        ("SOLBottleneck", "warning", None, None),
        ("CPIStall", "optimization", 11.31, "global"),
        ("LaunchConfiguration", "ok", 42.0, "local"),
    ]
    assert batch.rules[1].message == 'A "quoted" text, with commas'


@pytest.mark.parametrize(
    ("section", "label", "metric"),
    [
        (
            "GPU Speed Of Light Throughput",
            "Memory Throughput",
            "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
        ),
        ("Memory Workload Analysis", "Memory Throughput", "dram__bytes.sum.per_second"),
        ("GPU Speed Of Light", "SOL DRAM", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
        ("Any Section", "dram__cycles_elapsed.avg.per_second", "dram__cycles_elapsed.avg.per_second"),
        ("Any Section", "DRAM Frequency (dram__cycles_elapsed.avg.per_second)", "dram__cycles_elapsed.avg.per_second"),
        ("Command line profiler metrics", "flop_count_sp.sum", "flop_count_sp.sum"),
        ("A New Section", "A New Label", "A New Section/A New Label"),
    ],
)
def test_labels_become_metrics(section: str, label: str, metric: str) -> None:
    assert metric_name(section, label) == metric


def test_ranges_have_no_sizes_and_no_stream(tmp_path: Path) -> None:
    header = ",".join(f'"{name}"' for name in [*IDENTITY, "Device", "CC", DURATION])
    units = '"",' * 9 + '"ns"'
    text = f'{header}\n{units}\n"0","1","a","h","range","1","n/a","0","9.0","7"\n'
    launch = read(tmp_path, text).launches[0]
    assert (launch.kind, launch.grid, launch.stream) == ("range", None, None)


@pytest.mark.parametrize("names", [("Unit", "Value"), ("Metric Unit", "Metric Value")])
def test_details_of_2019_have_neither_sizes_nor_rules(tmp_path: Path, names: tuple[str, str]) -> None:
    columns = [*IDENTITY[:5], "Kernel Time", "Context", "Stream", "Section Name", "Metric Name", *names]
    header = ",".join(f'"{name}"' for name in columns)
    facts = '"0","1","a","h","k(int)","2019-Jul-27 20:50:26","1","7"'
    text = f'{header}\n{facts},"GPU Speed Of Light","Duration","usecond","2.50"\n'
    text += f'{facts},"GPU Speed Of Light","SOL DRAM","%","61.84"\n'
    batch = read(tmp_path, text)
    dram = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
    assert numbers(batch) == {(0, DURATION, -1): 2500.0, (0, dram, -1): 61.84}
    assert (batch.launches[0].grid, batch.launches[0].architecture) == (None, None)


def test_a_column_of_body_labels_changes_nothing(tmp_path: Path) -> None:
    page = details_page(
        [Row(0, metrics=((DURATION, "us", "6.75"),), rules=(("S", "R", "OPT", "text", "global", "5"),))]
    )
    section = '"Command line profiler metrics"'
    page = page.replace('"Section Name",', '"Section Name","Body Item Label",')
    page = page.replace(f"{section},", f'{section},"",').replace('"S","",', '"S","","",')
    batch = read(tmp_path, page)
    assert numbers(batch) == {(0, DURATION, -1): 6750.0}
    assert [(rule.rule, rule.speedup) for rule in batch.rules] == [("R", 5.0)]


def test_rules_before_2023_have_no_speed_ups(tmp_path: Path) -> None:
    page = details_page([Row(0, metrics=((DURATION, "us", "6.75"),), rules=(("S", "R", "WRN", "text", "", ""),))])
    page = page.replace(',"Estimated Speedup Type","Estimated Speedup"', "").replace('"text","",""', '"text"')
    batch = read(tmp_path, page)
    assert [(rule.rule, rule.type, rule.speedup) for rule in batch.rules] == [("R", "warning", None)]


def test_nvtx_columns_become_the_ranges(tmp_path: Path) -> None:
    stack = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    started = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    value = '129325  ""<default domain>:step:none:none:RGB:0xff00ff00:ASCII:step""  ""mine:forward:none:none:::"" '
    names = [*IDENTITY[:4], stack, started, *IDENTITY[4:], "Block Size", "Grid Size", "Device", "CC", DURATION]
    header = ",".join(f'"{name}"' for name in names)
    text = f'{header}\n"0","1","a","h","{value}","","k()","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","7"\n'
    batch = read(tmp_path, text)
    assert batch.launches[0].nvtx == "step/mine@forward"
    assert numbers(batch) == {(0, DURATION, -1): 7.0}


def test_ids_decide_the_order_of_launches(tmp_path: Path) -> None:
    rows = [Row(number, metrics=((DURATION, "ns", str(10 * number)),)) for number in (0, 2, 1)]
    batch = read(tmp_path, raw_page(rows))
    assert [launch.position for launch in batch.launches] == [0, 1, 2]
    assert numbers(batch) == {(0, DURATION, -1): 0.0, (1, DURATION, -1): 10.0, (2, DURATION, -1): 20.0}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("hello\nworld\n", "no Nsight Compute CSV"),
        (
            "==PROF== Connected to process 1 (/a)\n==PROF== Disconnected from process 1\n",
            r"only messages of ncu \(2, the last",
        ),
        (
            "==PROF== x\n==ERROR== The application returned an error code (1).\n",
            "ncu's error '==ERROR== The application",
        ),
        (
            "[206651] gpu_kmer@127.0.0.1\n  k(int) (1, 1, 1)x(1, 1, 1), Context 1, Stream 7, Device 0, CC 7.5\n"
            "    Section: GPU Speed Of Light Throughput\n",
            "console text.*ncu --import REPORT --page raw --csv",
        ),
        (
            '"Process ID","Process Name","Host Name","Kernel Name","Invocations"\n"1","a","h","k","3"\n',
            "summary over launches",
        ),
        (details_page([]), "no row below it"),
        (raw_page([Row(0, metrics=((DURATION, "ns", "5"),))]) * 1 + '"1","4242","python', "cut short or edited"),
        (
            raw_page([Row(0, metrics=((DURATION, "ns", "5"),)), Row(0, metrics=((DURATION, "ns", "5"),))]),
            "ID 0 comes twice",
        ),
        (
            raw_page([Row(0, metrics=((DURATION, "ns", "1.234.567"), (BYTES, "byte", "1,234,567")))]),
            "two locales.*LC_ALL=C",
        ),
        (raw_page([ROW]) + raw_page([ROW]), "line 5: a row of units in the middle"),
        (raw_page([ROW]).replace('"CC"', '"Device"', 1), "the column 'Device' twice"),
        (raw_page([replace(ROW, number=10**19)]), "do not fit"),
        (raw_page([replace(ROW, grid="(2147483648, 1, 1)")]), "do not fit"),
        (raw_page([replace(ROW, block="(1, 1, " + "9" * 5000 + ")")]), "do not fit"),
        (raw_page([ROW]).removesuffix('"5"\n') + "\n" * 100_000 + "x", "do not fit"),
        ("\n" * 100_000 + "  x", "no Nsight Compute CSV"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_own_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read(tmp_path, text)


@pytest.mark.parametrize("text", ["1e999999999", "1e400", "9" * 1000])
def test_a_number_that_no_double_is_stays_a_text(tmp_path: Path, text: str) -> None:
    batch = read(tmp_path, raw_page([Row(0, metrics=((DURATION, "ns", text),))]))
    assert one(batch, DURATION) == (TEXT, 0.0, text)


def test_a_name_of_a_megabyte_is_a_name(tmp_path: Path) -> None:
    batch = read(tmp_path, raw_page([replace(ROW, name="k" * 2**20)]))
    assert len(batch.launches[0].name) == 2**20


def test_a_table_in_utf_16_with_windows_line_ends_is_read(tmp_path: Path) -> None:
    text = raw_page([Row(0, metrics=((DURATION, "ns", "5"),))], File(newline="\r\n"))
    assert numbers(read(tmp_path, text, "utf-16")) == {(0, DURATION, -1): 5.0}


NAMES = st.text(alphabet='abz_<>():,; "*&\n', min_size=1, max_size=30).filter(
    # A comma beside the quotes around a field leaves no way to tell where the field ends.
    lambda name: name.strip() == name and name.strip('"').strip(",") == name.strip('"')
)
NOISE = st.sampled_from(
    ["", "==PROF== Connected to process 4242 (/usr/bin/python)\n", "loss 0.5\n\n", '"quoted" output\n']
)


@st.composite
def exports(draw: st.DrawFn) -> tuple[list[Row], dict[tuple[int, str], Decimal], File]:
    """Launches, their values in base units, and what stands around the table."""
    locale = draw(st.sampled_from(["C", "en", "de", "fr"]))
    values: dict[tuple[int, str], Decimal] = {}
    rows = []
    for number in range(draw(st.integers(1, 4))):
        metrics = [("anchor__a.sum", "", printed(Decimal("1234567.25"), locale))]
        for name, unit in ((DURATION, "nsecond"), (BYTES, "byte"), (CYCLES, "cycle")):
            if number == 0 or draw(st.booleans()):
                value = draw(st.decimals(min_value=0, max_value=10**12, places=2))
                values[number, name] = value
                metrics.append((name, unit, printed(value, locale)))
        rules = (("S", "R", "OPT", draw(NAMES), "global", "12.5"),) if draw(st.booleans()) else ()
        process = draw(
            NAMES.filter(lambda name: '","' not in name)
        )  # only one field of a row can be put together again
        rows.append(Row(number, name=draw(NAMES), process=process, metrics=tuple(metrics), rules=rules))
    around = File(
        before=draw(NOISE), after=draw(NOISE), bom=draw(st.booleans()), newline=draw(st.sampled_from(["\n", "\r\n"]))
    )
    return rows, values, around


@settings(max_examples=150, deadline=None)
@given(export=exports(), page=st.sampled_from([raw_page, details_page]))
def test_generated_exports_are_read_back(tmp_path_factory: pytest.TempPathFactory, export: Any, page: Any) -> None:
    rows, values, around = export
    path = tmp_path_factory.getbasetemp() / "generated.csv"
    path.write_bytes(page(rows, around).encode())
    batch = read_csv(path)
    assert [(launch.name, launch.process) for launch in batch.launches] == [(row.name, row.process) for row in rows]
    found = numbers(batch)
    assert {key[:2]: value for key, value in found.items() if key[1] != "anchor__a.sum"} == {
        key: float(value) for key, value in values.items()
    }
    if page is details_page:
        assert [(rule.message, rule.speedup) for rule in batch.rules] == [
            (text, 12.5) for row in rows for _, _, _, text, _, _ in row.rules
        ]


def test_real_exports_are_read_as_printed(shared_data: Path) -> None:
    folder = shared_data / "ncu"
    gemm = read_csv(folder / "GPU-Roofline-Profiler__gemm_naive.csv")
    assert numbers(gemm)[0, "dram__bytes_op_read.sum", -1] == 54207744
    assert numbers(gemm)[0, "lts__t_sector_hit_rate.pct", -1] == 100.39  # above 100 %, kept as it is
    assert (gemm.launches[0].architecture, gemm.launches[0].grid) == ("sm_120", (64, 64, 1))
    gemv = read_csv(folder / "llm-perf-opt__k1.details.csv")
    assert numbers(gemv)[0, "dram__bytes_read.sum", -1] == 2330000
    assert numbers(gemv)[0, DURATION, -1] == 6750
    assert one(gemv, "flop_count_sp.sum")[0] == NO_VALUE
    assert [rule.rule for rule in gemv.rules] == [
        rule.rule for rule in read_csv(folder / "llm-perf-opt__k1.metrics.csv").rules
    ]
    copy = read_csv(folder / "nsightful__copy_blocked.csv")
    assert numbers(copy)[0, "gpc__cycles_elapsed.max", -1] == 12319469
    assert numbers(copy)[0, DURATION, -1] == 21058944
    assert copy.rules[-1].speedup == 74.14
    with pytest.raises(UserError, match="console text"):
        read_csv(folder / "cuda-kmer-counting__ecoli_gpu_kmer_k8.txt")


EXPORTS = (
    "GPU-Roofline-Profiler__gemm_naive.csv",
    "llm-perf-opt__k1.details.csv",
    "llm-perf-opt__k1.metrics.csv",
    "nsightful__copy_blocked.csv",
)


@pytest.mark.parametrize("name", EXPORTS)
def test_every_number_of_a_real_export_is_the_one_that_pythons_csv_module_finds(shared_data: Path, name: str) -> None:
    """These files have no name with quotes, so the standard reader splits their rows rightly."""
    path = shared_data / "ncu" / name
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    found = numbers(read_csv(path))
    compared = set()
    for row in csv.DictReader(lines[start:]):
        text = row["Metric Value"].removeprefix("(!) ").replace(",", "")
        if row["Metric Name"] and re.fullmatch(r"-?\d+(\.\d+)?", text):
            metric = metric_name(row["Section Name"], row["Metric Name"])
            factor = to_base(row["Metric Unit"])[1]
            assert found[int(row["ID"]), metric, -1] == float(Decimal(text) * Decimal(factor))
            compared.add((int(row["ID"]), metric, -1))
    assert compared == set(found)
    assert compared
