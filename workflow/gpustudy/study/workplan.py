"""What the Snakemake rules ask: paths, targets and order, worked out once per parse.

The rules hold no logic; every function here takes Snakemake's wildcards or nothing and returns paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Protocol

from gpustudy.analysis.names import FIGURES, TABLES
from gpustudy.base.canonical import KEY_HEX_DIGITS, key_of
from gpustudy.base.errors import UserError
from gpustudy.base.status import STATUS_FILE
from gpustudy.study.cells import PREVIOUS, Cell, Keys
from gpustudy.study.load import CONFIG_FILE, Effective
from gpustudy.study.paths import CELLS, METRICS, METRICS_FILE, cell_folder, data_directory, image_path, marker
from gpustudy.study.products import markers
from gpustudy.study.states import DAMAGED, CellState, StageState, Survey, survey

DATA_FILE = "manifest.json"


class Wildcards(Protocol):
    """Snakemake's wildcards of a cell's rules."""

    gpu: str
    config: str
    repeat: str
    stage: str


class Workplan:
    """The study as a set of paths, seen from one site at one moment.

    Args:
        effective: the study, the site and the results.
        whole: also give Snakemake what is current, for runs that force jobs and commands that describe the workflow.
    """

    def __init__(self, effective: Effective, *, whole: bool = False) -> None:
        self._whole = whole
        self.study, self.site, self.results = effective.study, effective.site, effective.results
        self.keys = Keys(effective)
        self.survey: Survey = survey(effective, self.keys)

    @cached_property
    def markers(self) -> dict[str, str]:
        """Product name -> marker, in which the product's key is."""
        return {name: str(path) for name, path in markers(self.survey).items()}

    @cached_property
    def patterns(self) -> dict[str, str]:
        """Wildcard -> regular expression. ``runnable``: the gpus that this site has; no rule measures others."""
        return {
            "gpu": _one_of(self.study.gpus),
            "runnable": _one_of(self.keys.runnable),
            "config": _one_of(self.study.configs),
            "repeat": r"\d+",
            "stage": _one_of(PREVIOUS),
            "key": rf"[0-9a-f]{{{KEY_HEX_DIGITS}}}",
            "name": _one_of(self.study.data),
            "stack": _one_of(self.study.stacks),
        }

    @property
    def runnable_gpus(self) -> list[str]:
        """Gpus of this site, in the order of the config."""
        return [gpu for gpu in self.study.gpus if gpu in self.keys.runnable]

    @property
    def foreign_gpus(self) -> list[str]:
        """Gpus of other sites, in the order of the config."""
        return [gpu for gpu in self.study.gpus if gpu not in self.keys.runnable]

    @property
    def config_names(self) -> list[str]:
        """Names of all configs."""
        return list(self.study.configs)

    figure_names = tuple(FIGURES)
    table_names = tuple(TABLES)

    def category(self, product: str) -> str:
        """Return the heading under which a report lists a figure or table."""
        return (FIGURES | TABLES)[product].category

    def data(self, wildcards: Wildcards) -> str:
        """Return the prepared data of a cell."""
        name = self.study.workloads[self.study.gpus[wildcards.gpu].workload].data
        return str(data_directory(self.results, name, self.keys.data_key(name)) / DATA_FILE)

    @property
    def runtime(self) -> str:
        """The container runtime of this site's cells; none where they run without."""
        return self.study.sites[self.site].runtime

    @property
    def image_pattern(self) -> str:
        """Path of any stack's image, with Snakemake's wildcards."""
        return str(image_path(self.results, "{stack}", "{key}", self.runtime))

    def image(self, wildcards: Wildcards) -> list[str]:
        """Return the image that a cell runs in; nothing where it runs without a container."""
        return [] if self.runtime == "none" else [self._image(self.study.gpus[wildcards.gpu].stack)]

    def images(self, wildcards: Wildcards) -> list[str]:
        """Return the images of all stacks that this site's cells run in."""
        stacks = dict.fromkeys(self.study.gpus[gpu].stack for gpu in self.runnable_gpus)
        return [] if self.runtime == "none" else [self._image(stack) for stack in stacks]

    def _image(self, stack: str) -> str:
        return str(image_path(self.results, stack, self.keys.image_key(stack), self.runtime))

    def stages_before(self, stage: str) -> Callable[[Wildcards], list[str]]:
        """Return the function that gives the stages that must still end before ``stage`` of a cell starts.

        Those that have ended are left out, as current tables are: data or an image that is to be made anew would make
        Snakemake run them again, over a result that is current.
        """

        def before(wildcards: Wildcards) -> list[str]:
            stages = self.keys.stages(wildcards.gpu)
            ordered = stages[stages.index(stage) - 1]
            needed = {ordered, PREVIOUS[stage]} - {None}
            return self._not_here(self._raw(_cell(wildcards), str(name)) for name in sorted(map(str, needed)))

        return before

    def raw_of_metrics(self, wildcards: Wildcards) -> str:
        """Return the raw folder that the tables of one stage of one cell are made from."""
        return str(Path(self._raw(_cell(wildcards), wildcards.stage)).parent)

    def stage_of_metrics(self, wildcards: Wildcards) -> list[str]:
        """Return the stage that must still end before its tables can be made; nothing where it has."""
        return self._not_here([self._raw(_cell(wildcards), wildcards.stage)])

    def _not_here(self, results: Iterable[str]) -> list[str]:
        """Return those results that are not here, or all where Snakemake is to see the whole workflow."""
        return [path for path in results if self._whole or not Path(path).exists()]

    def priority(self, wildcards: Wildcards) -> int:
        """Return a cell's priority: repeats are interleaved over configs, so that drift hits all alike."""
        return self.study.repeats - int(wildcards.repeat)

    def tables(self, gpu: str | None = None, config: str | None = None) -> list[str]:
        """Return the tables of all stages that are here or can be made here, of the cells chosen."""
        return [
            path for state, path, _ in self._all_tables if gpu in (None, state.gpu) and config in (None, state.config)
        ]

    def target(
        self, products: Iterable[str] = (), gpu: str | None = None, config: str | None = None
    ) -> Callable[[Wildcards], list[str]]:
        """Return the input function of a target rule: tables to be made, of the cells chosen, and the named products.

        Tables that are current are left out: the key in their path says all about them, and Snakemake needs more than
        a minute and a gigabyte to find that sixty thousand jobs of theirs have nothing to do. A rule without any
        input would always run, so there is one that always exists.
        """
        named = list(products)
        return lambda wildcards: self._wanted(gpu, config) + self.products(named) or [str(CONFIG_FILE)]

    def _wanted(self, gpu: str | None = None, config: str | None = None) -> list[str]:
        return [
            path
            for state, path, is_here in self._all_tables
            if (self._whole or not is_here) and gpu in (None, state.gpu) and config in (None, state.config)
        ]

    @cached_property
    def gathered(self) -> str:
        """The marker that all tables are here; products wait for this one file instead of for every table."""
        return str(marker(self.results, "tables", key_of(self.tables())))

    @cached_property
    def gathers(self) -> bool:
        """Whether tables are still to be made, or the marker is still to be set."""
        return bool(self._wanted()) or not Path(self.gathered).exists()

    def products(self, names: Iterable[str]) -> list[str]:
        """Return the markers of the named products."""
        return [self.markers[name] for name in names]

    @property
    def all_products(self) -> list[str]:
        """Names of all figures, tables, documents and the report."""
        return list(self.markers)

    def everything(self) -> list[str]:
        """Return all that a full run makes."""
        return self.tables() + list(self.markers.values())

    def foreign_summary(self) -> list[str]:
        """Return one line on the cells that cannot run here and are not current; nothing where there are none."""
        states = [state for state in self.survey.cells if state.state.startswith("foreign-")]
        if not states:
            return []
        gpus = ", ".join(dict.fromkeys(state.gpu for state in states))
        return [f"{len(states)} cells of {gpus} are foreign at site {self.site}: 'gpustudy plan' names them."]

    def damaged_notes(self) -> list[str]:
        """Return a line per stage whose files cannot be read, with what to do."""
        return [
            f"{state.cell}/{stage.stage} is damaged and left out: {stage.reason}"
            for state in self.survey.cells
            for stage in state.stages
            if stage.state == DAMAGED
        ]

    def foreign_notes(self) -> list[str]:
        """Return a line per gpu that cannot run here, naming each cell's state and what to do."""
        notes = []
        for gpu in self.study.gpus:
            if gpu in self.keys.runnable:
                continue
            states = [state for state in self.survey.cells if state.gpu == gpu]
            if all(state.state == "done" for state in states):
                continue
            places = [name for name, site in self.study.sites.items() if gpu in site.gpus]
            todo = (
                f"Measure it at {' or '.join(places)}, 'gpustudy archive export FILE --gpu {gpu}' there, and "
                "'gpustudy archive import FILE' here."
                if places
                else f"No site lists it: add {gpu} to the gpus of the site that has it."
            )
            notes.append(f"{gpu} is foreign at site {self.site}: {_by_state(states)}. {todo}")
        return notes

    def _raw(self, cell: Cell, stage: str) -> str:
        folder = cell_folder(CELLS, cell.gpu, cell.config, cell.repeat)
        return f"{self.results}/{folder}/{stage}-{self.keys.stage_key(cell, stage)}/{STATUS_FILE}"

    @cached_property
    def _all_tables(self) -> list[tuple[CellState, str, bool]]:
        """Cell, path and presence of the tables of all stages that are here or can be made here."""
        return [
            (state, self._metrics(state, stage), stage.metrics is not None)
            for state in self.survey.cells
            for stage in state.stages
            if self._is_usable(state, stage)
        ]

    def _metrics(self, state: CellState, stage: StageState) -> str:
        folder = cell_folder(METRICS, state.gpu, state.config, state.repeat)
        return f"{self.results}/{folder}/{stage.stage}-{stage.metrics_key}/{METRICS_FILE}"

    def _is_usable(self, state: CellState, stage: StageState) -> bool:
        if stage.state == DAMAGED:  # its path exists: a run would find nothing to make, and tables cannot be made
            return False
        return state.gpu in self.keys.runnable or stage.raw is not None or stage.metrics is not None


