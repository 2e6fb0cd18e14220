"""docs/optimisations.md lists the registry as it is."""

from __future__ import annotations

from gpustudy.cell.optimisation_names import INCOMPATIBLE, OPTIMISATIONS
from gpustudy.cell.optimisations import REGISTRY
from tests.support.checkout import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "optimisations.md"


def table() -> list[str]:
    """The lines that the document must hold, one per optimisation."""
    lines = []
    for name, one in OPTIMISATIONS.items():
        needs = f"sm_{one.least_sm} or newer on CUDA" if one.least_sm else "-"
        lines.append(f"| `{name}` | {one.description} | {', '.join(one.devices)} | {needs} |")
    return lines


def pairs() -> list[str]:
    return [f"- `{first}` and `{second}`: {reason}" for first, second, reason in INCOMPATIBLE]


def test_the_document_lists_every_optimisation_and_every_exclusion() -> None:
    assert set(REGISTRY) == set(OPTIMISATIONS)
    content = DOCUMENT.read_text().splitlines()
    assert [line for line in content if line.startswith("| `")] == table()
    assert [line for line in content if line.startswith("- `")] == pairs()
