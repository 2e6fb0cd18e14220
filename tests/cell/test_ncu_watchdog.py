"""The watchdog: real processes that end, stall, ignore SIGTERM or have children of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpustudy.cell import ncu_watchdog
from gpustudy.cell.ncu_watchdog import RunEnd, run_watched


@pytest.fixture(autouse=True)
def _fast_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu_watchdog, "POLL_S", 0.05)


def _run(tmp_path: Path, code: str, stall_s: float = 30, stop_when=lambda: None, grace_s: float = 5) -> RunEnd:
    return run_watched(
        [sys.executable, "-c", code],
        dict(os.environ),
        tmp_path,
        tmp_path / "output.log",
        [tmp_path / "ncu.log"],
        stall_s,
        stop_when,
        grace_s,
    )


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_exit_code_and_output_of_a_run_that_ends(tmp_path: Path) -> None:
    end = _run(tmp_path, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(9)")
    assert (end.exit_code, end.is_stalled, end.stopped_by) == (9, False, None)
    assert set((tmp_path / "output.log").read_text().split()) == {"out", "err"}


def test_stall_ends_the_run_and_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path('child').write_text(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    started = time.monotonic()
    end = _run(tmp_path, code, stall_s=0.7)
    assert end.is_stalled
    assert end.exit_code == -signal.SIGTERM
    assert time.monotonic() - started < 10
    assert not _is_running(int((tmp_path / "child").read_text()))


def test_child_in_a_session_of_its_own_is_ended_too(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "pathlib.Path('child').write_text(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    assert _run(tmp_path, code, stall_s=0.7).is_stalled
    assert not _is_running(int((tmp_path / "child").read_text()))


def test_process_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    end = _run(tmp_path, code, stall_s=0.7, grace_s=0.3)
    assert end.is_stalled
    assert end.exit_code == -signal.SIGKILL


def test_growing_log_is_progress(tmp_path: Path) -> None:
    code = (
        "import time\n"
        "for _ in range(8):\n"
        "    time.sleep(0.2)\n"
        "    with open('ncu.log', 'a') as stream: stream.write('x')\n"
    )
    end = _run(tmp_path, code, stall_s=1.0)
    assert not end.is_stalled
    assert end.exit_code == 0


def test_reason_to_stop_ends_the_run_at_once(tmp_path: Path) -> None:
    end = _run(tmp_path, "import time; time.sleep(60)", stop_when=lambda: "permission")
    assert end.stopped_by == "permission"
    assert end.seconds < 10


def test_command_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_watched(["/no/such/ncu"], {}, tmp_path, tmp_path / "o", [], 1, lambda: None)


def test_interrupt_leaves_no_process(tmp_path: Path) -> None:
    main_thread = threading.get_ident()

    def interrupt() -> None:
        while not (tmp_path / "pid").exists():
            time.sleep(0.05)
        signal.pthread_kill(main_thread, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    code = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, code)
    assert not _is_running(int((tmp_path / "pid").read_text()))


def test_run_that_ended_is_not_signalled(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"], start_new_session=True)
    process.wait()
    ncu_watchdog.end_group(process)
    assert process.returncode == 0
