"""The command line that starts a stage in a container, and what its environment keeps of the host's."""

from __future__ import annotations

import csv
import os
import subprocess
from pathlib import Path

import pytest

from gpustudy.base.errors import UserError
from gpustudy.launch import process
from gpustudy.launch.containers import ContainerJob, Mount, container_command, left_behind, owner
from gpustudy.launch.images import Image
from gpustudy.launch.process import Box, StageCall, container_job, run_stage_process
from gpustudy.launch.runtimes import Runtime, find_runtime, host_environment, scratch_folder
from gpustudy.launch.tools import Answer
from gpustudy.study.load import ROOT
from gpustudy.study.models import Site
from tests.launch.places import place_at

APPTAINER = Runtime("apptainer", "/usr/bin/apptainer", "apptainer version 1.4.5")
SINGULARITY = Runtime("apptainer", "/opt/singularity", "singularity-pro version 4.1.2-1.el8")
DOCKER = Runtime("docker", "/usr/bin/docker", "Docker version 20.10.24")

JOB = ContainerJob(
    image="/images/paper.sif",
    command=("python", "-m", "gpustudy.cell", "train"),
    mounts=(Mount(Path("/checkout/workflow"), "/study/workflow"), Mount(Path("/scratch/c"), "/study/c", writable=True)),
    home=Path("/scratch/home"),
    environment={"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"},
    uses_gpu=True,
)


def site(**fields: object) -> Site:
    return Site.model_validate({"gpus": [], "executor": "local", "runtime": "apptainer", **fields})


def test_apptainer_is_started_with_explicit_mounts_and_a_clean_environment():
    started = container_command(APPTAINER, JOB)
    assert " ".join(started.command) == (
        "/usr/bin/apptainer --silent exec --cleanenv --contain --home /scratch/home:/study/home --pwd /study"
        " --mount type=bind,src=/checkout/workflow,dst=/study/workflow,ro"
        " --mount type=bind,src=/scratch/c,dst=/study/c --nv"
        " /images/paper.sif python -m gpustudy.cell train"
    )
    assert started.environment == {"APPTAINERENV_CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}
    assert started.undo == ()


def test_singularity_gets_variables_under_its_own_prefix():
    assert set(container_command(SINGULARITY, JOB).environment) == {"SINGULARITYENV_CUDA_VISIBLE_DEVICES"}


def test_docker_is_started_with_the_same_mounts_and_undone_by_name(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(os.cpu_count())))
    started = container_command(DOCKER, JOB)
    name = started.undo[-1]
    assert started.undo == ("/usr/bin/docker", "rm", "--force", name)
    assert " ".join(started.command) == (
        f"/usr/bin/docker run --rm --init --name {name} --label gpustudy.owner={owner()}"
        f" --hostname {os.uname().nodename} --network none --read-only --user {os.getuid()}:{os.getgid()}"
        " --workdir /study"
        " --mount type=bind,src=/checkout/workflow,dst=/study/workflow,ro"
        " --mount type=bind,src=/scratch/c,dst=/study/c"
        " --mount type=bind,src=/scratch/home,dst=/study/home --gpus all"
        " --env HOME=/study/home --env USER=gpustudy --env CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"
        " /images/paper.sif python -m gpustudy.cell train"
    )


@pytest.mark.parametrize("runtime", [APPTAINER, DOCKER])
def test_a_cpu_job_gets_no_gpu(runtime):
    job = ContainerJob("i.sif", ("true",), (), Path("/h"))
    assert not {"--nv", "--gpus"} & set(container_command(runtime, job).command)


def test_only_a_stage_that_reads_counters_gets_the_right_to():
    reads = ContainerJob("i", ("true",), (), Path("/h"), uses_gpu=True, reads_counters=True)
    assert "SYS_ADMIN" in container_command(DOCKER, reads).command
    assert "SYS_ADMIN" not in container_command(DOCKER, JOB).command


