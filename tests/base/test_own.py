"""What stands at ``-o`` is replaced only where it was written by the same verb."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustudy.base.errors import UserError
from gpustudy.base.own import require_own, require_own_folder
from gpustudy.cli import main


def test_a_file_is_replaced_only_where_it_bears_the_sign(tmp_path: Path) -> None:
    own, other, empty = tmp_path / "own.html", tmp_path / "other.html", tmp_path / "empty.html"
    own.write_text("<title>the sign</title>")
    other.write_text("<title>of something else</title>")
    empty.touch()
    for path in (own, empty, tmp_path / "new.HTML"):
        require_own(path, "report", "the sign", (".html",))
    with pytest.raises(UserError, match="is there already and is no report"):
        require_own(other, "report", "the sign", (".html",))
    with pytest.raises(UserError, match=r"README\.md does not end in \.html: write .*README\.html"):
        require_own(tmp_path / "README.md", "report", "the sign", (".html",))
    with pytest.raises(UserError, match="is a folder"):
        require_own(tmp_path, "report", "the sign", (".html",))


def test_a_folder_is_replaced_only_where_it_holds_what_belongs_there(tmp_path: Path) -> None:
    for path in (tmp_path / "new", tmp_path):
        require_own_folder(path, "folder of tables", ("metrics.json",))
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(UserError, match="no folder of tables"):
        require_own_folder(tmp_path, "folder of tables", ("metrics.json",))
    (tmp_path / "metrics.json").touch()
    require_own_folder(tmp_path, "folder of tables", ("metrics.json",))
    with pytest.raises(UserError, match="is a file"):
        require_own_folder(tmp_path / "letters.txt", "folder of tables", ())


@pytest.mark.parametrize(
    "words",
    [
        ["report", "-o", "README.md"],
        ["dictionary", "-o", "README.md"],
        ["metrics", "nothing", "-o", "mine", "--metrics-key", "0" * 12],
        ["data", "prepare", "mni152-demo", "--out", "mine"],
        ["data", "prepare-folder", "--images", "a", "--labels", "b", "--volume", "16", "16", "16", "--out", "mine"],
    ],
)
def test_verbs_leave_a_users_files_alone(
    words: list[str], tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_bytes((repository / "config.yaml").read_bytes())
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUSTUDY_CONFIG", raising=False)
    assert main(words) == 2
    assert (tmp_path / "README.md").read_text() == "mine"
    assert (tmp_path / "mine/letter.txt").read_text() == "mine"
