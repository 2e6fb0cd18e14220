"""A stack's Dockerfile as Apptainer's recipe, by spython, with what its conversion gets wrong set right.

spython 0.3.14 reads a Dockerfile well and writes Apptainer's recipe with flaws that would build another image:

- the base image with tag and digest, of which Apptainer takes one;
- ``ENV`` and ``ARG`` as shell variables in ``%post`` that the programs started there never see;
- ``ARG`` without a value is left out;
- ``Stage: spython-base`` where there is one stage, and a stage named by ``AS`` with its name in the base image;
- ``COPY`` before every command, whatever its place: an earlier command would see files that are not there yet;
- ``USER`` as ``su - NAME``, a shell of its own that does nothing and returns.

The first three are mended here. Recipes with several stages, a late COPY or USER are refused in a sentence: Docker and
Apptainer would build different images.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError

_NOT_HERE = {
    "USER": "Apptainer runs a container as the user who starts it: leave the line out",
    "ADD": "write COPY for files of the checkout, and fetch others by RUN",
    "SHELL": "write commands for sh",
    "ONBUILD": "leave the line out",
    "HEALTHCHECK": "leave the line out",
    "WORKDIR": "name folders by their whole path",
}
"""Instructions that a recipe of both runtimes cannot have, with what to do instead."""
_INSTRUCTION = re.compile(r"^\s*([A-Z]+)\b[ \t]*(.*)$")
_TAG_BEFORE_DIGEST = re.compile(r":[\w.-]+(?=@sha256:)")
_DIGEST = re.compile(r"@sha256:([0-9a-f]{64})$")

_SILENT = -5
"""spython's level of messages below its warnings."""


@dataclass(frozen=True)
class Recipe:
    """What a Dockerfile asks for.

    Attributes:
        path: the file.
        base: base image with its digest.
        copied: (source below the checkout, target in the image).
        arguments: build argument -> its default; None: it must be given.
        environment: lines NAME=VALUE that hold from their place on, and in the image.
        commands: lines of the shell, ``environment`` among them, in order.
    """

    path: Path
    base: str
    copied: tuple[tuple[str, str], ...]
    arguments: Mapping[str, str | None]
    environment: tuple[str, ...]
    commands: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The 64 hex digits of the base image's digest."""
        found = _DIGEST.search(self.base)
        assert found is not None, "the base was checked for its digest"  # by base_image, when the config was read
        return found[1]


def read_recipe(path: Path) -> Recipe:
    """Read a Dockerfile with spython.

    Raises:
        UserError: the file cannot be read, or holds what cannot be built the same way by both runtimes.
    """
    instructions = _instructions(path)
    _check(path, instructions)
    parsed = _parsed(path)
    arguments: dict[str, str | None] = {}
    for word, rest in instructions:
        if word == "ARG":
            name, _, value = rest.partition("=")
            arguments[name.strip()] = value.strip().strip("\"'") if "=" in rest else None
    lines = [line.rstrip("\n") for line in parsed.install]
    return Recipe(
        path,
        str(parsed.fromHeader),
        tuple((str(source), str(target)) for source, target in parsed.files),
        arguments,
        tuple(parsed.environ),
        tuple(line for line in lines if line.strip() and not line.lstrip().startswith("#")),
    )


def build_arguments(recipe: Recipe, given: Mapping[str, str]) -> dict[str, str]:
    """Return the value of every build argument: the given one, else the default.

    Args:
        recipe: the recipe.
        given: such as the environment; names that the recipe does not have are ignored.

    Raises:
        UserError: one that must be given is not.
    """
    values = {name: given.get(name) or default for name, default in recipe.arguments.items()}
    for name, value in values.items():
        if value is None:
            raise UserError(
                f"{recipe.path} needs {name} to be built: set the environment variable {name} as docs/containers.md "
                "says, and run again."
            )
    return {name: value for name, value in values.items() if value is not None}


def apptainer_recipe(
    recipe: Recipe,
    values: Mapping[str, str],
    labels: Mapping[str, str],
    base_file: Path | None = None,
) -> str:
    """Return the recipe in Apptainer's form; copied files are named from the root of the checkout.

    Args:
        recipe: the Dockerfile, as read.
        values: of the build arguments.
        labels: to set in the image.
        base_file: the base image as a file, where no registry can be reached; None: its registry.
    """
    if base_file is None:
        head = ["Bootstrap: docker", f"From: {_TAG_BEFORE_DIGEST.sub('', recipe.base)}"]
    else:
        head = ["Bootstrap: localimage", f"From: {base_file}"]
    files = [f"    {source} {target}" for source, target in recipe.copied]
    commands = []
    for line in recipe.commands:
        name, _, value = line.partition("=")
        if name in recipe.arguments and value.strip("\"'") == recipe.arguments[name]:
            continue  # a default; the value stands above
        commands.append(f"    export {_quoted(line)}" if line in recipe.environment else f"    {line}")
    parts = [
        *head,
        "",
        "%labels",
        *(f"    {name} {value}" for name, value in labels.items()),
        *(["", "%files", *files] if files else []),
        "",
        "%post",
        *(f"    export {_quoted(f'{name}={value}')}" for name, value in values.items()),
        *commands,
        "",
        "%environment",
        *(f"    export {_quoted(line)}" for line in recipe.environment),
    ]
    return "\n".join(parts) + "\n"


def _quoted(assignment: str) -> str:
    """Return NAME="VALUE": variables in it are still replaced, blanks do no harm."""
    name, _, value = assignment.partition("=")
    bare = value.strip("\"'")
    return f'{name}="{bare}"'


def _instructions(path: Path) -> list[tuple[str, str]]:
    """Return (instruction, rest of its first line) of a Dockerfile, continuation lines left out."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"{path} cannot be read ({reason}): restore the recipe of the stack.") from error
    found, continues = [], False
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = None if continues else _INSTRUCTION.match(line)
        if match:
            found.append((match[1], match[2]))
        continues = line.rstrip().endswith("\\")
    return found


def _check(path: Path, instructions: list[tuple[str, str]]) -> None:
    """Refuse what Docker and Apptainer would build in different ways."""
    words = [word for word, _ in instructions]
    for word, rest in instructions:
        if word in _NOT_HERE:
            raise UserError(f"{path} has '{word} {rest}', which Apptainer cannot do: {_NOT_HERE[word]}.")
        if word == "COPY" and rest.startswith("--"):
            raise UserError(f"{path} has 'COPY {rest}', whose option Apptainer does not know: copy without options.")
    if words.count("FROM") != 1:
        raise UserError(f"{path} has {words.count('FROM')} lines FROM, a stack is built in one stage: keep one.")
    copies = [index for index, word in enumerate(words) if word == "COPY"]
    runs = [index for index, word in enumerate(words) if word == "RUN"]
    if copies and runs and copies[-1] > runs[0]:
        raise UserError(f"{path} has a COPY behind a RUN, and Apptainer copies first: move every COPY up.")


def _parsed(path: Path) -> Any:
    """Return spython's reading of the one stage of a Dockerfile; its warnings are about what is mended here."""
    from spython.logger import bot
    from spython.main.parse.parsers import DockerParser

    level, bot.level = bot.level, _SILENT
    try:
        (recipe,) = DockerParser(str(path)).recipe.values()
    finally:
        bot.level = level
    return recipe
