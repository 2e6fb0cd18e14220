"""What travels in an archive, what importing it says and does, and what it never does."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml

from gpustudy.archive import importing
from gpustudy.archive.comparing import compare
from gpustudy.archive.history import read_history, remembered_archives
from gpustudy.archive.importing import DIFFERENT, NEW, SAME
from gpustudy.archive.intact import check_results
from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.base.status import Status, write_status
from gpustudy.study import cells as cells_module
from gpustudy.study.accept import accept
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.pending import stale_differences
from gpustudy.study.states import cell_state, survey
from tests.archive.helpers import SMALL, at, check, export, look, take, tree
from tests.support.crafted_results import craft, craft_stage

A100 = Cell("a100", "opt1", 1)


def states(effective, gpu="a100"):
    return {state.state for state in survey(effective).cells if state.gpu == gpu}


@pytest.fixture
def sites(study_of, tmp_path):
    """Two sites with results of their own: one that measured a100, one that wants to read it."""
    there = at(study_of(SMALL), tmp_path / "there", "jetstream2")
    craft(there, ("a100",))
    return there, at(study_of(SMALL), tmp_path / "here", "local")


def test_an_exported_gpu_is_done_after_its_import_elsewhere_and_byte_for_byte_the_same(sites, tmp_path):
    there, here = sites
    assert states(here) == {"foreign-missing"}
    landed = take(here, export(there, tmp_path / "a.zip"))
    assert {arrival.meaning for arrival in landed} == {"current"}
    assert states(here) == {"done"}
    for room in ("cells",):
        assert tree(here.results / room) == tree(there.results / room)


def test_an_archive_is_a_plain_zip_that_only_stores_with_a_sum_for_every_member(sites, tmp_path):
    there, _ = sites
    file = export(there, tmp_path / "a.zip")
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
        manifest = json.loads(archive.read("manifest.json"))
        assert set(archive.namelist()) == {*manifest["members"], "manifest.json"}
        config = yaml.safe_load(archive.read("config.yaml"))
    assert manifest["licence"] == "Apache-2.0"
    assert config["repeats"] == 1
    listed = subprocess.run(["sha256sum", "--check", "--quiet"], input=_sums(manifest, file, tmp_path), text=True)
    assert listed.returncode == 0


def _sums(manifest, file, tmp_path):
    """Unpack with another tool's reader and list the manifest's sums as sha256sum reads them."""
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    return "".join(f"{about['sha256']}  {folder / name}\n" for name, about in manifest["members"].items())


def test_the_crate_file_names_licence_date_and_parts(sites, tmp_path):
    there, _ = sites
    with zipfile.ZipFile(export(there, tmp_path / "a.zip")) as archive:
        graph = {entity["@id"]: entity for entity in json.loads(archive.read("ro-crate-metadata.json"))["@graph"]}
    root = graph["./"]
    assert root["license"] == {"@id": "https://spdx.org/licenses/Apache-2.0"}
    assert {"@id": "cells/a100/opt1/"} in root["hasPart"]
    assert {"@id": "manifest.json"} in root["hasPart"]
    assert root["datePublished"].startswith("20")
    assert graph["metrics/a100/opt1/"]["name"] == "Tables of opt1 on a100, repeats 1"


def test_tables_alone_make_cells_usable_and_carry_the_document_behind_the_key(sites, tmp_path, study_of):
    there, here = sites
    take(here, export(there, tmp_path / "a.zip", with_raw=False))
    assert not (here.results / "cells").exists()
    assert states(here) == {"done"}
    changed = at(study_of(SMALL, {"workloads": {"paper": {"train": {"iterations": 30}}}}), here.results)
    keys = Keys(changed)
    stage = cell_state(here.results, keys, A100).stages[0]
    assert [str(found) for found in stale_differences(A100, stage, keys)] == ["workload.train.iterations: 25 -> 30"]


def test_cells_imported_as_tables_alone_can_be_exported_again(sites, tmp_path):
    there, here = sites
    take(here, export(there, tmp_path / "a.zip", with_raw=False))
    again = export(here, tmp_path / "b.zip", with_raw=False)
    assert list(compare(check(tmp_path / "a.zip"), check(again))) == []


def test_import_says_for_each_stage_what_it_means_to_this_study(sites, tmp_path, study_of):
    there, here = sites
    file = export(there, tmp_path / "a.zip")
    changed = at(study_of(SMALL, {"configs": {"opt1": {"optimisations": ["tf32", "channels_last"]}}}), here.results)
    del_config = changed.study.model_copy(
        update={"configs": {name: one for name, one in changed.study.configs.items() if name != "opt2"}}
    )
    changed = importing.Effective(del_config, changed.site, changed.results)
    found = {(arrival.stage.folder.config, arrival.stage.folder.stage): arrival for arrival in look(changed, file)}
    assert found["baseline", "train"].meaning == "current"
    assert found["opt1", "train"].meaning == "stale"
    assert found["opt1", "train"].why.startswith("config.optimisations: ")
    assert found["opt2", "train"].meaning == "unknown"
    assert "no config 'opt2'" in found["opt2", "train"].why


def test_cells_unknown_to_the_study_are_kept_aside(sites, tmp_path):
    there, here = sites
    file = export(there, tmp_path / "a.zip")
    study = here.study.model_copy(update={"configs": {"baseline": here.study.configs["baseline"]}})
    take(importing.Effective(study, "local", here.results), file)
    assert {path.name for path in (here.results / "cells" / "a100").iterdir()} == {"baseline"}
    aside = {path.name for path in here.results.glob(".aside/import-*/cells/a100/*")}
    assert aside == set(there.study.configs) - {"baseline"}


def test_a_second_import_writes_nothing(sites, tmp_path):
    there, here = sites
    file = export(there, tmp_path / "a.zip")
    take(here, file)
    before = {path: path.stat().st_mtime_ns for path in here.results.glob("cells/**/*")}
    assert {arrival.presence for arrival in look(here, file)} == {SAME}
    assert take(here, file) == []
    assert {path: path.stat().st_mtime_ns for path in here.results.glob("cells/**/*")} == before


@pytest.fixture
def differing(sites, tmp_path):
    """An archive whose opt1/train was measured again under the same key since it was imported here."""
    there, here = sites
    take(here, export(there, tmp_path / "first.zip"))
    raw, _ = craft_stage(there, Keys(there), A100, "train")
    (raw / "crafted.txt").write_text("measured again\n")
    write_status(raw, Status("train", raw.name.partition("-")[2], "done", seconds=2.0))
    return here, export(there, tmp_path / "second.zip")


def test_a_differing_result_is_never_overwritten_unasked(differing):
    here, file = differing
    before = tree(here.results)
    assert {arrival.presence for arrival in look(here, file) if arrival.stage.folder.stage == "train"} >= {DIFFERENT}
    with pytest.raises(UserError, match="--replace sets those aside"):
        take(here, file)
    assert tree(here.results) == before


def test_replace_sets_the_differing_result_aside_and_has_figures_drawn_anew(differing):
    here, file = differing
    (here.results / ".keys").mkdir()
    (here.results / ".keys" / "step_time-0123456789ab").touch()
    landed = take(here, file, force=True)
    raw = next(arrival.target for arrival in landed if arrival.stage.folder.path.startswith("cells/a100/opt1"))
    assert (raw / "crafted.txt").read_text() == "measured again\n"
    aside = list(here.results.glob(".aside/*/cells/a100/opt1/r1/train-*/crafted.txt"))
    assert [path.read_text() for path in aside] == ["a100/opt1/r1 train\n"]
    assert not (here.results / ".keys").exists()
    assert states(here) <= {"done"}
    assert read_history(here.results)[-1]["replaced"] == [
        arrival.stage.folder.path for arrival in landed if arrival.presence == DIFFERENT
    ]


def test_tables_of_raw_files_that_were_replaced_stay_current_where_they_travel_alone(differing, tmp_path, study_of):
    here, file = differing
    take(here, file, force=True)
    keys = Keys(here)
    stage = cell_state(here.results, keys, A100).stages[0]
    metrics = here.results / "metrics" / "a100" / "opt1" / "r1" / f"train-{stage.metrics_key}"
    content = json.loads(next(here.results.glob("metrics/a100/opt1/r1/train-*/metrics.json")).read_text())
    content["metrics_key"] = stage.metrics_key
    content["raw"]["status_sha256"] = importing.hashlib.sha256((stage.raw / "status.json").read_bytes()).hexdigest()
    metrics.mkdir(parents=True, exist_ok=True)
    (metrics / "metrics.json").write_text(json.dumps(content))
    assert cell_state(here.results, keys, A100).state == "done"
    reader = at(study_of(SMALL), tmp_path / "reader")
    take(reader, export(here, tmp_path / "third.zip", with_raw=False))
    assert cell_state(reader.results, Keys(reader), A100).state == "done"


def test_both_histories_and_the_accepted_results_travel(sites, tmp_path, monkeypatch):
    there, here = sites
    real = cells_module.digest_of
    patterns = set(cells_module.STAGE_SOURCES.values())
    monkeypatch.setattr(cells_module, "digest_of", lambda names: "e" * 64 if names in patterns else real(names))
    assert states(there) == {"stale"}
    accept(there, [A100], "a comment")
    take(here, export(there, tmp_path / "a.zip"))
    found = cell_state(here.results, Keys(here), A100)
    assert (found.state, found.accepted) == ("done", True)
    assert states(here) == {"done", "foreign-missing"}
    third = at(here, tmp_path / "third")
    take(third, export(here, tmp_path / "b.zip"))
    events = [(event["event"], event["site"]) for event in read_history(third.results)]
    assert sorted(events) == [
        ("export", "jetstream2"),
        ("export", "local"),
        ("import", "local"),
        ("import", "local"),
    ]
    assert len(remembered_archives(third.results)) == 1


def test_a_killed_import_leaves_whole_folders_and_is_continued(sites, tmp_path, monkeypatch):
    there, here = sites
    file = export(there, tmp_path / "a.zip")
    real = importing._land_one
    landed = []

    def land_two(*arguments):
        if len(landed) == 2:
            raise KeyboardInterrupt
        landed.append(real(*arguments))

    monkeypatch.setattr(importing, "_land_one", land_two)
    with pytest.raises(KeyboardInterrupt):
        take(here, file)
    assert check_results(here.results) == 2
    monkeypatch.setattr(importing, "_land_one", real)
    assert {arrival.presence for arrival in look(here, file)} == {NEW, SAME}
    take(here, file)
    assert states(here) == {"done"}


def test_raw_files_of_a_cell_land_before_its_tables(sites, tmp_path):
    there, here = sites
    landed = take(here, export(there, tmp_path / "a.zip"))
    for config in there.study.configs:
        rooms = [arrival.stage.folder.room for arrival in landed if arrival.stage.folder.config == config]
        assert rooms == sorted(rooms)


def test_a_damaged_raw_file_is_not_exported(sites, tmp_path):
    there, _ = sites
    path = next(there.results.glob("cells/a100/opt1/r1/train-*/crafted.txt"))
    path.write_text("rotten\n")
    with pytest.raises(UserError, match="is not the file that its stage wrote"):
        export(there, tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()
    with pytest.raises(UserError, match="is not what its stage wrote"):
        check_results(there.results)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [(lambda path: path.write_text("rot"), "is not the file that its stage wrote"), (Path.unlink, "is missing")],
)
def test_a_table_that_was_cut_short_or_lost_is_not_exported(sites, tmp_path, spoil, said):
    there, _ = sites
    metrics = next(there.results.glob("metrics/a100/opt1/r1/train-*/metrics.json"))
    table = metrics.with_name("steps.parquet")
    table.write_text("rows")
    listed = {"steps.parquet": {"rows": 1, "bytes": 4, "sha256": file_sha256(table)}}
    metrics.write_text(json.dumps(json.loads(metrics.read_text()) | {"tables": listed}))
    export(there, tmp_path / "whole.zip")
    spoil(table)
    with pytest.raises(UserError, match=f"{table.name} {said}.*: remove its folder and run again"):
        export(there, tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


def test_an_export_never_overwrites_a_file_and_needs_something_to_export(sites, tmp_path):
    there, here = sites
    export(there, tmp_path / "a.zip")
    with pytest.raises(UserError, match="exists: name another file"):
        export(there, tmp_path / "a.zip")
    with pytest.raises(UserError, match="none of these cells has a current result here"):
        export(here, tmp_path / "b.zip")


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(sites, tmp_path, monkeypatch):
    there, here = sites
    file = export(there, tmp_path / "a.zip")
    usage = importing.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(importing.shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(UserError, match="and 10 are free"):
        take(here, file)
    assert not (here.results / "cells").exists()


def test_two_archives_are_compared_cell_by_cell(sites, tmp_path, study_of):
    there, _ = sites
    first = export(there, tmp_path / "a.zip")
    changed = at(
        study_of(SMALL, {"workloads": {"paper": {"census": {"iterations": 9}}}}), tmp_path / "other", "jetstream2"
    )
    craft(changed, ("a100",))
    found = list(compare(check(first), check(export(changed, tmp_path / "b.zip"))))
    assert {(stage.split()[1], where) for stage, where, _ in found} == {("census", "both"), ("counters", "both")}
    assert all("workload.census.iterations: 3 -> 9" in what for stage, _, what in found if "census" in stage)
    assert all("previous.key: " in what for stage, _, what in found if "counters" in stage)


def test_an_unpacked_archive_is_imported_like_its_file(sites, tmp_path):
    there, here = sites
    with zipfile.ZipFile(export(there, tmp_path / "a.zip")) as archive:
        archive.extractall(tmp_path / "folder")
    (tmp_path / "folder" / "notes.txt").write_text("not in the manifest\n")
    take(here, tmp_path / "folder")
    assert states(here) == {"done"}
