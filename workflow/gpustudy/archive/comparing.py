"""What differs between two archives, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator

from gpustudy.archive.check import ArchivedStage, Contents
from gpustudy.archive.names import StageFolder
from gpustudy.study.differences import differences

_Place = tuple[str, str, int, str, str]


def compare(first: Contents, second: Contents) -> Iterator[tuple[str, str, str]]:
    """Yield (stage, ``first`` or ``second`` or ``both``, what differs) for every stage that is not the same in both."""
    left, right = _by_place(first), _by_place(second)
    for place in sorted(left.keys() | right.keys()):
        ours, theirs = left.get(place), right.get(place)
        if ours is None or theirs is None:
            only = ours or theirs
            assert only is not None
            yield str(only.folder), "first" if ours else "second", f"{only.folder.key} is in no other archive"
        elif ours.folder.key != theirs.folder.key:
            found = [str(one) for one in differences(ours.cell_file, theirs.cell_file)]
            yield str(ours.folder), "both", "; ".join(found) or f"key {ours.folder.key} -> {theirs.folder.key}"
        elif _sums(first, ours) != _sums(second, theirs):
            changed = sorted(name for name, _ in _sums(first, ours) ^ _sums(second, theirs))
            yield str(ours.folder), "both", f"same key, other content: {', '.join(dict.fromkeys(changed))}"


def _by_place(contents: Contents) -> dict[_Place, ArchivedStage]:
    return {_place(stage.folder): stage for stage in contents.stages}


def _place(folder: StageFolder) -> _Place:
    return folder.gpu, folder.config, folder.repeat, folder.room, folder.stage


def _sums(contents: Contents, stage: ArchivedStage) -> set[tuple[str, str]]:
    return {(name, contents.manifest.members[member].sha256) for name, member in stage.files.items()}
