"""A run of one's own: killed at any step and resumed it ends as if it had never stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from gpustudy.base.errors import UserError
from gpustudy.cli import main
from gpustudy.medddpm import load_published
from gpustudy.medddpm.checkpoint import checkpoints
from gpustudy.medddpm.run import RunSettings, sample_run, train_run
from gpustudy.medddpm.settings import TrainSettings
from tests.medddpm.conftest import GARBAGE

ITERATIONS = 12
NETWORK = ["--base-channels", "32", "--channel-mult", "1,2", "--attention-downsamples", "2", "--timesteps", "20"]
TRAINING = ["--iterations", str(ITERATIONS), "--learning-rate", "1e-3", "--device", "cpu", "--save-every", "1"]


def settings_of(iterations=3, timesteps=20, **more):
    return RunSettings(
        base_channels=32,
        channel_mult=(1, 2),
        attention_downsamples=(2,),
        train=TrainSettings(iterations=iterations, learning_rate=1e-3, timesteps=timesteps),
        **more,
    )


def start(data: Path, out: Path, repository: Path, *more: str) -> subprocess.Popen[str]:
    """Start ``gpustudy train`` in a process of its own, on one thread."""
    environment = os.environ | {"PYTHONPATH": str(repository / "workflow"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "gpustudy", "train", str(data), "--out", str(out), *NETWORK, *TRAINING, *more]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for_checkpoint(out: Path, process: subprocess.Popen[str], iteration: int) -> None:
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        found = checkpoints(out)
        if found and int(found[-1].stem.split("-")[1]) >= iteration:
            return
        time.sleep(0.002)
    raise AssertionError(f"no checkpoint {iteration}: {process.stderr and process.stderr.read()}")


def final_state(out: Path) -> dict:
    return torch.load(checkpoints(out)[-1], weights_only=True)


def flat(value, prefix=""):
    """Yield every leaf of a nested state with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{prefix}/{key}")
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from flat(inner, f"{prefix}/{index}")
    else:
        yield prefix, value


def assert_same_state(one, other):
    ours, theirs = dict(flat(one)), dict(flat(other))
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        same = torch.equal(value, theirs[name]) if isinstance(value, torch.Tensor) else value == theirs[name]
        assert same, name


def test_a_run_killed_at_several_steps_ends_as_one_that_was_not(prepared, tmp_path, repository):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start(prepared, whole, repository)
    assert process.wait(120) == 0, process.stderr.read()
    again: list[str] = []
    for iteration in (1, 4, 9):
        process = start(prepared, killed, repository, *again)
        wait_for_checkpoint(killed, process, iteration)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert checkpoints(killed)
        again = ["--resume"]
    process = start(prepared, killed, repository, *again)
    assert process.wait(120) == 0, process.stderr.read()
    assert_same_state(final_state(killed), final_state(whole))
    assert (killed / "steps.jsonl").read_text() == (whole / "steps.jsonl").read_text()
    assert len((whole / "steps.jsonl").read_text().splitlines()) == ITERATIONS
    assert not list(killed.glob(".checkpoint-*"))


def test_ctrl_c_finishes_the_step_and_leaves_a_checkpoint(prepared, tmp_path, repository):
    out = tmp_path / "run"
    process = start(prepared, out, repository, "--save-every", "1000", "--iterations", "100000")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not ((out / "steps.jsonl").exists() and (out / "steps.jsonl").read_text()):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "go on with --resume" in said
    assert "Traceback" not in said
    lines = (out / "steps.jsonl").read_text().splitlines()
    assert final_state(out)["iteration"] == len(lines) == json.loads(lines[-1])["iteration"]


def test_checkpoints_are_pruned_and_the_model_is_in_the_published_layout(prepared, tmp_path):
    model = train_run(prepared, tmp_path / "run", settings_of(iterations=4, save_every=1, keep=2))
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["checkpoint-00000003.pt", "checkpoint-00000004.pt"]
    content = torch.load(model, weights_only=True)
    assert content["step"] == 4
    averaged = final_state(tmp_path / "run")["ema"]
    loaded = load_published(model).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in averaged.items())


