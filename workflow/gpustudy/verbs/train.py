"""``gpustudy train``: train Med-DDPM on prepared data of one's own."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpustudy.base.errors import UserError

_EPILOG = """\
examples:
  gpustudy train my-prepared-data --out runs/first --iterations 50000
  gpustudy train my-prepared-data --out runs/first --iterations 50000 --resume
  gpustudy train my-prepared-data --out runs/small --base-channels 32 --channel-mult 1,2,2 \\
      --attention-downsamples 4 --precision bf16
"""

_PRECISIONS = ("float32", "bf16", "fp16")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("data", type=Path, help="prepared data directory (made by 'gpustudy data')")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    parser.add_argument("--weights", type=Path, help="published checkpoint to start from")
    network = parser.add_argument_group("network (defaults: the published whole-head model)")
    network.add_argument("--base-channels", type=int, default=64, help="width of the first level (default 64)")
    network.add_argument("--channel-mult", default="1,1,2,3,4", help="width of each level over it (default 1,1,2,3,4)")
    network.add_argument("--res-blocks", type=int, default=1, help="residual blocks per level (default 1)")
    network.add_argument(
        "--attention-downsamples", default="8", help="factors with attention, such as 4,8; '' for none (default 8)"
    )
    training = parser.add_argument_group("training (defaults: as published)")
    training.add_argument("--iterations", type=int, default=50_000, help="optimiser steps (default 50000)")
    training.add_argument("--batch-size", type=int, default=1, help="samples per micro-batch (default 1)")
    training.add_argument("--accumulation", type=int, default=2, help="micro-batches per optimiser step (default 2)")
    training.add_argument("--learning-rate", type=float, default=1e-5, help="of Adam (default 1e-5)")
    training.add_argument("--first-half-learning-rate", type=float, help="learning rate of the first half of the steps")
    training.add_argument("--loss", choices=("l1", "l2"), default="l1", help="error of the noise (default l1)")
    training.add_argument("--timesteps", type=int, default=250, help="noise levels (default 250)")
    training.add_argument("--seed", type=int, default=0, help="of weights, data order and noise (default 0)")
    computing = parser.add_argument_group("computing")
    computing.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 or auto (default)")
    computing.add_argument("--precision", choices=_PRECISIONS, default="float32", help="default float32")
    computing.add_argument("--channels-last", action="store_true", help="channels-last memory format")
    computing.add_argument("--recompute-blocks", action="store_true", help="less memory, more time")
    computing.add_argument("--save-every", type=int, default=1000, help="steps between checkpoints (default 1000)")
    computing.add_argument("--keep", type=int, default=3, help="checkpoints kept (default 3)")


def run(arguments: argparse.Namespace) -> int:
    """Train; Ctrl-C leaves a checkpoint to resume from."""
    from gpustudy.base.reading import require_folder
    from gpustudy.medddpm.device import choose_device
    from gpustudy.medddpm.run import RunSettings, train_run
    from gpustudy.medddpm.settings import TrainSettings, options_for

    train = TrainSettings(
        iterations=arguments.iterations,
        accumulation=arguments.accumulation,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        loss=arguments.loss,
        timesteps=arguments.timesteps,
        first_half_learning_rate=arguments.first_half_learning_rate,
    )
    settings = RunSettings(
        base_channels=arguments.base_channels,
        channel_mult=_numbers(arguments.channel_mult, "--channel-mult"),
        res_blocks=arguments.res_blocks,
        attention_downsamples=_numbers(arguments.attention_downsamples, "--attention-downsamples"),
        train=train,
        seed=arguments.seed,
        save_every=arguments.save_every,
        keep=arguments.keep,
        block_recompute=arguments.recompute_blocks,
    )
    options = options_for(choose_device(arguments.device), arguments.precision, arguments.channels_last)
    require_folder(arguments.data, "prepare your images with 'gpustudy data prepare-folder'", "manifest.json")
    model = train_run(arguments.data, arguments.out, settings, options, arguments.weights, arguments.resume)
    print(model)
    return 0


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError as error:
        raise UserError(f"{option} {text!r} is not a list of whole numbers: write it like 1,2,4.") from error
