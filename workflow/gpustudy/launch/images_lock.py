"""``containers/images.lock.yaml``: the digest of each base image, and the sum of one built image that others may use.

The digests are those of the recipes and decide keys. A built sum decides nothing: it says which .sif the study's
authors ran, for whoever is handed that file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gpustudy.base.atomic import write_text
from gpustudy.base.errors import UserError
from gpustudy.study.load import ROOT, read_yaml

LOCK_FILE = Path("containers/images.lock.yaml")
_HEADER = """\
# Base images by digest, as the recipes name them, and the SHA-256 of a built image ('gpustudy image lock STACK').
# A digest decides a stack's key; a built image's sum is provenance.
"""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def read_lock(root: Path = ROOT) -> dict[str, Any]:
    """Return stack -> base image and built image.

    Raises:
        UserError: the file is missing, no YAML, or of another form.
    """
    content = read_yaml(root / LOCK_FILE)
    for stack, entry in content.items():
        built = entry.get("built") if isinstance(entry, dict) else {}
        if not isinstance(entry, dict) or "base" not in entry or not (built is None or _is_built(built)):
            raise UserError(f"{LOCK_FILE}: the entry '{stack}' has another form: restore the file from git.")
    return content


def built_sum(stack: str, key: str, root: Path = ROOT) -> str | None:
    """Return the SHA-256 that the lock has for a stack's image with this key; None where it has none."""
    built = (read_lock(root).get(stack) or {}).get("built")
    return str(built["sha256"]) if built and built["key"] == key else None


def write_built_sum(stack: str, base: str, key: str, sha256: str, root: Path = ROOT) -> None:
    """Write the SHA-256 of a stack's image into the lock."""
    content = read_lock(root) | {stack: {"base": base, "built": {"key": key, "sha256": sha256}}}
    lines = [_HEADER]
    for name, entry in sorted(content.items()):
        built = entry["built"]
        lines.append(f"{name}:\n  base: {entry['base']}\n")
        lines.append(
            f"  built:\n    key: '{built['key']}'\n    sha256: {built['sha256']}\n" if built else "  built: null\n"
        )
    write_text(root / LOCK_FILE, "".join(lines))


def _is_built(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"key", "sha256"} and bool(_SHA256.fullmatch(str(value["sha256"])))
