"""``gpustudy archive``: bring cells from site to site, and to readers, in one file."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustudy.verbs.common import add_study_options, effective_of, print_json, require_known

if TYPE_CHECKING:
    from gpustudy.archive.check import Contents
    from gpustudy.archive.importing import Arrival
    from gpustudy.study.load import Effective

_EXPORT = """\
examples:
  gpustudy archive export v100.zip --gpu v100
  gpustudy archive export paper.zip --with metrics --licence CC-BY-4.0

Current results are stored as they are, with their sums, documents and provenance; those of old keys stay behind.
With raw files the tables can be made again anywhere; without them the archive is small. A damaged stage is left out,
and named with the reason."""
_IMPORT = """\
examples:
  gpustudy archive import v100.zip
  gpustudy archive import https://example.org/paper.zip
  gpustudy archive import run-on-a-bare-gpu-machine/
  gpustudy archive import v100.zip --dry-run

Everything is checked before anything is written. Each stage is told as current, accepted, stale (and in which
field) or unknown to this study (kept in results/.aside)."""
_VERIFY = """\
examples:
  gpustudy archive verify v100.zip
  gpustudy archive verify

Without FILE the raw files in results/ are compared with what their stages wrote."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    parser.epilog = (
        "examples:\n  gpustudy archive export v100.zip --gpu v100\n  gpustudy archive import v100.zip\n"
        "  gpustudy archive ACTION --help"
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
        return actions.add_parser(
            name, help=summary, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
        )

    export = add("export", "write current results to a new archive", _EXPORT)
    export.add_argument("file", type=Path, metavar="FILE", help="the archive to write")
    export.add_argument("--gpu", action="append", default=[], help="only this gpu (may be repeated)")
    export.add_argument("--config", action="append", default=[], help="only this config (may be repeated)")
    export.add_argument(
        "--with", dest="with_", choices=("raw", "metrics"), default="raw", help="raw files and tables, or tables alone"
    )
    export.add_argument("--licence", default="Apache-2.0", metavar="SPDX", help="licence of the results")
    load = add("import", "check an archive and take its cells into results/", _IMPORT)
    load.add_argument("file", metavar="FILE|DIR|URL", help="an archive, a folder with its manifest, or an address")
    load.add_argument("--replace", action="store_true", help="set results that differ aside and take the archive's")
    load.add_argument("--dry-run", action="store_true", help="check and tell, write nothing")
    verify = add("verify", "check every byte of an archive, or of results/", _VERIFY)
    verify.add_argument("file", nargs="?", metavar="FILE|DIR|URL", help="default: the raw files in results/")
    show = add(
        "list",
        "list the cells of an archive, or the archives that came and went",
        "example:\n  gpustudy archive list v100.zip",
    )
    show.add_argument("file", nargs="?", metavar="FILE|DIR|URL")
    diff = add("diff", "compare two archives cell by cell", "example:\n  gpustudy archive diff old.zip new.zip")
    diff.add_argument("first", metavar="A")
    diff.add_argument("second", metavar="B")
    for action in (export, load, verify, show, diff):
        add_study_options(action)


def run(arguments: argparse.Namespace) -> int:
    """Run one action."""
    actions = {"export": _export, "import": _import, "verify": _verify, "list": _list, "diff": _diff}
    return actions[arguments.action](arguments)


def _export(arguments: argparse.Namespace) -> int:
    from gpustudy.archive.exporting import export_archive
    from gpustudy.study.cells import Keys
    from gpustudy.study.states import survey

    effective = effective_of(arguments)
    keys = Keys(effective)
    require_known("gpu", arguments.gpu, effective.study.gpus)
    require_known("config", arguments.config, effective.study.configs)
    seen = survey(effective, keys)
    cells = [
        state
        for state in seen.cells
        if (not arguments.gpu or state.gpu in arguments.gpu)
        and (not arguments.config or state.config in arguments.config)
    ]
    with_raw = arguments.with_ == "raw"
    done = export_archive(seen, keys, arguments.file, cells, with_raw=with_raw, licence=arguments.licence)
    _tell_crafted(done.crafted)
    for stage, reason in done.left_out.items():
        print(f"{stage} is damaged and left out: {reason}", file=sys.stderr)
    if done.unnoted:
        print(
            f"{arguments.file} is written, but no record of it could be kept here ({done.unnoted}): name it with "
            "--keep when you call 'gpustudy gc'.",
            file=sys.stderr,
        )
    if arguments.json:
        print_json(done.__dict__ | {"file": arguments.file})
    else:
        size = f"{done.size / 1e6:.1f} MB"
        print(f"{arguments.file}: {done.cells} cells, {done.stages} stage folders, {size}, archive {done.archive}")
    return 0


def _import(arguments: argparse.Namespace) -> int:
    from gpustudy.archive.check import check_archive
    from gpustudy.archive.download import local_archive
    from gpustudy.archive.folder import open_archive
    from gpustudy.archive.importing import arrivals, land

    effective = effective_of(arguments)
    with local_archive(arguments.file) as path, open_archive(path) as archive:
        contents = check_archive(archive)
        found = arrivals(effective, contents)
        if not arguments.dry_run:
            _claim(effective, found)
            land(effective, archive, contents, found, replace=arguments.replace)
    _tell_crafted(contents.manifest.crafted)
    if arguments.json:
        print_json([_arrival_json(arrival) for arrival in found])
        return 0
    for arrival in found:
        print(arrival)
    print(_summary(found, "would be written" if arguments.dry_run else "were written"))
    return 0


