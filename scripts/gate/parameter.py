"""`enable_uring` of the fuse module: whether mounts go through io_uring.

It is the machine's, so it is read and changed under a lock of its file, as tests do. Several runs
may be alive: each one's record has the value from before the first of them, and the last one puts
it back.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from typing import IO

from . import record
from .record import Record

PATH = "/sys/module/fuse/parameters/enable_uring"
DEV_FUSE, IO_URING = "N", "Y"
# A test that hangs may hold the lock.
_LIMIT_SECONDS = 30


@contextlib.contextmanager
def _locked() -> Iterator[IO[str]]:
    with open(PATH, encoding="ascii") as file:
        deadline = time.monotonic() + _LIMIT_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.05)
        yield file


def value() -> str | None:
    """What it is; nothing if this kernel does not have it."""
    try:
        with open(PATH, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def _set(wanted: str) -> bool:
    if value() != wanted:
        try:
            with open(PATH, "w", encoding="ascii") as file:
                file.write(wanted)
        except OSError:
            return False
    return value() == wanted


def change(wanted: str) -> bool:
    """Sets it; false if that cannot be done."""
    if value() is None:
        return False
    with _locked():
        return _set(wanted)


def note(run: Record) -> None:
    """Writes into the run's record what the last run has to put back."""
    if value() is None:
        return
    with _locked():
        run.io_uring = next(iter(record.others_notes(run.scratch)), value())
        run.write()


def put_back(run: Record) -> bool:
    """Puts the value back if no other live run needs it; false if that cannot be done."""
    if run.io_uring is None or value() is None:
        return True
    with _locked():
        is_last = not record.others_notes(run.scratch)
        is_done = not is_last or _set(run.io_uring)
        run.io_uring = None
        run.write()
    return is_done
