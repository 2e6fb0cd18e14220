"""Reports through NVIDIA's reader: every field as the reader gives it, and every failure of the reader told."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpustudy.base.errors import UserError
from gpustudy.metrics.catalogue import load_catalogue
from gpustudy.metrics.ncu import process as process_module
from gpustudy.metrics.ncu import report as report_module
from gpustudy.metrics.ncu import worker
from gpustudy.metrics.ncu.batch import NO_VALUE, NUMBER, TEXT, Batch, Launch
from gpustudy.metrics.ncu.container import walk_whole
from gpustudy.metrics.ncu.csvpages import read_csv
from gpustudy.metrics.ncu.report import read_report
from gpustudy.metrics.ncu.units import to_base
from tests.metrics.ncu import report_builder as build
from tests.metrics.ncu.csv_builder import Row, details_page
from tests.metrics.ncu.report_builder import Estimate, Kernel
from tests.metrics.ncu.test_container import REPORTS

HUGE = 2**63 + 12345  # an integer that float64 rounds

KERNEL = Kernel(
    grid=(4, 2, 1),
    metrics={
        "gpu__time_duration.sum": 1234.5,
        "smsp__inst_executed.sum": HUGE,
        "sass__inst_executed_per_opcode": (30, {"FFMA": 20, "HMMA": 10}),
        "launch__func_cache_config": "CachePreferNone",
        "sm__cycles_active.avg": math.nan,
    },
    rules=(Estimate(speedup=12.5), Estimate(rule="Local", speedup=60.0, speedup_kind=1), Estimate(rule="None")),
    ranges=("gpustudy.step", "gpustudy.forward"),
)


def values(batch: Batch) -> dict[tuple[int, str, int], tuple[Any, ...]]:
    """(launch, metric, instance) -> (kind, value, text, correlation, unit)."""

    def text(index: int) -> str | None:
        return None if index < 0 else batch.strings[index]

    return {
        (int(row.launch), batch.metrics[row.metric], int(row.instance)): (
            int(row.kind),
            float(row.value),
            text(row.text),
            text(row.correlation),
            batch.units[row.metric],
        )
        for row in _rows(batch)
    }


def _rows(batch: Batch) -> Iterator[Any]:
    kind = type(batch.columns)
    for row in zip(*batch.columns, strict=True):
        yield kind(*row)


@pytest.fixture
def crafted(tmp_path: Path) -> Path:
    second = Kernel(mangled="_Z1kv", demangled="k()", grid=(1, 1, 1), process=(99, "node2", "worker"))
    return build.write(tmp_path / "crafted.ncu-rep", [KERNEL, second])


def test_a_launch_has_all_its_facts(crafted: Path) -> None:
    (batch,) = read_report(walk_whole(crafted))
    first, second = batch.launches
    assert (first.name, first.mangled_name) == ("saxpy(int, float, float *)", "_Z5saxpyifPf")
    assert (first.position, first.kind, first.grid, first.block) == (0, "kernel", (4, 2, 1), (128, 1, 1))
    assert (first.process_id, first.process, first.host) == (4242, "/usr/bin/python3.11", "10.0.0.7")
    assert (first.device, first.compute_capability, first.architecture) == ("Crafted A100", "8.0", "sm_80")
    assert (first.context, first.stream, first.registers_per_thread) == (1, 7, 32)
    assert first.shared_memory_bytes == 1024 + 2048
    assert first.nvtx == "gpustudy.step/gpustudy.forward"
    assert (second.position, second.process_id, second.host, second.nvtx) == (1, 99, "node2", None)


def test_values_keep_their_precision_their_instances_and_their_texts(crafted: Path) -> None:
    (batch,) = read_report(walk_whole(crafted))
    found = values(batch)
    assert found[0, "gpu__time_duration.sum", -1] == (NUMBER, 1234.5, None, None, "ns")
    assert found[0, "smsp__inst_executed.sum", -1] == (NUMBER, float(HUGE), str(HUGE), None, "inst")
    assert found[0, "launch__func_cache_config", -1][:3] == (TEXT, 0.0, "CachePreferNone")
    opcodes = [found[0, "sass__inst_executed_per_opcode", instance] for instance in (-1, 0, 1)]
    assert [(value, label) for _, value, _, label, _ in opcodes] == [(30.0, None), (20.0, "FFMA"), (10.0, "HMMA")]
    assert math.isnan(found[0, "sm__cycles_active.avg", -1][1])
    assert (1, "gpu__time_duration.sum", -1) not in found


def test_rules_carry_their_estimate_and_its_kind(crafted: Path) -> None:
    (batch,) = read_report(walk_whole(crafted))
    assert [(rule.position, rule.rule, rule.speedup, rule.speedup_kind) for rule in batch.rules] == [
        (0, "CPIStall", 12.5, "global"),
        (0, "Local", 60.0, "local"),
        (0, "None", None, None),
    ]
    assert batch.rules[0].title == "Long Scoreboard Stalls"


def test_kinds_of_rule_messages_have_the_words_of_the_other_reader(tmp_path: Path) -> None:
    kinds = {1: "ok", 2: "warning", 3: "error", 4: "optimization"}
    rules = tuple(Estimate(rule=f"R{kind}", kind=kind) for kind in kinds)
    (batch,) = read_report(walk_whole(build.write(tmp_path / "kinds.ncu-rep", [replace(KERNEL, rules=rules)])))
    assert {rule.rule: rule.type for rule in batch.rules} == {f"R{kind}": word for kind, word in kinds.items()}
    abbreviated = zip(("INF", "WRN", "ERR", "OPT"), kinds.values(), strict=True)
    for short, word in abbreviated:
        path = tmp_path / "export.csv"
        path.write_text(details_page([Row(0, rules=(("S", "R", short, "text", "", ""),))]))
        assert [rule.type for rule in read_csv(path).rules] == [word]


def test_only_the_metrics_asked_for_are_read(crafted: Path) -> None:
    (batch,) = read_report(walk_whole(crafted), ["gpu__time_duration.sum", "absent__metric.sum"])
    assert set(values(batch)) == {(0, "gpu__time_duration.sum", -1)}
    assert batch.launches[0].registers_per_thread == 32


def test_a_report_read_in_parts_gives_what_it_gives_whole(crafted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = read_report(walk_whole(crafted))
    monkeypatch.setattr(report_module, "_PART_BYTES", 1)
    parts = list(read_report(walk_whole(crafted)))
    assert len(parts) == 2
    assert [launch for part in parts for launch in part.launches] == whole.launches
    joined = {
        (part.launches[launch].position, metric, instance): content
        for part in parts
        for (launch, metric, instance), content in values(part).items()
    }
    assert repr(sorted(joined.items())) == repr(sorted(values(whole).items()))


def test_ranges_command_lists_and_graphs_are_launches_without_a_size(tmp_path: Path) -> None:
    duration = "gpu__time_duration.sum"
    kernel = Kernel(metrics={duration: 1.0})
    names = list({**build.LAUNCH, **build.ATTRIBUTES, **kernel.metrics})
    others = [build.other_result(kind, {duration: 2.0 + number}, names) for number, kind in enumerate(build.OTHERS)]
    last = build.block(results=[build.result(replace(kernel, demangled="last()"), names)])
    path = tmp_path / "others.ncu-rep"
    path.write_bytes(build.report([kernel]) + b"".join(others) + last)
    (batch,) = read_report(walk_whole(path))
    assert [(launch.kind, launch.mangled_name is None, launch.grid is None) for launch in batch.launches] == [
        ("kernel", False, False),
        ("range", True, True),
        ("cmdlist", True, True),
        ("graph", True, True),
        ("kernel", False, False),
    ]
    assert [values(batch)[position, duration, -1][1] for position in range(5)] == [1.0, 2.0, 3.0, 4.0, 1.0]
    assert batch.launches[1].process_id == kernel.process[0]
    path.write_bytes(path.read_bytes()[: -len(last) - 1])
    with pytest.raises(UserError, match="holds 3 complete results"):
        walk_whole(path)


@pytest.mark.parametrize("launches", [1, 2, 6, 7, 9])
def test_parts_come_in_order_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launches: int
) -> None:
    monkeypatch.setattr(report_module, "_PART_BYTES", 1)
    kernels = [replace(KERNEL, mangled=f"_Z1{number}v", demangled=f"k{number}()") for number in range(launches)]
    batches = list(read_report(walk_whole(build.write(tmp_path / "many.ncu-rep", kernels))))
    assert [[(one.position, one.name) for one in batch.launches] for batch in batches] == [
        [(number, f"k{number}()")] for number in range(launches)
    ]


def test_a_crash_costs_its_part_and_is_told_with_its_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "worker.py"
    stand_in.write_text(
        "import os, runpy, sys\n"
        f"names = runpy.run_path({worker.__file__!r})\n"
        "read = names['read']\n"
        "def crash(reader, request):\n"
        "    os.abort() if 'part-3.' in request['report'] else read(reader, request)\n"
        "names['start_copy'].__globals__['read'] = crash\n"
        "sys.exit(names['main']())\n"
    )
    monkeypatch.setattr(worker, "__file__", str(stand_in))
    monkeypatch.setattr(report_module, "_PART_BYTES", 1)
    batches = read_report(walk_whole(build.write(tmp_path / "crash.ncu-rep", [KERNEL] * 6)))
    assert [next(batches).launches[0].position for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UserError, match="signal SIGABRT on launches 3 to 3"):
        next(batches)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGABRT)", "ended with signal SIGABRT on launches 0 to 1"),
        ("input(); print(-11, flush=True); input()", "ended with signal SIGSEGV on launches 0 to 1"),
        ("raise RuntimeError('no such chip')", r"exit code 1 .*\(RuntimeError: no such chip\)"),
        (f"import sys; sys.exit({worker.EXIT_NO_READER})", "not installed here: run 'pip install ncu-report'"),
    ],
)
def test_a_reader_that_fails_is_one_sentence(
    crafted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, sentence: str
) -> None:
    stand_in = tmp_path / "worker.py"
    stand_in.write_text(script)
    monkeypatch.setattr(worker, "__file__", str(stand_in))
    with pytest.raises(UserError, match=sentence):
        list(read_report(walk_whole(crafted)))


def test_a_reader_that_hangs_is_ended(crafted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "worker.py"
    stand_in.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(worker, "__file__", str(stand_in))
    monkeypatch.setattr(process_module, "_SECONDS_PER_PART", 0.2)
    with pytest.raises(UserError, match="did not end within"):
        list(read_report(walk_whole(crafted)))


def test_the_worker_imports_nothing_but_the_reader(crafted: Path, tmp_path: Path) -> None:
    """Older readers crash beside pandas or pyarrow, so the process must not even be able to see our package."""
    request = {"report": str(crafted), "output": str(tmp_path / "frame"), "metrics": []}
    code = (
        "import json, runpy, sys\n"
        f"names = runpy.run_path({worker.__file__!r})\n"
        "import ncu_report\n"
        f"names['read'](ncu_report, {request!r})\n"
        "print([n for n in sys.modules if n.split('.')[0] in ('gpustudy', 'numpy', 'pandas', 'pyarrow')])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert (tmp_path / "frame").stat().st_size > 0


_REFERENCE = """
import json, sys, ncu_report
out = []
for number in range(len(context := ncu_report.load_report(sys.argv[1]))):
    for action in context[number]:
        metrics = {}
        for name in action.metric_names():
            metric = action.metric_by_name(name)
            labels = metric.correlation_ids() if metric.has_correlation_ids() else None
            metrics[name] = [
                metric.unit(),
                metric.value() if metric.has_value() else None,
                [[metric.value(i), None if labels is None else labels.value(i)]
                 for i in range(metric.num_instances())],
            ]
        kinds = {ncu_report.SpeedupType_GLOBAL: "global", ncu_report.SpeedupType_LOCAL: "local"}
        types = {ncu_report.MsgType_NONE: "none", ncu_report.MsgType_OK: "ok", ncu_report.MsgType_ERR: "error",
                 ncu_report.MsgType_OPTIMIZATION: "optimization", ncu_report.MsgType_WARNING: "warning"}
        rules = [[r["section_identifier"], r["rule_identifier"], r["rule_message"]["title"],
                  r["rule_message"]["message"], types.get(r["rule_message"]["type"], "other"),
                  r.get("speedup_estimation", {}).get("speedup"),
                  kinds.get(r.get("speedup_estimation", {}).get("type"))]
                 for r in action.rule_results_as_dicts()]
        names = [action.name(base) for base in (action.NameBase_DEMANGLED, action.NameBase_MANGLED)]
        out.append([names, metrics, rules])
