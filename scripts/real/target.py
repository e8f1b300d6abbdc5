"""The target: connects to the controller, again and again, until that has finished."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from pathlib import Path

from .lines import Closed, Lines
from .session import Session, boot_id
from .volume import SYSTEMS, Failed, Volume

_CONNECT_SECONDS = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `real-power-cut target`."""
    add = parser.add_argument
    add("--controller", required=True, metavar="HOST:PORT")
    add("--device", required=True, help="a block device with the file system; it is not made here")
    add("--mount-point", required=True, type=Path, metavar="DIR")
    add("--system", choices=SYSTEMS, default="onejournal")
    add("--options", default="", help="mount options")
    add("--onejournal", default="onejournal", metavar="PATH", help="the command")
    add("--acknowledge-early", action="store_true",
        help="a canary: say that an operation is durable before its sync")


def serve(address: tuple[str, int], volume: Volume, early: bool, boot: str) -> None:
    """Returns when the controller has finished."""
    while True:
        try:
            connected = socket.create_connection(address, _CONNECT_SECONDS)
        except OSError:
            # The network may not be up yet.
            time.sleep(1)
            continue
        lines = Lines(connected)
        try:
            if Session(lines, volume, early, boot).run():
                return
        except (Closed, Failed, OSError) as error:
            print(f"real-power-cut: {error}", file=sys.stderr, flush=True)
            time.sleep(1)
        finally:
            lines.close()


def main(options: argparse.Namespace) -> int:
    """Returns the exit code."""
    if os.geteuid() != 0:
        print("real-power-cut: the target mounts: run it as root", file=sys.stderr)
        return 2
    host, _, port = options.controller.rpartition(":")
    directory = options.mount_point.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    volume = Volume(options.system, options.device, directory, options.options, options.onejournal)
    serve((host, int(port)), volume, options.acknowledge_early, boot_id())
    return 0
