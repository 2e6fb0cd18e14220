"""Asks torch about the first CUDA device, in a process of its own: a context kept open would share the device.

Prints JSON: ``{}`` where torch finds no device.
"""

from __future__ import annotations

import json
import sys


def main() -> int:
    """Print what torch knows of the device."""
    import torch

    found = {}
    if torch.cuda.is_available():
        free_bytes, total_bytes = torch.cuda.mem_get_info(0)
        major, minor = torch.cuda.get_device_capability(0)
        found = {
            "device_name": torch.cuda.get_device_name(0),
            "architecture": f"sm_{major}{minor}",
            "memory_bytes": total_bytes,
            "free_bytes": free_bytes,
        }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
