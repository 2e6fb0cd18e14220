"""Building a stack's image from its recipe: whole under its name, or not there at all."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from gpustudy.base.atomic import atomic_path
from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.launch.guard import run_guarded
from gpustudy.launch.images import Record, Wanted, adopt, require_key, wanted_image, write_record
from gpustudy.launch.recipes import Recipe, apptainer_recipe, build_arguments, read_recipe
from gpustudy.launch.runtimes import Runtime, host_environment
from gpustudy.launch.tools import ask
from gpustudy.launch.with_spython import PROBE
from gpustudy.study.load import ROOT, Effective
from gpustudy.study.models import Stack
from gpustudy.study.stacks import read_pins

BASES = "GPUSTUDY_BASE_IMAGES"
"""Environment variable with a folder of base images as files, named ``sha256-DIGEST.sif`` or ``.tar``, for machines
that reach no registry. The name is the statement of whoever put the file there; its own sum goes into the record."""
_PROBE_TIMEOUT_S = 120.0
_FAST = "-comp gzip -Xcompression-level 1"
"""Arguments of mksquashfs: a sixth of the default's time for 7 % more bytes, measured on Debian's root file system."""


def build_image(
    wanted: Wanted, stack: Stack, runtime: Runtime, scratch: Path | None, environment: Mapping[str, str] = os.environ
) -> Record:
    """Build an image, look into it, and write its record.

    Args:
        wanted: which image.
        stack: the stack's section of the config.
        runtime: what builds it.
        scratch: fast folder of the site.
        environment: where build arguments are given.

    Raises:
        UserError: the recipe is none for both runtimes, an argument is missing, or the build failed.
    """
    recipe = read_recipe(ROOT / stack.recipe)
    values = build_arguments(recipe, environment)
    base_file = _base_file(recipe, runtime, environment)
    print(f"{wanted.stack}: building {wanted.path} from {stack.recipe} with {runtime.version} ...", flush=True)
    origin = {
        "built": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "host": os.uname().nodename,
        "runtime": runtime.version,
    }
    if base_file:
        origin |= {"base file": base_file.name, "base file sha256": file_sha256(base_file)}
    host = host_environment(runtime, scratch, environment)
    plan = _Plan(wanted, recipe, runtime, values, base_file, host)
    if runtime.kind == "docker":
        sha256, size = _build_docker(plan)
        versions = look_inside(wanted.tag, wanted, stack, runtime)
        record = Record(wanted.stack, wanted.key, wanted.base, sha256, size, 0, origin, versions)
        write_record(wanted, record)
        return record
    origin |= {"spython": metadata.version("spython")}
    return _build_sif(plan, stack, origin)


def require_buildable(effective: Effective, gpus: Iterable[str], environment: Mapping[str, str] = os.environ) -> None:
    """Refuse a run whose images are missing and could not be built for want of an argument: now, not in an hour.

    Args:
        effective: the study as seen from the site.
        gpus: whose cells would run.
        environment: where build arguments are given.

    Raises:
        UserError: naming the recipe and the argument.
    """
    if effective.study.sites[effective.site].runtime == "none":
        return
    for stack in sorted({effective.study.gpus[gpu].stack for gpu in gpus}):
        wanted = wanted_image(effective, stack)
        if not wanted.path.exists():
            build_arguments(read_recipe(ROOT / effective.study.stacks[stack].recipe), environment)


def look_inside(image: str, wanted: Wanted, stack: Stack, runtime: Runtime) -> dict[str, str]:
    """Return name -> version of the packages in an image, after a comparison with the pins.

    Args:
        image: the .sif, or the name of the Docker image.
        wanted: which image it is.
        stack: the stack's section of the config.
        runtime: what runs it.

    Raises:
        UserError: no python runs in it, or a package is of another version than pinned.
    """
    if runtime.kind == "docker":
        command = [runtime.program, "run", "--rm", "--network", "none", image, "python", "-c", PROBE]
    else:
        command = _with_spython(["versions", runtime.program, image])
    answer = ask(command, _PROBE_TIMEOUT_S)
    if answer.code:
        raise UserError(f"no python runs in {image} ({answer.complaint}): correct {stack.recipe} and build it anew.")
    versions: dict[str, str] = json.loads(answer.out.strip().splitlines()[-1])
    found = {name.lower().replace("_", "-"): version for name, version in versions.items()}
    for name, pin in read_pins(ROOT / stack.pins).items():
        if (version := found.get(name, "missing")).split("+")[0] != pin:
            raise UserError(
                f"{image} holds {name} {version}, stack '{wanted.stack}' pins {pin}: correct {stack.recipe} and build "
                "it anew."
            )
    return versions


@dataclass(frozen=True)
class _Plan:
    """What a build starts from."""

    wanted: Wanted
    recipe: Recipe
    runtime: Runtime
    values: Mapping[str, str]
    base_file: Path | None
    host: dict[str, str]


def _build_sif(plan: _Plan, stack: Stack, origin: dict[str, str]) -> Record:
    """Build, look inside, and only then give the image its name."""
    wanted = plan.wanted
    text = apptainer_recipe(plan.recipe, plan.values, wanted.labels, plan.base_file)
    with tempfile.TemporaryDirectory(prefix="gpustudy-") as folder, atomic_path(wanted.path) as image:
        definition = Path(folder) / f"{wanted.stack}.def"
        definition.write_text(text)
        words = ["build", plan.runtime.program, str(definition), str(image), *_compression(plan.runtime)]
        code = run_guarded(_with_spython(words), plan.host)
        if code:
            raise UserError(_failed(wanted, code))
        require_key(wanted, image)
        versions = look_inside(str(image), wanted, stack, plan.runtime)
    return adopt(wanted, origin, versions)


def _compression(runtime: Runtime) -> list[str]:
    """Return the options that make mksquashfs compress fast, where the runtime takes any."""
    answer = ask([runtime.program, "build", "--help"])
    return ["--mksquashfs-args", _FAST] if "--mksquashfs-args" in answer.out else []


def _with_spython(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "gpustudy.launch.with_spython", *words]


def _build_docker(plan: _Plan) -> tuple[str, int]:
    """Build and return the id and size of the image, in bytes."""
    wanted, program = plan.wanted, plan.runtime.program
    with tempfile.TemporaryDirectory(prefix="gpustudy-") as folder:
        context = Path(folder)
        _fill_context(context, plan.recipe, _docker_base(plan.recipe, plan.runtime, plan.base_file))
        command = [program, "build", "--tag", wanted.tag, "--file", str(context / "Dockerfile")]
        command += [word for name, value in wanted.labels.items() for word in ("--label", f"{name}={value}")]
        command += [word for name, value in plan.values.items() for word in ("--build-arg", f"{name}={value}")]
        code = run_guarded([*command, str(context)], plan.host)
    if code:
        raise UserError(_failed(wanted, code))
    answer = ask([program, "image", "inspect", "--format", "{{.Id}} {{.Size}}", wanted.tag])
    if answer.code:
        raise UserError(f"Docker built {wanted.tag} and does not find it ({answer.complaint}): run again.")
    image_id, size = answer.out.split()
    return image_id.removeprefix("sha256:"), int(size)


def _fill_context(context: Path, recipe: Recipe, base: str) -> None:
    """Put the recipe and the files that it copies into the folder that Docker's daemon is sent: nothing else."""
    text = recipe.path.read_text(encoding="utf-8")
    (context / "Dockerfile").write_text(text.replace(recipe.base, base))
    for source, _ in recipe.copied:
        target = context / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target)
        else:
            shutil.copy2(ROOT / source, target)


def _docker_base(recipe: Recipe, runtime: Runtime, base_file: Path | None) -> str:
    """Return the name under which Docker has the base image, loaded from its file where there is one."""
    if base_file is None:
        return recipe.base
    name = f"gpustudy-base:{recipe.digest[:12]}"
    if ask([runtime.program, "image", "inspect", name]).code:
        answer = ask([runtime.program, "import", str(base_file), name], 10 * _PROBE_TIMEOUT_S)
        if answer.code:
            raise UserError(f"{base_file} cannot be imported by Docker ({answer.complaint}): make it anew.")
    return name


def _base_file(recipe: Recipe, runtime: Runtime, environment: Mapping[str, str]) -> Path | None:
    """Return the base image as a file, where the folder of such files has it."""
    folder = environment.get(BASES)
    if not folder:
        return None
    suffix = "sif" if runtime.kind == "apptainer" else "tar"
    path = Path(folder).resolve() / f"sha256-{recipe.digest}.{suffix}"
    if path.exists():
        return path
    print(f"{BASES} has no {path.name}: the base image is taken from its registry.", file=sys.stderr)
    return None


def _failed(wanted: Wanted, code: int) -> str:
    return f"the image of stack '{wanted.stack}' could not be built (exit code {code}): its messages stand above."
