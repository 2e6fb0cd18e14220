"""Options that verbs about the study share."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

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


def print_json(content: Any) -> None:
    """Print ``content`` as JSON."""
    print(json.dumps(content, indent=1, default=str))
