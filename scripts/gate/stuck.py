"""What the processes of a test that does not end are doing, and how to end them nevertheless.

The looking runs in a process of its own with a limit of time: reading the environment of a stuck
process may hang.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Callable

from . import fuse, processes

# In the environment of all processes of a test.
TEST_VARIABLE = "ONEJOURNAL_TEST_NAME"
_LOOK_SECONDS = 5
_END_SECONDS = 10
_MOST_THREADS = 60


def bounded(work: Callable[[], str], seconds: float = _LOOK_SECONDS) -> str:
    """What `work` returns in a forked process; what it has written so far is lost if it hangs."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writable, "w") as file:
                file.write(work())
        finally:
            os._exit(0)
    os.close(writable)
    parts: list[bytes] = []
    deadline = time.monotonic() + seconds
    with os.fdopen(readable, "rb", buffering=0) as file:
        while select.select([file], [], [], max(0, deadline - time.monotonic()))[0]:
            part = file.read(1 << 16)
            if not part:
                break
            parts.append(part)
    processes.send(child, signal.SIGKILL)
    # A child that hangs is left to init.
    for _ in range(20):
        if os.waitpid(child, os.WNOHANG)[0]:
            break
        time.sleep(0.01)
    return b"".join(parts).decode(errors="replace")


def _in_session(leader: int) -> set[int]:
    return {pid for pid in processes.all_ids() if processes.session_of(pid) == leader}


def _marked(label: str) -> set[int]:
    """Daemons leave the session of their test, but keep its environment."""
    own = os.getpid()

    def look() -> str:
        others = (pid for pid in processes.all_ids() if pid != own and pid != os.getpid())
        found = (p for p in others if processes.environment(p).get(TEST_VARIABLE) == label)
        return " ".join(map(str, found))

    return set(map(int, bounded(look).split()))


def processes_of(leader: int, label: str) -> set[int]:
    """All processes that the test has started."""
    return {pid for pid in _in_session(leader) | _marked(label) if processes.is_running(pid)}


def describe(pids: set[int]) -> str:
    """State, place in the kernel and stack of each thread, as far as they may be seen."""

    def look() -> str:
        lines: list[str] = []
        for pid in sorted(pids):
            for thread in processes.threads(pid):
                lines += _describe_thread(pid, thread)
        return "\n".join(lines[:20 * _MOST_THREADS])

    return bounded(look)


def _describe_thread(pid: int, thread: str) -> list[str]:
    name = processes.read(f"{thread}/comm").strip()
    waits_in = processes.read(f"{thread}/wchan").strip() or "?"
    number = thread.rpartition("/")[2]
    head = f"process {pid} thread {number} ({name}): {processes.state_of(thread)} in {waits_in}"
    return [head, *(f"  {line}" for line in processes.read(f"{thread}/stack").splitlines())]


def end(pids: set[int]) -> None:
    """Kills these processes. Those that do not end have a FUSE connection to be cut."""
    deadline = time.monotonic() + _END_SECONDS
    # A process that is ending shows no files any more.
    served = fuse.served_by(pids)
    for pid in pids:
        processes.send(pid, signal.SIGKILL)
    while any(map(processes.is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
        if deadline - time.monotonic() < _END_SECONDS - 1:
            fuse.cut(served, pids)
