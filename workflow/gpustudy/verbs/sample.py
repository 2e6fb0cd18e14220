"""``gpustudy sample``: draw images from a run of ``gpustudy train``."""

from __future__ import annotations

import argparse
from pathlib import Path

_EPILOG = """\
examples:
  gpustudy sample runs/first --out runs/first/samples
  gpustudy sample runs/first --out runs/first/samples --count 8 --ddim-steps 25
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("training_run", metavar="RUN", type=Path, help="folder of the run")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets samples.npz")
    parser.add_argument("--count", type=int, default=1, help="number of images (default 1)")
    parser.add_argument("--ddim-steps", type=int, help="DDIM with this many steps (default: ancestral, all timesteps)")
    parser.add_argument("--eta", type=float, default=0.0, help="noise of DDIM, 0 to 1 (default 0)")
    parser.add_argument("--seed", type=int, default=0, help="image i is drawn with seed + i (default 0)")
    parser.add_argument("--data", type=Path, help="prepared data with the condition masks (default: the run's)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 or auto (default)")


def run(arguments: argparse.Namespace) -> int:
    """Draw the images."""
    from gpustudy.base.reading import require_folder
    from gpustudy.medddpm.device import choose_device
    from gpustudy.medddpm.run import sample_run
    from gpustudy.medddpm.rundir import RUN_FILE

    require_folder(arguments.training_run, "name the --out of a 'gpustudy train'", RUN_FILE)
    if arguments.data:
        require_folder(arguments.data, "name a folder of prepared data", "manifest.json")
    path = sample_run(
        arguments.training_run,
        arguments.out,
        count=arguments.count,
        ddim_steps=arguments.ddim_steps,
        eta=arguments.eta,
        seed=arguments.seed,
        data=arguments.data,
        device=choose_device(arguments.device),
    )
    print(path)
    return 0
