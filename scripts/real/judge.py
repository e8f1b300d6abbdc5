"""Compares what a power cut left with what was acknowledged.

Each object is as some operation left it, which is its *version*. From the versions follows what is
wrong:

    lost        the object is older than an acknowledged operation
    torn        the object is as no operation left it
    disordered  the object is older than an operation before one that is there

A file system owes a program that nothing acknowledged is lost. The last two are owed only where the
state after a crash is a prefix of history (docs/reference/order.md). Without it, a page may be torn
by a write that was not acknowledged: it is lost as well if one of its sectors is as neither the
acknowledged operation nor a later one left it. The small file is synced before `rename`: torn, it
is lost.

A log may end with the beginning of the next record: an append across a page is two requests.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from . import history

LOG_FILE, PAGES_FILE, CONFIG_FILE, ROWS_FILE = "log", "pages", "config", "rows.db"
_EXAMPLES = 10
_SECTOR_BYTES = 512
# More operations than a batch, which the writer may have begun after the last one that is found.
_UNDER_WAY = 32


@dataclasses.dataclass
class Verdict:
    """On one history."""

    # The last operation that is there.
    found: int = 0
    lost: int = 0
    torn: int = 0
    disordered: int = 0
    # What cannot be read, or is not whole.
    damage: str = ""
    examples: list[str] = dataclasses.field(default_factory=list)

    @property
    def is_prefix(self) -> bool:
        """Whether the state is exactly the one after `found`, so that the writer can go on."""
        return not (self.lost or self.torn or self.disordered or self.damage)

    def note(self, text: str) -> None:
        """Keeps the first examples."""
        if len(self.examples) < _EXAMPLES:
            self.examples.append(text)


# `None`: torn.
Versions = Mapping[str, Optional[int]]


def _read(directory: Path) -> dict[str, bytes]:
    """The pages and the small file."""
    data, size = (directory / PAGES_FILE).read_bytes(), history.PAGE_BYTES
    found = {history.page_name(index): data[index * size:(index + 1) * size]
             for index in range(history.PAGES)}
    config = directory / CONFIG_FILE
    found[history.CONFIG] = config.read_bytes() if config.exists() else b""
    return found


def _has_old_sector(data: bytes, wholes: Sequence[bytes]) -> bool:
    """Whether a sector of a torn page is as none of these contents has it."""
    places = [slice(at, at + _SECTOR_BYTES) for at in range(0, history.PAGE_BYTES, _SECTOR_BYTES)]
    return any(all(data[place] != whole[place] for whole in wholes) for place in places)


def _version(data: bytes, seed: str, name: str) -> int | None:
    if not any(data):
        return 0
    number = history.number_of(data)
    made = history.operation(seed, number)
    is_whole = number > 0 and made.name == name and data == history.content(seed, made)
    return number if is_whole else None


def _read_log(path: Path, seed: str, until: int, verdict: Verdict) -> tuple[int, int]:
    """The last record that is whole, and where it ends."""
    data, end, last, number = memoryview(path.read_bytes()), 0, 0, 0
    while number < until or end < len(data):
        number += 1
        made = history.operation(seed, number)
        if made.name != history.LOG:
            continue
        expected = history.content(seed, made)
        there = data[end:end + made.size]
        if there == expected:
            end, last = end + made.size, number
            continue
        # The beginning of the record, or nothing of it, is the end of the log.
        if len(there) == made.size or there != expected[:len(there)]:
            verdict.torn += 1
            verdict.note(f"the log has something else than record {number} at byte {end}")
        break
    return last, end


def _expected(seed: str, last: int) -> dict[str, int]:
    versions = {history.page_name(index): 0 for index in range(history.PAGES)}
    versions.update({history.LOG: 0, history.CONFIG: 0})
    versions.update({made.name: made.number for made in history.operations(seed, last)})
    return versions


def compare(seed: str, acknowledged: int, found: Versions, verdict: Verdict) -> None:
    """Judges versions of files; `_read_log` has noted a torn log."""
    verdict.found = max(number or 0 for number in found.values())
    owed, whole = _expected(seed, acknowledged), _expected(seed, verdict.found)
    for name, number in found.items():
        if number is None:
            verdict.torn += 1
            verdict.note(f"{name} is torn; operation {owed[name]} on it was acknowledged")
        elif number < owed[name]:
            verdict.lost += 1
            verdict.note(f"{name} has operation {number}, acknowledged was {owed[name]}")
        elif number < whole[name]:
            verdict.disordered += 1
            verdict.note(f"{name} has operation {number}, not {whole[name]}, "
                         f"but operation {verdict.found} is there")


def _find_lost_in_torn(
    seed: str, acknowledged: int, contents: Mapping[str, bytes], found: Versions, verdict: Verdict
) -> None:
    """Counts the torn ones in which an acknowledged operation is missing."""
    owed = _expected(seed, acknowledged)
    later = range(acknowledged + 1, max(acknowledged, verdict.found) + _UNDER_WAY)
    for name in [name for name, number in found.items() if number is None]:
        first = owed[name]
        wholes = [history.content(seed, history.operation(seed, first)) if first
                  else bytes(history.PAGE_BYTES)]
        wholes += [history.content(seed, made) for number in later
                   if (made := history.operation(seed, number)).name == name]
        if name == history.CONFIG or _has_old_sector(contents[name], wholes):
            verdict.lost += 1
            verdict.note(f"{name} is torn, and operation {first} is missing in a part of it")


def judge_files(directory: Path, seed: str, acknowledged: int) -> Verdict:
    """A log that ends with the beginning of a record is cut to its whole ones."""
    verdict = Verdict()
    try:
        contents = _read(directory)
        found = {name: _version(data, seed, name) for name, data in contents.items()}
        until = max(acknowledged, *(number or 0 for number in found.values()))
        found[history.LOG], end = _read_log(directory / LOG_FILE, seed, until, verdict)
        compare(seed, acknowledged, found, verdict)
        _find_lost_in_torn(seed, acknowledged, contents, found, verdict)
        if verdict.is_prefix:
            with (directory / LOG_FILE).open("r+b") as log:
                log.truncate(end)
    except OSError as error:
        verdict.damage = str(error)
    return verdict


def judge_rows(directory: Path, seed: str, acknowledged: int) -> Verdict:
    """Opening the database recovers it, as for every program."""
    verdict = Verdict()
    path = directory / ROWS_FILE
    try:
        # SQLite would make one that is missing.
        database = sqlite3.connect(f"file:{path}?mode=rw", uri=True)
        try:
            (answer,) = database.execute("PRAGMA integrity_check").fetchone()
            (verdict.found,) = database.execute("SELECT number FROM counter").fetchone()
            rows = database.execute("SELECT key, value FROM rows").fetchall()
        finally:
            database.close()
    except (sqlite3.Error, TypeError) as error:
        verdict.damage = f"{path.name}: {error}"
        return verdict
    if answer != "ok":
        verdict.damage = f"{path.name}: integrity_check: {answer}"
    verdict.lost = max(0, acknowledged - verdict.found)
    if verdict.lost:
        verdict.note(f"the last transaction is {verdict.found}, acknowledged was {acknowledged}")
    _compare_rows(seed, rows, verdict)
    return verdict


def _compare_rows(seed: str, rows: list[tuple[int, bytes]], verdict: Verdict) -> None:
    expected = {}
    for number in range(1, verdict.found + 1):
        expected.update({key: number for key in history.changed_rows(seed, number)})
    values = dict(rows)
    for key in sorted(expected.keys() | values.keys()):
        number = expected.get(key, 0)
        if values.get(key) != (history.row_value(seed, number, key) if number else None):
            verdict.torn += 1
            verdict.note(f"row {key} is not as transaction {number} left it")


def judge(directory: Path, seed: str, acknowledged: Mapping[str, int]) -> dict[str, Verdict]:
    """Both histories. A directory that was never acknowledged to exist may be missing."""
    if not directory.exists() and not any(acknowledged.values()):
        return {"files": Verdict(), "rows": Verdict()}
    return {
        "files": judge_files(directory, seed, acknowledged.get("files", 0)),
        "rows": judge_rows(directory, seed, acknowledged.get("rows", 0)),
    }
