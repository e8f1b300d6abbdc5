"""Processes as /proc shows them: identity, relatives, namespaces.

Nothing here reads `cmdline`, `environ` or `maps` of a process that may be stuck: those wait for a
lock that a process in state D may hold for ever. `environment` is for processes that run.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

from . import linux

_PF_EXITING = 0x4
_FIRST_PID_NAMESPACE = 0xEFFF_FFFC


class Identity(NamedTuple):
    """A process number, and the clock tick at which the process started: together they are unique
    until the machine boots again."""

    pid: int
    start: int

    def is_there(self) -> bool:
        """Whether this process has not ended."""
        return start_of(self.pid) == self.start and is_running(self.pid)


def read(path: str) -> str:
    """A file of /proc; empty if the process has ended or may not be looked at."""
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def names(path: str) -> list[str]:
    """What is in a directory of /proc."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def all_ids() -> set[int]:
    """All processes."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def threads(pid: int) -> list[str]:
    """The directories of its threads."""
    directory = f"/proc/{pid}/task"
    return [f"{directory}/{name}" for name in names(directory)]


def _fields(directory: str) -> list[str]:
    """The words of `stat` from the state on; the name before it may contain anything."""
    return read(f"{directory}/stat").rpartition(")")[2].split()


def state_of(directory: str) -> str:
    """One letter, or nothing if the process or thread has ended."""
    return (_fields(directory) or [""])[0]


def start_of(pid: int) -> int | None:
    """The clock tick of its start."""
    fields = _fields(f"/proc/{pid}")
    return int(fields[19]) if len(fields) > 19 else None


def identity(pid: int) -> Identity:
    """Of a process that exists."""
    start = start_of(pid)
    if start is None:
        raise ProcessLookupError(pid)
    return Identity(pid, start)


def name_of(pid: int) -> str:
    """What `ps` calls it."""
    return read(f"/proc/{pid}/comm").strip()


def program_of(pid: int) -> str:
    """The path of its program, or nothing."""
    return _link(f"/proc/{pid}/exe")


def session_of(pid: int) -> int:
    """Its session, or 0."""
    fields = _fields(f"/proc/{pid}")
    return int(fields[3]) if len(fields) > 3 else 0


def is_running(pid: int) -> bool:
    """Whether a thread is left. The first one may be a zombie while others are stuck."""
    return any(state_of(thread) not in ("", "Z", "X") for thread in threads(pid))


def _is_killed(directory: str) -> bool:
    for line in read(f"{directory}/status").splitlines():
        key, _, value = line.partition(":")
        if key in ("SigPnd", "ShdPnd") and int(value, 16) >> (signal.SIGKILL - 1) & 1:
            return True
    fields = _fields(directory)
    return len(fields) > 6 and bool(int(fields[6]) & _PF_EXITING)


def is_dying(pid: int) -> bool:
    """Whether it was killed, and is only not able to end."""
    return all(_is_killed(thread) for thread in threads(pid))


def descendants(ancestor: int) -> set[int]:
    """Children, and theirs."""
    children: dict[int, list[int]] = {}
    for pid in all_ids():
        fields = _fields(f"/proc/{pid}")
        if len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(pid)
    found: set[int] = set()
    pending = [ancestor]
    while pending:
        for child in children.get(pending.pop(), []):
            found.add(child)
            pending.append(child)
    return found


def namespace_of(pid: int, kind: str) -> int | None:
    """The number of its namespace `pid` or `mnt`."""
    link = _link(f"/proc/{pid}/ns/{kind}")
    return int(link.partition("[")[2].rstrip("]")) if "[" in link else None


def is_inside(pid: int, namespace: int) -> bool:
    """Whether its PID namespace is this one, or is nested in it."""
    try:
        current = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
    except OSError:
        return False
    while True:
        if os.fstat(current).st_ino == namespace:
            os.close(current)
            return True
        try:
            parent = linux.parent_namespace(current)
        except OSError:
            return False
        finally:
            os.close(current)
        current = parent


def inhabitants(namespace: int) -> set[int]:
    """The processes of a PID namespace and of those nested in it."""
    own = namespace_of(os.getpid(), "pid")
    others = (pid for pid in all_ids() if namespace_of(pid, "pid") != own)
    return {pid for pid in others if is_inside(pid, namespace)}


def environment(pid: int) -> dict[str, str]:
    """The environment that it was started with."""
    words = read(f"/proc/{pid}/environ").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def open_files(pid: int) -> Iterator[tuple[str, str]]:
    """The numbers and paths of its open files; the files are not touched."""
    for name in names(f"/proc/{pid}/fd"):
        yield name, _link(f"/proc/{pid}/fd/{name}")


def links(pid: int) -> Iterator[str]:
    """The paths of its directories, program and open files; the files are not touched."""
    for name in ("cwd", "root", "exe"):
        yield _link(f"/proc/{pid}/{name}")
    for _, link in open_files(pid):
        yield link


def sees_all() -> bool:
    """Whether /proc shows all processes of the machine: not in a container."""
    return namespace_of(os.getpid(), "pid") == _FIRST_PID_NAMESPACE


def send(pid: int, number: int) -> None:
    """Sends a signal to a process that may have ended."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass
