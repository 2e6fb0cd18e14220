"""One row for each distinct device and software stack found at run time, and how it differs from the paper's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpustudy.analysis.claim_values import fact
from gpustudy.analysis.tables import NOT_KNOWN, SHORT_SUM, Column, Content, Value

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset

FIELDS = (
    "device_name", "cpu_model", "driver", "cuda", "cudnn", "torch", "numpy", "python", "ncu", "threads", "mig",
    "git_commit", "git_dirty", "image_sha256",
)  # fmt: skip
"""Fields of a stage's provenance that tell one stack from another; host, job and clocks are left out."""

PAPER = {"torch": "2.0.1", "cuda": "12.9", "cudnn": "8.9.2"}
"""The paper's stack (Methodology, Software Stack); its CUDA is probably that of the host's tools: see claim S02."""

_PRINTED = ("device_name", "cpu_model", "driver", "cuda", "cudnn", "torch", "git_commit")
"""Fields that stand in the LaTeX form."""

_SUMS = ("git_commit", "image_sha256")


def content(dataset: Dataset) -> Content:
    """Return columns and rows: a field that is known nowhere has no column."""
    found: dict[tuple[str, ...], dict[str, set[int]]] = {}
    differences: dict[tuple[str, ...], str] = {}
    for cell, _, manifest in dataset.manifests:
        provenance = manifest.get("provenance") or {}
        if provenance:
            key = tuple(_text(name, provenance.get(name)) for name in FIELDS)
            found.setdefault(key, {}).setdefault(f"{cell.gpu}/{cell.config}", set()).add(cell.repeat)
            differences[key] = _difference(provenance)
    used = [place for place in range(len(FIELDS)) if any(key[place] != NOT_KNOWN for key in found)]
    columns = (
        *(
            Column(FIELDS[place].replace("_", " "), (FIELDS[place],), is_printed=FIELDS[place] in _PRINTED)
            for place in used
        ),
        Column("beside the paper's", ("difference_to_paper",), is_long=True),
        Column("cells", ("cells",), is_long=True, is_printed=False),
    )
    rows = tuple(
        (*(Value(key[place]) for place in used), Value(differences[key]), Value(_cells(cells)))
        for key, cells in found.items()
    )
    return columns, rows


def _difference(provenance: dict[str, Any]) -> str:
    """Say which of the paper's versions a stack has not; for a field that it does not tell, that it does not."""
    texts = []
    for name, stated in PAPER.items():
        told = provenance.get(name)
        here = None if told is None else fact(name, told)
        if here != stated:
            texts.append(f"{name} {here or 'none'} instead of {stated}")
    return "; ".join(texts) or "as stated"


def _cells(repeats: dict[str, set[int]]) -> str:
    """Name cells in short, such as ``cpu/baseline/r1,2,3``."""
    return ", ".join(f"{name}/r{','.join(map(str, sorted(own)))}" for name, own in repeats.items())


def _text(name: str, value: object) -> str:
    if value is None:
        return NOT_KNOWN
    return str(value)[:SHORT_SUM] if name in _SUMS else str(value)
