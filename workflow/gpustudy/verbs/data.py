"""``gpustudy data``: list, lock, prepare and check data sets."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpustudy.base.errors import EXIT_USER_ERROR, UserError
from gpustudy.verbs.common import add_study_options, effective_of, require_known

_EXAMPLES = {
    "list": "  gpustudy data list\n  gpustudy data list --configfile mine.yaml",
    "lock": "  gpustudy data lock mine --configfile mine.yaml\n\nKeep it in git: the key comes from it.",
    "prepare": "  gpustudy data prepare mni152-demo\n  gpustudy data prepare mine --configfile mine.yaml\n\n"
    "Snakemake does this by itself where a cell needs it.",
    "prepare-folder": "  gpustudy data prepare-folder --images scans --labels masks --volume 64 64 64 --out mine\n"
    "  gpustudy data prepare-folder --images scans --labels masks --volume 96 96 96 --resize resample \\\n"
    "      --classes 1=brain 2=lesion --out mine\n\nThen: gpustudy train mine --out runs/first",
    "check": "  gpustudy data check scans\n  gpustudy data check results/data/mni152-demo-KEY\n\n"
    "FOLDER holds images/ and labels/, or prepared arrays. All faults are listed; the exit code is then 2.",
}
"""Action -> the examples of its help."""

_PREPARED, _PREPARED_FILES = "prepared data set", ("manifest.json", "images.npy", "masks.npy", "labels.npy")
"""What an earlier preparation is called, and files of which it holds one."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-verbs."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"examples:\n{_EXAMPLES[name]}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    listing = add("list", "list the data sets of config.yaml with key and lock")
    add_study_options(listing, with_json=False)

    locking = add("lock", "write the SHA-256 of each source file to workflow/locks/NAME.json")
    locking.add_argument("name", metavar="NAME", help="a data set of config.yaml")
    add_study_options(locking, with_json=False)

    preparing = add("prepare", "make the arrays that a cell trains on")
    preparing.add_argument("name", metavar="NAME", help="a data set of config.yaml")
    preparing.add_argument("--key", metavar="K", help="refuse when the data set's key is another one")
    preparing.add_argument("--out", type=Path, metavar="DIR", help="directory to make (default: in results/data)")
    add_study_options(preparing, with_json=False)

    own = add("prepare-folder", "the same from your own NIfTI folders, without any config")
    _add_folder_options(own)

    checking = add("check", "look for faults in image folders or a prepared directory")
    checking.add_argument("folder", type=Path, metavar="FOLDER")
    parser.epilog = (
        "examples:\n  gpustudy data list\n  gpustudy data lock mine\n  gpustudy data prepare mni152-demo\n"
        "  gpustudy data prepare-folder --images scans --labels masks --volume 64 64 64 --resize resample --out mine\n"
        "  gpustudy data check scans\n\nAll kinds of data set: docs/data-sets.md"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run one sub-verb."""
    actions = {
        "list": _list,
        "lock": _lock,
        "prepare": _prepare,
        "prepare-folder": _prepare_folder,
        "check": _check,
    }
    return actions[arguments.action](arguments)


def _add_folder_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=Path, required=True, metavar="DIR", help="folder of images")
    parser.add_argument("--labels", type=Path, required=True, metavar="DIR", help="label maps of the same file names")
    parser.add_argument(
        "--volume", type=int, nargs=3, required=True, metavar=("Z", "Y", "X"), help="sides, multiples of 16"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to make")
    parser.add_argument("--name", default="folder", help="name of the data set in its manifest (default: folder)")
    parser.add_argument(
        "--classes", nargs="+", metavar="LABEL=NAME", help="label names; every label found is a class without it"
    )
    parser.add_argument("--resize", choices=("crop_pad", "resample"), help="for images of another shape than --volume")
    parser.add_argument("--compat", choices=("published",), help="repeat the published preprocessing's oddities")


def _definitions(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    study = effective_of(arguments).study
    return {name: data_set.model_dump(mode="json") for name, data_set in study.data.items()}


def _definition(arguments: argparse.Namespace) -> dict[str, Any]:
    definitions = _definitions(arguments)
    require_known("data set", [arguments.name], definitions)
    return definitions[arguments.name]


def _list(arguments: argparse.Namespace) -> int:
    from gpustudy.data.lock import data_key, lock_path, read_lock

    for name, definition in _definitions(arguments).items():
        locked = lock_path(name).is_file()
        key = data_key(definition, read_lock(name)) if locked else f"no lock: gpustudy data lock {name}"
        volume = "x".join(map(str, definition["volume"]))
        print(f"{name:20} {definition['kind']:12} {volume:12} {key}")
    return 0


def _lock(arguments: argparse.Namespace) -> int:
    from gpustudy.data.lock import data_key, make_lock, write_lock

    definition = _definition(arguments)
    lock = make_lock(arguments.name, definition, Path.cwd())
    path = write_lock(lock)
    print(f"wrote {path}: {len(lock['files'])} files, key {data_key(definition, lock)}")
    return 0


def _prepare(arguments: argparse.Namespace) -> int:
    from gpustudy.base.own import require_own_folder
    from gpustudy.data.lock import data_key, read_lock
    from gpustudy.data.prepare import prepare
    from gpustudy.study.paths import data_directory

    effective = effective_of(arguments)
    definition = _definition(arguments)
    lock = read_lock(arguments.name)
    key = data_key(definition, lock)
    out = arguments.out or data_directory(effective.results, arguments.name, key)
    require_own_folder(out, _PREPARED, _PREPARED_FILES)
    prepare(arguments.name, definition, lock, out, Path.cwd(), arguments.key)
    print(f"wrote {out}, key {key}")
    return 0


def _prepare_folder(arguments: argparse.Namespace) -> int:
    from gpustudy.base.own import require_own_folder
    from gpustudy.data.lock import data_key, make_lock
    from gpustudy.data.prepare import prepare

    require_own_folder(arguments.out, _PREPARED, _PREPARED_FILES)
    definition = {
        "kind": "nifti",
        "images": str(arguments.images),
        "labels": str(arguments.labels),
        "volume": arguments.volume,
        "classes": _classes(arguments.classes),
        "resize": arguments.resize,
        "compat": arguments.compat,
    }
    lock = make_lock(arguments.name, definition, Path.cwd())
    prepare(arguments.name, definition, lock, arguments.out, Path.cwd())
    print(f"wrote {arguments.out}, key {data_key(definition, lock)}")
    return 0


def _classes(words: list[str] | None) -> Mapping[str, str] | None:
    """Read ``1=brain 2=lesion``."""
    if words is None:
        return None
    classes: dict[str, str] = {}
    for word in words:
        label, _, title = word.partition("=")
        if not title.strip():
            raise UserError(f"--classes {word!r} is not LABEL=NAME: write it like 1=brain 2=lesion.")
        if label in classes:
            raise UserError(f"--classes names the label {label} twice ({classes[label]}, {title}): name it once.")
        classes[label] = title
    return classes


def _check(arguments: argparse.Namespace) -> int:
    from gpustudy.data.check import check_folder, counted

    lines, problems = check_folder(arguments.folder)
    for line in lines:
        print(line)
    for problem in problems:
        print(f"wrong: {problem}")
    print(f"{counted(arguments.folder, lines)}, {len(problems)} wrong")
    return EXIT_USER_ERROR if problems else 0
