"""``gpustudy compare``: what changed between two archives, configs, gpus or moments, beyond noise."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gpustudy.base.errors import UserError
from gpustudy.base.words import nearest
from gpustudy.verbs.common import add_study_options, effective_of, print_json, require_known

if TYPE_CHECKING:
    from gpustudy.analysis.changes import Change, Comparison, PairOfGroups
    from gpustudy.analysis.sides import Side
    from gpustudy.study.states import Survey

_EPILOG = """\
examples:
  gpustudy compare cpu/baseline cpu/opt2         two configs
  gpustudy compare a100 h100                     two gpus, config by config
  gpustudy compare baseline opt2                 two configs, gpu by gpu
  gpustudy compare last-week.zip .               an archive with what is here ('.')
  gpustudy compare old.zip new.zip --gpu a100
  gpustudy compare cpu@old cpu                   results of an earlier key with the present ones
  gpustudy compare cpu/opt2@2026-11-01 cpu/opt2  those of that day or before
  gpustudy compare last-week.zip . --fail-on slower,missing

exit code: 0 when the sides were compared; 1 when --fail-on is met; 2 for a mistake in the call, or when nothing
belongs together. Verdicts and intervals are explained in docs/compare.md."""

_CONDITIONS = ("slower", "faster", "ambiguous", "missing")
_CHANGED = 1
_MOST_FIELDS = 5
"""Differing fields of the documents that are printed; --json has all of them."""

_NAME_WIDTH = 44
"""Columns for a name on a terminal; a longer one is cut in the middle."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    side = "an archive or its folder or address; GPU, CONFIG, GPU/CONFIG, GPU/CONFIG/rN or '.', each also with @WHEN"
    parser.add_argument("first", metavar="A", help=f"what to compare with: {side}")
    parser.add_argument("second", metavar="B", help="what to compare, in the same form")
    parser.add_argument("--gpu", action="append", default=[], help="only this gpu of both sides (may be repeated)")
    parser.add_argument("--config", action="append", default=[], help="only this config (may be repeated)")
    parser.add_argument(
        "--noise", type=float, default=None, metavar="SHARE", help="difference taken as none (default: 0.02)"
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="kernels to print per pair (default: 10)")
    parser.add_argument(
        "--fail-on",
        default="",
        metavar="WORDS",
        help=f"exit with 1 if a step time is so, separated by commas: {', '.join(_CONDITIONS)} (missing: B lacks it)",
    )
    add_study_options(parser)
    parser.epilog = _EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Compare, print, and tell by the exit code."""
    from gpustudy.analysis.changes import compare
    from gpustudy.analysis.statistics import NOISE_FLOOR
    from gpustudy.study.states import survey

    refused = _conditions(arguments.fail_on)
    noise = NOISE_FLOOR if arguments.noise is None else arguments.noise
    if not 0 <= noise < 1:
        raise UserError(f"--noise {noise:g} is no share: give 0.02 for 2 per cent.")
    seen = survey(effective_of(arguments))
    with ExitStack() as stack:
        sides = [
            _narrowed(_side(word, seen, stack), arguments.gpu, arguments.config)
            for word in (arguments.first, arguments.second)
        ]
        found = compare(sides[0], sides[1], noise)
    if not found.pairs:
        raise UserError(_nothing(arguments, found))
    if arguments.json:
        print_json({"a": arguments.first, "b": arguments.second, **asdict(found)})
    else:
        print("\n".join(_lines(arguments, found)))
    return _CHANGED if refused & _met(found) else 0


def _conditions(text: str) -> set[str]:
    words = {word.strip().lower() for word in text.split(",") if word.strip()}
    for word in sorted(words - set(_CONDITIONS)):
        raise UserError(f"--fail-on: unknown word '{word}': {nearest(word, _CONDITIONS)}")
    return words


def _side(word: str, seen: Survey, stack: ExitStack) -> Side:
    """Return what one operand names: an archive where there is such a file, else a part of this study."""
    from gpustudy.analysis.sides import HERE, Side, side_of
    from gpustudy.archive.download import SCHEMES, local_archive
    from gpustudy.archive.folder import open_archive
    from gpustudy.archive.tables import unpacked_cells
    from gpustudy.study.states import Survey

    path = Path(word)
    is_place = word.startswith((*SCHEMES, "/", "./", "../"))
    is_archive = is_place or path.suffix == ".zip" or (path / "manifest.json").is_file()
    if word == HERE or not is_archive:
        return side_of(word, seen)
    target = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpustudy-compare-")))
    with local_archive(word) as local, open_archive(local) as archive:
        cells = unpacked_cells(archive, target)
    return Side(word, Survey(seen.study, seen.site, target, cells))


def _narrowed(side: Side, gpus: Sequence[str], configs: Sequence[str]) -> Side:
    """Return a side with the chosen gpus and configs alone."""
    from dataclasses import replace

    cells = side.survey.cells
    require_known("gpu", gpus, dict.fromkeys(cell.gpu for cell in cells))
    require_known("config", configs, dict.fromkeys(cell.config for cell in cells))
    kept = tuple(cell for cell in cells if (not gpus or cell.gpu in gpus) and (not configs or cell.config in configs))
    return replace(side, survey=replace(side.survey, cells=kept))


def _nothing(arguments: argparse.Namespace, found: Comparison) -> str:
    """Say why nothing was compared."""

    def held(groups: Iterable[str]) -> str:
        return ", ".join(groups) or "nothing measured"

    return (
        f"no gpu and config is on both sides: {arguments.first} has {held(found.only_first)}; "
        f"{arguments.second} has {held(found.only_second)}. 'gpustudy status' shows what is here."
    )


def _met(found: Comparison) -> set[str]:
    """Return the conditions that the comparison meets."""
    met = {pair.step_time.verdict.lower() for pair in found.pairs if pair.step_time is not None}
    if found.only_first or any(pair.step_time is None for pair in found.pairs):
        met.add("missing")
    return met


def _lines(arguments: argparse.Namespace, found: Comparison) -> Iterator[str]:
    from gpustudy.analysis.style import CRAFTED_BANNER

    if found.crafted:
        yield f"{CRAFTED_BANNER}\n"
    yield f"A: {arguments.first}    B: {arguments.second}    noise floor {found.noise_floor:.1%}"
    for pair in found.pairs:
        yield ""
        yield from _pair_lines(pair, arguments.top)
    yield ""
    for side, groups in (("A", found.only_first), ("B", found.only_second)):
        if groups:
            yield f"Only in {side}: {', '.join(groups)}"
    counts = Counter(pair.step_time.verdict for pair in found.pairs if pair.step_time is not None)
    told = ", ".join(f"{number} {word}" for word, number in sorted(counts.items()))
    pairs = "1 pair" if len(found.pairs) == 1 else f"{len(found.pairs)} pairs"
    yield f"Step times of {pairs}: {told or 'none on both sides'}."


def _pair_lines(pair: PairOfGroups, top: int) -> Iterator[str]:
    title = pair.first if pair.first == pair.second else f"{pair.first} -> {pair.second}"
    yield f"{title}  ({_pairing(pair)})"
    if pair.why:
        more = len(pair.why) - _MOST_FIELDS
        yield f"  differ in: {'; '.join(pair.why[:_MOST_FIELDS])}{f'; and {more} more' if more > 0 else ''}"
    elif pair.first == pair.second and pair.repeats:
        yield "  measured with equal keys, or their cell files are not here"
    yield from (f"  {_told(one)}" for one in ([pair.step_time] if pair.step_time else []))
    yield from (f"  {_told(one)}" for one in pair.others)
    if pair.classes:
        yield "  by class, time of a profiled step:"
        yield from (f"    {_told(one)}" for one in pair.classes)
    changed = [one for one in pair.kernels if one.verdict not in ("SAME", "AMBIGUOUS")]
    if pair.kernels:
        unclear = sum(one.verdict == "AMBIGUOUS" for one in pair.kernels)
        count = f"{len(changed)} of {len(pair.kernels)} kernels changed beyond noise, {unclear} ambiguous"
        yield f"  {count}{'; the largest differences:' if changed else '.'}"
        yield from (f"    {_told(one)}" for one in changed[:top])


def _pairing(pair: PairOfGroups) -> str:
    """Say which repeats are compared with each other."""
    if pair.repeats:
        return f"paired: {', '.join(f'r{repeat}' for repeat in pair.repeats)}"
    if pair.step_time is None:
        return "no step time on both sides"
    return "no repeat is on both sides: values stand beside each other, without a ratio"


def _told(one: Change) -> str:
    """Return a line for one change: both values, the ratio with its interval, the verdict."""
    name = f"{one.what} [{one.phase}]" if one.phase else one.what
    if len(name) > _NAME_WIDTH:
        half = (_NAME_WIDTH - 1) // 2
        name = f"{name[:half]}…{name[-half:]}"
    values = f"{_value(one.before, one.unit):>10} -> {_value(one.after, one.unit):<10}"
    return f"{name:{_NAME_WIDTH}} {values} {_ratio(one):26} {one.verdict}"


def _value(value: float | None, unit: str) -> str:
    from gpustudy.analysis.style import amount_of_bytes, duration, number

    if value is None:
        return "-"
    return duration(value) if unit == "s" else amount_of_bytes(value) if unit == "B" else number(value)


def _ratio(one: Change) -> str:
    if one.ratio is None:
        return ""
    if one.ratio.low is None or one.ratio.high is None:
        return f"{one.ratio.value:.2f}x (one repeat)"
    return f"{one.ratio.value:.2f}x ({one.ratio.low:.2f} to {one.ratio.high:.2f})"