def test_a_run_is_not_started_over_another_nor_resumed_as_another(prepared, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(UserError, match=r"run\.json"):
        train_run(prepared, out, settings_of(), resume=True)
    train_run(prepared, out, settings_of())
    with pytest.raises(UserError, match="not empty: add --resume"):
        train_run(prepared, out, settings_of())
    other = RunSettings(base_channels=64, channel_mult=(1, 2), attention_downsamples=(2,))
    with pytest.raises(UserError, match="was started with model"):
        train_run(prepared, out, other, resume=True)
    train_run(prepared, out, settings_of(iterations=5), resume=True)
    assert final_state(out)["iteration"] == 5


@pytest.mark.parametrize(
    ("more", "sentence"),
    [({"timesteps": 250}, "has timesteps 20, this run 250"), ({"seed": 9}, "has seed 0, this run 9")],
)
def test_a_refused_resume_leaves_the_run_as_it_was(more, sentence, prepared, tmp_path):
    train_run(prepared, tmp_path / "run", settings_of())
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(UserError, match=sentence):
        train_run(prepared, tmp_path / "run", settings_of(**more), resume=True)
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_a_run_killed_before_it_said_what_it_is_starts_anew(prepared, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / ".lock").touch()
    (out / ".run.abcd1234.part.json").write_text("{")
    with pytest.raises(UserError, match=r"holds no run\.json.*: start one without --resume"):
        train_run(prepared, out, settings_of(iterations=1), resume=True)
    train_run(prepared, out, settings_of(iterations=1))
    assert not list(out.glob(".*.part.*"))


def test_a_resumed_run_removes_the_parts_of_its_killed_writers_alone(prepared, tmp_path):
    out = tmp_path / "run"
    train_run(prepared, out, settings_of(iterations=1))
    names = ["checkpoint-00000001.a.part.pt", "model.a.part.pt", "run.a.part.json", "steps.a.part.jsonl"]
    for name in [*names, "samples.a.part.npz"]:  # the last is another process's, which may be alive
        (out / f".{name}").touch()
    train_run(prepared, out, settings_of(iterations=2), resume=True)
    assert [path.name for path in out.glob(".*.part.*")] == [".samples.a.part.npz"]


def test_a_loss_that_is_not_finite_stops_the_run(prepared, tmp_path):
    images = np.load(prepared / "images.npy")
    images[:, 0, 0, 0, 0] = np.nan
    np.save(prepared / "images.npy", images)
    with pytest.raises(UserError, match="loss became nan at iteration"):
        train_run(prepared, tmp_path / "run", settings_of())


def test_a_damaged_checkpoint_is_named(prepared, tmp_path):
    train_run(prepared, tmp_path / "run", settings_of())
    last = checkpoints(tmp_path / "run")[-1]
    last.write_bytes(last.read_bytes()[:1000])
    with pytest.raises(UserError, match=f"{last.name} is not a readable checkpoint"):
        train_run(prepared, tmp_path / "run", settings_of(), resume=True)
    for content in GARBAGE:
        last.write_bytes(content)
        with pytest.raises(UserError, match=f"{last.name} .*: remove it to resume from the one before"):
            train_run(prepared, tmp_path / "run", settings_of(), resume=True)


NO_STATES = [
    ([1], "holds a list, not the state of a run"),
    ({"schema": 1}, "has no iteration"),
    ({"ema": [1]}, "has no ema"),
    ({"ema": {"x": torch.zeros(1)}}, "does not fit the run's network"),
    ({"model": {}}, "does not fit the run's network"),
    ({"optimizer": {}}, "does not fit the run's network"),
]


@pytest.mark.parametrize(("content", "sentence"), NO_STATES)
def test_a_file_of_tensors_that_is_no_checkpoint_of_the_run_is_named(content, sentence, prepared, tmp_path):
    train_run(prepared, tmp_path / "run", settings_of(iterations=1))
    last = checkpoints(tmp_path / "run")[-1]
    is_whole = content in ([1], {"schema": 1})
    torch.save(content if is_whole else final_state(tmp_path / "run") | content, last)
    told = f"{last.name} {sentence}.*: remove it to resume from the one before"
    with pytest.raises(UserError, match=told):
        train_run(prepared, tmp_path / "run", settings_of(iterations=2), resume=True)
    if is_whole or "ema" in content:
        with pytest.raises(UserError, match=told):
            sample_run(tmp_path / "run", tmp_path / "samples")


def test_training_starts_from_published_weights(prepared, tmp_path):
    model = train_run(prepared, tmp_path / "first", settings_of())
    train_run(prepared, tmp_path / "second", settings_of(iterations=1), weights=model)
    first = json.loads((tmp_path / "first" / "steps.jsonl").read_text().splitlines()[0])
    second = json.loads((tmp_path / "second" / "steps.jsonl").read_text().splitlines()[0])
    assert second["loss"] != first["loss"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[1]", "is not a readable run"),
        ("[" * 100_000, "is not a readable run"),
        ('{"schema": 1}', "has no data that is a text: give the folder of a run"),
        ('{"schema": 1, "data": "x", "model": 3}', "has no model.image_channels that is a whole number"),
    ],
)
def test_a_record_that_is_no_runs_is_named(content, sentence, prepared, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(content)
    with pytest.raises(UserError, match=rf"run\.json {sentence}"):
        sample_run(tmp_path / "run", tmp_path / "samples")
    with pytest.raises(UserError, match=rf"run\.json {sentence}"):
        train_run(prepared, tmp_path / "run", settings_of(), resume=True)


def test_samples_are_those_of_their_seed_and_mask(prepared, tmp_path):
    train_run(prepared, tmp_path / "run", settings_of())
    five = np.load(sample_run(tmp_path / "run", tmp_path / "five", count=5, seed=3))
    assert five["samples"].shape == (5, 1, 8, 8, 8)
    assert np.abs(five["samples"]).max() <= 1
    assert five["case_ids"].tolist() == ["case-0", "case-1", "case-2", "case-0", "case-1"]
    assert five["seeds"].tolist() == [3, 4, 5, 6, 7]
    np.testing.assert_array_equal(five["masks"][1], np.load(prepared / "masks.npy")[1])
    np.testing.assert_array_equal(five["labels"][4], np.load(prepared / "labels.npy")[1])
    np.testing.assert_array_equal(five["affine"], np.diag([2, 2, 2, 1]))
    two = np.load(sample_run(tmp_path / "run", tmp_path / "two", count=2, seed=3))
    np.testing.assert_array_equal(two["samples"], five["samples"][:2])
    assert not np.array_equal(five["samples"][0], five["samples"][3])  # same mask, other noise


def test_the_verbs_train_and_sample(prepared, tmp_path, capsys):
    run = str(tmp_path / "run")
    few = ["--iterations", "2", "--device", "cpu", "--precision", "bf16"]
    assert main(["train", str(prepared), "--out", run, *NETWORK, *few]) == 0
    assert "iteration 2/2" in capsys.readouterr().err
    assert main(["sample", run, "--out", str(tmp_path / "s"), "--ddim-steps", "2", "--device", "cpu"]) == 0
    assert np.load(tmp_path / "s" / "samples.npz")["samples"].shape == (1, 1, 8, 8, 8)
    assert main(["train", str(tmp_path), "--out", run]) == 2
    assert main(["sample", str(tmp_path / "absent"), "--out", run]) == 2
    assert main(["train", str(prepared), "--out", run, "--channel-mult", "1,x"]) == 2
    assert main(["sample", run, "--out", run, "--device", "cuda:99"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("gpustudy ") for line in said) == 4


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--channel-mult", "1,1,2"], "no level is downsampled by 8: a U-Net of 3 levels has [1, 2, 4]."),
        (["--seed", "-1"], "seed is -1: give a whole number from 0."),
        (["--learning-rate", "nan"], "learning_rate is nan: give a number above 0"),
        (["--precision", "fp16"], "precision fp16 is for CUDA devices, not for cpu: take bf16 or float32."),
    ],
)
def test_what_the_network_or_the_device_lacks_is_refused(words, sentence, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", str(tmp_path), "--out", str(out), "--device", "cpu", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()
