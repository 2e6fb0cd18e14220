"""``gpustudy claims``: judge the paper's claims on the cells at hand."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpustudy.base.errors import UserError
from gpustudy.base.reading import read_text
from gpustudy.base.words import nearest
from gpustudy.verbs.common import add_study_options, effective_of, print_json

if TYPE_CHECKING:
    from gpustudy.analysis.claims import Judgement

_EPILOG = """\
examples:
  gpustudy claims
  gpustudy claims O1-1 O1-2 --explain
  gpustudy claims --json > claims.json
  gpustudy claims --fail-on contradicted,implausible
  gpustudy claims --expect expected-verdicts.json

exit code: 0 when the claims were judged, whatever the verdicts; 1 when --fail-on or --expect is not met; 2 for a
mistake in the call. An expectation file holds {"O1-1": "SUPPORTED", ...}; only the claims that it names are judged."""
_DIFFERENT = 1
_WIDTH = 100
"""Columns of a line of text, so that it fits most terminals and an indented quote."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="claims to judge, such as O1-1; all without")
    parser.add_argument("--explain", action="store_true", help="also print readings, scopes and every number")
    parser.add_argument(
        "--fail-on", metavar="VERDICTS", default="", help="exit with 1 if a claim has one of these, separated by commas"
    )
    parser.add_argument(
        "--expect",
        type=Path,
        metavar="FILE",
        help="exit with 1 if a verdict differs from the one that FILE (JSON) names",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the JSON to FILE instead")
    add_study_options(parser)
    parser.epilog = _EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Judge, print, and compare."""
    from gpustudy.analysis.claims import VERDICTS, evidence, judge_all
    from gpustudy.analysis.dataset import Dataset
    from gpustudy.base.atomic import write_json
    from gpustudy.base.own import require_own
    from gpustudy.study.states import survey

    if arguments.output:
        require_own(arguments.output, "file of verdicts", '"claims": [', (".json",))
    refused = _verdicts(arguments.fail_on, VERDICTS)
    expected = _expected(arguments.expect, VERDICTS) if arguments.expect else {}
    dataset = Dataset(survey(effective_of(arguments)))
    found = judge_all(dataset, arguments.ids or list(expected))
    if arguments.output:
        write_json(arguments.output, evidence(found))
        print(f"wrote {arguments.output}")
    elif arguments.json:
        print_json(evidence(found))
    else:
        _print(found, explain=arguments.explain)
    wrong = [f"{one.claim.id} is {one.verdict}" for one in found if one.verdict in refused]
    wrong += [
        f"{one.claim.id} is {one.verdict}, expected {expected[one.claim.id]}"
        for one in found
        if one.claim.id in expected and expected[one.claim.id] != one.verdict
    ]
    for text in wrong if not arguments.json else ():
        print(f"not as asked: {text}")
    return _DIFFERENT if wrong else 0


def _print(found: Sequence[Judgement], *, explain: bool) -> None:
    from gpustudy.analysis.style import CRAFTED_BANNER

    if any(one.crafted for one in found):
        print(f"{CRAFTED_BANNER}\n")
    for one in found:
        print(_wrapped(f"{one.claim.id:<6} {one.verdict:<13} ", one.claim.sentence))
        if explain:
            _explain(one)
    counts = Counter(one.verdict for one in found)
    print(f"\n{len(found)} claims: {', '.join(f'{number} {verdict}' for verdict, number in counts.items())}")


def _explain(one: Judgement) -> None:
    from gpustudy.analysis.claim_numbers import NO_DATA
    from gpustudy.analysis.tabulate.claims import cells_in_short

    indent = " " * 7
    print(_wrapped(f"{indent}source     ", one.claim.source))
    print(_wrapped(f"{indent}why        ", one.why))
    if one.claim.ambiguity:
        print(_wrapped(f"{indent}ambiguity  ", one.claim.ambiguity))
    for finding in one.findings:
        print(f"{indent}{finding.reading}, as {finding.scope}: {finding.outcome}")
        for number in finding.numbers if finding.outcome != NO_DATA else ():
            why = f" ({number.why})" if number.why and number.why not in str(number) else ""
            print(_wrapped(f"{indent}  {number.outcome:<13} ", f"{number}{why}"))
    print(f"{indent}cells: {cells_in_short(one.cells)}\n")


def _wrapped(first: str, text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=" " * len(first))


def _verdicts(text: str, known: Mapping[str, str]) -> set[str]:
    """Return the verdicts that a list separated by commas names, in any case, with - or _ for a space."""
    found = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        verdict = word.upper().replace("-", " ").replace("_", " ")
        if verdict not in known:
            raise UserError(f"unknown verdict '{word}': {nearest(verdict, known)}")
        found.add(verdict)
    return found


def _expected(path: Path, known: Mapping[str, str]) -> dict[str, str]:
    text = read_text(path, 'name a JSON file of verdicts by claim, such as {"O1-1": "SUPPORTED"}')
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no JSON ({error}): correct it there.") from error
    if not isinstance(content, dict) or not all(isinstance(verdict, str) for verdict in content.values()):
        raise UserError(f'{path} holds no verdicts by claim: write {{"O1-1": "SUPPORTED"}}.')
    for name, verdict in content.items():
        if verdict not in known:
            raise UserError(f"{path}: claim {name}: unknown verdict '{verdict}': {nearest(verdict, known)}")
    return content