def _one_of(names: Iterable[str]) -> str:
    """Return the regular expression of exactly these names; of none where there are none."""
    return "|".join(map(re.escape, sorted(names))) or "(?!)"


def _cell(wildcards: Wildcards) -> Cell:
    return Cell(wildcards.gpu, wildcards.config, int(wildcards.repeat))


def _by_state(states: list[CellState]) -> str:
    """Return ``foreign-missing: default r1 r2, opt1 r1`` for all states that occur."""
    grouped: dict[str, dict[str, list[str]]] = {}
    for state in states:
        grouped.setdefault(state.state, {}).setdefault(state.config, []).append(f"r{state.repeat}")
    return "; ".join(
        f"{name}: " + ", ".join(f"{config} {' '.join(repeats)}" for config, repeats in configs.items())
        for name, configs in grouped.items()
    )


def parse_cell(text: str, keys: Keys) -> tuple[Cell, str | None]:
    """Read ``GPU/CONFIG/rN`` or ``GPU/CONFIG/rN/STAGE``.

    Raises:
        UserError: another form, or a name that the study does not have.
    """
    match = re.fullmatch(r"([^/]+)/([^/]+)/r(\d+)(?:/([^/]+))?", text.strip().rstrip("/"))
    if not match:
        raise UserError(f"'{text}' is no cell: write GPU/CONFIG/rN, such as cpu/baseline/r1.")
    cell = Cell(match[1], match[2], int(match[3]))
    keys.require(cell, match[4])
    return cell, match[4]
