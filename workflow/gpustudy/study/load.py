"""Reading the config: YAML files laid over each other, validated, with errors that name file and path."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

import gpustudy
from gpustudy.base.canonical import normalise
from gpustudy.base.errors import UserError
from gpustudy.base.reading import read_text
from gpustudy.base.words import nearest
from gpustudy.study.mistakes import Layer, Location, dotted, file_of, user_error
from gpustudy.study.models import Study
from gpustudy.study.relations import RelationError, check, sentence

CONFIG_FILE = Path("config.yaml")
RESULTS = Path("results")
DEFAULT_SITE = "local"
EFFECTIVE_CONFIG = "GPUSTUDY_CONFIG"
"""Environment variable in which the workflow hands its effective config to the jobs that it starts."""

ROOT = Path(gpustudy.__file__).resolve().parents[2]
"""The root of the checkout that this package belongs to."""


@dataclass(frozen=True)
class Effective:
    """The study as it is seen from one site.

    Attributes:
        study: the validated config.
        site: name of the site.
        results: folder of all results.
    """

    study: Study
    site: str
    results: Path


def load_study(configfiles: Sequence[Path] = ()) -> Study:
    """Read ``config.yaml`` with ``configfiles`` laid over it, in order.

    Raises:
        UserError: a file is missing or no YAML, or the config has a mistake.
    """
    layers = [(path, read_yaml(path)) for path in (CONFIG_FILE, *configfiles)]
    return validate(_without_site(layers))


def load_effective(configfiles: Sequence[Path] = (), site: str | None = None) -> Effective:
    """Read the study as this process should see it.

    Inside a job of the workflow the environment holds the effective config; else ``config.yaml`` and
    ``configfiles`` are read. The site is ``site``, else the key ``site`` of the topmost file, else ``local``.
    """
    handed = os.environ.get(EFFECTIVE_CONFIG)
    if handed and not configfiles and site is None:
        layers: list[Layer] = [(CONFIG_FILE, _handed_config(handed))]
    else:
        layers = [(path, read_yaml(path)) for path in (CONFIG_FILE, *configfiles)]
    return effective(layers, site)


def _handed_config(text: str) -> dict[str, Any]:
    """Return the config that the workflow hands to its jobs."""
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise UserError(f"the environment variable {EFFECTIVE_CONFIG} holds no config: unset it and run again.")
    return content


def effective(layers: Sequence[Layer], site: str | None = None) -> Effective:
    """Validate ``layers`` and choose the site."""
    named = [content["site"] for _, content in layers if "site" in content]
    study = validate(_without_site(layers))
    chosen = site or (named[-1] if named else DEFAULT_SITE)
    if not isinstance(chosen, str) or chosen not in study.sites:
        raise UserError(f"unknown site '{chosen}': {nearest(str(chosen), study.sites)}")
    return Effective(study, chosen, RESULTS)


def validate(layers: Sequence[Layer]) -> Study:
    """Return the study that ``layers``, lowest first, describe together."""
    merged: dict[str, Any] = {}
    for _, content in layers:
        merged = overlay(merged, content)
    try:
        study = Study.model_validate(_numbers_normalised(merged, layers))
    except ValidationError as error:
        raise user_error(error, layers) from error
    try:
        check(study, ROOT)
    except RelationError as error:
        raise sentence(error, file_of(error.location, layers)) from error
    return _in_order(study)


def _in_order(study: Study) -> Study:
    """Return ``study`` with gpus from the oldest architecture to the newest, then cpus, and configs from the plainest.

    The order in which a config file names them decides nothing: figures, tables and status follow this one.
    """
    gpus = sorted(
        study.gpus.items(), key=lambda item: (item[1].device == "cpu", _number_of(item[1].architecture), item[0])
    )
    configs = sorted(
        study.configs.items(),
        key=lambda item: (not item[1].pytorch_defaults, len(item[1].optimisations), item[0]),
    )
    return study.model_copy(update={"gpus": dict(gpus), "configs": dict(configs)})


def _number_of(architecture: str) -> int:
    """Return 80 for ``sm_80``, and 0 where there is no number."""
    digits = architecture.removeprefix("sm_")
    return int(digits) if digits.isdigit() else 0


def overlay(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` laid over it: mappings merge, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = overlay(below, value)
        else:
            merged[key] = value
    return merged


def read_yaml(path: Path) -> dict[str, Any]:
    """Read one config file.

    Raises:
        UserError: the file is missing, is no YAML, names a key twice, or is no mapping.
    """
    text = read_text(path, "run from the root of the checkout, or name another file")
    try:
        content = yaml.load(text, _UniqueKeys)  # noqa: S506 (a SafeLoader below)
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path} is no readable YAML ({_place_and_problem(error)}): correct it there.") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a {type(content).__name__}, not a mapping: see config.yaml for the form.")
    return content


def _place_and_problem(error: Exception) -> str:
    """Return what a parser found and where, without the excerpts that fill several lines."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


_MERGE_TAG = "tag:yaml.org,2002:merge"
"""Tag of the key ``<<``, which lays the mapping that an anchor names under this one."""


class _UniqueKeys(yaml.SafeLoader):
    """A safe loader that refuses a key named twice, of which YAML silently keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE_TAG:
                continue
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key '{key}' stands twice in one mapping", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _without_site(layers: Sequence[Layer]) -> list[Layer]:
    return [(path, {key: value for key, value in content.items() if key != "site"}) for path, content in layers]


def _numbers_normalised(merged: dict[str, Any], layers: Sequence[Layer]) -> Any:
    """Make ``1.0`` and ``1`` the same value, so that neither the check nor a key tells them apart."""
    config = _with_text_keys(merged)
    try:
        return normalise(config)
    except (TypeError, ValueError) as error:
        location = _place_without_form(config)
        where = f"{file_of(location, layers)}: '{dotted(location)}'" if location else str(layers[-1][0])
        raise UserError(f"{where}: {error}: correct the value.") from error


def _place_without_form(value: Any) -> Location:
    """Return the path of what ``normalise`` refuses first in ``value``, which is itself without a path."""
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        return ()
    for part, item in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        if not _has_form(item):
            return (part, *_place_without_form(item))
    return ()


def _has_form(value: Any) -> bool:
    try:
        normalise(value)
    except (TypeError, ValueError):
        return False
    return True


def _with_text_keys(value: Any) -> Any:
    """Return ``value`` with whole numbers as mapping keys written as text, as JSON has them: ``{1: brain}``."""
    if isinstance(value, dict):
        return {
            str(key) if isinstance(key, int) and not isinstance(key, bool) else key: _with_text_keys(item)
            for key, item in value.items()
        }
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value
