"""System calls that Python's standard library lacks: namespaces, mounts, loop devices."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from typing import NamedTuple

CLONE_NEWNS = 0x0002_0000
CLONE_NEWPID = 0x2000_0000

MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x4_0000
MNT_DETACH = 0x2

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

NS_GET_PARENT = 0xB702

LOOP_CLR_FD = 0x4C01
LOOP_GET_STATUS64 = 0x4C05
LOOP_INFO64_BYTES = 232

BLKPG = 0x1269
BLKPG_DEL_PARTITION = 2

FS_IOC_GETFLAGS = 0x8008_6601
FS_IOC_SETFLAGS = 0x4008_6602
FS_APPEND_FL, FS_IMMUTABLE_FL = 0x20, 0x10

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leaves namespaces of the caller behind; a new PID namespace begins with the next child."""
    _check(_libc.unshare(flags), "unshare")


def unshare_mounts() -> None:
    """Gives the caller a mount namespace of its own. Propagation stays private where it is."""
    unshare(CLONE_NEWNS)


def return_to(namespace: int, kind: int) -> None:
    """Makes the open namespace the one of future children (`CLONE_NEWPID`)."""
    _check(_libc.setns(namespace, kind), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    words = [word.encode() or None for word in (source, target, kind)]
    flags_word = ctypes.c_ulong(flags)
    _check(_libc.mount(*words, flags_word, data.encode() or None), f"mount {target}")


def unmount(target: str, flags: int = 0) -> None:
    """umount2(2)."""
    _check(_libc.umount2(target.encode(), flags), f"umount {target}")


def end_with_parent(signal_number: int) -> None:
    """The kernel sends the signal to this process when its parent ends."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Descendants whose parents have ended become children of this process."""
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def name_process(name: str) -> None:
    """What `ps` calls this process; 15 bytes of it."""
    _check(_libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0), "prctl")


def parent_namespace(namespace: int) -> int:
    """A new descriptor of the PID namespace around the open one; an error outside of ours."""
    return fcntl.ioctl(namespace, NS_GET_PARENT)


class Backing(NamedTuple):
    """The file below a loop device: `st_dev` and `st_ino`."""

    device: int
    inode: int


def loop_backing(loop: int) -> Backing:
    """The file below the open loop device; ENXIO if there is none."""
    info = fcntl.ioctl(loop, LOOP_GET_STATUS64, bytes(LOOP_INFO64_BYTES))
    return Backing(*struct.unpack_from("=QQ", info))


def clear_loop(loop: int) -> None:
    """Detaches the open loop device, at once or when its last user closes it."""
    fcntl.ioctl(loop, LOOP_CLR_FD)


def delete_partition(disk: int, number: int) -> None:
    """Removes a partition of the open disk from the kernel's list; the disk keeps its bytes."""
    partition = ctypes.create_string_buffer(struct.pack("=qqi", 0, 0, number), 152)
    argument = struct.pack("@iiiP", BLKPG_DEL_PARTITION, 0, 152, ctypes.addressof(partition))
    fcntl.ioctl(disk, BLKPG, argument)


def make_removable(path: str) -> None:
    """Takes the flags "immutable" and "append only" off a file or directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        (flags,) = struct.unpack("@l", fcntl.ioctl(descriptor, FS_IOC_GETFLAGS, bytes(8)))
        flags &= ~(FS_APPEND_FL | FS_IMMUTABLE_FL)
        fcntl.ioctl(descriptor, FS_IOC_SETFLAGS, struct.pack("@l", flags))
    finally:
        os.close(descriptor)
