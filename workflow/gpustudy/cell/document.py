"""The cell that a stage is given: read, recomputed, and refused when it does not fit what is at hand.

Nothing here imports torch: versions come from the packages' metadata, so that an outcome known from the
document alone (TF32 on a CPU) costs no import.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from gpustudy.base.canonical import key_of
from gpustudy.base.digests import file_sha256, source_digest
from gpustudy.base.errors import UserError
from gpustudy.base.status import STATUS_FILE, Status, read_status
from gpustudy.cell.optimisation_names import OPTIMISATIONS, incompatible_pair, lacking
from gpustudy.cell.outcomes import Outcome, unsupported

DOCUMENT_SCHEMA = 1
CELL_FILE = "cell.json"
PINNED = ("torch", "numpy")
"""Packages whose installed version must equal the stack's pin."""

_PACKAGE_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Gpu:
    """The device that a cell names; see ``Cell`` for where it stands in the document.

    Attributes:
        name: as in config.yaml, such as ``a100``.
        device: ``cuda`` or ``cpu``.
        architecture: such as ``sm_80``, or ``cpu``.
        device_name: text that torch's name of the device must contain; empty on the CPU.
        threads: torch's intra-operator threads on the CPU, or None.
        null_control: optimisations left out on purpose where this device lacks them.
        memory_bytes: memory of the device, or None where unknown.
    """

    name: str
    device: str
    architecture: str
    device_name: str
    threads: int | None
    null_control: tuple[str, ...]
    memory_bytes: int | None


@dataclass(frozen=True)
class Cell:
    """One stage of one cell, as its document says.

    Attributes:
        key: the stage's key.
        config_name: label of the config, for messages only.
        source_files: digest of each source alone, for messages only; may be empty.
        stage: name of the stage.
        gpu: the device.
        optimisations: names, in the config's order.
        pytorch_defaults: leave every switch as PyTorch sets it.
        repeat: 1, 2, ...
        seed: of data order and noise.
        workload: the sections that this stage reads.
        document: the whole document behind the key.
        path: the file it was read from.
    """

    key: str
    config_name: str
    source_files: dict[str, str]
    stage: str
    gpu: Gpu
    optimisations: tuple[str, ...]
    pytorch_defaults: bool
    repeat: int
    seed: int
    workload: dict[str, Any]
    document: dict[str, Any]
    path: Path

    @property
    def label(self) -> str:
        """Name for progress lines and messages, such as ``cpu/baseline/r1 train``."""
        return f"{self.gpu.name}/{self.config_name}/r{self.repeat} {self.stage}"


