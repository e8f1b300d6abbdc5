"""A share of one processor for a whole run, through a control group of version 1 or 2.

Races of tests show on a slow processor. A group of version 2 is made at the root of the hierarchy,
because a group with processes cannot hand its controllers on.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

PERIOD_US = 100_000
_REMOVE_SECONDS = 5


class CannotLimit(Exception):
    """The processor cannot be limited here; says why."""


def _hierarchies(mountinfo: str, kind: str, option: str = "") -> Path | None:
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        words = right.split(" ")
        if words[0] == kind and (not option or option in words[-1].split(",")):
            return Path(left.split(" ")[4])
    return None


def _own_group(text: str) -> str:
    """The path of this process in the hierarchy of version 1 with the controller `cpu`."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return path.lstrip("/")
    return ""


def _make_second(root: Path, name: str, quota_us: int) -> Path:
    if "cpu" not in (root / "cgroup.subtree_control").read_text().split():
        (root / "cgroup.subtree_control").write_text("+cpu")
    group = root / name
    group.mkdir()
    (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    return group


def _make_first(root: Path, name: str, quota_us: int) -> Path:
    group = root / name
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(quota_us))
    return group


def make(name: str, percent: int) -> Path:
    """A group whose processes share so much of one processor."""
    quota_us = PERIOD_US * percent // 100
    mountinfo = Path("/proc/self/mountinfo").read_text()
    second = _hierarchies(mountinfo, "cgroup2")
    first = _hierarchies(mountinfo, "cgroup", "cpu")
    try:
        if second and "cpu" in (second / "cgroup.controllers").read_text().split():
            return _make_second(second, name, quota_us)
        if first:
            own = first / _own_group(Path("/proc/self/cgroup").read_text())
            return _make_first(own if own.is_dir() else first, name, quota_us)
    except OSError as error:
        raise CannotLimit(f"a control group cannot be made: {error}") from error
    raise CannotLimit("no control groups with the controller cpu are mounted")


def join(group: Path) -> None:
    """The calling process and its future children belong to the group."""
    (group / "cgroup.procs").write_text("0")


def remove(group: Path) -> bool:
    """Removes a group whose processes have ended; false if it has some after a while."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    while group.is_dir():
        try:
            os.rmdir(group)
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
    return True
