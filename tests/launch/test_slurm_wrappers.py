"""The wrappers of workflow/profiles/bin before stand-ins of Slurm's programs: what each fault of the plugin becomes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

WRAPPERS = REPOSITORY / "workflow" / "profiles" / "bin"
SUBMIT = (
    *("--parsable", "--job-name", "gpustudy_uuid", "--output", "logs/%j.log"),
    *("--comment", "rule_cpu-baseline-r1_run_census_run_train", "-A", "abc123", "--wrap=true"),
)
STATUS = ("-X", "--parsable2", "--noheader", "--format=JobIdRaw,State", "--name", "gpustudy_uuid")


class Site:
    """A folder of stand-ins on PATH behind the wrappers; each stand-in notes its calls."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "slurm"
        self.programs.mkdir()
        self.calls = folder / "calls"
        self.calls.touch()
        self.record = folder / "run.jobs"
        self.record.touch()
        self.notes = folder / "run.jobs.notes"
        for name in ("sbatch", "squeue", "scancel", "sacct", "srun", "sacctmgr", "sshare"):
            self.program(name, "exit 0")

    def program(self, name: str, body: str) -> None:
        path = self.programs / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.calls}"\n{body}\n')
        path.chmod(0o755)

    def called(self, name: str) -> list[str]:
        return [line for line in self.calls.read_text().splitlines() if line.startswith(f"{name} ")]

    def call(self, name: str, *arguments: str, before: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(part for part in (str(WRAPPERS), before, str(self.programs), os.environ["PATH"]) if part)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "GPUSTUDY"))}
        environment |= {
            "PATH": path,
            "TMPDIR": str(self.programs.parent),
            "GPUSTUDY_SLURM_JOBS": str(self.record),
            "GPUSTUDY_QUERY_LIMIT_S": "3",
            "GPUSTUDY_CONTACT_LIMIT_S": "4",
            "GPUSTUDY_PAUSE_S": "1",
        }
        command = [str(WRAPPERS / name), *arguments]
        return subprocess.run(command, env=environment | extra, capture_output=True, text=True, timeout=60)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


BANNER = """cat <<'TEXT'
-----------------------------------------------------------------
          Welcome to the Stampede3 Supercomputer
-----------------------------------------------------------------
--> Verifying valid submit host (login3)...OK
--> Checking available allocation (TG-ABC123456)...OK
TEXT
"""


