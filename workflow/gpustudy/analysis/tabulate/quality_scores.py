"""One row for each gpu, config and quality metric: mean of the repeats, interval, difference to baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpustudy.analysis.dataset import BASELINE
from gpustudy.analysis.groups import baseline_of
from gpustudy.analysis.overview import measured_first
from gpustudy.analysis.quantities import value, values_by_repeat
from gpustudy.analysis.statistics import mean_over_repeats
from gpustudy.analysis.tables import Column, Content, Value, interval, number

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset, Group
    from gpustudy.analysis.statistics import Estimate

_METRICS = {
    "ms_ssim_generated": "MS-SSIM, generated pairs",
    "ms_ssim_real": "MS-SSIM, real pairs",
    "mmd2_rbf": "MMD\N{SUPERSCRIPT TWO}",
    "mmd_p_value": "p of MMD",
    "histogram_distance": "intensity distance",
    "mask_fidelity": "mask fidelity (Dice)",
    "mask_fidelity_real": "the same, real",
}
"""Quantity -> its name for people, in the order in which they are shown."""

COLUMNS = (
    Column("GPU", ("gpu",)),
    Column("config", ("config",)),
    Column("metric", ("metric",)),
    Column("of", ("scope",)),
    Column("n", ("repeats",), is_number=True),
    Column("value", ("value",), is_number=True),
    Column("95% interval", ("low", "high"), is_number=True),
    Column("less baseline", ("difference",), is_number=True),
    Column("95% interval", ("difference_low", "difference_high"), is_number=True),
)


def content(dataset: Dataset) -> Content:
    """Return columns and rows of the groups that have samples, gpus with results first."""
    rows = dataset.quantities
    known = rows[(rows["stage"] == "quality") & rows["quantity"].isin(list(_METRICS)) & rows["value"].notna()]
    scopes: Any = known.groupby("quantity", observed=True)["scope"].unique() if not known.empty else {}
    found: list[tuple[Value, ...]] = []
    for gpu in measured_first(dataset):
        for group in dataset.groups(gpu):
            for name in _METRICS:
                for scope in sorted(map(str, scopes[name])) if name in scopes else ():
                    estimate = value(dataset, group, name, scope)
                    if estimate is not None:
                        found.append(_row(dataset, group, name, scope, estimate))
    return COLUMNS, tuple(found)


def _row(dataset: Dataset, group: Group, name: str, scope: str, estimate: Estimate) -> tuple[Value, ...]:
    difference = _difference(dataset, group, name, scope)
    return (
        Value(group.gpu),
        Value(group.label),
        Value(_METRICS[name]),
        Value(scope),
        Value(str(estimate.n), (float(estimate.n),)),
        number(estimate.value, "{:.4g}".format),
        interval(estimate, "{:.4g}".format),
        number(difference.value if difference else None, "{:+.2g}".format),
        interval(difference, "{:+.2g}".format),
    )


def _difference(dataset: Dataset, group: Group, name: str, scope: str) -> Estimate | None:
    """Return the difference to baseline, paired by repeat; None for baseline and without a pair."""
    if group.config == BASELINE:
        return None
    own = values_by_repeat(dataset, group, name, scope)
    base = values_by_repeat(dataset, baseline_of(dataset, group.gpu), name, scope)
    pairs = [own[repeat] - base[repeat] for repeat in sorted(own.keys() & base.keys())]
    return mean_over_repeats(pairs) if pairs else None
