"""The artifact description: claims, the artefacts and figures behind each, and what time everything took.

One model, two forms (Markdown and LaTeX). Every time comes from a record: stages tell theirs in their tables, Snakemake
keeps those of its jobs on this machine. What no record tells is said to be not recorded.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustudy import __version__
from gpustudy.analysis import tables
from gpustudy.analysis.claim_models import paper
from gpustudy.analysis.claims import VERDICTS, Judgement, judge_all
from gpustudy.analysis.latex import escape
from gpustudy.analysis.names import FIGURES, TABLES
from gpustudy.analysis.style import CRAFTED_BANNER, duration
from gpustudy.analysis.tabulate.claims import cells_in_short
from gpustudy.analysis.tabulate.cost import stage_seconds

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset

TITLE = "Artifact description"
"""First words of the document, by which an earlier one is known."""

RECORDS = Path(".snakemake/metadata")
"""Where Snakemake keeps a record of each output's job, start and end; in the folder that it ran in."""

NOT_RECORDED = "not recorded"

_PARTS = {
    "set-up": ("prepare_data", "build_image"),
    "execution": ("run_",),
    "analysis": ("make_", "draw_", "write_", "gather_"),
}
"""Part of the work -> beginnings of the names of its rules."""
_S_PER_HOUR = 3600.0
_HOURS_FROM_S = 2 * _S_PER_HOUR
"""From here on times are told in hours."""


@dataclass(frozen=True)
class Section:
    """A part of the document: a title, paragraphs, then either lines of a list or a table.

    Attributes:
        title: a few words.
        paragraphs: whole sentences.
        items: (term, text) of a list; empty for none.
        rows: of a table, its head first; empty for none.
        code: command lines; empty for none.
    """

    title: str
    paragraphs: tuple[str, ...] = ()
    items: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    code: tuple[str, ...] = ()


def sections(dataset: Dataset, records: Path = RECORDS) -> tuple[Section, ...]:
    """Return the document's sections.

    Args:
        dataset: the cells at hand.
        records: folder of Snakemake's records; without it the times of jobs are said to be not recorded.
    """
    judgements = judge_all(dataset)
    return (
        _abstract(dataset, judgements),
        _claims(judgements),
        _artefacts(judgements),
        _times(dataset, records),
        _platforms(dataset),
        _reproduce(),
    )


def to_markdown(parts: Sequence[Section]) -> str:
    """Return the document as Markdown."""
    lines = [f"# {TITLE}", ""]
    for part in parts:
        lines += [f"## {part.title}", ""]
        lines += [line for text in part.paragraphs for line in (text, "")]
        lines += [f"- **{term}** {text}" for term, text in part.items] + ([""] if part.items else [])
        if part.rows:
            head, *rest = part.rows
            lines += [_markdown_row(head), _markdown_row(["---"] * len(head)), *map(_markdown_row, rest), ""]
        if part.code:
            lines += ["```", *part.code, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def to_latex(parts: Sequence[Section]) -> str:
    r"""Return the document as the body of a LaTeX appendix (``\usepackage{booktabs}``), for ``\input`` in a paper."""
    lines = [rf"\section{{{TITLE}}}", ""]
    for part in parts:
        lines += [rf"\subsection{{{escape(part.title)}}}", ""]
        lines += [line for text in part.paragraphs for line in (escape(text), "")]
        if part.items:
            listed = [rf"\item[{{{escape(term)}}}] {escape(text)}" for term, text in part.items]
            lines += [r"\begin{description}", *listed, r"\end{description}", ""]
        if part.rows:
            head, *rest = part.rows
            width = f"{_TABLE_PART / len(head):.2f}"
            align = "".join(rf"p{{{width}\linewidth}}" for _ in head)
            body = [" & ".join(map(escape, row)) + r" \\" for row in rest]
            top = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", " & ".join(map(escape, head)) + r" \\", r"\midrule"]
            lines += [*top, *body, r"\bottomrule", r"\end{tabular}", ""]
        if part.code:
            lines += [r"\begin{verbatim}", *part.code, r"\end{verbatim}", ""]
    return "\n".join(lines).rstrip() + "\n"


_TABLE_PART = 0.9
"""Part of the line's width that the columns of a LaTeX table share; the rest is space between them."""


def _markdown_row(row: Iterable[str]) -> str:
    return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |"


def _abstract(dataset: Dataset, judgements: Sequence[Judgement]) -> Section:
    states = Counter(cell.state for cell in dataset.survey.cells)
    cells = ", ".join(f"{number} {state}" for state, number in states.items()) or "none"
    counts = Counter(one.verdict for one in judgements)
    verdicts = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])
    texts = [
        f"This artifact measures the training of a 3D medical diffusion model and judges the claims of {paper()}",
        f"Cells (a gpu, a config, a repeat) by state: {cells}. Claims by verdict: {verdicts}.",
        f"Made by gpustudy {__version__} from the cells at hand; nothing in it was written by hand.",
    ]
    return Section("Summary", ((f"{CRAFTED_BANNER}.",) if dataset.crafted else ()) + tuple(texts))


def _claims(judgements: Sequence[Judgement]) -> Section:
    items = []
    for one in judgements:
        shown = ", ".join(f"{_kind(name)} {name}" for name in one.claim.figures)
        made_up = " (crafted)" if one.crafted else ""
        items.append(
            (
                f"{one.claim.id}, {one.verdict}{made_up}.",
                f"{one.claim.sentence} ({one.claim.source}) Cells: {cells_in_short(one.cells)}. Shown in: {shown}.",
            )
        )
    meaning = " ".join(f"{name}: {text}." for name, text in VERDICTS.items())
    return Section("Claims, artefacts and figures", (meaning,), tuple(items))


