"""``gpustudy gc``: results of old keys, what deleting them frees, and deleting them."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpustudy.verbs.common import add_study_options, effective_of, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--delete", action="store_true", help="delete them; without it they are only listed")
    parser.add_argument(
        "--keep", type=Path, nargs="+", default=[], metavar="ARCHIVE", help="also keep what these archives hold"
    )
    add_study_options(parser)
    parser.epilog = (
        "examples:\n  gpustudy gc\n  gpustudy gc --delete\n  gpustudy gc --keep paper.zip --delete\n\n"
        "Kept are: what the present config needs at any of its sites, accepted results, and what an archive that was\n"
        "exported from or imported into this folder holds ('gpustudy archive list' names them). Listed are all other\n"
        "results, prepared data of old keys, results set aside (results/.aside), and what a killed run left."
    )


def run(arguments: argparse.Namespace) -> int:
    """List or delete them."""
    from gpustudy.archive.folder import open_archive
    from gpustudy.archive.garbage import all_garbage, delete
    from gpustudy.archive.manifest import read_manifest
    from gpustudy.archive.names import stage_folders
    from gpustudy.launch.run_lock import hold_run_lock
    from gpustudy.study.states import survey

    effective = effective_of(arguments)
    if arguments.delete:
        hold_run_lock()
    keep: set[str] = set()
    for file in arguments.keep:
        with open_archive(file) as archive:
            keep |= {folder.path for folder in stage_folders(read_manifest(archive).members, archive.name)}
    found = all_garbage(effective, survey(effective), keep)
    if arguments.delete:
        delete(found, effective.results)
    total = sum(garbage.size for garbage in found)
    if arguments.json:
        entries = [{"path": one.path, "why": one.why, "bytes": one.size} for one in found]
        print_json({"deleted": arguments.delete, "bytes": total, "found": entries})
        return 0
    for garbage in found:
        print(f"{garbage.size / 1e6:10.3f} MB  {garbage.path}: {garbage.why}")
    if not found:
        print("Nothing to delete: everything in results/ is needed.")
    elif arguments.delete:
        print(f"deleted {len(found)} files and folders, {total / 1e6:.1f} MB.")
    else:
        print(f"'gpustudy gc --delete' would free {total / 1e6:.1f} MB in {len(found)} files and folders.")
    return 0
