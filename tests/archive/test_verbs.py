"""The verbs archive, gc and accept as a person calls them."""

from __future__ import annotations

import http.server
import json
import threading
from functools import partial

import pytest
import yaml

from gpustudy.cli import main
from gpustudy.study.load import load_effective
from tests.support.crafted_results import craft

CELLS = ["--gpu", "a100", "--config", "opt1"]


@pytest.fixture
def folder(repository, tmp_path, monkeypatch):
    """A working directory with the config, one repeat and crafted results of a100."""
    content = yaml.safe_load((repository / "config.yaml").read_text()) | {"repeats": 1}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUSTUDY_CONFIG", raising=False)
    craft(load_effective(), ("a100",))
    return tmp_path


@pytest.fixture
def reader(folder, monkeypatch):
    """Another working directory, without results, beside one that holds an archive a.zip of a100/opt1."""
    assert main(["archive", "export", "a.zip", *CELLS]) == 0
    here = folder / "reader"
    here.mkdir()
    (here / "config.yaml").write_text((folder / "config.yaml").read_text())
    monkeypatch.chdir(here)
    return here


def words(capsys, *arguments):
    """Run a verb with --json and return what it printed."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_export_tells_what_it_wrote(folder, capsys):
    told = words(capsys, "archive", "export", "a.zip", *CELLS)
    assert (told["cells"], told["stages"]) == (1, 8)
    assert told["size"] < (folder / "a.zip").stat().st_size


def test_import_tells_every_stage_and_dry_run_writes_nothing(reader, capsys):
    told = words(capsys, "archive", "import", "../a.zip", "--dry-run")
    assert {entry["meaning"] for entry in told} == {"current"}
    assert not (reader / "results").exists()
    assert main(["archive", "import", "../a.zip"]) == 0
    out = capsys.readouterr().out
    assert "a100/opt1/r1 train: current, new" in out
    assert "8 stage folders: 8 current; 8 were written" in out
    states = {row["config"]: row["state"] for row in words(capsys, "status", "--gpu", "a100")}
    assert states["opt1"] == "done"
    assert set(states.values()) == {"done", "foreign-missing"}


def test_list_tells_an_archives_cells_and_what_came_and_went(reader, capsys):
    listed = words(capsys, "archive", "list", "../a.zip")
    assert (listed["site"], len(listed["stages"])) == ("local", 8)
    assert main(["archive", "import", "../a.zip"]) == 0
    told = words(capsys, "archive", "list")
    assert [event["event"] for event in told["history"]] == ["export", "import"]
    assert [archive["archive"] for archive in told["archives"]] == [listed["archive"]]


def test_verify_checks_an_archive_or_the_results(reader, capsys):
    assert words(capsys, "archive", "verify", "../a.zip")["stages"] == 8
    main(["archive", "import", "../a.zip"])
    assert words(capsys, "archive", "verify") == {"stages": 4}
    next(reader.glob("results/cells/a100/opt1/r1/train-*/crafted.txt")).write_text("rotten")
    assert main(["archive", "verify"]) == 2
    assert "is not what its stage wrote" in capsys.readouterr().err


def test_verify_and_diff_of_a_broken_archive_speak_of_no_import(reader, folder, capsys):
    broken = folder / "broken.zip"
    broken.write_bytes((folder / "a.zip").read_bytes()[:-100])
    for words_ in (["verify", "../broken.zip"], ["diff", "../a.zip", "../broken.zip"]):
        assert main(["archive", *words_]) == 2
        said = capsys.readouterr().err
        assert said.endswith("nothing was taken from it; get the file again.\n")
        assert "import" not in said


def test_diff_of_an_archive_with_itself_is_empty(reader, capsys):
    assert words(capsys, "archive", "diff", "../a.zip", "../a.zip") == []


def test_a_history_that_is_no_utf8_text_is_told_before_anything_is_written(folder, capsys):
    (folder / "results/history.jsonl").write_bytes(b'{"who": "J\xfcrgen"}\n')
    for words_ in (["archive", "list"], ["archive", "export", "a.zip", *CELLS]):
        assert main(words_) == 2
        assert "results/history.jsonl, line 1 is no UTF-8 text: remove the line.\n" in capsys.readouterr().err
    assert not (folder / "a.zip").exists()


def test_an_archive_that_cannot_be_noted_is_written_and_said_to_be(folder, capsys):
    (folder / "results/archives").write_text("in the way")
    assert main(["archive", "export", "a.zip", *CELLS]) == 0
    said = capsys.readouterr()
    assert "a.zip is written, but no record of it could be kept here (results/archives: File exists)" in said.err
    assert "a.zip: 1 cells, 8 stage folders" in said.out
    (folder / "results/archives").unlink()
    assert main(["archive", "verify", "a.zip"]) == 0


def test_a_damaged_stage_is_left_out_of_an_archive_and_named(folder, capsys):
    status = next(folder.glob("results/cells/a100/opt1/r1/census-*/status.json"))
    status.write_text("{ cut sho")
    told = words(capsys, "archive", "export", "a.zip", *CELLS)
    assert list(told["left_out"]) == ["a100/opt1/r1/census"]
    assert (told["cells"], told["stages"]) == (1, 6)
    assert main(["archive", "export", "b.zip", *CELLS]) == 0
    said = capsys.readouterr().err
    assert "a100/opt1/r1/census is damaged and left out: results/cells/a100/opt1/r1/census-" in said
    assert said.count("left out") == 1
    assert main(["archive", "verify", "b.zip"]) == 0


def test_an_export_of_damaged_stages_alone_says_why_there_is_nothing(folder, capsys):
    for status in folder.glob("results/cells/a100/opt1/r1/*/status.json"):
        status.write_text("{ cut sho")
    assert main(["archive", "export", "a.zip", *CELLS]) == 2
    assert "has a current result here. a100/opt1/r1/train is damaged: results/" in capsys.readouterr().err
    assert not (folder / "a.zip").exists()


def test_a_wrong_name_is_told_with_the_nearest_one(folder, capsys):
    assert main(["archive", "export", "a.zip", "--gpu", "a10"]) == 2
    assert "unknown gpu 'a10': did you mean 'a100'?" in capsys.readouterr().err


def test_an_archive_is_imported_from_an_address(reader, folder, capsys):
    serve = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert main(["archive", "import", f"http://127.0.0.1:{server.server_port}/a.zip"]) == 0
        assert main(["archive", "import", f"http://127.0.0.1:{server.server_port}/absent.zip"]) == 2
        server.shutdown()
    assert "cannot be fetched" in capsys.readouterr().err
    assert list((reader / "results").glob("cells/a100/opt1/r1/train-*/status.json"))


def test_gc_lists_and_deletes_and_keeps_what_a_named_archive_holds(folder, capsys):
    assert main(["archive", "export", "a.zip", *CELLS]) == 0
    (folder / "results/archives").rename(folder / "records")
    content = yaml.safe_load((folder / "config.yaml").read_text())
    content["configs"] = {"baseline": content["configs"]["baseline"]}
    (folder / "config.yaml").write_text(yaml.safe_dump(content))
    found = {entry["path"].split("/")[3] for entry in words(capsys, "gc")["found"]}
    assert "opt1" in found
    kept = words(capsys, "gc", "--keep", "a.zip", "--delete")
    assert {entry["path"].split("/")[3] for entry in kept["found"]} == found - {"opt1"}
    assert sorted(path.name for path in (folder / "results/cells/a100").iterdir()) == ["baseline", "opt1"]
    assert main(["gc"]) == 0
    assert "'gpustudy gc --delete' would free" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["archive", "gc", "accept"])
def test_help_has_examples(verb, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    assert f"gpustudy {verb}" in capsys.readouterr().out.split("example")[1]
