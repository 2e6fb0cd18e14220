"""``gpustudy data``: the verb on the study's own config and on a person's own folder."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gpustudy.cli import main


def test_list_names_each_data_set_with_its_key(repository, monkeypatch, capsys):
    monkeypatch.chdir(repository)
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:3] == ["mni152-demo", "mni152", "16x16x16"] for line in lines)


def test_prepare_of_the_demo_set(repository, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(repository)
    assert main(["data", "prepare", "mni152-demo", "--out", str(tmp_path / "demo")]) == 0
    out, err = capsys.readouterr()
    manifest = json.loads((tmp_path / "demo/manifest.json").read_text())
    assert manifest["key"] in out
    assert "data mni152-demo: case 8/8" in err
    assert main(["data", "check", str(tmp_path / "demo")]) == 0
    assert capsys.readouterr().out.endswith("\n1 set good (8 cases), 0 wrong\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prepare", "nope"], "unknown data set 'nope': known are: mni152"),
        (["prepare", "mni152-demo", "--key", "0" * 12, "--out", "x"], "not 000000000000"),
        (["check", "no-such-folder"], None),
    ],
)
def test_mistakes_end_with_2(repository, monkeypatch, capsys, words, message):
    monkeypatch.chdir(repository)
    assert main(["data", *words]) == 2
    assert message is None or message in capsys.readouterr().err
    assert not (repository / "x").exists()


def test_own_folder_without_any_config(head, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = ["data", "prepare-folder", "--images", "image", "--labels", "mask", "--volume", "16", "16", "16"]
    assert main([*words, "--classes", "1=brain", "2=lesion", "--out", "mine"]) == 0
    assert np.load("mine/images.npy").shape == (2, 1, 16, 16, 16)
    assert json.loads((tmp_path / "mine/manifest.json").read_text())["mask_channels"] == ["brain", "lesion"]
    for classes, message in (
        (["brain"], "write it like 1=brain 2=lesion"),
        (["1=brain", "2="], "--classes '2=' is not LABEL=NAME: write it like 1=brain 2=lesion"),
        (["1=brain", "1=skull", "2=lesion"], "--classes names the label 1 twice (brain, skull): name it once"),
        (["1=brain", "01=skull", "2=lesion"], "give each label from 1 to 255 a name of its own"),
    ):
        assert main([*words, "--classes", *classes, "--out", "other"]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_check_counts_the_cases_of_folders(head, save, capsys, tmp_path):
    assert main(["data", "check", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("\n2 good, 0 wrong\n")
    save(tmp_path / "mask/sample_1.nii.gz", np.full((16, 16, 16), 0.5, np.float32))
    assert main(["data", "check", str(tmp_path)]) == 2
    assert capsys.readouterr().out.endswith("\n1 good, 1 wrong\n")