def test_the_job_id_stands_alone_after_a_banner(site):
    site.program("sbatch", BANNER + "echo 2026; echo 4711")
    done = site.call("sbatch", *SUBMIT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4711\n", "")
    assert site.record.read_text() == "4711 cpu-baseline-r1 logs/4711.log\n"


def test_the_cluster_of_a_job_id_is_left_out(site):
    site.program("sbatch", "echo '12;expanse'")
    assert site.call("sbatch", *SUBMIT).stdout == "12\n"


def test_slurm_never_requeues_a_job(site):
    site.program("sbatch", "echo 12")
    site.call("sbatch", *SUBMIT)
    assert site.called("sbatch") == ["sbatch --no-requeue " + " ".join(SUBMIT)]
    refused = site.call("sbatch", "--requeue", *SUBMIT)
    assert refused.returncode == 1
    assert "never requeued" in refused.stderr


def test_job_arrays_are_refused(site):
    done = site.call("sbatch", *SUBMIT, "--array=1-3")
    assert (done.returncode, done.stdout) == (1, "")
    assert "slurm-array-jobs" in done.stderr
    assert not site.called("sbatch")


def test_a_refusal_is_told_wherever_the_site_printed_it(site):
    site.program("sbatch", "echo '--> Verifying no --mem option...FAILED'; echo 'sbatch: error: denied' >&2; exit 1")
    done = site.call("sbatch", *SUBMIT)
    assert (done.returncode, done.stdout) == (1, "")
    assert "--mem option...FAILED" in done.stderr
    assert "denied" in done.stderr
    assert site.notes.read_text().startswith(
        "cpu-baseline-r1 was not submitted: --> Verifying no --mem option...FAILED"
    )


def test_a_job_that_was_queued_after_all_is_found_and_not_submitted_again(site):
    site.record.write_text("40 a b\n")
    site.program("sbatch", "echo 'sbatch: error: Batch job submission failed: Socket timed out' >&2; exit 1")
    site.program("squeue", "echo 40; echo 41")
    done = site.call("sbatch", *SUBMIT)
    assert (done.returncode, done.stdout) == (0, "41\n")
    assert len(site.called("sbatch")) == 1
    assert site.record.read_text().splitlines()[1:] == ["41 cpu-baseline-r1 logs/41.log"]


def test_an_unconfirmed_job_that_is_nowhere_is_a_failure(site):
    site.program("sbatch", "echo 'sbatch: error: Batch job submission failed: Socket timed out' >&2; exit 1")
    done = site.call("sbatch", *SUBMIT)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(site.called("sbatch")) == 1
    assert len(site.called("squeue")) > 1


def test_a_controller_out_of_reach_is_tried_again(site):
    site.program(
        "sbatch",
        f'[ "$(grep -c ^sbatch "{site.calls}")" -gt 2 ] && echo 12 && exit 0\n'
        "echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
    )
    done = site.call("sbatch", *SUBMIT)
    assert (done.returncode, done.stdout) == (0, "12\n")


def test_excluded_nodes_are_taken_again_when_no_other_is_left(site):
    site.program(
        "sbatch",
        'case "$*" in *--exclude*) echo "sbatch: error: Requested node configuration is not available" >&2; exit 1 ;; '
        "esac; echo 12",
    )
    done = site.call("sbatch", "--exclude=exp-1-57", *SUBMIT)
    assert (done.returncode, done.stdout) == (0, "12\n")
    assert len(site.called("sbatch")) == 2


@pytest.mark.parametrize(
    "reason", ["PartitionConfig", "PartitionTimeLimit", "QOSMaxWallDurationPerJobLimit", "JobHeldAdmin"]
)
def test_a_request_that_can_never_start_is_cancelled_and_refused(site, reason):
    site.program("sbatch", "echo 12")
    site.program("squeue", f"echo {reason}")
    done = site.call("sbatch", *SUBMIT)
    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
    assert site.called("scancel") == ["scancel 12"]


@pytest.mark.parametrize("reason", ["None", "Priority", "Resources", "AssocGrpGRES", "ReqNodeNotAvail"])
def test_a_request_that_only_waits_is_taken(site, reason):
    site.program("sbatch", "echo 12")
    site.program("squeue", f"echo {reason}")
    assert site.call("sbatch", *SUBMIT).stdout == "12\n"


def test_nothing_is_submitted_for_a_run_that_has_ended(site):
    site.record.unlink()
    done = site.call("sbatch", *SUBMIT)
    assert done.returncode == 1
    assert not site.called("sbatch")


def test_states_of_sacct_become_those_that_the_plugin_knows(site):
    site.program("sacct", r"printf '1|CANCELLED by 1000\n2|PREEMPTED\n3|RUNNING\n4|COMPLETED\n'")
    done = site.call("sacct", *STATUS)
    assert done.stdout.split() == ["1|CANCELLED", "2|FAILED", "3|RUNNING", "4|COMPLETED"]


def test_states_of_squeue_become_those_that_the_plugin_knows(site):
    site.program("squeue", r"printf '2|PREEMPTED\n3|RUNNING\n'")
    done = site.call("squeue", "--format=%i|%T", "--states=all", "--noheader", "--name", "x")
    assert done.stdout.split() == ["2|FAILED", "3|RUNNING"]


def test_a_job_is_noted_though_the_run_is_interrupted_meanwhile(site):
    site.program("sbatch", "kill -INT $PPID $$; kill -TERM $PPID; sleep 1; echo 12")
    assert site.call("sbatch", *SUBMIT).stdout == "12\n"
    assert site.record.read_text().startswith("12 ")


def test_a_job_that_left_the_queues_memory_is_told_by_accounting(site):
    site.record.write_text("1 a b\n2 c d\n3 e f\n")
    site.program("squeue", r"printf '2|RUNNING\n'")
    site.program("sacct", r"printf '1|COMPLETED\n3|CANCELLED by 0\n'")
    done = site.call("squeue", "--format=%i|%T", "--states=all", "--noheader", "--name", "x")
    assert done.stdout.split() == ["2|RUNNING", "1|COMPLETED", "3|CANCELLED"]
    assert site.called("sacct")[0].endswith("-j 1,3")


def test_how_a_job_ended_is_told_once(site):
    site.record.write_text("1 cpu-baseline-r1 logs/1.log\n2 cpu-opt2-r1 logs/2.log\n")
    site.program("sacct", r"printf '1|TIMEOUT\n2|RUNNING\n3|FAILED\n'")
    site.call("sacct", *STATUS)
    site.call("sacct", *STATUS)
    assert site.notes.read_text() == "Slurm job 1 (cpu-baseline-r1) ended: TIMEOUT; its log: logs/1.log\n"


@pytest.mark.parametrize(
    ("name", "query"), [("sacct", STATUS), ("squeue", ("--format=%i|%T", "--states=all", "--noheader", "--name", "x"))]
)
def test_an_outage_is_ridden_out(site, name, query):
    site.program(name, f'[ "$(grep -c "^{name}" "{site.calls}")" -gt 2 ] && echo "3|RUNNING" && exit 0; exit 1')
    done = site.call(name, *query)
    assert (done.returncode, done.stdout) == (0, "3|RUNNING\n")


def test_an_outage_without_end_stays_a_failure_and_within_the_limit(site):
    site.program("sacct", "echo 'sacct: error: Connection refused' >&2; exit 1")
    done = site.call("sacct", *STATUS)
    assert done.returncode == 1
    assert "Connection refused" in done.stderr
    assert len(site.called("sacct")) == 3  # 3 s, a second apart


def test_a_query_that_hangs_is_ended(site):
    site.program("sacct", "sleep 50")
    done = site.call("sacct", *STATUS, GPUSTUDY_CALL_LIMIT_S="1")
    assert done.returncode == 124  # timeout(1)'s code


def test_no_node_is_no_name_of_a_node(site):
    site.program("sacct", "printf '%-256s\\n' 'None assigned'")
    assert site.call("sacct", "-j", "7", "-n", "-X", "-o", "nodelist%-256").stdout.strip() == ""


def test_the_reason_of_a_failed_job_is_its_state(site):
    site.program("sacct", 'case "$*" in *State*) echo "CANCELLED by 1000|0:15";; esac')
    first = site.call("sacct", "-j", "7.0", "--format=Reason", "--noheader")
    second = site.call("sacct", "-j", "7.1", "--format=Reason", "--noheader")
    assert first.stdout == "CANCELLED by 1000, exit code 0:15\n"
    assert second.stdout == ""


def test_accounts_are_left_to_sbatch(site):
    for name, query in [
        ("sacctmgr", ("-n", "-s", "list", "user", "me", "format=account%256")),
        ("sshare", ("-U", "--format", "Account%256", "--noheader")),
    ]:
        site.program(name, "echo 'slurm_persist_conn_open: Connection refused' >&2; exit 1")
        done = site.call(name, *query)
        assert (done.returncode, done.stdout.strip()) == (0, "")
    told = site.call(
        "sacctmgr", "-n", "-s", "list", "user", "me", "format=account%256", GPUSTUDY_SLURM_ACCOUNT="abc123"
    )
    assert told.stdout == "abc123\n"


def test_srun_of_the_jobstep_finds_its_slurm_again(site):
    site.program("srun", 'echo "${SLURM_CONF:-none}"')
    assert site.call("srun", "true", GPUSTUDY_SLURM_CONF="/cm/slurm.conf").stdout == "/cm/slurm.conf\n"


def test_a_step_waits_until_the_controller_answers(site):
    site.program("scontrol", f'[ "$(grep -c "^scontrol" "{site.calls}")" -gt 2 ]')
    site.program("srun", "echo step")
    assert site.call("srun", "true", SLURM_JOB_ID="7").stdout == "step\n"
    assert site.called("scontrol") == ["scontrol show job 7"] * 3


def test_a_job_is_told_where_its_slurm_is(site):
    site.program("sbatch", f'echo "$GPUSTUDY_SLURM_CONF" >"{site.calls}.conf"; echo 12')
    site.call("sbatch", *SUBMIT, SLURM_CONF="/cm/slurm.conf")
    assert Path(f"{site.calls}.conf").read_text() == "/cm/slurm.conf\n"


def test_wrappers_of_two_checkouts_do_not_call_each_other(site, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for path in WRAPPERS.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
        (other / path.name).chmod(0o755)
    site.program("sacct", "echo real")
    assert site.call("sacct", "--version", before=str(other)).stdout == "real\n"


def test_without_slurm_the_sentence_names_what_is_missing(site, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "env", "dirname", "readlink", "mktemp", "rm"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    done = site.call("sbatch", *SUBMIT, PATH=f"{WRAPPERS}:{tools}")
    assert done.returncode == 127
    assert "no sbatch of Slurm's own on PATH" in done.stderr


def test_no_wrapper_leaves_a_temporary_file(site):
    for name in ("sbatch", "sacct", "squeue", "srun", "sacctmgr", "sshare"):
        site.call(name, "--version")
    assert not list(site.programs.parent.glob("gpustudy-slurm.*"))
