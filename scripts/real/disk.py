"""Names the disk below a directory or device, as the kernel and `smartctl` know it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

SYS = Path("/sys")
_SECTOR_BYTES = 512
_LAYERS_MAX = 8


def read(path: Path) -> str:
    """One line of the kernel; nothing if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return ""


def device_number(path: Path) -> str:
    """`major:minor` of a block device, or of the file system of a directory."""
    status = path.stat()
    number = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def _whole(device: Path) -> Path:
    """The disk of a partition."""
    return device.parent if (device / "partition").exists() else device


def layers(number: str, sys: Path = SYS) -> list[Path]:
    """The device of this number and what is below it, down to disks: device mapper, RAID, loop
    devices. Empty for file systems without a device."""
    link = sys / "dev" / "block" / number
    found: list[Path] = []
    waiting = [link.resolve()] if link.exists() else []
    while waiting and len(found) < _LAYERS_MAX:
        device = _whole(waiting.pop(0))
        if device in found:
            continue
        found.append(device)
        slaves = device / "slaves"
        if slaves.is_dir():
            waiting += [each.resolve() for each in sorted(slaves.iterdir())]
        file = read(device / "loop" / "backing_file")
        if file and Path(file).exists():
            below = sys / "dev" / "block" / device_number(Path(file))
            waiting += [below.resolve()] if below.exists() else []
    return found


def _transport(device: Path) -> str:
    """From the path of the device: usb, nvme, mmc, sata or virtio."""
    path = str(device)
    for word, name in (("/usb", "usb"), ("/nvme", "nvme"), ("/mmc", "mmc"), ("/ata", "sata"),
                       ("/virtio", "virtio"), ("/virtual/", "virtual")):
        if word in path:
            return name
    return ""


def describe(device: Path) -> dict[str, Any]:
    """A disk of /sys."""
    about = device / "device"
    sectors, vendor = read(device / "size"), read(about / "vendor")
    facts: dict[str, Any] = {
        "name": device.name,
        "transport": _transport(device),
        # virtio and PCI have a number there.
        "vendor": "" if vendor.startswith("0x") else vendor,
        # An SD card or eMMC has a name and a date.
        "model": read(about / "model") or read(about / "name"),
        "firmware": read(about / "firmware_rev") or read(about / "rev") or read(about / "fwrev"),
        "type": read(about / "type"),
        "made": read(about / "date"),
        "gib": round(int(sectors or 0) * _SECTOR_BYTES / 2**30, 1),
        "rotational": read(device / "queue" / "rotational") == "1",
        "cache": read(device / "queue" / "write_cache"),
        "fua": read(device / "queue" / "fua") == "1",
        "sector_bytes": int(read(device / "queue" / "logical_block_size") or 0) or None,
    }
    return {key: value for key, value in facts.items() if value not in ("", None)}


def _smartctl(name: str) -> dict[str, Any]:
    """What the disk says of itself, without its serial number."""
    program = shutil.which("smartctl", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if program is None:
        return {}
    words = [program, "--json", "-i", "-A", f"/dev/{name}"]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        said = json.loads(ran.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    names = ("model_name", "model_family", "firmware_version", "rotation_rate", "temperature",
             "power_on_time", "nvme_smart_health_information_log")
    return {key: said[key] for key in names if key in said}


def disks(path: Path) -> list[dict[str, Any]]:
    """All layers below a directory or device, its own first."""
    found = []
    for device in layers(device_number(path)):
        facts = describe(device)
        smart = _smartctl(device.name) if facts["transport"] not in ("virtual", "") else {}
        found.append({**facts, **({"smart": smart} if smart else {})})
    return found


def sentence(facts: list[dict[str, Any]]) -> str:
    """The layers in one line."""
    words = []
    for each in facts:
        name = " ".join(filter(None, [each.get("vendor", ""), each.get("model", "")]))
        parts = [each["name"], name, each.get("transport", ""), f"{each.get('gib', 0)} GiB",
                 each.get("cache", "")]
        words.append(", ".join(filter(None, parts)))
    return "; on ".join(words) or "not a disk"


def why_in_use(device: Path, sys: Path = SYS, proc: Path = Path("/proc")) -> str:
    """What uses a block device or a partition of it; nothing if it is free."""
    number = device_number(device)
    own = (sys / "dev" / "block" / number).resolve()
    parts = [own, *(each.parent for each in own.glob("*/partition"))]
    numbers = {read(each / "dev"): each.name for each in parts}
    for line in (proc / "self" / "mountinfo").read_text(encoding="utf-8").splitlines():
        words = line.split(" ")
        if words[2] in numbers:
            return f"{numbers[words[2]]} is mounted on {words[4]}"
    for line in read(proc / "swaps").splitlines()[1:]:
        if Path(line.split()[0]).name in numbers.values():
            return f"{line.split()[0]} is swap space"
    for each in parts:
        holders = each / "holders"
        names = [holder.name for holder in holders.iterdir()] if holders.is_dir() else []
        if names:
            return f"{each.name} is used by {', '.join(names)}"
    # Mounts in other namespaces, loop devices and daemons hold it open exclusively.
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        return f"{device}: {error.strerror}"
    return ""