def test_a_path_with_commas_colons_and_quotes_stays_one_field():
    text = str(Mount(Path('/a,b:c "d"'), "/study/x"))
    assert next(csv.reader([text])) == ["type=bind", 'src=/a,b:c "d"', "dst=/study/x", "ro"]


def test_variables_that_change_what_a_container_sees_are_dropped():
    host = {
        "PATH": "/usr/bin",
        "APPTAINER_BIND": "/expanse",
        "APPTAINERENV_PYTHONPATH": "/home/x",
        "SINGULARITYENV_LD_LIBRARY_PATH": "/opt/lib",
        "SINGULARITY_CONTAINLIBS": "libx.so",
        "APPTAINER_NV": "1",
        "APPTAINER_CACHEDIR": "/mine",
        "SINGULARITY_DOCKER_USERNAME": "me",
    }
    kept = host_environment(APPTAINER, None, host)
    assert kept == {"PATH": "/usr/bin", "APPTAINER_CACHEDIR": "/mine", "SINGULARITY_DOCKER_USERNAME": "me"}


def test_caches_lie_on_the_scratch_unless_the_user_says_where(tmp_path):
    kept = host_environment(APPTAINER, tmp_path, {"APPTAINER_CACHEDIR": "/mine"})
    assert kept == {"APPTAINER_CACHEDIR": "/mine", "APPTAINER_TMPDIR": f"{tmp_path}/gpustudy-apptainer/tmpdir"}
    assert Path(kept["APPTAINER_TMPDIR"]).is_dir()
    assert host_environment(DOCKER, tmp_path, {}) == {}


def test_docker_keeps_to_the_cores_of_the_job(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 3})
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    command = container_command(DOCKER, JOB).command
    assert command[command.index("--cpuset-cpus") + 1] == "3,5"


def test_a_scratch_that_is_not_here_leaves_the_systems_temporary_folder(tmp_path):
    effective = place_at("expanse", tmp_path).effective
    assert scratch_folder(effective, {"GPUSTUDY_SCRATCH": str(tmp_path)}) == tmp_path
    assert scratch_folder(effective, {"GPUSTUDY_SCRATCH": str(tmp_path / "none")}) is None
    assert scratch_folder(effective, {}) is None  # $USER of the site's own is not set


def test_a_missing_runtime_is_told_with_the_module_that_brings_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError) as told:
        find_runtime("apptainer", site(container_module="singularitypro"), "expanse")
    assert str(told.value) == (
        "cells of site expanse run in apptainer, and there is no apptainer nor singularity on PATH here: "
        "'module load singularitypro' and run again, or run on a node that has it."
    )


def test_a_runtime_that_only_the_module_brings_is_found_by_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    program = tmp_path / "opt" / "apptainer"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho apptainer version 1.3\n")
    program.chmod(0o755)
    loads = f'module() {{ [ "$*" = "load tacc-apptainer" ] && echo Loading && PATH={program.parent}:$PATH; }}\n'
    (tmp_path / ".bash_profile").write_text(loads)
    monkeypatch.setattr("shutil.which", lambda name: "/bin/bash" if name == "bash" else None)
    found = find_runtime("apptainer", site(container_module="tacc-apptainer"), "stampede3", ask_for_real)
    assert found == Runtime("apptainer", str(program), "apptainer version 1.3")
    with pytest.raises(UserError, match="'module load other' and run again"):
        find_runtime("apptainer", site(container_module="other"), "stampede3", ask_for_real)


def ask_for_real(command, timeout_s=20.0):
    done = subprocess.run(command, capture_output=True, text=True)
    return Answer(done.returncode, done.stdout, done.stderr)


def test_singularity_stands_in_for_apptainer_and_a_broken_one_is_told(monkeypatch, tmp_path):
    program = tmp_path / "singularity"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_runtime("apptainer", site(), "x", lambda command, timeout_s=1: Answer(0, "singularity version 3.8\n"))
    assert found == Runtime("apptainer", str(program), "singularity version 3.8")
    with pytest.raises(UserError, match=r"singularity does not run \(no fuse\): mend the installation"):
        find_runtime("apptainer", site(), "x", lambda command, timeout_s=1: Answer(1, "", "no fuse\n"))


