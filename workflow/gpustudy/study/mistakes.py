"""A mistake in a config file, told in one sentence: file, path, what is wrong, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from gpustudy.base.errors import UserError
from gpustudy.base.words import nearest
from gpustudy.study.models import Study

Location = tuple[str | int, ...]
Layer = tuple[Path, Mapping[str, Any]]
"""A config file and what it holds."""

COMMAND_LINE = Path("--config")
"""Stands for a file where a mistake came from Snakemake's command line or a profile."""


def user_error(error: ValidationError, layers: Sequence[Layer], model: type[BaseModel] = Study) -> UserError:
    """Return the first mistake that ``error`` holds as one sentence.

    Args:
        error: what pydantic found.
        layers: the config files, lowest first; the sentence names the topmost one that holds the path.
        model: of the whole file, for the keys that it may hold.
    """
    first = min(error.errors(), key=lambda found: (found["type"] != "extra_forbidden", len(found["loc"])))
    location = _without_tags(first["loc"])
    file = file_of(location, layers)
    path = dotted(location)
    if first["type"] == "extra_forbidden":
        known = _known_keys(model, location[:-1])
        return UserError(f"{file}: unknown key '{path}': {nearest(str(location[-1]), known)}")
    if first["type"] == "missing":
        return UserError(f"{file}: key '{path}' is missing: add it (see config.yaml for what it means).")
    message = first["msg"][0].lower() + first["msg"][1:]
    if file == COMMAND_LINE and len(location) > 1 and isinstance(first["input"], str):
        message += ", and Snakemake hands values inside a mapping over as text: use --configfile, or"
        return UserError(f"{file}: '{path}' is {first['input']!r}, but {message} correct the value.")
    return UserError(f"{file}: '{path}' is {first['input']!r}, but {message}: correct the value.")


def dotted(location: Location) -> str:
    """Return a path as people write it: ``workloads.demo.model.volume[0]``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def file_of(location: Location, layers: Sequence[Layer]) -> Path:
    """Return the topmost file that holds the longest part of ``location``."""

    def depth(content: Any) -> int:
        reached = 0
        for part in location:
            try:
                content = content[part]
            except (KeyError, IndexError, TypeError):
                break
            reached += 1
        return reached

    best = max(range(len(layers)), key=lambda index: (depth(layers[index][1]), index))
    return layers[best][0]


def _without_tags(location: Location) -> Location:
    """Drop what pydantic adds to a path for mapping keys and for the kind of a data set."""
    if len(location) > 2 and location[0] == "data":
        location = location[:2] + location[3:]
    return tuple(part for part in location if part != "[key]")


def _known_keys(model: type[BaseModel], location: Location) -> set[str]:
    """Return the keys that the section at ``location`` of a file of ``model`` may hold."""
    annotations: list[Any] = [model]
    for part in location:
        annotations = [inner for annotation in annotations for inner in _inside(annotation, part)]
    return {field for annotation in annotations for model in _models(annotation) for field in model.model_fields}


def _inside(annotation: Any, part: str | int) -> Iterator[Any]:
    """Yield the types that ``part`` of a value of type ``annotation`` may have."""
    if get_origin(annotation) in (dict, list):
        yield get_args(annotation)[-1]
    for model in _models(annotation):
        if part in model.model_fields:
            yield model.model_fields[str(part)].annotation


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models among the alternatives of a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Annotated, Union, UnionType):
        for argument in get_args(annotation):
            yield from _models(argument)
