"""A fake test program that cannot be killed: it serves a FUSE mount and waits for an answer of it
that never comes. It says `trapped` when it is in the trap.

    python3 -m gate.tests.trap DIR [detached]

With `detached` the mount is taken off lazily afterwards, so that no `mountinfo` shows it.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import time

from gate import linux

_HEADER = struct.Struct("=IIQQIIIHH")
_INIT, _LOOKUP, _GETATTR = 26, 1, 3
_ATTRIBUTES = struct.Struct("=QII" + "QQQQQQIIIIIIIIII")
_DIRECTORY = 0o40755


def _answer(device: int, unique: int, body: bytes) -> None:
    os.write(device, struct.pack("=IiQ", 16 + len(body), 0, unique) + body)


def _serve(device: int) -> None:
    """Answers what `stat` of the root needs; a look-up is read and never answered."""
    while True:
        request = os.read(device, 1 << 20)
        _, operation, unique = _HEADER.unpack_from(request)[:3]
        if operation == _INIT:
            _answer(device, unique, struct.pack("=IIII12s", 7, 31, 0, 0, b"").ljust(64, b"\0"))
        elif operation == _GETATTR:
            times = [0] * 6
            owner = [_DIRECTORY, 2, 0, 0, 0, 4096, 0]
            _answer(device, unique, _ATTRIBUTES.pack(0, 0, 0, 1, 0, 0, *times[:3], 0, 0, 0, *owner))
        elif operation == _LOOKUP:
            print("trapped", flush=True)


def main() -> None:
    """Mounts, and walks into the trap."""
    directory, words = sys.argv[1], sys.argv[2:]
    os.makedirs(directory, exist_ok=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode={_DIRECTORY:o},user_id=0,group_id=0"
    linux.mount("trap", directory, "fuse", data=options)
    threading.Thread(target=_serve, args=(device,), daemon=True).start()
    os.stat(directory)
    root = os.open(directory, os.O_PATH)
    if "detached" in words:
        linux.unmount(directory, linux.MNT_DETACH)
    os.stat("nothing", dir_fd=root)
    time.sleep(1000)


if __name__ == "__main__":
    main()
