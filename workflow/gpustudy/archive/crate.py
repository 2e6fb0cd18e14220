"""The RO-Crate file of an archive: what it is, who may use it, and what its parts are, for other people's tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gpustudy.archive.names import ACCEPTED, CONFIG, HISTORY, LICENCE, MANIFEST, StageFolder

_PARTS = {
    MANIFEST: ("Every file with its size and SHA-256", "application/json"),
    CONFIG: ("The whole config of the study that the results were exported from", "application/yaml"),
    LICENCE: ("Licence of the study's code", "text/plain"),
    ACCEPTED: ("Results accepted in spite of a changed key, with reasons", "application/jsonl"),
    HISTORY: ("Exports and imports that these results went through", "application/jsonl"),
}


def crate_json(about: Mapping[str, Any], folders: Iterable[StageFolder], members: Iterable[str]) -> bytes:
    """Return the content of ro-crate-metadata.json.

    One entity per gpu and config: an entity per file would repeat the manifest, which lists them with their sums.

    Args:
        about: what the manifest says of the archive.
        folders: the stage folders in it.
        members: names of its members at the top.
    """
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate()
    crate.name = "Measurements of training a 3D medical diffusion model"
    crate.description = (
        "Cells (gpu, config, repeat) of a study of how training Med-DDPM behaves on GPU generations: raw files under "
        "cells/, typed Parquet tables under metrics/, one folder per stage and content key."
    )
    crate.datePublished = about["created"]
    licence = crate.add(ContextEntity(crate, about["licence_url"], {"@type": "CreativeWork", "name": about["licence"]}))
    crate.license = licence
    for name in sorted({MANIFEST, *members} & set(_PARTS)):
        described, media_type = _PARTS[name]
        crate.add_file(dest_path=name, properties={"name": described, "encodingFormat": media_type})
    for (room, gpu, config), repeats in sorted(_groups(folders).items()):
        what = "Raw files" if room == "cells" else "Tables"
        shown = ", ".join(str(repeat) for repeat in sorted(repeats))
        properties = {"name": f"{what} of {config} on {gpu}, repeats {shown}"}
        crate.add_dataset(dest_path=f"{room}/{gpu}/{config}/", properties=properties)
    return json.dumps(crate.metadata.generate(), indent=1, sort_keys=True).encode()


def _groups(folders: Iterable[StageFolder]) -> dict[tuple[str, str, str], set[int]]:
    found: dict[tuple[str, str, str], set[int]] = {}
    for folder in folders:
        found.setdefault((folder.room, folder.gpu, folder.config), set()).add(folder.repeat)
    return found
