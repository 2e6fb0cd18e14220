"""The command line: one thin module per verb in ``gpustudy.verbs``, imported only when its verb is called."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gpustudy import __version__
from gpustudy.base.errors import EXIT_USER_ERROR, UserError
from gpustudy.base.output import guarded_output
from gpustudy.base.words import nearest

VERBS = {
    "image": "list, build, import and check the container images of stacks",
    "data": "list, lock, prepare and check data sets",
    "status": "print the gpu x config matrix of cell states",
    "plan": "list what would run and why",
    "why": "explain one cell: its stages, keys and what made it stale",
    "preflight": "check that a site can run the study: scheduler, account, containers, GPU, counters, folders",
    "config": "check the config, write it anew with its comments, or list the optimisations",
    "stage": "run one stage of one cell, as the workflow's rules do",
    "train": "train Med-DDPM on prepared data of your own",
    "sample": "draw images from a run of 'gpustudy train'",
    "accept": "let stale results stand for the present keys, with a reason that is shown",
    "archive": "export, import, verify, list and compare archives of cells",
    "gc": "list or delete results of old keys",
    "retry": "set a stage of a cell and all made from it aside, so that the next run makes it",
    "metrics": "make the tables of one stage of one cell from its raw files",
    "census": "read PyTorch profiler traces, of any program, into the launches table",
    "extract": "read Nsight Compute reports and CSV exports, of any program, into typed tables",
    "dictionary": "write docs/data.md, which describes every table, or check that it is current",
    "figure": "draw one figure, several or all from the cells at hand",
    "table": "make one table, several or all from the cells at hand, as CSV, LaTeX and HTML",
    "claims": "judge the paper's claims on the cells at hand: verdict, numbers, cells",
    "compare": "say what changed beyond noise between two archives, configs, gpus or moments",
    "appendix": "write the artifact description of a paper: claims, artefacts, figures and times",
    "report": "write the report: states, findings, figures, tables and provenance in one HTML file",
}
"""Verb -> one line of help. Each verb is a module with ``configure(parser)`` and ``run(arguments) -> int``."""

_PACKAGE = Path(__file__).resolve().parent
_EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code: 0, 2 for a user's mistake, or the verb's own."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    called = " ".join(["gpustudy", *_called(words)])
    try:
        with guarded_output():
            return _run(words)
    except UserError as error:
        print(f"{called}: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        print(f"{called}: interrupted; nothing half-written was left.", file=sys.stderr)
        return _EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader, such as head, has seen enough
        return 0
    except OSError as error:  # a full disk, a folder that may not be written, a file system that went away
        place = error.filename or "a file"
        print(f"{called}: {place}: {error.strerror or error}; mend that and run again.", file=sys.stderr)
        return EXIT_USER_ERROR


def _run(words: Sequence[str]) -> int:
    """Run the verb that ``words`` call."""
    parser = _parser(words)
    try:
        parsed = parser.parse_args(words)
    finally:
        sys.stdout.flush()  # argparse prints help and ends; a failure to print it must not end well
    if parsed.verb is None:
        parser.print_help()
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    _check_checkout()
    result: int = parsed.run(parsed)
    return result


class _Parser(argparse.ArgumentParser):
    """A parser that answers a mistyped word with the nearest known one, and any mistake in a sentence."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, and refuse what is left over here, where the options of the verb or action are known."""
        parsed, left = super().parse_known_args(args, namespace)
        options = [word.split("=")[0] for word in left if word.startswith("-")]
        if options:
            known = [option for option in self._option_string_actions if option.startswith("--")]
            self.exit(EXIT_USER_ERROR, f"{self.prog}: unknown option '{options[0]}': {nearest(options[0], known)}\n")
        if left:
            self.error(f"'{left[0]}' is one word too many")
        return parsed, left

    def error(self, message: str) -> NoReturn:
        """Tell a mistake without the usage."""
        self.exit(EXIT_USER_ERROR, f"{self.prog}: {message}: see '{self.prog} --help'.\n")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            place = action.metavar if isinstance(action.metavar, str) else "/".join(action.option_strings)
            kind = (place or action.dest).lower()
            sentence = f"unknown {kind} '{value}': {nearest(str(value), map(str, action.choices))}"
            self.exit(EXIT_USER_ERROR, f"{self.prog}: {sentence}\n")


def _check_checkout() -> None:
    """Refuse to speak for another checkout than the one that this package belongs to: their keys differ."""
    here = Path("workflow/gpustudy")
    if here.is_dir() and here.resolve() != _PACKAGE:
        raise UserError(
            f"this gpustudy belongs to the checkout {_PACKAGE.parents[1]}, not to the one here: "
            "activate the environment of this checkout, or run 'PYTHONPATH=workflow python -m gpustudy ...'."
        )


def _interrupt(number: int, frame: object) -> None:
    """End on SIGTERM as on Ctrl-C, so that whatever is half-written is taken away first."""
    raise KeyboardInterrupt


def _called(words: Sequence[str]) -> list[str]:
    """Return the verb that ``words`` call as a list of one; an empty one where they call none."""
    return [word for word in words if not word.startswith("-")][:1]


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser, with the options of the one verb that ``words`` call."""
    parser = _Parser(
        prog="gpustudy",
        description="Measure how training a 3D diffusion model behaves on GPU generations, cell by cell.",
        epilog="examples:\n  gpustudy status\n  gpustudy why cpu/baseline/r1\n  gpustudy VERB --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gpustudy {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    called = _called(words)
    for name, summary in VERBS.items():
        verb = verbs.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in called:
            module = importlib.import_module(f"gpustudy.verbs.{name.replace('-', '_')}")
            module.configure(verb)
            verb.set_defaults(run=module.run)
    return parser
