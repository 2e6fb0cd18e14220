"""Stage quality: samples of the trained weights, fixed by their seeds, with all that their judging needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gpustudy.base.errors import UserError
from gpustudy.base.status import Status, read_status, write_status
from gpustudy.cell.stages import run_stage
from gpustudy.medddpm.diffusion import Diffusion
from gpustudy.medddpm.unet import UNet3D
from tests.cell.conftest import MODEL, SIDE, WriteCell


@pytest.fixture
def weights(done_train: Path) -> UNet3D:
    """Puts a checkpoint of non-zero weights into the folder of stage train."""
    torch.manual_seed(5)
    model = UNet3D.from_document(MODEL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.05)
    torch.save({"iteration": 3, "model": {}, "ema": model.state_dict()}, done_train / "checkpoint.pt")
    finish(done_train)
    return model


def finish(folder: Path) -> None:
    """Write the status of stage train, with the sums of the files that are there."""
    write_status(folder, Status("train", "a" * 12, "done"))


def test_samples_are_those_of_the_averaged_weights(
    weights: UNet3D, done_train: Path, prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    run_stage("quality", write_cell("quality"), prepared, tmp_path / "out", done_train)
    assert read_status(tmp_path / "out").state == "done"
    with np.load(tmp_path / "out" / "samples.npz") as content:
        samples, masks = content["samples"], content["masks"]
        assert samples.dtype == np.float32
        assert samples.shape == (2, 1, SIDE, SIDE, SIDE)
        assert np.abs(samples).max() <= 1.0
        assert content["labels"].dtype == np.uint8
        assert content["labels"].shape == (2, SIDE, SIDE, SIDE)
        assert content["case_ids"].tolist() == ["one", "two"]
        assert content["seeds"].tolist() == [7, 8]
        assert content["affine"].tolist() == np.diag([2.0, 2.0, 2.0, 1.0]).tolist()
    assert not np.array_equal(samples[0], samples[1])
    generator = torch.Generator().manual_seed(8)
    expected = Diffusion(250).sample_ddim(weights, (1, 1, SIDE, SIDE, SIDE), torch.tensor(masks[1:]), generator, 3)
    np.testing.assert_allclose(samples[1], expected[0].numpy(), atol=1e-5)


def test_optimisations_take_part_in_sampling(
    weights: UNet3D, done_train: Path, prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    volumes = []
    for names in ((), ("bf16", "channels_last", "compile")):
        out = tmp_path / f"out{len(names)}"
        run_stage("quality", write_cell("quality", names), prepared, out, done_train)
        assert read_status(out).state == "done"
        with np.load(out / "samples.npz") as content:
            volumes.append(content["samples"])
    assert not np.array_equal(*volumes)  # bfloat16 rounds
    agreeing = np.abs(volumes[0] - volumes[1]) < 0.2  # of a range of 2; few voxels lie where rounding decides the sign
    assert agreeing.mean() > 0.99


def test_the_train_section_also_tells_the_number_of_timesteps(
    weights: UNet3D, done_train: Path, prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    workload = {
        "model": MODEL,
        "train": {"timesteps": 2},
        "quality": {"samples": 1, "ddim_steps": 3, "seed": 7},
    }
    with pytest.raises(UserError, match="from 1 to the model's 2 timesteps"):
        run_stage("quality", write_cell("quality", workload=workload), prepared, tmp_path / "out", done_train)


def test_a_checkpoint_that_cannot_be_read_is_named(
    done_train: Path, prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    (done_train / "checkpoint.pt").write_bytes(b"no checkpoint")
    finish(done_train)
    with pytest.raises(UserError, match=r"checkpoint.pt cannot be read"):
        run_stage("quality", write_cell("quality"), prepared, tmp_path / "out", done_train)
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_with_a_flipped_bit_is_refused_though_it_can_be_read(
    weights: UNet3D, done_train: Path, prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    path = done_train / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    next(iter(content["ema"].values())).view(-1)[0] += 1
    torch.save(content, path)
    with pytest.raises(UserError, match=r"checkpoint\.pt is missing, or is not what its stage wrote: .*gpustudy retry"):
        run_stage("quality", write_cell("quality"), prepared, tmp_path / "out", done_train)
    assert not (tmp_path / "out").exists()
