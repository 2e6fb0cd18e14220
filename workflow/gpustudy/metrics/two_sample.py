"""Do two sets of volumes come from one distribution? Maximum mean discrepancy with a permutation test.

Gretton et al. (2012), A kernel two-sample test, equation 3: the unbiased estimate, which is around 0 (also below) for
equal distributions. The kernel is Gaussian with the median distance of the pooled sets as its width.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

_GRID = 8
"""Cells per axis of the embedding: coarse anatomy, few enough numbers for a handful of volumes."""
_MOST_EXACT = 5000
"""Splits up to which the permutation test is exact: all of them are looked at."""
_PERMUTATIONS = 2000
"""Random splits beyond that: a p-value of 0.05 then has a standard error of 0.005."""


class TwoSample(NamedTuple):
    """The squared discrepancy (unbiased), the p-value, and over how many splits it was taken."""

    mmd2: float
    p_value: float
    splits: int


def embed(volumes: npt.NDArray[np.floating]) -> Matrix:
    """Return means over a grid of at most 8 cells per axis: (N, C, D, H, W) -> (N, features)."""
    pooled = volumes.astype(np.float64)
    for axis in (2, 3, 4):
        side = pooled.shape[axis]
        starts = np.arange(min(_GRID, side)) * side // min(_GRID, side)
        sizes = np.diff(np.append(starts, side))
        shape = [-1 if axis == other else 1 for other in range(pooled.ndim)]
        pooled = np.add.reduceat(pooled, starts, axis) / sizes.reshape(shape)
    return pooled.reshape(len(pooled), -1)


def two_sample(left: Matrix, right: Matrix, seed: int) -> TwoSample:
    """Compare two sets of feature vectors (m, d) and (n, d), each of two or more.

    The p-value is the share of all splits of the pooled set into m and n whose discrepancy is at least the one
    found; with too many splits, of random ones and the one found.
    """
    kernel = gaussian_kernel(np.concatenate([left, right]))
    count, size = len(kernel), len(left)
    found = mmd2_unbiased(kernel, np.arange(size))
    is_exact = comb(count, size) <= _MOST_EXACT
    splits = list(_all_splits(count, size) if is_exact else _random_splits(count, size, seed))
    tolerance = 1e-12 * max(abs(found), 1.0)  # sums in another order: equal splits must count as equal
    reached = sum(mmd2_unbiased(kernel, chosen) >= found - tolerance for chosen in splits)
    own = 0 if is_exact else 1  # among all splits the one found is there already
    return TwoSample(found, (reached + own) / (len(splits) + own), len(splits))


def gaussian_kernel(features: Matrix) -> Matrix:
    """Return exp(-|x - y|^2 / (2 w^2)) of all pairs, w the median distance of different vectors."""
    squares = (features**2).sum(axis=1)
    distances2 = np.maximum(squares[:, None] + squares[None, :] - 2 * features @ features.T, 0)
    np.fill_diagonal(distances2, 0)
    width2 = float(np.median(np.sqrt(distances2[np.triu_indices(len(features), 1)])) ** 2)
    return np.asarray(np.exp(-distances2 / (2 * width2 or 1.0)))


def mmd2_unbiased(kernel: Matrix, chosen: npt.NDArray[np.intp]) -> float:
    """Return the unbiased squared discrepancy of the vectors ``chosen`` from the others."""
    is_left = np.zeros(len(kernel), dtype=bool)
    is_left[chosen] = True
    left, right = kernel[np.ix_(is_left, is_left)], kernel[np.ix_(~is_left, ~is_left)]
    between = kernel[np.ix_(is_left, ~is_left)]
    return float(_mean_off_diagonal(left) + _mean_off_diagonal(right) - 2 * between.mean())


def _mean_off_diagonal(kernel: Matrix) -> float:
    count = len(kernel)
    return float((kernel.sum() - np.trace(kernel)) / (count * (count - 1)))


def _all_splits(count: int, size: int) -> Iterator[npt.NDArray[np.intp]]:
    return (np.array(chosen) for chosen in combinations(range(count), size))


def _random_splits(count: int, size: int, seed: int) -> Iterator[npt.NDArray[np.intp]]:
    generator = np.random.default_rng(seed)
    return (generator.permutation(count)[:size] for _ in range(_PERMUTATIONS))
