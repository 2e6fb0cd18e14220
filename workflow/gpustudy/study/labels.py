"""What the labels of a data set are called: the names that figures and tables give them."""

from __future__ import annotations

from collections.abc import Mapping

from gpustudy.data.definitions import DATA_KINDS
from gpustudy.study.models import Study


def label_names(study: Study, gpu: str) -> Mapping[int, str]:
    """Return label -> name of the data set that the cells of ``gpu`` train on; empty where it gives none."""
    known = study.gpus.get(gpu)
    if known is None:
        return {}
    definition = study.data[study.workloads[known.workload].data]
    fixed = DATA_KINDS[definition.kind].label_names
    if fixed is not None:
        return fixed
    classes = getattr(definition, "classes", None) or {}
    return {int(label): str(name) for label, name in classes.items()}
