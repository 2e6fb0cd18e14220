"""Starts the device check from its file: ``tests`` is a folder here, and must not be an installed package's."""

from __future__ import annotations

import sys
import types
from pathlib import Path

tests = types.ModuleType("tests")
tests.__path__ = [str(Path(__file__).resolve().parents[1])]
sys.modules["tests"] = tests

from tests.device.session import main  # noqa: E402  # only now is it this folder's

if __name__ == "__main__":
    sys.exit(main())
