"""The commands that switch the target's supply, and the one that starts its side."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import Any

_SWITCH_SECONDS = 120
_AGAIN_SECONDS = 5


class NoSwitch(Exception):
    """A command does not work."""


class Power:
    """`off` and `on` are commands of a shell, which find the number of the cut in `CUT`. `start`
    is run again whenever it ends while the target has power; it may be empty."""

    def __init__(self, off: str, on: str, start: str = "") -> None:
        self._off, self._on, self._start = off, on, start
        self._is_off = threading.Event()
        self._is_off.set()
        self._starter: threading.Thread | None = None
        self._started: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def off(self, cut: int) -> None:
        """Cuts the power."""
        _run(self._off, cut)
        self._end_start()

    def on(self, cut: int) -> None:
        """Switches it on."""
        _run(self._on, cut)
        if self._start:
            self._is_off.clear()
            self._starter = threading.Thread(target=self._keep_started, daemon=True)
            self._starter.start()

    def _keep_started(self) -> None:
        while True:
            with self._lock:
                if self._is_off.is_set():
                    return
                self._started = _popen(self._start, start_new_session=True)
            self._started.wait()
            # `ssh` ends at once while the target boots.
            self._is_off.wait(_AGAIN_SECONDS)

    def _end_start(self) -> None:
        with self._lock:
            self._is_off.set()
            if self._started and self._started.poll() is None:
                os.killpg(self._started.pid, signal.SIGKILL)
        if self._starter:
            self._starter.join()
            self._starter = None

    def close(self) -> None:
        """Ends what it started; the supply stays as it is."""
        self._end_start()


def _popen(command: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, shell=True, stdin=subprocess.DEVNULL, **options)


def _run(command: str, cut: int) -> None:
    process = _popen(command, env={**os.environ, "CUT": str(cut)})
    try:
        code = process.wait(_SWITCH_SECONDS)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.wait()
        raise NoSwitch(f"`{command}` takes more than {_SWITCH_SECONDS} s") from error
    if code != 0:
        raise NoSwitch(f"`{command}`: exit code {code}")
