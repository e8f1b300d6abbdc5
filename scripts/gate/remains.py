"""What a run left: processes, FUSE connections, loop devices, files, the module's parameter.

The keeper removes what its own run left. It also removes what earlier runs left that were killed
together with their keepers. Nothing is touched that a process outside of the run can see.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Callable

from . import cgroup, fuse, linux, loops, parameter, processes, record
from .record import Record

# Processes that do not end in this time are called stuck.
END_SECONDS = 30
# After this time connections are cut that no process sees any more.
_UNSEEN_SECONDS = 3


def _freeze(run: Record) -> set[int]:
    """Stops all processes, so that none makes another mount."""
    stopped: set[int] = set()
    for _ in range(10):
        members = run.members()
        if members <= stopped:
            break
        for pid in members - stopped:
            processes.send(pid, signal.SIGSTOP)
        stopped |= members
    return stopped


def _outside(members: set[int]) -> set[int]:
    return {pid for pid in processes.all_ids() - members if not processes.is_dying(pid)}


def _unseen(members: set[int]) -> set[int]:
    """The connections that no process outside of the run sees. Empty if that cannot be known."""
    existing = fuse.existing()
    outside = _outside(members)
    if not processes.sees_all() or not fuse.all_servers_tell(outside):
        return set()
    return existing - fuse.mounted_by(outside) - fuse.served_by(outside)


def _cut(run: Record, numbers: set[int], members: set[int]) -> None:
    """Aborts those of the connections that no process outside of the run sees, and those of mounts
    among the run's files."""
    existing = fuse.existing()
    own = fuse.mounted(processes.read("/proc/self/mountinfo"), f"{run.scratch}/")
    fuse.abort(own & existing)
    if numbers & existing:
        outside = _outside(members)
        fuse.abort(numbers - fuse.mounted_by(outside) - fuse.served_by(outside))


def end_processes(run: Record) -> list[str]:
    """Kills all processes of the run; returns those that are stuck."""
    members = _freeze(run)
    numbers = fuse.mounted_by(members)
    # The mounts of some go away while their servers end. At one look alone, a mount that another
    # run is just making would be among them.
    unseen = _unseen(members)
    fuse.cut(fuse.served_by(members), members)
    begun = time.monotonic()
    while True:
        for pid in members:
            processes.send(pid, signal.SIGKILL)
        _reap()
        waited = time.monotonic() - begun
        numbers |= fuse.mounted_by(members)
        if members and waited > _UNSEEN_SECONDS:
            numbers |= unseen & _unseen(members)
            unseen = set()
        _cut(run, numbers, members)
        members = run.members()
        if not members or waited > END_SECONDS:
            break
        time.sleep(0.1)
    _reap()
    return [f"process {pid} ({processes.name_of(pid)}) cannot be ended" for pid in members]


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def inodes(directory: Path) -> set[tuple[int, int]]:
    """`st_dev` and `st_ino` of the files in a directory."""
    found = set()
    for path, _, files in os.walk(directory):
        for name in files:
            try:
                status = os.lstat(os.path.join(path, name))
            except OSError:
                continue
            found.add((status.st_dev, status.st_ino))
    return found


def _loops_of(run: Record) -> list[loops.Loop]:
    """Loop devices over the run's files. A file that was deleted is known by its path only."""
    files = inodes(run.scratch)
    return [
        loop
        for loop in loops.attached()
        if tuple(loop.backing) in files
        or f"/{run.marker}/" in loop.path
        or loop.backing.device == run.shm_device
    ]


def _detach_loops(run: Record) -> list[str]:
    left = []
    # A loop device may have another one as its backing file: the first round detaches the upper
    # one.
    for limit_seconds in (1, 10):
        left = [loop for loop in _loops_of(run) if not loops.detach(loop.number, limit_seconds)]
    return [f"/dev/loop{loop.number} on {loop.path} is in use" for loop in left]


def mount_points_below(directory: Path) -> list[str]:
    """The mounts of this namespace that are in the directory, inner ones first."""
    places = []
    for line in processes.read("/proc/self/mountinfo").splitlines():
        place = fuse.unescaped(line.split(" ")[4])
        if place.startswith(f"{directory}/"):
            places.append(place)
    return places[::-1]


def unmount_below(directory: Path) -> list[str]:
    """Takes mounts off; returns what could not be done."""
    for place in mount_points_below(directory):
        try:
            linux.unmount(place, linux.MNT_DETACH)
        except OSError:
            # Users' mounts are taken down by a program that is setuid root.
            if shutil.which("fusermount3"):
                os.spawnlp(os.P_WAIT, "fusermount3", "fusermount3", "-u", "-z", "-q", place)
    return [f"{place} is still mounted" for place in mount_points_below(directory)]


def remove_tree(directory: Path) -> list[str]:
    """Removes a directory without mounts in it, also immutable files."""
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        for path, _, files in os.walk(directory):
            for name in ("", *files):
                with contextlib.suppress(OSError):
                    linux.make_removable(os.path.join(path, name))
        shutil.rmtree(directory, ignore_errors=True)
    return [f"{directory} cannot be removed"] if directory.exists() else []


def _remove_files(run: Record) -> list[str]:
    return unmount_below(run.scratch) or remove_tree(run.scratch)


def remove(run: Record) -> list[str]:
    """Removes everything of the run; returns what could not be removed."""
    problems = end_processes(run)
    if run.boot == record.boot_id():
        problems += _detach_loops(run)
    if run.boot == record.boot_id() and not parameter.put_back(run):
        problems.append(f"{parameter.PATH} cannot be set to {run.io_uring}")
    if run.cgroup and not cgroup.remove(Path(run.cgroup)):
        problems.append(f"{run.cgroup} cannot be removed")
    # The record goes last: what is left is for the next run.
    return problems or _remove_files(run)


def remove_earlier(say: Callable[[str], None]) -> None:
    """Removes what runs left that were killed together with their keepers."""
    for scratch in record.directories():
        locked = record.lock(scratch)
        if locked is None:
            continue
        run = record.read(scratch)
        say(f"removing what a killed run left: {scratch}")
        for problem in remove(run) if run else remove_tree(scratch):
            say(problem)
        os.close(locked)
    for scratch in record.unborn():
        remove_tree(scratch)
    loops.delete_forgotten_partitions()
