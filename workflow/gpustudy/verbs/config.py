"""``gpustudy config``: check the config, or write it anew with the comments of its models."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpustudy.verbs.common import add_study_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_study_options(parser, with_json=False)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--write", action="store_true", help="write config.yaml anew: same values, comments from the models"
    )
    what.add_argument("--optimisations", action="store_true", help="list the optimisations that a config may name")
    parser.epilog = (
        "examples:\n  gpustudy config                       # check config.yaml\n"
        "  gpustudy config --configfile mine.yaml\n  gpustudy config --optimisations\n  gpustudy config --write"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, list or write."""
    from gpustudy.base.atomic import write_text
    from gpustudy.cell.optimisation_names import OPTIMISATIONS
    from gpustudy.study.load import CONFIG_FILE, ROOT, load_effective, load_study
    from gpustudy.study.render import render
    from gpustudy.study.stacks import check_stacks

    if arguments.optimisations:
        for name, optimisation in OPTIMISATIONS.items():
            print(f"{name:18} {optimisation.description}")
        return 0
    if arguments.write:
        write_text(Path(CONFIG_FILE), render(load_study()))
        print(f"wrote {CONFIG_FILE}")
        return 0
    effective = load_effective(arguments.configfile, arguments.site)
    study = effective.study
    check_stacks(study.stacks, ROOT)
    print(
        f"The config is sound: {len(study.gpus)} gpus x {len(study.configs)} configs x {study.repeats} repeats; "
        f"site {effective.site} can run {', '.join(study.sites[effective.site].gpus)}."
    )
    return 0