json.dump(out, sys.stdout)
"""


@pytest.mark.parametrize("name", REPORTS)
def test_real_reports_equal_what_the_reader_gives_field_by_field(shared_data: Path, name: str) -> None:
    path = shared_data / "ncu" / name
    reference = json.loads(subprocess.run([sys.executable, "-c", _REFERENCE, str(path)], capture_output=True).stdout)
    batches = list(read_report(walk_whole(path)))
    launches = [launch for batch in batches for launch in batch.launches]
    assert [[launch.name, launch.mangled_name] for launch in launches] == [names for names, _, _ in reference]
    assert [_facts(launch) for launch in launches] == [_expected_facts(metrics) for _, metrics, _ in reference]
    compared = 0
    for batch in batches:
        found = values(batch)
        for index, launch in enumerate(batch.launches):
            _, metrics, rules = reference[launch.position]
            assert _rules_of(batch, launch.position) == rules
            mine = {key[1:]: content for key, content in found.items() if key[0] == index}
            expected = _expected(metrics)
            assert set(mine) == set(expected)
            for key, content in mine.items():
                _compare(content, expected[key], metrics[key[0]][0])
                compared += 1
    assert compared > 200 * len(reference)


def _rules_of(batch: Batch, position: int) -> list[list[Any]]:
    return [
        [rule.section, rule.rule, rule.title or "", rule.message, rule.type, rule.speedup, rule.speedup_kind]
        for rule in batch.rules
        if rule.position == position
    ]


def _facts(launch: Launch) -> list[Any]:
    return [launch.grid, launch.block, launch.registers_per_thread, launch.context, launch.stream, launch.device]


def _expected_facts(metrics: dict[str, Any]) -> list[Any]:
    """The same facts from the metrics that carry them, by the names of Nsight Compute's documentation."""
    grid, block = (tuple(metrics[f"launch__{sizes}_dim_{axis}"][1] for axis in "xyz") for sizes in ("grid", "block"))
    names = ("launch__registers_per_thread", "launch__context_id", "launch__stream_id")
    return [grid, block, *(metrics[name][1] for name in names), metrics["device__attribute_display_name"][1]]


