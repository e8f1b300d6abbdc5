"""What killed runs of a plain `cargo test` left: directories with mounts and loop devices.

Such a run has no keeper and no record, so only what is certain is removed. The process that made a
directory started before it. A directory is an orphan if no live program of this project started
before the last change of the directory, and no live process has a file in it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Callable

from . import fuse, loops, processes, record, remains

PREFIX = "onejournal-test-"
_SHM = Path("/dev/shm")
# Programs in cargo's directories, and the command wherever it is.
_OURS = re.compile(r"/deps/[^/]+-[0-9a-f]{16}( \(deleted\))?$|/onejournal[^/]*$")
_TICKS = os.sysconf("SC_CLK_TCK")


def _boot_time() -> float:
    for line in processes.read("/proc/stat").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


def _is_ours(pid: int) -> bool:
    return bool(_OURS.search(processes.program_of(pid)))


def _live() -> set[int]:
    own = os.getpid()
    return {
        pid
        for pid in processes.all_ids()
        if pid != own and processes.is_running(pid) and not processes.is_dying(pid)
    }


def _earliest_start(pids: Iterable[int]) -> float:
    """When the oldest live program of this project started, in seconds since 1970."""
    boot = _boot_time()
    starts = (processes.start_of(pid) for pid in pids if _is_ours(pid))
    seconds = (boot + start / _TICKS for start in starts if start is not None)
    return min(seconds, default=time.time())


def _used_paths(pids: Iterable[int]) -> list[str]:
    return [link for pid in pids for link in processes.links(pid)]


def _candidates(parents: Iterable[Path]) -> list[Path]:
    found = []
    for path in (path for parent in parents for path in parent.glob(f"{PREFIX}*")):
        status = path.lstat()
        if path.is_dir() and not path.is_symlink() and status.st_uid == os.geteuid():
            found.append(path)
    return found


def find(parents: Iterable[Path]) -> list[Path]:
    """The orphans in these directories."""
    candidates = _candidates(parents)
    if not candidates or not processes.sees_all():
        return []
    live = _live()
    # One second for the clock of the boot time, which has no fractions.
    earliest = _earliest_start(live) - 1
    used = _used_paths(live)
    return [
        path
        for path in candidates
        if path.lstat().st_mtime < earliest
        and not any(link == str(path) or link.startswith(f"{path}/") for link in used)
    ]


def _remove_one(path: Path) -> list[str]:
    mountinfo = processes.read("/proc/self/mountinfo")
    fuse.abort(fuse.mounted(mountinfo, f"{path}/"))
    problems = remains.unmount_below(path)
    files = remains.inodes(path)
    for loop in loops.attached():
        if tuple(loop.backing) in files or loop.path.startswith(f"{path}/"):
            if not loops.detach(loop.number):
                problems.append(f"/dev/loop{loop.number} on {loop.path} is in use")
    return problems or remains.remove_tree(path)


def remove(say: Callable[[str], None], parents: Iterable[Path] = ()) -> None:
    """Removes the orphans in the places where tests make directories."""
    places = list(parents) or list(dict.fromkeys([*record.parents(), _SHM]))
    for path in find(places):
        say(f"removing what a killed test left: {path}")
        for problem in _remove_one(path):
            say(problem)
