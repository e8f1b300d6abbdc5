"""FUSE connections: which processes use them, and how to cut them.

A process that serves a mount and also waits for an answer of this mount cannot be killed while its
connection exists. Every `sync` of the machine then waits for it. Writing to `abort` of the
connection ends all requests, so the process can end.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable

from . import linux, processes

CONTROL = "/sys/fs/fuse/connections"
# Where this process reaches it.
_control = CONTROL

_SERVED = re.compile(r"^fuse_connection:\s*(\d+)$", re.MULTILINE)


def mount_control() -> None:
    """Makes the control file system available in this mount namespace, if that is possible."""
    if os.path.isdir(CONTROL) and not os.path.ismount(CONTROL):
        linux.mount("fusectl", CONTROL, "fusectl", linux.MS_NOSUID | linux.MS_NODEV)


def open_control() -> None:
    """Makes it available to this process, and changes no mount that others see: a child mounts it
    in a namespace of its own and sends a descriptor."""
    global _control
    if os.geteuid() != 0 or not os.path.isdir(CONTROL) or os.path.ismount(CONTROL):
        return
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            ours.close()
            _send_control(theirs)
        except OSError:
            # A container without the right to mount: connections cannot be cut.
            pass
        finally:
            os._exit(0)
    theirs.close()
    descriptors = socket.recv_fds(ours, 1, 1)[1]
    ours.close()
    os.waitpid(child, 0)
    if descriptors:
        _control = f"/proc/self/fd/{descriptors[0]}"


def _send_control(receiver: socket.socket) -> None:
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    mount_control()
    socket.send_fds(receiver, [b"."], [os.open(CONTROL, os.O_RDONLY)])


def existing() -> set[int]:
    """The numbers of all connections."""
    try:
        return {int(name) for name in os.listdir(_control) if name.isdigit()}
    except OSError:
        return set()


def unescaped(place: str) -> str:
    """A path as /proc writes it, where blanks and the like are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), place)


def mounted(mountinfo: str, below: str = "") -> set[int]:
    """The connections of the mounts in the text of a `mountinfo`, or of those in a directory."""
    found = set()
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        words = left.split(" ")
        kind = right.split(" ")[0].split(".")[0]
        if kind in ("fuse", "fuseblk") and unescaped(words[4]).startswith(below):
            major, minor = words[2].split(":")
            found.add(int(major) << 20 | int(minor))
    return found


def mounted_by(pids: Iterable[int]) -> set[int]:
    """The connections whose mounts these processes see.

    Each thread is asked: the first one may have ended while another one is stuck."""
    found: set[int] = set()
    looked_at: set[str] = set()
    for thread in (thread for pid in pids for thread in processes.threads(pid)):
        try:
            namespace = os.readlink(f"{thread}/ns/mnt")
        except OSError:
            continue
        if namespace not in looked_at:
            looked_at.add(namespace)
            found |= mounted(processes.read(f"{thread}/mountinfo"))
    return found


def served_by(pids: Iterable[int]) -> set[int]:
    """The connections whose descriptors these processes have open. A mount that was detached has
    no other trace. Older kernels do not say it."""
    found: set[int] = set()
    for thread in (thread for pid in pids for thread in processes.threads(pid)):
        for name in processes.names(f"{thread}/fdinfo"):
            found.update(map(int, _SERVED.findall(processes.read(f"{thread}/fdinfo/{name}"))))
    return found


def all_servers_tell(pids: Iterable[int]) -> bool:
    """Whether the kernel says for each open `/dev/fuse` of these processes whose it is."""
    for pid in pids:
        for name, link in processes.open_files(pid):
            if link.startswith("/dev/") and link.endswith("fuse"):
                if not _SERVED.search(processes.read(f"/proc/{pid}/fdinfo/{name}")):
                    return False
    return True


def cut(served: set[int], pids: set[int]) -> set[int]:
    """Cuts connections that these processes served at some time. The number of a mount that is gone
    may belong to another one already, so those that other processes serve are left alone."""
    return abort(served - served_by(processes.all_ids() - pids)) if served else set()


def abort(numbers: Iterable[int]) -> set[int]:
    """Cuts these connections; returns those that existed."""
    cut = set()
    for number in numbers:
        try:
            with open(f"{_control}/{number}/abort", "w", encoding="ascii") as file:
                file.write("1")
        except OSError:
            continue
        cut.add(number)
    return cut
