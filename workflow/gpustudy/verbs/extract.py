"""``gpustudy extract``: turn Nsight Compute reports or their CSV exports into typed Parquet tables."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "reports",
        type=Path,
        nargs="+",
        metavar="REPORT",
        help="a report (.ncu-rep, .nsight-cuprof-report) or a CSV export of its raw or details page",
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="directory to write")
    parser.add_argument(
        "--salvage", action="store_true", help="keep the complete results of a report that is damaged or cut short"
    )
    parser.add_argument(
        "--metrics",
        choices=("all", "catalogue"),
        default="all",
        help="which metrics counter_values holds: every one, or those of the catalogue, in half the time "
        "(default %(default)s)",
    )
    parser.epilog = (
        "examples:\n  gpustudy extract report.ncu-rep -o tables\n"
        "  gpustudy extract a100.ncu-rep h100.ncu-rep v100.csv -o tables --metrics catalogue\n"
        "  gpustudy extract cut-short.ncu-rep -o tables --salvage"
    )


def run(arguments: argparse.Namespace) -> int:
    """Extract the reports and print what was written."""
    from gpustudy.metrics.ncu.extract import extract

    rows = extract(
        arguments.reports, arguments.output, salvage=arguments.salvage, all_metrics=arguments.metrics == "all"
    )
    for table, count in rows.items():
        print(f"{arguments.output / table}.parquet: {count} rows")
    return 0
