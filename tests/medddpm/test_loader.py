"""Micro-batches depend on seed and number alone; the thread is ahead, tells its errors, and ends."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest
import torch

from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.medddpm.loader import Loader, MicroBatches, PreparedVolumes
from tests.medddpm.conftest import write_prepared


def batches(folder, batch_size=1, seed=7):
    return MicroBatches(PreparedVolumes(folder), batch_size, timesteps=250, seed=seed)


def same(one, other):
    return all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in ("image", "mask", "timesteps", "noise")
    )


def test_a_micro_batch_is_made_from_seed_and_number_alone(prepared):
    sequence = batches(prepared)
    forwards = [sequence[index] for index in range(8)]
    assert same(batches(prepared)[7], forwards[7])
    assert not same(batches(prepared, seed=8)[7], forwards[7])
    assert len({batch.noise[0, 0, 0, 0, 0].item() for batch in forwards}) == 8


def test_every_pass_shows_every_case_once_in_an_order_of_its_own(prepared):
    images = np.load(prepared / "images.npy")
    sequence = batches(prepared)
    shown = [int(np.argmax([np.array_equal(sequence[i].image[0], image) for image in images])) for i in range(60)]
    passes = [tuple(shown[first : first + 3]) for first in range(0, 60, 3)]
    assert all(sorted(order) == [0, 1, 2] for order in passes)
    assert len(set(passes)) == 6  # twenty passes show all orders of three cases


def test_image_and_mask_are_of_the_same_case(prepared):
    images, masks = np.load(prepared / "images.npy"), np.load(prepared / "masks.npy")
    batch = batches(prepared, batch_size=4)[2]
    assert batch.image.shape == (4, 1, 8, 8, 8)
    for image, mask in zip(batch.image, batch.mask, strict=True):
        case = [np.array_equal(image, one) for one in images].index(True)
        assert np.array_equal(mask, masks[case])


def test_timesteps_are_uniform_and_noise_is_normal(prepared):
    batch = batches(prepared, batch_size=5000)[0]
    assert batch.timesteps.min() == 0
    assert batch.timesteps.max() == 249
    assert batch.timesteps.double().mean().item() == pytest.approx(124.5, abs=4)  # 4 standard errors
    assert batch.noise.mean().item() == pytest.approx(0, abs=0.003)
    assert batch.noise.std().item() == pytest.approx(1, abs=0.003)


def test_the_loader_hands_out_in_order_from_any_start(prepared):
    with Loader(batches(prepared), start=5) as loader:
        taken = [loader.get()[0] for _ in range(4)]
    assert [batch.index for batch in taken] == [5, 6, 7, 8]
    assert all(same(batch, batches(prepared)[batch.index]) for batch in taken)


def test_a_slow_step_never_waits_and_a_slow_source_is_measured(prepared):
    class Slow(MicroBatches):
        def __getitem__(self, index):
            time.sleep(0.05)
            return super().__getitem__(index)

    with Loader(Slow(PreparedVolumes(prepared), 1, 250, 7)) as loader:
        assert loader.get()[1] > 25e6  # nothing is ready yet: most of 50 ms
        waits = []
        for _ in range(3):
            time.sleep(0.2)  # the step
            waits.append(loader.get()[1])
        assert min(waits) < 5e6  # ready; the least of three, as the machine may be busy


def test_an_error_in_the_thread_surfaces_in_the_main_thread(prepared):
    class Broken(MicroBatches):
        def __getitem__(self, index):
            if index == 2:
                raise OSError("the disk is gone")
            return super().__getitem__(index)

    loader = Loader(Broken(PreparedVolumes(prepared), 1, 250, 7))
    assert [loader.get()[0].index for _ in range(2)] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        loader.get()
    with pytest.raises(RuntimeError, match="closed"):
        loader.get()


def test_closing_ends_the_thread_even_when_nobody_takes(prepared):
    before = threading.active_count()
    loader = Loader(batches(prepared), depth=1)
    loader.get()
    loader.close()
    loader.close()
    assert threading.active_count() == before


def test_data_that_do_not_fit_are_refused(tmp_path, prepared):
    with pytest.raises(UserError, match=r"manifest\.json"):
        PreparedVolumes(tmp_path)
    with pytest.raises(UserError, match="1 image and 2 mask channels, the model takes 4 and 4"):
        PreparedVolumes(prepared).check_fits(4, 4)
    folder = write_prepared(tmp_path / "other", cases=2, side=4)
    np.save(folder / "masks.npy", np.zeros((2, 2, 4, 4, 5), np.float32))
    with pytest.raises(UserError, match="same"):
        PreparedVolumes(folder)
    np.save(folder / "masks.npy", np.zeros((2, 2, 4, 4, 4)))
    with pytest.raises(UserError, match="float64"):
        PreparedVolumes(folder)
    (folder / "masks.npy").write_bytes((prepared / "masks.npy").read_bytes()[:300])
    with pytest.raises(UserError, match=r"masks\.npy"):
        PreparedVolumes(folder)
    (folder / "masks.npy").unlink()
    with pytest.raises(UserError, match=r"masks\.npy"):
        PreparedVolumes(folder)


def empty(path):
    path.write_bytes(b"")


def archive(path):
    with path.open("wb") as stream:
        np.savez(stream, images=np.zeros((2, 1, 4, 4, 4), np.float32))


def cut_archive(path):
    archive(path)
    path.write_bytes(path.read_bytes()[:100])


def header(*shape):
    def damage(path):
        with path.open("wb") as stream:
            np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
            stream.write(bytes(4096))

    return damage


SHAPES = ((2, 1, -4, 4, 4), (-2, 1, -4, 4, 4), (2, 1, 2**64, 4, 4), (2, 1, 2**20, 2**18, 16))
"""Of no array, or of one that no memory holds."""


@pytest.mark.parametrize("damage", [empty, archive, cut_archive, *(header(*shape) for shape in SHAPES)])
@pytest.mark.parametrize("name", ["images.npy", "masks.npy"])
def test_a_file_that_is_no_array_is_named(prepared, damage, name):
    damage(prepared / name)
    with pytest.raises(UserError, match=rf"{name} .*: prepare the data again\.$") as caught:
        PreparedVolumes(prepared)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-1] + b"!")]
)
def test_data_damaged_since_they_were_prepared_are_refused(prepared, damage):
    manifest = json.loads((prepared / "manifest.json").read_text())
    sums = {file.name: {"sha256": file_sha256(file)} for file in prepared.glob("*.npy")}
    (prepared / "manifest.json").write_text(json.dumps(manifest | {"files": sums}))
    volumes = PreparedVolumes(prepared)
    volumes.check_sums()
    damage(prepared / "images.npy")
    with pytest.raises(UserError, match=r"images\.npy is not the file that manifest\.json beside it describes: remove"):
        volumes.check_sums()


def test_volumes_without_masks_are_read(tmp_path):
    folder = write_prepared(tmp_path / "plain", cases=2, side=4)
    np.save(folder / "masks.npy", np.zeros((2, 0, 4, 4, 4), np.float32))
    assert PreparedVolumes(folder).mask_channels == 0
    assert batches(folder)[1].mask.shape == (1, 0, 4, 4, 4)
