"""What a site charges for a time on its GPUs, by the rate that it publishes."""

from __future__ import annotations

from gpustudy.study.models import Rate, Site

_MINUTES_PER_HOUR = 60


def units(site: Site, gpu_minutes: float) -> float | None:
    """Return what one job of ``gpu_minutes`` on one GPU is charged; None where the site states no rate.

    Inside one long job or machine, the GPUs of the node share what an hour of it costs.
    """
    rate = site.rate
    if rate is None:
        return None
    if site.executor == "local":
        shared = 1 if rate.per_node_hour is None else site.gpus_per_node or 1
        return per_hour(rate) * gpu_minutes / _MINUTES_PER_HOUR / shared
    charged = max(gpu_minutes, rate.minimum_minutes) if gpu_minutes else 0.0
    return max(per_hour(rate) * charged / _MINUTES_PER_HOUR, rate.minimum_units if gpu_minutes else 0.0)


def per_hour(rate: Rate) -> float:
    """Return the units per hour of what the rate counts: one GPU, or a whole node."""
    return rate.per_gpu_hour if rate.per_gpu_hour is not None else rate.per_node_hour or 0.0
