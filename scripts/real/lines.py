"""What controller and target say to each other: lines, each a JSON object with the word `say`.

    target      controller
    hello                   its boot id, its settings, what it is
                judge       the seed, the epoch, and the last acknowledged operations
    verdict                 what was found
                go          write: the epoch, whether it is new, and SQLite's journal mode
    begun                   the epoch is on the disk
    done                    operations that are durable, again and again
                            (here the power is cut)
                stop        end the writers, unmount, and end
    stopped
    failed                  in place of any answer: what does not work

An *epoch* is a history from its beginning. A new one begins when the old one is long, or when its
state is no prefix of history. There is no authentication: use a network of your own.
"""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

PROTOCOL = 1
_READ_BYTES = 1 << 16
_LINE_BYTES = 1 << 20

Message = dict[str, Any]


class Closed(Exception):
    """The other side is gone."""


class Lines:
    """A connection. Any thread may send; one receives."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._sending = threading.Lock()
        self._received = b""
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, word: str, **fields: Any) -> None:
        """One line, at once."""
        line = json.dumps({"say": word, **fields}, separators=(",", ":")) + "\n"
        try:
            with self._sending:
                self._socket.sendall(line.encode())
        except OSError as error:
            raise Closed(str(error)) from error

    @property
    def has_line(self) -> bool:
        """Whether `receive` has a message without waiting."""
        return b"\n" in self._received

    def is_ready(self, timeout: float | None) -> bool:
        """Waits for a message, which `receive` then returns; `False` if none comes in time."""
        while not self.has_line:
            self._socket.settimeout(timeout)
            try:
                data = self._socket.recv(_READ_BYTES)
            # Without any time left, Python says that it would block.
            except (TimeoutError, socket.timeout, BlockingIOError):
                return False
            except OSError as error:
                raise Closed(str(error)) from error
            if not data or len(self._received) > _LINE_BYTES:
                raise Closed("it ended the connection")
            self._received += data
        return True

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; `None` if none comes in time."""
        if not self.is_ready(timeout):
            return None
        line, _, self._received = self._received.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError as error:
            raise Closed(f"not the protocol: {error}") from error
        if not isinstance(message, dict) or not isinstance(message.get("say"), str):
            raise Closed("not the protocol")
        return message

    def close(self) -> None:
        """The other side sees it."""
        self._socket.close()
