"""What is left to spython: building an image and looking into one, as a program of its own.

spython calls ``singularity`` by that name, collects what a build says until its end and forgets its exit code; so it
runs here behind a command of that name which leads to the runtime at hand, writes everything to one stream at once,
and keeps the code. As a program of its own it can be ended with all that it started.

    python -m gpustudy.launch.with_spython build RUNTIME RECIPE IMAGE [OPTION ...]
    python -m gpustudy.launch.with_spython versions RUNTIME IMAGE
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROBE = (
    "import json, sys; from importlib import metadata; "
    "print(json.dumps({'python': sys.version.split()[0], **{d.metadata['Name']: d.version "
    "for d in metadata.distributions()}}))"
)
"""Program that prints name -> version of a Python's packages as one line of JSON."""


@contextmanager
def _singularity(runtime: str, merged: bool) -> Iterator[Path]:
    """Put a command ``singularity`` first on PATH that runs ``runtime``; yield the file with its exit code."""
    with tempfile.TemporaryDirectory(prefix="gpustudy-") as folder:
        code, command = Path(folder) / "code", Path(folder) / "singularity"
        streams = " 2>&1" if merged else ""
        command.write_text(
            f'#!/bin/sh\n{shlex.quote(runtime)} "$@"{streams}\n'
            f"code=$?\necho $code >{shlex.quote(str(code))}\nexit $code\n"
        )
        command.chmod(0o755)
        os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])
        yield code


def build(runtime: str, recipe: str, image: str, *options: str) -> int:
    """Build ``image`` from ``recipe`` and return the runtime's exit code; ``options`` are the runtime's own."""
    with _singularity(runtime, merged=True) as code:
        from spython.main import Client

        Client.build(recipe=recipe, image=image, options=list(options), sudo=False, force=True, quiet=True)
        return int(code.read_text()) if code.exists() else 1


def versions(runtime: str, image: str) -> int:
    """Print name -> version of the packages in ``image`` as one line of JSON."""
    with _singularity(runtime, merged=False):
        from spython.main import Client

        options = ["--cleanenv", "--contain", "--no-home"]
        result = Client.execute(image, ["python", "-c", PROBE], options=options, return_result=True, quiet=True)
    messages = result["message"] if isinstance(result["message"], list) else [result["message"]]
    lines = [line for message in messages for line in message.splitlines()]
    found = next((line for line in lines if line.startswith("{")), None)
    if result["return_code"] or found is None:
        print("\n".join(lines), file=sys.stderr)
        return result["return_code"] or 1
    print(json.dumps(json.loads(found), sort_keys=True))
    return 0


if __name__ == "__main__":
    action, *words = sys.argv[1:]
    sys.exit(build(*words) if action == "build" else versions(*words))