def read_cell(path: Path, stage: str) -> Cell:
    """Read a cell file and check that its key is the key of its document.

    Raises:
        UserError: no such file, not JSON, another stage or schema, a field missing, a key that does not fit, an
            unknown optimisation, or optimisations that exclude each other.
    """
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): give a cell file with --cell.") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): have it written anew by 'gpustudy'.") from error
    try:
        document = content["document"]
        if document["schema"] != DOCUMENT_SCHEMA:
            raise UserError(f"{path} has schema {document['schema']}, this version reads {DOCUMENT_SCHEMA}.")
        gpu = document["gpu"]
        cell = Cell(
            key=content["key"],
            config_name=content["labels"]["config"],
            source_files=content["labels"].get("source_files", {}),
            stage=document["stage"],
            gpu=Gpu(**(gpu | {"null_control": tuple(gpu["null_control"])})),
            optimisations=tuple(document["config"]["optimisations"]),
            pytorch_defaults=document["config"]["pytorch_defaults"],
            repeat=document["repeat"],
            seed=document["seed"],
            workload=document["workload"],
            document=document,
            path=path,
        )
    except KeyError as error:
        raise UserError(f"{path} has no field {error}: have it written anew by 'gpustudy'.") from error
    except (TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a cell ({error}): have it written anew by 'gpustudy'.") from error
    _check_cell(cell, stage)
    return cell


def _check_cell(cell: Cell, stage: str) -> None:
    if cell.stage != stage:
        raise UserError(f"{cell.path} is a cell of stage '{cell.stage}', not '{stage}': name the stage it is for.")
    key = key_of(cell.document)
    if key != cell.key:
        raise UserError(
            f"{cell.path} says key {cell.key} but its document has key {key}: "
            "it was edited by hand; have it written anew by 'gpustudy'."
        )
    for name in cell.optimisations:
        if name not in OPTIMISATIONS:
            raise UserError(
                f"{cell.path} names the unknown optimisation '{name}': known are {', '.join(OPTIMISATIONS)}."
            )
    if pair := incompatible_pair(cell.optimisations):
        raise UserError(f"{cell.path}: {pair}; take one of them out of config '{cell.config_name}'.")


def check_sources(cell: Cell, root: Path = _PACKAGE_ROOT) -> None:
    """Refuse when the sources beside this file are not those that the cell's key was made from."""
    sources = cell.document["sources"]
    try:
        digest = source_digest(root, sources["files"])
    except OSError as error:
        raise UserError(
            f"{cell.path} lists the source {error.filename}, which cannot be read: "
            "run the version that it was planned with."
        ) from error
    if digest != sources["digest"]:
        raise UserError(
            f"{cell.path} was planned with other sources (digest {sources['digest'][:12]}, here {digest[:12]}"
            f"{_edited_since(cell, root)}): run 'gpustudy plan' and start the cell again."
        )


def _edited_since(cell: Cell, root: Path) -> str:
    """Name the first source that was edited, where the cell's labels hold each file's own digest."""
    for name, digest in sorted(cell.source_files.items()):
        if (root / name).exists() and source_digest(root, [name]) != digest:
            return f"; {name} differs"
    return ""


def check_pins(cell: Cell) -> None:
    """Refuse when torch or numpy is absent or of another version than pinned; a local label (+cpu) is ignored."""
    stack = cell.document["stack"]
    for package in PINNED:
        pin = stack["pins"].get(package)
        if pin is None:
            continue
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError as error:
            raise UserError(
                f"{package} is not installed, stack '{stack['name']}' pins {pin}: install the stack's pins."
            ) from error
        if _without_label(found) != _without_label(pin):
            raise UserError(
                f"{package} {found} is installed, stack '{stack['name']}' pins {pin}: "
                "run in the stack's environment, or plan with another stack."
            )


def _without_label(version: str) -> str:
    return version.split("+")[0]


def check_data(cell: Cell, data: Path) -> None:
    """Refuse prepared data whose manifest is absent or has another key than the cell's."""
    named = cell.document["data"]
    path = data / "manifest.json"
    try:
        key = json.loads(path.read_text())["key"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not the manifest of prepared data ({error}): remove {path.parent} if it is there and "
            f"prepare '{named['name']}'."
        ) from error
    if key != named["key"]:
        raise UserError(
            f"{path} has key {key}, the cell needs {named['key']}: give the folder with that key by --data."
        )


def check_previous(cell: Cell, previous: Path | None) -> Path | None:
    """Return the directory of the stage before, checked; None for the first stage.

    Raises:
        UserError: no directory given, or one of another stage or key.
        Outcome: the stage before did not end as ``done``: this one ends the same way.
    """
    needed = cell.document["previous"]
    if needed is None:
        return None
    if previous is None:
        raise UserError(f"{cell.label} continues stage '{needed['stage']}': give its folder with --previous.")
    status = read_status(previous)
    if (status.stage, status.key) != (needed["stage"], needed["key"]):
        raise UserError(
            f"{previous / STATUS_FILE} is of {status.stage}-{status.key}, the cell needs "
            f"{needed['stage']}-{needed['key']}: give that folder with --previous."
        )
    if status.state != "done":
        raise _upstream(cell, status)
    return previous


def whole_file(previous: Path, name: str) -> Path:
    """Return the path of a raw file of the stage before, compared with what its status file says.

    Raises:
        UserError: the file is missing, or is not the one that its stage wrote.
    """
    path, recorded = previous / name, read_status(previous).files.get(name)
    if recorded is None or not path.is_file() or file_sha256(path) != recorded["sha256"]:
        raise UserError(
            f"{path} is missing, or is not what its stage wrote: set the stage aside with 'gpustudy retry' and run "
            "again, or restore the file."
        )
    return path


def _upstream(cell: Cell, status: Status) -> Outcome:
    return Outcome(
        status.state,
        "upstream",
        f"{cell.label} was not run because stage '{status.stage}' ended as {status.state}({status.reason}).",
    )


def applicable(cell: Cell) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the cell's optimisations into those to apply and those left out as null control.

    Returns:
        (names to apply, names that the device lacks and that its gpu lists under ``null_control``).

    Raises:
        Outcome: ``unsupported``, when the device lacks one that is no null control.
    """
    applied, left_out = [], []
    for name in cell.optimisations:
        reason = lacking(name, cell.gpu.device, cell.gpu.architecture)
        if reason is None:
            applied.append(name)
        elif name in cell.gpu.null_control:
            left_out.append(name)
        else:
            raise unsupported(f"{cell.label} cannot run: {reason}.")
    return tuple(applied), tuple(left_out)
