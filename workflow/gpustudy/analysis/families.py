"""Kernel classes put together into the few kinds of work that a figure can tell apart, with one look everywhere."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from gpustudy.analysis.style import COLOURS, HATCHES

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "convolution": ("conv_forward", "conv_dgrad", "conv_wgrad", "conv_backward", "conv", "implicit_gemm"),
    "matrix product, attention": ("gemm", "attention"),
    "normalisation": ("normalisation",),
    "elementwise, reduction": ("elementwise", "reduction", "fused"),
    "layout, padding": ("layout", "padding"),
    "copy, memset": ("copy", "memset"),
    "upsampling": ("upsampling",),
    "all other": ("optimiser", "random", "communication", "framework", "unclassified"),
}
"""Family -> its classes (metrics/kernel_classes.csv), in the order in which figures show them."""

OTHER = "all other"

UNNAMED = "unclassified"
"""Class whose look one gets that no family names."""

_FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names}


def family_of(kernel_class: str) -> str:
    """Return the family of a class; a class that no family names is among all others."""
    return _FAMILY_OF.get(kernel_class, OTHER)


def by_family(classes: pd.Series[str]) -> pd.Series[str]:
    """Return the family of each class of a column."""
    return classes.astype(object).map(family_of)


def look_of_class(kernel_class: str) -> tuple[str, str]:
    """Return colour and hatch of a class, the same in every figure: the colour of its family, a hatch of its own."""
    family = family_of(kernel_class)
    names = FAMILIES[family]
    place = names.index(kernel_class if kernel_class in names else UNNAMED)
    return COLOURS[list(FAMILIES).index(family)], HATCHES[place]