def test_containers_of_dead_launchers_of_this_host_alone_are_left_behind(tmp_path):
    host, gone = os.uname().nodename, 2**22 + 1  # above the largest process number of Linux
    listing = f"a {host}:{gone}\nb {owner()}\nc elsewhere:{gone}\nd\ne {host}:x\n"
    assert left_behind(listing) == ["a"]


def test_a_stage_sees_its_folders_under_the_paths_that_it_has_outside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/host/lib")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    folder = tmp_path / "scratch"
    folder.mkdir()
    cell_file = folder / "cell.json"
    cell_file.write_text("{}")
    data, out = Path("results/data/d-1"), Path("results/cells/cpu/opt2/r1/census-2")
    data.mkdir(parents=True)
    call = StageCall("census", folder, cell_file, data, out, out.with_name("train-3"))
    box = Box(APPTAINER, Image("/i.sif", "ab" * 32), None, uses_gpu=False)
    job = container_job(call, box, {"CUDA_VISIBLE_DEVICES": "GPU-7"})
    assert job.command == (
        *("python", "-m", "gpustudy.cell", "census", "--cell", "job/cell.json", "--data", "results/data/d-1"),
        *("--out", "results/cells/cpu/opt2/r1/census-2", "--previous", "results/cells/cpu/opt2/r1/train-3"),
    )
    assert {mount.target: (mount.source, mount.writable) for mount in job.mounts} == {
        "/study/workflow": (ROOT / "workflow", False),
        "/study/job": (folder / "job", False),
        "/study/results/data/d-1": (tmp_path / data, False),
        "/study/results/cells/cpu/opt2/r1": (tmp_path / out.parent, True),
        "/tmp": (folder / "tmp", True),
    }
    assert (folder / "job" / "cell.json").read_text() == "{}"
    assert job.environment["PYTHONPATH"] == "/study/workflow"
    assert job.environment["GPUSTUDY_IMAGE_SHA256"] == "ab" * 32
    assert (job.environment["CUDA_VISIBLE_DEVICES"], job.environment["SLURM_JOB_ID"]) == ("GPU-7", "77")
    assert "LD_LIBRARY_PATH" not in job.environment


@pytest.mark.parametrize(("stage", "waiting"), [("train", None), ("quality", "PASSIVE")])
@pytest.mark.parametrize("inside", [True, False])
def test_idle_threads_sleep_in_a_stage_that_runs_beside_others(stage, waiting, inside, tmp_path, monkeypatch):
    """GNU's and Intel's OpenMP read the variable; a stage that measures has the machine to itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    (tmp_path / "data").mkdir()
    cell_file = tmp_path / "cell.json"
    cell_file.write_text("{}")
    call = StageCall(stage, tmp_path, cell_file, Path("data"), Path("results/o/t-1"), None)
    if inside:
        seen = container_job(call, Box(APPTAINER, Image("/i.sif", "ab" * 32), None, uses_gpu=False), {}).environment
    else:
        ran = []
        monkeypatch.setattr(process, "run_guarded", lambda command, environment: ran.append(environment) or 0)
        run_stage_process(call, None, {})
        (seen,) = ran
    assert seen.get("OMP_WAIT_POLICY") == waiting


def test_missing_data_is_told_before_a_container_is_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = StageCall("train", tmp_path, tmp_path / "c", Path("results/data/mni152-demo-1"), Path("results/o/t-1"), None)
    box = Box(APPTAINER, Image("/i.sif", "ab" * 32), None, uses_gpu=False)
    with pytest.raises(UserError, match=r"mni152-demo-1 is missing: 'gpustudy data prepare mni152-demo' makes it"):
        container_job(call, box, {})
