"""``gpustudy metrics``: make the Parquet tables of one stage of one cell from its raw files."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("raw", type=Path, metavar="RAW_DIR", help="directory of a stage, with its status.json")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="directory to write")
    parser.add_argument("--metrics-key", required=True, metavar="KEY", help="key of the metrics, kept in metrics.json")
    parser.epilog = (
        "examples:\n  gpustudy metrics results/cells/cpu/baseline/r1/train-0123456789ab "
        "-o results/metrics/cpu/baseline/r1/train-ba9876543210 --metrics-key ba9876543210"
    )


def run(arguments: argparse.Namespace) -> int:
    """Make them."""
    from gpustudy.base.own import require_own_folder
    from gpustudy.base.reading import require_folder
    from gpustudy.metrics.make import make_metrics

    require_folder(arguments.raw, "name the folder of a stage below results/cells")
    require_own_folder(arguments.output, "folder of tables", ("metrics.json", "cells.parquet"))
    make_metrics(arguments.raw, arguments.output, arguments.metrics_key)
    return 0
