"""Writes the two histories on the target, and reports each operation that is durable."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from . import history
from .judge import CONFIG_FILE, LOG_FILE, PAGES_FILE, ROWS_FILE

# Takes the name of a history and the number of an operation.
Report = Callable[[str, int], None]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def prepare(directory: Path) -> None:
    """Makes the state before operation 1, and removes earlier epochs. It appears at once."""
    base = directory.parent
    base.mkdir(exist_ok=True)
    for old in base.iterdir():
        shutil.rmtree(old)
    new = base / "new"
    new.mkdir()
    for name, size in ((LOG_FILE, 0), (PAGES_FILE, history.PAGES * history.PAGE_BYTES)):
        with (new / name).open("wb") as file:
            file.write(bytes(size))
            file.flush()
            os.fsync(file.fileno())
    database = sqlite3.connect(str(new / ROWS_FILE))
    with database:
        database.execute("CREATE TABLE rows(key INTEGER PRIMARY KEY, value BLOB)")
        database.execute("CREATE TABLE counter(number INTEGER)")
        database.execute("INSERT INTO counter VALUES (0)")
    database.close()
    _sync_directory(new)
    new.rename(directory)
    _sync_directory(base)
    _sync_directory(base.parent)


class Files:
    """Writes files. `early`: acknowledges before the sync, which the judge must find out."""

    def __init__(self, directory: Path, seed: str, early: bool) -> None:
        self._directory, self._seed, self._early = directory, seed, early
        self._log = os.open(directory / LOG_FILE, os.O_WRONLY | os.O_APPEND)
        self._pages = os.open(directory / PAGES_FILE, os.O_WRONLY)

    def close(self) -> None:
        """Syncs nothing."""
        os.close(self._log)
        os.close(self._pages)

    def _replace(self, data: bytes) -> None:
        new = self._directory / (CONFIG_FILE + ".new")
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self._directory / CONFIG_FILE)

    def _write(self, made: history.Operation) -> str:
        """Returns which file is to be synced."""
        data = history.content(self._seed, made)
        if made.name == history.LOG:
            count, place = os.write(self._log, data), "log"
        elif made.name == history.CONFIG:
            self._replace(data)
            return "directory"
        else:
            count = os.pwrite(self._pages, data, made.page * history.PAGE_BYTES)
            place = "pages"
        if count != len(data):
            raise OSError(f"{count} of {len(data)} bytes were written: is the volume full?")
        return place

    def _sync(self, places: set[str]) -> None:
        if "log" in places:
            os.fsync(self._log)
        if "pages" in places:
            os.fdatasync(self._pages)
        if "directory" in places:
            _sync_directory(self._directory)

    def step(self, number: int, report: Report) -> int:
        """Writes a batch and syncs it. Returns the next number."""
        last = number + history.batch_size(self._seed, number) - 1
        places = {self._write(history.operation(self._seed, each))
                  for each in range(number, last + 1)}
        if self._early:
            report("files", last)
        self._sync(places)
        if not self._early:
            report("files", last)
        return last + 1


class Rows:
    """Writes rows. A commit is durable with a WAL and in mode DELETE (`synchronous=EXTRA`)."""

    def __init__(self, directory: Path, seed: str, early: bool, journal_mode: str) -> None:
        self._seed, self._early = seed, early
        path = str(directory / ROWS_FILE)
        self._database = sqlite3.connect(path, isolation_level=None)
        (mode,) = self._database.execute(f"PRAGMA journal_mode={journal_mode}").fetchone()
        if mode.upper() != journal_mode:
            raise sqlite3.OperationalError(f"journal_mode is {mode}, not {journal_mode}")
        self._database.execute("PRAGMA synchronous=EXTRA")

    def close(self) -> None:
        """All transactions have ended."""
        self._database.close()

    def step(self, number: int, report: Report) -> int:
        """A transaction. Returns the next number."""
        execute = self._database.execute
        execute("BEGIN IMMEDIATE")
        for key in history.changed_rows(self._seed, number):
            value = history.row_value(self._seed, number, key)
            execute("INSERT OR REPLACE INTO rows VALUES (?, ?)", (key, value))
        execute("UPDATE counter SET number = ?", (number,))
        if self._early:
            report("rows", number)
        execute("COMMIT")
        if not self._early:
            report("rows", number)
        return number + 1


class Thread(threading.Thread):
    """Writes until it is stopped, or fails."""

    def __init__(
        self,
        make: Callable[[], Files | Rows],
        number: int,
        report: Report,
        fail: Callable[[str], None],
    ) -> None:
        super().__init__(daemon=True)
        self._make, self._number, self._report, self._fail = make, number, report, fail
        self._stopped = threading.Event()

    def run(self) -> None:
        """SQLite wants to be used by the thread that opened the database."""
        try:
            writer = self._make()
            try:
                number = self._number
                while not self._stopped.is_set():
                    number = writer.step(number, self._report)
            finally:
                writer.close()
        except (OSError, sqlite3.Error) as error:
            self._fail(str(error))

    def end(self) -> None:
        """Waits for the operation that has begun."""
        self._stopped.set()
        self.join()
