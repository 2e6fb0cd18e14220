"""Options that verbs about the study share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError
from gpustudy.base.words import nearest
from gpustudy.study.load import Effective, load_effective


def add_study_options(parser: argparse.ArgumentParser, *, with_json: bool = True) -> None:
    """Add ``--configfile``, ``--site`` and ``--json``."""
    parser.add_argument(
        "--configfile",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="config files laid over config.yaml, as for snakemake",
    )
    parser.add_argument("--site", help="look at the study from this site (default: local)")
    if with_json:
        parser.add_argument("--json", action="store_true", help="print JSON for programs")


def effective_of(arguments: argparse.Namespace) -> Effective:
    """Return the study that the shared options describe."""
    return load_effective(arguments.configfile, arguments.site)


def require_known(kind: str, words: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a word that is none of the known ones.

    Raises:
        UserError: naming the nearest known one.
    """
    names = list(known)
    for word in words:
        if word not in names:
            raise UserError(f"unknown {kind} '{word}': {nearest(word, names)}")


def print_json(content: Any) -> None:
    """Print ``content`` as JSON."""
    print(json.dumps(content, indent=1, default=str))
