"""Archives made to do harm: each is refused in one sentence, and nothing is written."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import time
import zipfile

import pytest

from gpustudy.archive import names, zipped
from gpustudy.archive.download import local_archive
from gpustudy.base.canonical import key_of
from gpustudy.base.errors import UserError
from tests.archive.helpers import SMALL, at, export, take
from tests.support.crafted_results import craft

TRAIN = "cells/a100/opt1/r1/train-"


@pytest.fixture
def members(study_of, tmp_path):
    """The members of a good archive: name -> content, the manifest left out."""
    there = at(study_of(SMALL), tmp_path / "there", "jetstream2")
    craft(there, ("a100",))
    with zipfile.ZipFile(export(there, tmp_path / "good.zip")) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != "manifest.json"}


@pytest.fixture
def here(study_of, tmp_path):
    return at(study_of(SMALL), tmp_path / "here")


def pack(file, members, manifest=None, **about):
    """Write an archive of ``members``; entries may be (ZipInfo, content)."""
    listed = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in members.items()
    }
    content = {"schema": 1, "members": listed | about} if manifest is None else manifest
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
        archive.writestr("manifest.json", content if isinstance(content, (str, bytes)) else json.dumps(content))
    return file


def refused(here, file, match):
    with pytest.raises(UserError, match=match) as caught:
        take(here, file)
    assert "\n" not in str(caught.value)
    assert not here.results.exists()


def name_of(members, beginning, end="status.json"):
    return next(name for name in members if name.startswith(beginning) and name.endswith(end))


def test_a_good_archive_packed_by_this_helper_is_taken(members, here, tmp_path):
    assert len(take(here, pack(tmp_path / "a.zip", members))) == len(
        [name for name in members if name.endswith(("status.json", "metrics.json"))]
    )


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "cells/../../outside",
        "/etc/outside",
        "cells/a100/opt1/r1/train-0123456789ab/../../x",
        "cells//double",
        "./cells/x",
        "cells\\windows",
        "C:/windows",
        "cells/a100/opt1/r1/train-0123456789ab/.hidden",
        "cells/a100/opt1/r1/train-0123456789ab/-rf",
        "cells/a100/opt1/r1/train-0123456789ab/new\nline",
        "cells/a100/opt1/r1/train-0123456789ab/\u00e9",
        "cells/a100/opt1/r1/train-0123456789ab/e\u0301",
        "cells/a100/opt1/r1/train-0123456789ab/nul\x00byte",
        "cells/a100/opt1/r1/train-0123456789ab/" + "x" * 300,
        "cells/a100/opt1/r1/train-0123456789ab/" + "d/" * 20 + "x",
    ],
)
def test_a_name_that_could_leave_its_folder_is_refused(members, here, tmp_path, name):
    file = tmp_path / "a.zip"
    content = {"schema": 1, "members": {name: {"bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}}}
    with zipfile.ZipFile(file, "w") as archive:
        entry = zipfile.ZipInfo("placeholder")
        entry.filename = name
        archive.writestr(entry, b"x")
        archive.writestr("manifest.json", json.dumps(content))
    refused(here, file, "not allowed")
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("name", ["results.txt", "cells/a100/x", "cells/A100/opt1/r1/train-0123456789ab/x", "data/x"])
def test_a_member_that_is_no_file_of_a_cell_is_refused(members, here, tmp_path, name):
    refused(here, pack(tmp_path / "a.zip", {**members, name: b"x"}), "no file of a cell")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFDIR])
def test_links_devices_pipes_and_folders_are_refused(members, here, tmp_path, kind):
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w") as archive:
        entry = zipfile.ZipInfo(name_of(members, TRAIN))
        entry.external_attr = (kind | 0o777) << 16
        archive.writestr(entry, b"/etc/passwd")
    refused(here, file, "link or device and no plain file")


def test_links_and_devices_in_a_folder_are_refused(members, here, tmp_path):
    folder = tmp_path / "folder"
    with zipfile.ZipFile(pack(tmp_path / "a.zip", members)) as archive:
        archive.extractall(folder)
    (folder / "cells" / "link").symlink_to("/etc/passwd")
    refused(here, folder, "is a link or a device")
    (folder / "cells" / "link").unlink()
    os.mkfifo(folder / "cells" / "pipe")
    refused(here, folder, "is a link or a device")


def test_a_member_that_is_there_twice_is_refused(members, here, tmp_path):
    name = name_of(members, TRAIN)
    with (
        zipfile.ZipFile(pack(tmp_path / "a.zip", members), "a") as archive,
        pytest.warns(UserWarning, match="Duplicate"),
    ):
        archive.writestr(zipfile.ZipInfo(name), members[name])
    refused(here, tmp_path / "a.zip", "has a member twice")


def test_names_that_differ_in_case_alone_are_refused(members, here, tmp_path):
    name = name_of(members, TRAIN, "crafted.txt")
    refused(here, pack(tmp_path / "a.zip", {**members, name.replace("crafted", "Crafted"): b"x"}), "is there twice")


def test_a_file_that_is_also_a_folder_is_refused(members, here, tmp_path):
    name = name_of(members, TRAIN, "crafted.txt")
    refused(here, pack(tmp_path / "a.zip", {**members, f"{name}/below": b"x"}), "is a file and a folder")


def test_compressed_members_are_refused_so_that_nothing_unpacks_to_more(members, here, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.yaml", b"0" * 10**7)
    assert (tmp_path / "a.zip").stat().st_size < 10**5
    refused(here, tmp_path / "a.zip", "compressed or encrypted")


def test_a_member_whose_declared_size_is_beyond_the_file_is_refused(members, here, tmp_path):
    file = pack(tmp_path / "a.zip", members)
    patch_directory(file, size=2**31, stored=2**31)
    refused(here, file, "overlap|beyond its end")


def test_a_member_with_two_sizes_is_refused(members, here, tmp_path):
    file = pack(tmp_path / "a.zip", members)
    patch_directory(file, size=2**31)
    refused(here, file, "two sizes")


def test_members_that_overlap_are_refused(members, here, tmp_path):
    file = pack(tmp_path / "a.zip", members)
    patch_directory(file, offset=0, entry=1)
    refused(here, file, "overlap")


def test_a_member_named_otherwise_in_its_own_header_is_refused(members, here, tmp_path):
    file = pack(tmp_path / "a.zip", members)
    content = bytearray(file.read_bytes())
    first = struct.unpack_from("<H", content, 26)[0]
    content[30 : 30 + first] = content[30 : 30 + first][::-1]
    file.write_bytes(content)
    refused(here, file, "under two names")


def patch_directory(file, entry=0, **fields):
    """Change fields of one entry of the central directory of an archive."""
    content = bytearray(file.read_bytes())
    position = -1
    for _ in range(entry + 1):
        position = content.index(b"PK\x01\x02", position + 1)
    for name, value in fields.items():
        struct.pack_into("<L", content, position + {"stored": 20, "size": 24, "offset": 42}[name], value)
    file.write_bytes(content)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9, 0.999])
def test_a_truncated_archive_is_refused(members, here, tmp_path, share):
    file = pack(tmp_path / "a.zip", members)
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    refused(here, file, "truncated")


def test_bytes_before_or_after_the_archive_are_refused(members, here, tmp_path):
    file = pack(tmp_path / "a.zip", members)
    good = file.read_bytes()
    for content in (b"x" + good, good + b"x"):
        file.write_bytes(content)
        with pytest.raises(UserError):
            take(here, file)
    assert not here.results.exists()


def test_a_flipped_bit_in_any_member_is_refused(members, here, tmp_path):
    for beginning, end in ((TRAIN, "crafted.txt"), (TRAIN, "status.json"), ("config.yaml", "")):
        name = name_of(members, beginning, end)
        content = bytearray(members[name])
        content[len(content) // 2] ^= 1
        file = pack(tmp_path / "a.zip", {**members, name: bytes(content)}, **sums(members))
        refused(here, file, "its SHA-256 differs")


def sums(members):
    return {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in members.items()
    }


def test_a_member_that_the_manifest_does_not_name_and_one_that_is_missing_are_refused(members, here, tmp_path):
    name = name_of(members, TRAIN, "crafted.txt")
    fewer = {other: content for other, content in members.items() if other != name}
    refused(here, pack(tmp_path / "a.zip", members, {"schema": 1, "members": sums(fewer)}), "is not in the manifest")
    refused(here, pack(tmp_path / "b.zip", fewer, {"schema": 1, "members": sums(members)}), "is missing")


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "[]",
        "{",
        "{}",
        '{"schema": 2, "members": {}}',
        '{"schema": 1, "members": []}',
        '{"schema": 1, "members": {"config.yaml": {"bytes": true, "sha256": ""}}}',
        '{"schema": 1, "members": {"config.yaml": {"bytes": -1, "sha256": ""}}}',
        '{"schema": 1, "members": {"config.yaml": 3}}',
        "[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_a_manifest_of_another_form_is_refused(members, here, tmp_path, manifest):
    refused(here, pack(tmp_path / "a.zip", members, manifest), "manifest.json")


def test_a_file_that_is_no_archive_and_a_path_without_one_are_refused(here, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    refused(here, tmp_path / "notes.txt", "is no archive, or is truncated")
    refused(here, tmp_path / "absent.zip", "cannot be read")
    (tmp_path / "empty").mkdir()
    refused(here, tmp_path / "empty", "holds no manifest.json")


def test_a_manifest_of_a_million_entries_is_refused_at_once(here, tmp_path):
    entry = '"cells/a100/opt1/r1/train-0123456789ab/%07d": {"bytes": 0, "sha256": "' + "0" * 64 + '"}'
    text = '{"schema": 1, "members": {' + ",".join(entry % number for number in range(1_000_000)) + "}}"
    start = time.monotonic()
    refused(here, pack(tmp_path / "a.zip", {"config.yaml": b"{}"}, text), "manifest.json")
    assert time.monotonic() - start < 10  # measured: 2 s, mostly for writing the archive here


def test_an_archive_that_says_it_has_too_many_members_is_refused(here, tmp_path, monkeypatch):
    monkeypatch.setattr(zipped, "MAX_MEMBERS", 10)
    refused(here, pack(tmp_path / "a.zip", {f"cells/{n}": b"" for n in range(20)}), "has 21 members, more than the 10")


def test_more_than_65535_members_need_the_64_bit_directory_and_are_read(tmp_path):
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(65_540):
            archive.writestr(zipfile.ZipInfo(f"cells/{number}"), b"")
    with zipped.ZipArchive(file) as archive:
        assert len(archive.sizes) == 65_540


def test_a_member_above_four_gibibytes_has_its_size_in_the_64_bit_field():
    reader = object.__new__(zipped.ZipArchive)
    reader.name = "a.zip"
    extra = struct.pack("<2H2Q", 1, 16, 5 * 2**30, 5 * 2**30)
    assert reader._wide((0xFFFFFFFF, 0xFFFFFFFF, 7), extra) == (5 * 2**30, 5 * 2**30, 7)
    with pytest.raises(UserError, match="without its size"):
        reader._wide((0xFFFFFFFF, 0xFFFFFFFF, 7), b"")


def test_a_cell_file_that_is_too_large_to_be_one_is_refused(members, here, tmp_path, monkeypatch):
    monkeypatch.setattr("gpustudy.archive.manifest.read_bytes.__defaults__", (100,))
    monkeypatch.setattr("gpustudy.archive.manifest.read_json.__defaults__", (100,))
    refused(here, pack(tmp_path / "a.zip", members), "more than the 100 that are allowed")


def changed(members, name, change):
    """The members with one JSON member changed, and the sums that its stage lists changed to fit."""
    content = json.loads(members[name])
    change(content)
    data = json.dumps(content).encode()
    status_name = f"{name.rpartition('/')[0]}/status.json"
    found = {**members, name: data}
    if status_name in found and name != status_name:
        status = json.loads(found[status_name])
        if name.rpartition("/")[2] in status["files"]:
            status["files"][name.rpartition("/")[2]]["sha256"] = hashlib.sha256(data).hexdigest()
        found[status_name] = json.dumps(status).encode()
    return found


def test_a_document_that_does_not_give_its_key_is_refused(members, here, tmp_path):
    def claim(cell):
        cell["document"]["workload"]["train"]["iterations"] = 1

    name = name_of(members, TRAIN, "cell.json")
    refused(here, pack(tmp_path / "a.zip", changed(members, name, claim)), "not the key of its document")


def test_a_cell_under_the_name_of_another_is_refused(members, here, tmp_path):
    def claim(cell):
        cell["document"]["gpu"]["name"] = "h100"
        cell["key"] = key_of(cell["document"])

    name = name_of(members, TRAIN, "cell.json")
    refused(here, pack(tmp_path / "a.zip", changed(members, name, claim)), "named like another stage")
    moved = {other.replace("/r1/", "/r2/"): content for other, content in members.items()}
    refused(here, pack(tmp_path / "b.zip", moved), "named like another stage")


@pytest.mark.parametrize("lost", ["cell.json", "status.json", "crafted.txt"])
def test_a_stage_without_one_of_its_files_is_refused(members, here, tmp_path, lost):
    fewer = {name: content for name, content in members.items() if name != name_of(members, TRAIN, lost)}
    refused(here, pack(tmp_path / "a.zip", fewer), "no complete stage|is missing, or is not the file")


@pytest.mark.parametrize("member", ["accepted.jsonl", "history.jsonl"])
def test_broken_records_are_refused_before_anything_is_written(members, here, tmp_path, member):
    refused(here, pack(tmp_path / "a.zip", {**members, member: b"{}\n"}), f"{member}, line 1")


def test_acceptances_of_results_that_the_archive_does_not_bring_are_left_out(members, here, tmp_path):
    record = {
        "schema": 1, "gpu": "cpu", "config": "opt2", "repeat": 1, "stage": "train", "tables": False,
        "old": "0" * 12, "new": "1" * 12, "differing": [], "reason": "trust me", "who": "m", "when": "2026",
    }  # fmt: skip
    take(here, pack(tmp_path / "a.zip", {**members, "accepted.jsonl": json.dumps(record).encode()}))
    assert not (here.results / "accepted.jsonl").exists()


def test_an_address_that_serves_nothing_is_told(tmp_path):
    said = r"a\.zip cannot be fetched \(Connection refused\): download it yourself"
    with pytest.raises(UserError, match=said), local_archive("http://127.0.0.1:9/a.zip"):
        pass


def test_limits_leave_room_for_ten_thousand_cells():
    assert names.MAX_MEMBERS >= 10_000 * 4 * 2 * 7
