"""The head of an image file tells whether it is whole and what it was built from, without any runtime."""

from __future__ import annotations

import pytest

from gpustudy.base.errors import UserError
from gpustudy.launch.sif import read_sif
from tests.launch.sif_bytes import sif

RECIPE = "Bootstrap: docker\nFrom: x\n\n%labels\n    gpustudy.stack paper\n    gpustudy.key 0123456789ab\n"


def test_the_recipe_and_its_labels_are_read(tmp_path):
    path = tmp_path / "i.sif"
    path.write_bytes(sif(RECIPE))
    head = read_sif(path)
    assert head.recipe == RECIPE
    assert (head.label("gpustudy.key"), head.label("gpustudy.stack")) == ("0123456789ab", "paper")
    assert head.label("gpustudy") is None
    assert head.bytes_needed == path.stat().st_size


@pytest.mark.parametrize("left", [0.2, 0.9, 0.9999])
def test_a_file_that_is_cut_off_is_refused(left, tmp_path):
    whole, path = sif(RECIPE), tmp_path / "i.sif"
    path.write_bytes(whole[: int(left * len(whole))])
    with pytest.raises(UserError, match=r"i\.sif is (cut off|damaged) .*build it anew, or copy it again"):
        read_sif(path)


@pytest.mark.parametrize("content", [b"", b"half", b"x" * 4096, sif(RECIPE)[:100]])
def test_what_is_no_image_is_refused(content, tmp_path):
    path = tmp_path / "i.sif"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"i\.sif is no Apptainer image"):
        read_sif(path)


@pytest.mark.parametrize(
    ("at", "value"), [(88, b"\xff" * 8), (96, b"\xff" * 8), (96, b"\xff" * 7 + b"\x7f"), (88, bytes(8))]
)
def test_a_damaged_table_of_contents_is_refused(at, value, tmp_path):
    content, path = bytearray(sif(RECIPE)), tmp_path / "i.sif"
    content[at : at + 8] = value
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"i\.sif is damaged"):
        read_sif(path)


def test_a_missing_file_is_told_as_such(tmp_path):
    with pytest.raises(UserError, match=r"i\.sif cannot be read \(No such file or directory\)"):
        read_sif(tmp_path / "i.sif")
