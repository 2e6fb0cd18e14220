"""What a check finds, and where it looks: all that is outside comes through ``Place``, so that tests can record it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError
from gpustudy.base.user import user_name
from gpustudy.launch.tools import Answer, Runner, ask
from gpustudy.study.load import Effective
from gpustudy.study.models import Gpu, Site

PASS, WARN, FAIL, SKIPPED = "PASS", "WARN", "FAIL", "SKIPPED"
LEVELS = (PASS, WARN, FAIL, SKIPPED)

TOOL_TIMEOUT_S = 10.0
"""Seconds for one question to a tool: two in a row stay within the 30 seconds of a preflight."""


@dataclass(frozen=True)
class Check:
    """What one check found.

    Attributes:
        name: what was looked at, such as ``account``.
        level: one of ``LEVELS``. FAIL: the study would not run here; WARN: it would, with less or with a risk.
        sentence: what was found and, unless it passed, what to do.
        to_admins: the sentence to send to the site's admins where the matter is theirs to change; else empty.
    """

    name: str
    level: str
    sentence: str
    to_admins: str = ""


@dataclass(frozen=True)
class Place:
    """Where the checks look.

    Attributes:
        effective: the study as seen from the site.
        environment: variables of this process.
        runner: asks tools.
        root: of the file system, so that tests can give a /proc of their own.
    """

    effective: Effective
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    runner: Runner = ask
    root: Path = Path("/")

    @property
    def site(self) -> Site:
        """The site's section of the config."""
        return self.effective.study.sites[self.effective.site]

    @property
    def gpus(self) -> dict[str, Gpu]:
        """The gpus whose cells run at the site."""
        return {name: self.effective.study.gpus[name] for name in self.site.gpus}

    @property
    def cuda_gpus(self) -> dict[str, Gpu]:
        """Those of them that are GPUs."""
        return {name: gpu for name, gpu in self.gpus.items() if gpu.device == "cuda"}

    @property
    def user(self) -> str:
        """The user's name, as Slurm's accounting knows it."""
        return self.environment.get("USER") or user_name()

    def ask(self, *command: str) -> Answer:
        """Return a tool's answer."""
        return self.runner(command, TOOL_TIMEOUT_S)

    def read(self, path: str) -> str | None:
        """Return the text of a file of the system, such as ``/proc/mounts``; None where it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None


@dataclass(frozen=True)
class Finding:
    """What a check found, without its name: fields as in ``Check``."""

    level: str
    sentence: str
    to_admins: str = ""


CheckFunction = Callable[[Place], Finding]


def passed(sentence: str) -> Finding:
    """Return that all is well."""
    return Finding(PASS, sentence)


def warned(sentence: str, to_admins: str = "") -> Finding:
    """Return that the study would run, with less or with a risk."""
    return Finding(WARN, sentence, to_admins)


def failed(sentence: str, to_admins: str = "") -> Finding:
    """Return that the study would not run."""
    return Finding(FAIL, sentence, to_admins)


def skipped(sentence: str) -> Finding:
    """Return that nothing can be said here."""
    return Finding(SKIPPED, sentence)


def refused(error: UserError) -> Finding:
    """Return a failure with the sentence of ``error``."""
    return failed(sentence_of(error))


def sentence_of(error: UserError) -> str:
    """Return the sentence of ``error``, with a capital where it begins with a word and not with a path or key."""
    text = str(error)
    return text[:1].upper() + text[1:] if text.split(" ", 1)[0].isalpha() else text


def named(name: str, finding: Finding) -> Check:
    """Return a finding with the name of its check."""
    return Check(name, finding.level, finding.sentence, finding.to_admins)


def as_json(checks: list[Check]) -> list[dict[str, Any]]:
    """Return the checks as JSON's types."""
    return [asdict(check) for check in checks]


def from_json(text: str) -> list[Check]:
    """Return the checks that ``as_json`` wrote.

    Raises:
        ValueError: it is something else.
    """
    try:
        checks = [Check(**entry) for entry in json.loads(text)]
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error
    if any(check.level not in LEVELS for check in checks):
        raise ValueError("a level that no check has")
    return checks
