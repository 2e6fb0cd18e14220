"""``gpustudy image``: build, import and check the container image of a stack."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gpustudy.base.errors import UserError
from gpustudy.verbs.common import add_study_options, effective_of

if TYPE_CHECKING:
    from gpustudy.launch.images import Record, Wanted
    from gpustudy.launch.runtimes import Kind, Runtime
    from gpustudy.study.load import Effective


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-verbs."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in (
        ("list", "list the stacks with key, image and state"),
        ("path", "print where a stack's image lies, or would lie"),
        ("build", "build a stack's image from its recipe"),
        ("import", "take an image that was built elsewhere"),
        ("verify", "sum an image and look into it"),
        ("recipe", "print a stack's recipe in Apptainer's form"),
        ("lock", "write the sum of a stack's image to containers/images.lock.yaml"),
    ):
        action = actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name != "list":
            action.add_argument("stack", metavar="STACK", help="a stack of config.yaml")
        if name == "import":
            action.add_argument("file", type=Path, metavar="FILE", help="the .sif")
            action.add_argument("--sha256", metavar="SUM", help="refuse when the file has another sum")
        if name == "build":
            action.add_argument("--key", metavar="K", help="refuse when the stack's key is another one")
            action.add_argument("--force", action="store_true", help="build anew what is there")
        if name != "recipe":
            action.add_argument("--runtime", choices=("apptainer", "docker"), help="instead of the site's")
        add_study_options(action, with_json=False)
    parser.epilog = (
        "examples:\n  gpustudy image list --site expanse\n  gpustudy image build paper --site expanse\n"
        "  gpustudy image import paper paper.sif --site stampede3\n  gpustudy image verify paper --site expanse\n\n"
        "What an image is, and how to bring one to a machine that cannot build: docs/containers.md"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run one sub-verb."""
    actions = {
        "list": _list,
        "path": _path,
        "build": _build,
        "import": _import,
        "verify": _verify,
        "recipe": _recipe,
        "lock": _lock,
    }
    return actions[arguments.action](arguments)


def _wanted(arguments: argparse.Namespace) -> tuple[Effective, Wanted]:
    from gpustudy.launch.images import wanted_image

    effective = effective_of(arguments)
    return effective, wanted_image(effective, arguments.stack, kind=arguments.runtime)


def _runtime(effective: Effective, wanted: Wanted) -> Runtime:
    from gpustudy.launch.runtimes import find_runtime

    return find_runtime(wanted.kind, effective.study.sites[effective.site], effective.site)


def _list(arguments: argparse.Namespace) -> int:
    from gpustudy.launch.images import read_record, wanted_image

    effective = effective_of(arguments)
    site = effective.study.sites[effective.site]
    for name, stack in effective.study.stacks.items():
        wanted = wanted_image(effective, name, kind=arguments.runtime or _or_apptainer(site.runtime))
        record = read_record(wanted)
        state = f"sha256 {record.sha256[:12]}" if record and wanted.path.exists() else "not here"
        users = [gpu for gpu in site.gpus if effective.study.gpus[gpu].stack == name]
        gaps = {
            gpu: stack.gaps.get(settings.architecture, f"no kernels for {settings.architecture}")
            for gpu, settings in effective.study.gpus.items()
            if not stack.runs(settings.architecture)
        }
        notes = [f"used by {', '.join(users)}"] if users else []
        notes += [f"not for {gpu}: {why}" for gpu, why in gaps.items()]
        print(f"{name:14} {wanted.path}  {state}" + (f"  ({'; '.join(notes)})" if notes else ""))
    return 0


def _path(arguments: argparse.Namespace) -> int:
    print(_wanted(arguments)[1].path)
    return 0


def _build(arguments: argparse.Namespace) -> int:
    from gpustudy.launch.building import build_image
    from gpustudy.launch.images import usable_image
    from gpustudy.launch.runtimes import scratch_folder

    effective, wanted = _wanted(arguments)
    if arguments.key not in (None, wanted.key):
        raise UserError(
            f"stack '{wanted.stack}' has key {wanted.key} now, but was planned with {arguments.key}: "
            "its recipe or pins changed since; run snakemake again."
        )
    runtime = _runtime(effective, wanted)
    if wanted.path.exists() and not arguments.force:
        usable_image(wanted, runtime)
        print(f"{wanted.path} is there already; --force builds it anew.")
        return 0
    record = build_image(wanted, effective.study.stacks[wanted.stack], runtime, scratch_folder(effective))
    _tell(wanted, record)
    return 0


def _import(arguments: argparse.Namespace) -> int:
    from gpustudy.base.atomic import atomic_path
    from gpustudy.base.digests import file_sha256
    from gpustudy.launch.images import adopt, require_key
    from gpustudy.launch.images_lock import built_sum

    _, wanted = _wanted(arguments)
    if wanted.kind == "docker":
        raise UserError(
            "an image is imported for Apptainer; for Docker, 'docker load' it and build: layers are reused."
        )
    require_key(wanted, arguments.file)
    sha256 = file_sha256(arguments.file)
    expected = arguments.sha256 or built_sum(wanted.stack, wanted.key)
    if expected not in (None, sha256):
        source = "--sha256 names" if arguments.sha256 else "containers/images.lock.yaml names"
        raise UserError(
            f"{arguments.file} has SHA-256 {sha256}, {source} {expected}: copy it again, or name its sum with "
            "--sha256 if you trust it."
        )
    with atomic_path(wanted.path) as path:
        shutil.copyfile(arguments.file, path)
    _tell(wanted, adopt(wanted, {"taken from": arguments.file.name}))
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from gpustudy.launch.building import look_inside
    from gpustudy.launch.images import check_sif, usable_image

    effective, wanted = _wanted(arguments)
    if wanted.kind == "apptainer":
        check_sif(wanted, thorough=True)  # works without a runtime
    runtime = _runtime(effective, wanted)
    image = usable_image(wanted, runtime)
    look_inside(image.reference, wanted, effective.study.stacks[wanted.stack], runtime)
    print(f"{wanted.path} is whole (sha256 {image.sha256}), runs, and holds the pinned packages.")
    return 0


def _recipe(arguments: argparse.Namespace) -> int:
    from gpustudy.launch.images import wanted_image
    from gpustudy.launch.recipes import apptainer_recipe, read_recipe
    from gpustudy.study.load import ROOT

    effective = effective_of(arguments)
    wanted = wanted_image(effective, arguments.stack, kind="apptainer")
    recipe = read_recipe(ROOT / effective.study.stacks[arguments.stack].recipe)
    values = {name: default or f"${name}" for name, default in recipe.arguments.items()}
    print(apptainer_recipe(recipe, values, wanted.labels), end="")
    return 0


def _lock(arguments: argparse.Namespace) -> int:
    from gpustudy.launch.images import check_sif
    from gpustudy.launch.images_lock import LOCK_FILE, write_built_sum

    _, wanted = _wanted(arguments)
    if wanted.kind == "docker":
        raise UserError("the lock holds sums of .sif files: name --runtime apptainer, or a site that has it.")
    record = check_sif(wanted, thorough=True)
    write_built_sum(wanted.stack, wanted.base, wanted.key, record.sha256)
    print(f"{LOCK_FILE}: {wanted.stack} is {record.sha256} for key {wanted.key}")
    return 0


def _or_apptainer(runtime: Literal["none", "apptainer", "docker"]) -> Kind:
    return "apptainer" if runtime == "none" else runtime


def _tell(wanted: Wanted, record: Record) -> None:
    print(f"{wanted.path}: {record.bytes / 2**20:.0f} MiB, sha256 {record.sha256}")