@pytest.mark.parametrize("name", REPORTS)
def test_the_catalogues_metrics_of_a_real_report_are_those_of_the_whole(shared_data: Path, name: str) -> None:
    container, wanted = walk_whole(shared_data / "ncu" / name), load_catalogue().metrics()
    (whole,), (chosen,) = read_report(container), read_report(container, wanted)
    found = values(chosen)
    assert repr(found) == repr({key: content for key, content in values(whole).items() if key[1] in wanted})
    assert len(found) > 10
    assert chosen.launches == whole.launches


def _expected(metrics: dict[str, Any]) -> dict[tuple[str, int], tuple[Any, Any]]:
    rows: dict[tuple[str, int], tuple[Any, Any]] = {}
    for name, (_, whole, instances) in metrics.items():
        if whole is not None or not instances:
            rows[name, -1] = (whole, None)
        rows |= {(name, index): (value, label) for index, (value, label) in enumerate(instances)}
    return rows


def _compare(content: tuple[Any, ...], expected: tuple[Any, Any], unit: str) -> None:
    kind, value, text, correlation, own_unit = content
    wanted, label = expected
    assert correlation == (None if label is None else str(label))
    if wanted is None:
        assert kind == NO_VALUE
    elif isinstance(wanted, str):
        assert (kind, text) == (TEXT, wanted)
    else:
        assert kind == NUMBER
        assert value == float(wanted) or (math.isnan(value) and math.isnan(wanted))
        assert text is None or int(text) == wanted
    if unit:
        assert own_unit == to_base(unit)[0]
