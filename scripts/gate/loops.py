"""Loop devices: which file is below each, and how to detach them."""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

from . import linux


class Loop(NamedTuple):
    """An attached loop device."""

    number: int
    # The path that the kernel shows. In another mount namespace it may name another file.
    path: str
    backing: linux.Backing


def _path_below(number: int) -> str:
    try:
        with open(f"/sys/block/loop{number}/loop/backing_file", encoding="utf-8") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""


def attached() -> Iterator[Loop]:
    """All attached loop devices that may be looked at."""
    for directory in glob.glob("/sys/block/loop*/loop"):
        number = int(directory.split("/")[3][len("loop"):])
        path = _path_below(number)
        try:
            device = os.open(f"/dev/loop{number}", os.O_RDONLY)
        except OSError:
            continue
        try:
            yield Loop(number, path, linux.loop_backing(device))
        except OSError:
            continue
        finally:
            os.close(device)


def _delete_partitions(number: int, device: int) -> None:
    for directory in glob.glob(f"/sys/block/loop{number}/loop{number}p*"):
        partition = re.search(r"p(\d+)$", directory)
        if partition:
            linux.delete_partition(device, int(partition[1]))


def delete_forgotten_partitions() -> None:
    """Deletes the partitions of loop devices that are not attached. A test that is killed forgets
    them, and while they are there, no label of the device's next file is found."""
    for directory in glob.glob("/sys/block/loop*/loop*p*"):
        number = int(directory.split("/")[3][len("loop"):])
        if os.path.exists(f"/sys/block/loop{number}/loop"):
            continue
        try:
            device = os.open(f"/dev/loop{number}", os.O_RDONLY)
        except OSError:
            continue
        try:
            _delete_partitions(number, device)
        except OSError:
            continue
        finally:
            os.close(device)


def detach(number: int, limit_seconds: float = 10) -> bool:
    """Detaches a loop device, its partitions first; false if it is still in use after a while.

    The kernel takes down the mounts of an ended namespace some time after its last process."""
    device = os.open(f"/dev/loop{number}", os.O_RDONLY)
    try:
        _delete_partitions(number, device)
        linux.clear_loop(device)
    except OSError:
        pass
    finally:
        os.close(device)
    deadline = time.monotonic() + limit_seconds
    while _path_below(number) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _path_below(number)
