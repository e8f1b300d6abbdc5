"""Names the machine and its kernel."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from .disk import read


def _field(path: str, name: str, separator: str) -> str:
    for line in read(Path(path)).splitlines():
        key, is_there, value = line.partition(separator)
        if is_there and key.strip() == name:
            return value.strip().strip('"')
    return ""


def this() -> dict[str, Any]:
    """Without names of hosts and users, and without serial numbers."""
    memory = _field("/proc/meminfo", "MemTotal", ":").split(" ")[0]
    dmi = Path("/sys/class/dmi/id")
    board = read(Path("/proc/device-tree/model")) or " ".join(
        filter(None, (read(dmi / "sys_vendor"), read(dmi / "product_name")))
    )
    facts = {
        "board": board,
        "cpu": _field("/proc/cpuinfo", "model name", ":") or platform.machine(),
        "cpu_count": os.cpu_count(),
        "memory_gib": round(int(memory or 0) / 2**20, 1),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "distribution": _field("/etc/os-release", "PRETTY_NAME", "="),
    }
    return {key: value for key, value in facts.items() if value}
