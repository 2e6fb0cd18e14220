"""Status files and source digests."""

from __future__ import annotations

import hashlib
import re

import pytest

from gpustudy.base.digests import source_digest
from gpustudy.base.errors import UserError
from gpustudy.base.progress import Progress
from gpustudy.base.status import Status, read_status, write_status


def test_a_status_comes_back_as_written_with_the_sums_of_its_files(tmp_path):
    (tmp_path / "steps.jsonl").write_bytes(b"{}\n")
    write_status(tmp_path, Status("train", "0" * 12, "failed", "oom", "Out of memory.", ("tf32",), 1.5))
    status = read_status(tmp_path)
    assert (status.state, status.reason, status.null_control, status.seconds) == ("failed", "oom", ("tf32",), 1.5)
    assert status.files == {"steps.jsonl": {"sha256": hashlib.sha256(b"{}\n").hexdigest(), "bytes": 3}}


def test_an_unknown_state_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="unknown state 'great'"):
        write_status(tmp_path, Status("train", "0" * 12, "great"))
    assert not list(tmp_path.iterdir())


LEAKED = re.compile(r"NoneType|object|attribute|\('|\('schema'\)|Errno|__init__|indices|recursion")
"""What Python says to programmers; a reader of a message can do nothing with it."""

_WRONG_SUMS = '{"schema": 1, "stage": "train", "key": "0", "state": "done", "null_control": [], "files": 3}'
_WRONG_TEXT = '{"schema": 1, "stage": "train", "key": "0", "state": "done", "null_control": [1], "files": {}}'


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"schema": 2}',
        '{"schema": 1, "stage": "train"}',
        "null",
        pytest.param("[" * 100_000, id="deep"),
        _WRONG_SUMS,
        _WRONG_TEXT,
    ],
)
def test_a_broken_status_file_is_told_in_one_sentence(tmp_path, content):
    (tmp_path / "status.json").write_text(content)
    with pytest.raises(
        UserError, match=r"status\.json is not a readable status file \(.*\): set the stage aside"
    ) as told:
        read_status(tmp_path)
    assert not LEAKED.search(str(told.value)), told.value
    (tmp_path / "status.json").unlink()
    with pytest.raises(UserError, match=r"\(No such file or directory\): set the stage aside with 'gpustudy retry'"):
        read_status(tmp_path)


def test_line_ends_do_not_change_a_source_digest_but_content_and_names_do(tmp_path):
    (tmp_path / "a.py").write_bytes(b"x = 1\n")
    before = source_digest(tmp_path, ["a.py"])
    (tmp_path / "a.py").write_bytes(b"x = 1\r\n")
    assert source_digest(tmp_path, ["a.py"]) == before
    (tmp_path / "a.py").write_bytes(b"x = 2\n")
    assert source_digest(tmp_path, ["a.py"]) != before
    (tmp_path / "b.py").write_bytes(b"x = 1\n")
    assert source_digest(tmp_path, ["b.py"]) != before


def test_the_order_in_which_files_are_named_does_not_matter(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(name)
    assert source_digest(tmp_path, ["a.py", "b.py"]) == source_digest(tmp_path, ["b.py", "a.py", "a.py"])


def test_progress_says_which_step_and_the_time_left(capsys):
    progress = Progress("cpu/baseline/r1 train", 4)
    for step in range(1, 5):
        progress.step(step)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("cpu/baseline/r1 train: iteration 1/4, ")
    assert lines[-1].startswith("cpu/baseline/r1 train: iteration 4/4, ")
    assert lines[-1].endswith(" 0 s left")
    assert len(lines) == 2, "steps within two seconds share a line"
