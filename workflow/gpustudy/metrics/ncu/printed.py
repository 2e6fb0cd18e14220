"""Numbers as ncu prints them, under whatever locale it ran.

The locale of the ncu process decides the separators: ``12,319,469`` (en), ``17.424.096`` and ``76,79`` (de),
``22 084 542`` (fr). Within one row, values that ncu scaled stay in the C locale (``277.276032``) while the others do
not, so a point may be a decimal point even in a German file; it is a group separator only before exactly three digits,
which no scaled value has (ncu prints two decimals, or six).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

_SPACES = " \u00a0\u202f'\u2019"
"""Group separators other than comma and point: blanks of French, apostrophes of Swiss locales."""

_PLAIN = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_COMMA_GROUPS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_SURE_COMMA_GROUPS = re.compile(r"[-+]?\d{1,3}((,\d{3}){2,}(\.\d+)?|,\d{3}\.\d+)")
_POINT_GROUPS = re.compile(r"[-+]?\d{1,3}(\.\d{3})+(,\d+)?")
_SURE_POINT_GROUPS = re.compile(r"[-+]?\d{1,3}((\.\d{3}){2,}(,\d+)?|\.\d{3},\d+)")
_COMMA_DECIMAL = re.compile(r"[-+]?\d+,\d{2}")
_SPACE_COMMA = re.compile(rf"[-+]?\d{{1,3}}([{_SPACES}]\d{{3}})+,\d+")
_DECIMAL_COMMA = (_SURE_POINT_GROUPS, _COMMA_DECIMAL, _SPACE_COMMA)
_SPACE_GROUPS = re.compile(rf"[-+]?\d{{1,3}}([{_SPACES}]\d{{3}})+([,.]\d+)?")

_NOT_A_NUMBER = {"nan": "nan", "-nan": "nan", "inf": "inf", "+inf": "inf", "-inf": "-inf", "infinity": "inf"}
_DOUBTFUL = "(!)"
"""ncu's mark before a value that it takes for wrong."""

_MOST_CHARACTERS, _MOST_EXPONENT = 400, 308
"""No double is printed with more digits or a larger power of ten: what is, is a text."""

NOTHING = frozenset({"", "n/a", "N/A", "no data", "-"})
"""How ncu prints that there is no value."""


class MixedLocaleError(ValueError):
    """One file holds numbers of two locales."""


def uses_decimal_comma(texts: Iterable[str]) -> bool:
    """Infer from all the numbers of a file whether a comma is its decimal separator.

    Raises:
        MixedLocaleError: some numbers say yes, others no.
    """
    comma = point = ""
    for text in texts:
        if _SURE_COMMA_GROUPS.fullmatch(text):
            point = text
        elif any(pattern.fullmatch(text) for pattern in _DECIMAL_COMMA):
            comma = text
    if comma and point:
        raise MixedLocaleError(f"{point!r} and {comma!r} are numbers of two locales")
    return bool(comma)


def read_number(text: str, *, decimal_comma: bool) -> Decimal | None:
    """Return the number that ``text`` is, exactly as printed; None when it is none.

    >>> read_number("12,319,469", decimal_comma=False)
    Decimal('12319469')
    >>> read_number("6.219.038.720", decimal_comma=True), read_number("277.276032", decimal_comma=True)
    (Decimal('6219038720'), Decimal('277.276032'))
    """
    text = clean(text)
    if text.lower() in _NOT_A_NUMBER:
        return Decimal(_NOT_A_NUMBER[text.lower()])
    if _SPACE_GROUPS.fullmatch(text):
        return Decimal(re.sub(f"[{_SPACES}]", "", text).replace(",", "."))
    if decimal_comma:
        if _POINT_GROUPS.fullmatch(text) or "," in text:
            text = text.replace(".", "").replace(",", ".")
    elif _COMMA_GROUPS.fullmatch(text):
        text = text.replace(",", "")
    if not _PLAIN.fullmatch(text) or len(text) > _MOST_CHARACTERS:
        return None
    number = Decimal(text)
    return number if abs(number.adjusted()) <= _MOST_EXPONENT else None


def clean(text: str) -> str:
    """Return ``text`` without blanks around it and without ncu's mark of doubt."""
    return text.strip().removeprefix(_DOUBTFUL).strip()
