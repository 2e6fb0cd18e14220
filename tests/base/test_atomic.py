"""Atomic writers: the whole file or the old one, also when the writer is killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from gpustudy.base.atomic import atomic_directory, atomic_path, write_json, write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "table.csv"
    write_text(path, "old")
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.csv"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_told_with_the_file_that_was_to_be_written(tmp_path, number):
    path = tmp_path / "table.csv"
    with pytest.raises(OSError, match=r"table\.csv") as told, atomic_path(path):
        raise OSError(number, os.strerror(number))
    assert told.value.filename == str(path)
    with pytest.raises(OSError, match="timed out") as told, atomic_path(path):
        raise OSError(errno.ETIMEDOUT, "timed out")
    assert told.value.filename is None


def test_the_temporary_file_keeps_the_suffix_for_writers_that_go_by_it(tmp_path):
    with atomic_path(tmp_path / "figure.svg") as temporary:
        assert temporary.suffix == ".svg"
        assert temporary.parent == tmp_path


def test_written_files_have_the_permissions_of_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        write_json(tmp_path / "a.json", {})
    finally:
        os.umask(old)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o640


def test_not_a_number_is_refused_rather_than_written_as_broken_json(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert os.listdir(tmp_path) == []


def test_a_directory_takes_the_place_of_an_old_one_only_when_complete(tmp_path):
    goal = tmp_path / "train-abc"
    with atomic_directory(goal) as work:
        (work / "a").write_text("1")
    with pytest.raises(RuntimeError), atomic_directory(goal) as work:
        (work / "b").write_text("2")
        raise RuntimeError
    assert [path.name for path in goal.iterdir()] == ["a"]
    with atomic_directory(goal) as work:
        (work / "c").write_text("3")
    assert [path.name for path in goal.iterdir()] == ["c"]
    assert os.listdir(tmp_path) == ["train-abc"]


def test_a_killed_writer_leaves_no_directory_of_the_final_name(tmp_path):
    program = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from gpustudy.base.atomic import atomic_directory
        with atomic_directory(Path(sys.argv[1])) as work:
            (work / "steps.jsonl").write_text("half")
            print("writing", flush=True)
            time.sleep(60)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "train-abc")],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.05)
    assert not (tmp_path / "train-abc").exists()
