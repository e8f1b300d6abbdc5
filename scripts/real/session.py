"""The target's side of one connection: judge what is there, then write until it is told to stop.

Every failure is reported; then the writers end and the volume is unmounted.
"""

from __future__ import annotations

import dataclasses
import sqlite3
import time
from pathlib import Path
from typing import Any

from . import disk, machine, writer
from .judge import Verdict, judge
from .lines import PROTOCOL, Closed, Lines, Message
from .volume import Failed, Volume

_BASE = "real-power-cut"


def boot_id() -> str:
    """Another one after each power cut."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class Session:
    """Ends with `run`, which says whether the controller is finished."""

    def __init__(self, lines: Lines, volume: Volume, early: bool, boot: str) -> None:
        self._lines, self._volume, self._early, self._boot = lines, volume, early, boot
        self._is_mounted = False
        self._threads: list[writer.Thread] = []

    def run(self) -> bool:
        """The whole connection."""
        try:
            self._hello()
            while True:
                message = self._lines.receive()
                if message is None or message["say"] == "stop":
                    break
                self._obey(message)
            self._end()
            self._lines.send("stopped")
            return True
        except (Failed, OSError, sqlite3.Error, KeyError) as error:
            self._end()
            self._lines.send("failed", why=str(error))
            return False
        finally:
            self._end()

    def _hello(self) -> None:
        volume = self._volume
        settings = {
            "system": volume.system,
            "options": volume.options,
            "keeps_history": volume.keeps_history,
            "acknowledges_early": self._early,
        }
        about = {
            "machine": machine.this(),
            "versions": {**volume.versions(), "sqlite": sqlite3.sqlite_version},
            "disk": disk.disks(Path(volume.device)) if volume.device else [],
        }
        self._lines.send("hello", protocol=PROTOCOL, boot=self._boot, settings=settings,
                         about=about)

    def _obey(self, message: Message) -> None:
        if message["say"] == "judge":
            self._judge(message)
        elif message["say"] == "go":
            self._go(message)
        else:
            raise Failed(f"unknown word {message['say']!r}: are both copies of one version?")

    def _epoch(self, number: int) -> Path:
        return self._volume.directory / _BASE / f"epoch-{number}"

    def _mount(self) -> float:
        seconds = self._volume.mount()
        self._is_mounted = True
        return seconds

    def _judge(self, message: Message) -> None:
        """Mounts, compares, unmounts, and lets the checkers look at the closed volume."""
        verdicts: dict[str, Verdict] = {}
        answer: dict[str, Any] = {"damage": ""}
        try:
            answer["mount_seconds"] = round(self._mount(), 3)
            begun = time.monotonic()
            if message["epoch"]:
                path = self._epoch(message["epoch"])
                seed = f"{message['seed']}/{message['epoch']}"
                verdicts = judge(path, seed, message["acknowledged"])
            answer["judge_seconds"] = round(time.monotonic() - begun, 3)
            self._end()
            self._volume.check()
        except Failed as error:
            answer["damage"] = str(error)
        found = {name: dataclasses.asdict(verdict) for name, verdict in verdicts.items()}
        self._lines.send("verdict", found=found, **answer)

    def _go(self, message: Message) -> None:
        self._mount()
        path = self._epoch(message["epoch"])
        if message["is_new"]:
            writer.prepare(path)
        seed, early = f"{message['seed']}/{message['epoch']}", self._early
        numbers, mode = message["found"], message["journal_mode"]
        # The controller counts from here.
        self._lines.send("begun")

        def start(name: str, make: Any) -> None:
            number = numbers[name] + 1
            thread = writer.Thread(make, number, self._report, self._fail)
            thread.start()
            self._threads.append(thread)

        start("files", lambda: writer.Files(path, seed, early))
        start("rows", lambda: writer.Rows(path, seed, early, mode))

    def _report(self, name: str, number: int) -> None:
        try:
            self._lines.send("done", **{name: number})
        except Closed as error:
            raise OSError(str(error)) from error

    def _fail(self, why: str) -> None:
        try:
            self._lines.send("failed", why=why)
        except Closed:
            # `run` sees it, too.
            pass

    def _end(self) -> None:
        for thread in self._threads:
            thread.end()
        self._threads = []
        if self._is_mounted:
            self._is_mounted = False
            self._volume.unmount()
