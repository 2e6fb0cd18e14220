"""What a user named and cannot be read is told in one sentence, by whatever verb was called."""

from pathlib import Path

import pytest

from gpustudy.base.errors import UserError
from gpustudy.base.reading import read_text, require_folder
from gpustudy.cli import main


def test_text_is_read_as_utf8(tmp_path):
    (tmp_path / "a.txt").write_bytes("Jülich\n".encode())
    assert read_text(tmp_path / "a.txt", "name another") == "Jülich\n"


def test_each_reason_is_its_own_sentence(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "file").write_text("x")
    monkeypatch.chdir(tmp_path)
    for name, said in {
        "absent": "absent does not exist: name another.",
        "folder": "folder is a folder, not a file: name another.",
        "binary": "binary is no text: name another.",
        "file/below": "file/below cannot be read (Not a directory): name another.",
    }.items():
        with pytest.raises(UserError) as refusal:
            read_text(Path(name), "name another")
        assert str(refusal.value) == said


def test_a_file_that_may_not_be_read_is_told(tmp_path, monkeypatch):
    def refuse(self, *arguments, **options):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_text", refuse)  # root may read everything
    with pytest.raises(UserError, match=r"locked cannot be read \(Permission denied\): name another\.$"):
        read_text(tmp_path / "locked", "name another")


def test_a_folder_is_known_by_a_file_that_it_holds(tmp_path):
    (tmp_path / "file").write_text("x")
    for path, holding, said in (
        (tmp_path / "absent", "", "absent does not exist: name another."),
        (tmp_path / "file", "", "file is a file, not a folder: name another."),
        (tmp_path, "run.json", " holds no run.json: name another."),
    ):
        with pytest.raises(UserError) as refusal:
            require_folder(path, "name another", holding)
        assert str(refusal.value).endswith(said)
    require_folder(tmp_path, "name another", "file")


@pytest.mark.parametrize("kind", ["absent", "folder", "text", "binary", "broken"])
@pytest.mark.parametrize(
    "call",
    [
        "claims --expect {path}",
        "config --configfile {path}",
        "plan --configfile config.yaml {path}",
        "data check {path}",
        "data prepare-folder --images {path} --labels {path} --volume 16 16 16 --out {out}",
        "train {path} --out {out}",
        "sample {path} --out {out}",
        "metrics {path} -o {out} --metrics-key 0123456789ab",
        "census {path} -o {out}",
        "extract {path} -o {out}",
        "compare {path} .",
        "archive import {path}",
    ],
)
def test_no_verb_answers_a_wrong_path_with_words_of_python(repository, tmp_path, monkeypatch, capsys, call, kind):
    (tmp_path / "config.yaml").write_text((repository / "config.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUSTUDY_CONFIG", raising=False)
    path = tmp_path / "named"
    if kind == "folder":
        path.mkdir()
    elif kind != "absent":
        path.write_bytes({"text": b"hello\n", "binary": b"\xff\xfe\x00", "broken": b"{ nope"}[kind])
    assert main(call.format(path=path, out=tmp_path / "out").split()) == 2
    told = "".join(capsys.readouterr())
    assert "named" in told
    assert not any(word in told for word in ("[Errno", "Traceback", "<unicode string>"))
