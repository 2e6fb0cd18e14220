"""Words that people type: the known one nearest to a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_CLOSE = 0.6
"""Least likeness of two words (``difflib``'s ratio) at which one is offered for the other; difflib's own default."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` with the known word nearest to ``word``, or the list of known words."""
    words = sorted(known)
    found = difflib.get_close_matches(word, words, n=1, cutoff=_CLOSE)
    if found:
        return f"did you mean '{found[0]}'?"
    return f"known are: {', '.join(words)}." if words else "none is known here."