def _kind(name: str) -> str:
    return "figure" if name in FIGURES else "table"


def _artefacts(judgements: Sequence[Judgement]) -> Section:
    """List each figure and table with its files, the stages that it is made from, and the claims that it shows."""
    shows: dict[str, list[str]] = {}
    for one in judgements:
        for name in one.claim.figures:
            shows.setdefault(name, []).append(one.claim.id)
    rows = [("figure or table", "files in results/", "made from", "claims")]
    for folder, products in (("figures", FIGURES), ("tables", TABLES)):
        for name, product in products.items():
            files = f"{folder}/{name}.{'svg, .pdf' if folder == 'figures' else 'csv, .tex, .html'}"
            stages = ", ".join(product.stages) or "states"
            rows.append((product.title, files, stages, ", ".join(shows.get(name, ())) or tables.NOT_KNOWN))
    return Section("Figures and tables", rows=tuple(rows))


def _times(dataset: Dataset, records: Path) -> Section:
    jobs = recorded_jobs(records)
    rows: list[tuple[str, ...]] = [("part", "what", "time", "from")]
    for part, beginnings in _PARTS.items():
        own = {rule: seconds for rule, seconds in jobs.items() if rule.startswith(beginnings)}
        if part == "execution":
            rows += _stage_times(dataset)
            continue
        if not own:
            rows.append((part, "jobs of the workflow", NOT_RECORDED, "Snakemake's records on this machine"))
        for rule, (seconds, count) in sorted(own.items()):
            rows.append(
                (
                    part,
                    f"{rule} ({count} {'job' if count == 1 else 'jobs'})",
                    _told(seconds),
                    "Snakemake's records on this machine",
                )
            )
    rows.append(("set-up", "installing the environment", NOT_RECORDED, "no record is kept"))
    order = list(_PARTS)
    head, *rest = rows
    rest.sort(key=lambda row: order.index(row[0]))
    text = (
        "Times of jobs are summed up: with several at once the wait is shorter. Those of execution are measured by the "
        "stages themselves, wherever they ran, and come with imported archives."
    )
    return Section("Times of set-up, execution and analysis", (text,), rows=(head, *rest))


def _stage_times(dataset: Dataset) -> list[tuple[str, ...]]:
    """Return the time that the stages of each gpu took, all configs and repeats together."""
    totals: dict[tuple[str, str], list[float]] = {}
    for gpu in dataset.gpus:
        for group in dataset.groups(gpu):
            for stage, seconds in stage_seconds(dataset, group).items():
                totals.setdefault((gpu, stage), []).extend(seconds)
    origin = "status files of the stages" + (" (crafted)" if dataset.crafted else "")
    found: list[tuple[str, ...]] = [
        ("execution", f"{stage} on {gpu}, {len(seconds)} cells", _told(math.fsum(seconds)), origin)
        for (gpu, stage), seconds in totals.items()
    ]
    return found or [("execution", "stages of all cells", NOT_RECORDED, "no cell is measured")]


def _told(seconds: float) -> str:
    return f"{seconds / _S_PER_HOUR:.3g} h" if seconds >= _HOURS_FROM_S else duration(seconds)


def recorded_jobs(folder: Path) -> dict[str, tuple[float, int]]:
    """Return rule -> seconds and number of its jobs, as Snakemake recorded them; empty without records.

    A job with several outputs has a record for each. A record that cannot be read, such as one of another version of
    Snakemake, is left out: nothing but these times depends on it.
    """
    jobs: dict[tuple[str, float, float], float] = {}
    for path in folder.rglob("*") if folder.is_dir() else ():
        record = _record(path)
        rule, start, end = (record.get(name) for name in ("rule", "starttime", "endtime"))
        if isinstance(rule, str) and isinstance(start, float) and isinstance(end, float) and end >= start:
            jobs[rule, start, end] = end - start
    found: dict[str, tuple[float, int]] = {}
    for (rule, _, _), seconds in jobs.items():
        total, count = found.get(rule, (0.0, 0))
        found[rule] = (total + seconds, count + 1)
    return found


def _record(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else {}
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _platforms(dataset: Dataset) -> Section:
    platforms, stacks = (tables.build(name, dataset) for name in ("platforms", "stacks"))
    items = [(f"{row[0].text}:", f"{row[1].text}, {row[2].text}, sites {row[10].text or 'none'}, {row[11].text} cells")
             for row in platforms.rows]  # fmt: skip
    titles = [column.title for column in stacks.columns]
    for row in stacks.rows:
        told = zip(titles, (value.text for value in row), strict=True)
        items.append(("Stack:", ", ".join(f"{title} {text}" for title, text in told if text != tables.NOT_KNOWN)))
    return Section("Hardware and software", items=tuple(items))


def _reproduce() -> Section:
    return Section(
        "How to reproduce each part",
        ("Each command is run in the root of the checkout; docs/ has a guide for each site.",),
        code=(
            "make results                            # environment, data, cells of this machine, figures, report",
            "snakemake --cores all -- NAME           # one figure or table, with the cells that it needs",
            "snakemake --profile SITE                # the cells of a site's GPUs, there",
            "gpustudy archive export FILE --gpu GPU  # bring them here: export there, import here",
            "gpustudy claims ID --explain            # a claim with every number behind its verdict",
            "gpustudy appendix                       # this document",
        ),
    )