def _claim(effective: Effective, found: list[Arrival]) -> None:
    """Hold this folder's run lock; a run that is under way is no hindrance to new cells that it cannot be writing."""
    from gpustudy.archive.importing import DIFFERENT, foreign_only
    from gpustudy.base.errors import UserError
    from gpustudy.launch.run_lock import hold_run_lock
    from gpustudy.study.cells import Keys

    effective.results.mkdir(parents=True, exist_ok=True)
    try:
        hold_run_lock()
    except UserError:
        replaces = any(arrival.presence == DIFFERENT for arrival in found)  # what the run may be drawing from
        if replaces or not foreign_only(Keys(effective), (arrival.stage.folder for arrival in found)):
            raise
        print("A run is under way here; it will use the imported cells when it is started again.", file=sys.stderr)


def _verify(arguments: argparse.Namespace) -> int:
    from gpustudy.archive.intact import check_results

    if arguments.file is None:
        checked = check_results(effective_of(arguments).results)
        said: Any = {"stages": checked}
        text = f"results: the files of {checked} stage folders are what their stages wrote."
    else:
        contents = _contents(arguments.file)
        said = {"archive": contents.manifest.identity, "stages": len(contents.stages)}
        text = (
            f"{arguments.file}: all {len(contents.manifest.members)} files of {len(contents.stages)} stage folders "
            f"are whole, archive {contents.manifest.identity}."
        )
    if arguments.json:
        print_json(said)
    else:
        print(text)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    return _list_archive(arguments) if arguments.file else _list_history(arguments)


def _list_history(arguments: argparse.Namespace) -> int:
    from gpustudy.archive.history import read_history, remembered_archives

    results = effective_of(arguments).results
    events = read_history(results)
    if arguments.json:
        print_json({"archives": remembered_archives(results), "history": events})
        return 0
    for event in events:
        what = f"{event['when']}  {event['event']}  archive {event['archive']} ({event['file']})"
        print(f"{what}: {event['stages']} stage folders, by {event['who']} at site {event['site']}")
    if not events:
        print("No archive was exported from or imported into this folder.")
    return 0


def _list_archive(arguments: argparse.Namespace) -> int:
    from gpustudy.archive.check import check_archive
    from gpustudy.archive.download import local_archive
    from gpustudy.archive.folder import open_archive
    from gpustudy.archive.importing import arrivals

    with local_archive(arguments.file) as path, open_archive(path) as archive:
        contents = check_archive(archive)
        found = arrivals(effective_of(arguments), contents)
    identity, about = contents.manifest.identity, contents.manifest.about
    _tell_crafted(contents.manifest.crafted)
    if arguments.json:
        print_json({**about, "archive": identity, "stages": [_arrival_json(arrival) for arrival in found]})
        return 0
    made = f"made {about.get('created', 'at an unknown time')} at site {about.get('site', 'unknown')}"
    print(f"archive {identity}, {made}, licence {about.get('licence', 'not named')}")
    for arrival in found:
        print(arrival)
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    from gpustudy.archive.comparing import compare

    found = list(compare(_contents(arguments.first), _contents(arguments.second)))
    if arguments.json:
        print_json([{"stage": stage, "in": where, "difference": what} for stage, where, what in found])
        return 0
    for stage, where, what in found:
        print(f"{stage} ({where}): {what}")
    if not found:
        print("The archives hold the same results.")
    return 0


def _contents(place: str) -> Contents:
    from gpustudy.archive.check import check_archive
    from gpustudy.archive.download import local_archive
    from gpustudy.archive.folder import open_archive

    with local_archive(place) as path, open_archive(path) as archive:
        return check_archive(archive)


def _tell_crafted(cells: Sequence[str]) -> None:
    """Say which cells of an archive nobody measured."""
    if cells:
        others = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
        print(
            f"CRAFTED DATA: {cells[0]}{others} were made up, not measured; all that shows them says so.",
            file=sys.stderr,
        )


def _arrival_json(arrival: Arrival) -> dict[str, Any]:
    folder = arrival.stage.folder
    return {
        "gpu": folder.gpu,
        "config": folder.config,
        "repeat": folder.repeat,
        "room": folder.room,
        "stage": folder.stage,
        "key": folder.key,
        "state": arrival.stage.last["state"],
        "meaning": arrival.meaning,
        "why": arrival.why,
        "presence": arrival.presence,
        "target": arrival.target,
    }


def _summary(found: list[Arrival], written: str) -> str:
    from gpustudy.archive.importing import SAME

    counts = Counter(arrival.meaning for arrival in found)
    new = sum(arrival.presence != SAME for arrival in found)
    words = ", ".join(f"{number} {meaning}" for meaning, number in counts.items())
    return f"\n{len(found)} stage folders: {words}; {new} {written}. 'gpustudy status' shows the cells."
