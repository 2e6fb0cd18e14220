"""The frame of a report: every kind of damage is told, and never a shorter table."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustudy.base.errors import UserError
from gpustudy.metrics.ncu.container import Container, parts, walk, walk_whole, write_part
from gpustudy.metrics.ncu.report import read_report
from gpustudy.metrics.ncu.session import control_settings, read_session
from tests.metrics.ncu import report_builder as build
from tests.metrics.ncu.report_builder import Kernel

KERNELS = [
    Kernel(metrics={"gpu__time_duration.sum": 1000.0}),
    Kernel(name="scale", mangled="_Z5scalePf", metrics={"sm__cycles_active.avg": 7.5}, process=(99, "node2", "worker")),
    Kernel(metrics={"gpu__time_duration.sum": 3000.0}),
]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return build.write(tmp_path / "crafted.ncu-rep", KERNELS)


def read_all(container: Container) -> list[str]:
    return [launch.name for batch in read_report(container) for launch in batch.launches]


def test_a_whole_report_is_walked_to_its_end(report: Path) -> None:
    container = walk_whole(report)
    assert [result.mangled_name for result in container.results] == ["_Z5saxpyifPf", "_Z5scalePf", "_Z5saxpyifPf"]
    assert [result.process.process_id for result in container.results] == [4242, 99, 4242]
    assert container.blocks[-1].end == report.stat().st_size


def test_session_facts_come_from_the_headers(report: Path) -> None:
    session = read_session(walk_whole(report))
    assert (session.ncu_version, session.driver, session.cuda) == ("2024.1.1.0", "550.54", "12.4")
    assert session.created == "2023-11-14T22:13:20+00:00"  # 1 700 000 000 s after 1970
    assert session.command_line == "ncu --set full -o report python train.py"
    assert session.devices == {0: "Crafted A100"}
    assert [process.host for process in session.processes] == ["10.0.0.7", "node2"]


@pytest.mark.parametrize(
    ("command_line", "clock", "cache"),
    [
        ("ncu -o a ./b", "base", "all"),
        ("ncu --clock-control none --cache-control=none -o a ./b", "none", "none"),
        ("ncu -o a ./b 'unclosed", "base", "all"),
    ],
)
def test_clock_and_cache_control_are_the_command_lines_or_ncus_default(
    command_line: str, clock: str, cache: str
) -> None:
    found = control_settings(command_line)
    assert (found["clock_control"], found["cache_control"], found["replay_mode"]) == (clock, cache, "kernel")


@pytest.mark.parametrize(
    ("command_line", "clocks", "control", "locked"),
    [
        ("ncu --clock-control none -o a ./b", (0, 0), "none", False),
        ("ncu -o a ./b", (1, 0), "base", False),  # asked for, and not to be had
        ("", (1, 1), "base", True),  # ncu before 2022 wrote no command line
        ("", (0, 0), "none", False),
        ("", None, None, None),
    ],
)
def test_whether_the_clocks_were_locked_is_what_the_first_kernel_says(
    tmp_path: Path, command_line: str, clocks: tuple[int, int] | None, control: str | None, locked: bool | None
) -> None:
    path = tmp_path / "clocks.ncu-rep"
    path.write_bytes(build.report([Kernel(clocks=clocks)], command_line))
    session = read_session(walk_whole(path))
    assert (session.settings.get("clock_control"), session.clocks_locked) == (control, locked)


def test_a_report_cut_anywhere_is_damaged_or_ends_with_a_block(report: Path) -> None:
    content = report.read_bytes()
    container = walk(report)
    ends = {block.end for block in container.blocks} | {container.blocks[0].offset}
    complete = {
        block.end: sum(len(one.results) for one in container.blocks if one.end <= block.end)
        for block in container.blocks
    }
    near = {end + step for end in ends for step in (-1, 0, 1)}
    for size in sorted({*range(4, len(content), 11), *near} - {len(content) + 1}):
        report.write_bytes(content[:size])
        if size in ends:
            assert not walk(report).damage
            continue
        with pytest.raises(UserError) as error:
            walk_whole(report)
        expected = max((count for end, count in complete.items() if end <= size), default=0)
        assert f"holds {expected} complete {'result' if expected == 1 else 'results'}:" in str(error.value)


def _chain_bytes(content: bytes, container: Container) -> list[int]:
    """Positions of the lengths, counts and payload sizes that hold the chain together."""
    positions = list(range(10))
    for block in container.blocks:
        (length,) = struct.unpack_from("<I", content, block.offset)
        positions += range(block.offset, block.offset + 8)  # length of the header, numbers of sources and results
        at = block.offset + 4 + length
        while at < block.end:
            positions += range(at, at + 4)
            at += 4 + struct.unpack_from("<I", content, at)[0]
    return positions


def test_no_flipped_byte_in_the_chain_gives_a_shorter_report(report: Path) -> None:
    content = report.read_bytes()
    passed = []
    for position in _chain_bytes(content, walk(report)):
        for flip in (0x01, 0x10, 0x80, 0xFF):
            damaged = bytearray(content)
            damaged[position] ^= flip
            report.write_bytes(damaged)
            try:
                container = walk_whole(report)
            except UserError:
                continue
            passed.append(container)
            assert len(container.results) == len(KERNELS), (position, flip)
    assert len(passed) <= 1  # nothing but a field number that no version uses may go unseen


@pytest.mark.parametrize("change", [-4, -1, 1, 60])
def test_a_payload_that_its_entries_do_not_fill_is_damage(report: Path, change: int) -> None:
    content = report.read_bytes()
    block = next(block for block in walk(report).blocks if block.results)
    size = next(value for number, _, value in block.header if number == 5)
    true, wrong = build.whole(5, size), build.whole(5, size + change)
    assert len(true) == len(wrong)
    at = content.index(true, block.offset)
    report.write_bytes(content[:at] + wrong + content[at + len(true) :])
    with pytest.raises(UserError, match="holds 0 complete results"):
        walk_whole(report)


def test_salvage_keeps_the_complete_results_of_a_cut_report(report: Path) -> None:
    content = report.read_bytes()
    second = [block for block in walk(report).blocks if block.results][1]
    report.write_bytes(content[: second.end + 20])
    with pytest.raises(UserError, match="holds 2 complete results: add --salvage"):
        walk_whole(report)
    container = walk_whole(report, salvage=True)
    assert container.damage
    assert read_all(container) == ["saxpy(int, float, float *)", "saxpy(int, float, float *)"]


def test_nothing_is_salvaged_from_a_report_without_a_complete_result(report: Path) -> None:
    report.write_bytes(report.read_bytes()[:200])
    with pytest.raises(UserError, match="0 complete results"):
        walk_whole(report, salvage=True)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty and holds 0 complete results"),
        (b"root:x:0:0\n", r"is not an Nsight Compute report \(a report begins with the letters NVR\)"),
        (b"NVR\0", "damaged or cut short"),
        (b"NVR\0" + build.prefixed(build.whole(1, 8)), "is not in version 7"),
        (b"NVR\0" + build.prefixed(build.whole(1, 7)), "ncu profiled nothing into it"),
        (b"NVR\0" + b"\xff" * 40, "damaged or cut short"),
    ],
)
def test_what_is_no_report_is_refused_with_its_own_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        walk_whole(path)


def test_a_launch_that_the_reader_drops_is_damage(report: Path) -> None:
    duration = build.double(3, 1000.0)
    content = report.read_bytes()
    assert content.count(duration) == 1
    report.write_bytes(content.replace(duration, b"\xff" * len(duration)))  # no field has such a tag
    container = walk_whole(report)
    with pytest.raises(UserError, match="gave 3 or others: the file is damaged"):
        read_all(container)


def test_damage_inside_the_sessions_facts_is_told(report: Path) -> None:
    content = report.read_bytes()
    device = build.message(2, "Crafted A100")
    assert content.count(device) == 1
    report.write_bytes(content.replace(device, b"\xff" * len(device)))
    with pytest.raises(UserError, match="gave 0 or others: the file is damaged"):
        read_all(walk_whole(report))
    with pytest.raises(UserError, match="damaged in what it says of its session"):
        read_session(walk_whole(report))


def test_parts_hold_every_launch_once_and_leave_the_sources_out(report: Path, tmp_path: Path) -> None:
    container = walk_whole(report)
    split = parts(container, limit_bytes=1)
    assert [(part.first, part.last) for part in split] == [(0, 1), (1, 2), (2, 3)]
    for part in split:
        write_part(container, part, tmp_path / "part.ncu-rep")
        written = walk_whole(tmp_path / "part.ncu-rep")
        assert written.results == container.results[part.first : part.last]
        assert not any(block.sources for block in written.blocks)
        assert read_session(written).ncu_version == "2024.1.1.0"


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=300), whole_start=st.booleans())
def test_no_bytes_whatever_crash_the_walk(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, whole_start: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.ncu-rep"
    path.write_bytes((b"NVR\0" + build.prefixed(build.whole(1, 7)) if whole_start else b"") + content)
    try:
        container = walk(path)
    except UserError:
        return
    assert container.blocks or container.damage or not content


REPORTS = (
    "cuda_learning_mojo__profile.ncu-rep",
    "cutlass__report-s8.ncu-rep",
    "self-join-MiSTIC__ilpProf.ncu-rep",
    "self-join-MiSTIC__profileMSDKT23.out.ncu-rep",
    "speedy_scan__profile.ncu-rep",
)


@pytest.mark.parametrize(
    ("name", "ncu", "driver", "cuda"),
    [
        (REPORTS[0], "2022.4.0.0", "535.274.02", "12.2"),
        (REPORTS[1], "2024.1.1.0", "560.35.03", "12.6"),
        (REPORTS[2], "2021.2.2.0", "515.65.01", "11.7"),
        (REPORTS[3], "2022.4.0.0", "525.60.13", "12.0"),
        (REPORTS[4], "2020.3.1.0", "470.223.02", "11.4"),
    ],
)
def test_session_facts_of_real_reports(shared_data: Path, name: str, ncu: str, driver: str, cuda: str) -> None:
    """The versions are those that the bytes of the files show as text."""
    session = read_session(walk_whole(shared_data / "ncu" / name))
    assert (session.ncu_version or "").startswith(f"{ncu} (build ")
    assert (session.driver, session.cuda) == (driver, cuda)
    assert (session.settings["clock_control"], session.clocks_locked) == ("base", True)


@pytest.mark.parametrize("name", REPORTS)
def test_real_reports_cut_flipped_or_replaced_are_refused(shared_data: Path, tmp_path: Path, name: str) -> None:
    content = (shared_data / "ncu" / name).read_bytes()
    path = tmp_path / name
    for percent in (1, 50, 90, 99):
        path.write_bytes(content[: len(content) * percent // 100])
        with pytest.raises(UserError, match=r"holds \d+ complete results?:"):
            walk_whole(path)
    blocks = walk(shared_data / "ncu" / name).blocks
    for block in (blocks[0], blocks[len(blocks) // 2], blocks[-1]):
        damaged = bytearray(content)
        damaged[block.offset] ^= 0x04
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"holds \d+ complete results?:"):
            walk_whole(path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match="is empty"):
        walk_whole(path)
    path.write_text("==PROF== no report\n")
    with pytest.raises(UserError, match="is not an Nsight Compute report"):
        walk_whole(path)
