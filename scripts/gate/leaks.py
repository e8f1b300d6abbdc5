"""Processes that tests have left, in a PID namespace where all others are known."""

from __future__ import annotations

import os
import signal

from . import processes, stuck

_MOST_LINES = 10


def left() -> list[int]:
    """All processes but init, this one and its ancestors."""
    known = {1, os.getpid(), os.getppid()}
    return sorted(pid for pid in processes.all_ids() - known if processes.is_running(pid))


def end_all() -> list[str]:
    """Kills what tests have left; returns lines that say what it was."""
    found = left()
    if not found:
        return []

    def look() -> str:
        return "\n".join(_describe(pid) for pid in found[:_MOST_LINES])

    said = stuck.bounded(look).splitlines()
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    more = [f"  and {len(found) - _MOST_LINES} more"] if len(found) > _MOST_LINES else []
    return [f"{len(found)} processes are left by tests, and were ended:", *said, *more]


def _describe(pid: int) -> str:
    test = processes.environment(pid).get(stuck.TEST_VARIABLE, "an unknown test")
    return f"  {pid} ({processes.name_of(pid)}) of {test}"
