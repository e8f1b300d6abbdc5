"""The rows of README among measured rows, as a small table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]

EXT4, XFS, VOLUME = "ext4 ordered", "XFS", "OneJournal"
EXTENSION = "ext4 ordered, SQLite extension"
ATOMIC = "OneJournal, atomic_writes"
COLUMNS = ("SQLite, appends, files", "kernel ext4", "XFS", "volume", "extension on ext4")
_SYSTEMS = (EXT4, XFS, VOLUME, EXTENSION)

_BYTES, _TIME = "bytes written for a transaction", "transaction time"
_RATE, _SYNCS = "transactions of all writers", "syncs a second"
_WRITES = "writes a second"
_SECONDS = "time"


class Line(NamedTuple):
    """A line of the table, and where it is among the rows."""

    what: str
    experiment: str
    panel: str
    case: str
    metric: str
    systems: tuple[str, ...] = _SYSTEMS


# As in README, without the lines that need a server, a virtual machine or a full run, and each line
# once for the disk that is measured. The laboratory shrinks the archive (README: 10,000 files) and
# the file that is read (512 MiB).
LINES = (
    Line("bytes of a commit, WAL, insert of one row", "sqlite-bytes",
         "WAL in use, random", "insert", _BYTES),
    Line("the same insert, random values, a commit every 0.25 s", "sqlite-bytes",
         "WAL in use, a commit every 0.25 s, random", "insert", _BYTES),
    Line("bytes of a commit, WAL, update of a random row", "sqlite-bytes",
         "WAL in use, random", "update", _BYTES),
    Line("the same update, values of English words", "sqlite-bytes",
         "WAL in use, text", "update", _BYTES),
    Line("bytes of a commit, DELETE mode, update of a random row", "sqlite-bytes", "DELETE, random",
         "update", _BYTES),
    Line("time of a commit, WAL, update of one row", "sqlite-one-row", "WAL", "update",
         _TIME),
    Line("time of a commit, DELETE mode, update of one row", "sqlite-one-row", "DELETE", "update",
         _TIME),
    Line("time of a commit, DELETE mode, -o atomic_writes", "atomic-writes", "DELETE", "update",
         _TIME, (EXT4, XFS, ATOMIC, EXTENSION)),
    Line("1,000 updates of random rows in one commit, WAL", "fast14-cases",
         "WAL in use, 1000 op/txn", "update", _TIME),
    Line("8 processes with 64 SQLite databases, WAL", "sqlite-extension", "",
         "8 processes, 64 databases", _RATE),
    Line("one writer, WAL", "sqlite-extension", "", "1 writer", _RATE),
    Line("16 processes that append 200 bytes and sync", "group-commit",
         "append 200 bytes and fsync", "16", _SYNCS),
    Line("unpack an archive of 1,000 small files", "bulk", "small files", "unpack", _SECONDS),
    Line("read a file of 128 MiB", "bulk", "large file", "read", _SECONDS),
    Line("random writes of 4 KiB that are never synced", "djfs-fio", "", "never", _WRITES),
)


def _row(rows: Sequence[Row], line: Line, system: str) -> Row | None:
    place = (line.experiment, line.panel, line.case, line.metric, system)
    for row in rows:
        names = ("experiment", "panel", "case", "metric", "system")
        if tuple(row[name] for name in names) == place:
            return row
    return None


def shown(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The lines of which something was measured."""
    found = []
    for line in LINES:
        there = [_row(rows, line, system) for system in line.systems]
        if any(there):
            found.append((line.what, *(f"{shown(row['median'])} {row['unit']}" if row else ""
                                       for row in there)))
    return found


def text(rows: Sequence[Row]) -> str:
    """In columns."""
    lines = [COLUMNS, *cells(rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(COLUMNS))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]),
                   *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]).rstrip()
        for line in lines
    )
