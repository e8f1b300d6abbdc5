"""What the target writes: two histories of numbered operations, which a seed determines.

The history of *files* changes three kinds of objects, as programs do: it appends records to a log,
overwrites pages of a file in place, and replaces a small file by another one (`rename`). The
history of *rows* is transactions of SQLite, each of which changes two rows.

All bytes of an operation come from SHAKE-128 of the seed and its number. So the judge needs no
copy, every version of Python makes the same bytes, and nothing compresses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

PAGE_BYTES = 8192
PAGES = 64
ROWS = 500
_RECORD_BYTES = 3000
_CONFIG_BYTES = 20_000
_VALUE_BYTES = 1000
_SHAPE_BYTES = 16

LOG, CONFIG = "log", "config"


def page_name(index: int) -> str:
    """The object's name."""
    return f"page {index}"


def _bytes(seed: str, number: int, size: int) -> bytes:
    """The first ones do not depend on `size`."""
    return hashlib.shake_128(f"{seed}/{number}".encode()).digest(size)


class Operation(NamedTuple):
    """One change of a file."""

    number: int
    # The object that it changes: LOG, CONFIG or a page.
    name: str
    page: int
    size: int


def operation(seed: str, number: int) -> Operation:
    """Six of ten overwrite a page, three append, one replaces."""
    shape = _bytes(seed, number, _SHAPE_BYTES)
    kind, index = shape[0] % 10, shape[1] % PAGES
    length = int.from_bytes(shape[2:6], "big")
    if kind < 6:
        return Operation(number, page_name(index), index, PAGE_BYTES)
    if kind < 9:
        return Operation(number, LOG, 0, 40 + length % _RECORD_BYTES)
    return Operation(number, CONFIG, 0, 40 + length % _CONFIG_BYTES)


def content(seed: str, made: Operation) -> bytes:
    """What the operation writes. It begins with the object's name and the number."""
    head = f"{made.name} is {made.number}\n".encode()
    return head + _bytes(seed, made.number, made.size - len(head))


def number_of(data: bytes) -> int:
    """The number that content claims to have; 0 if there is none."""
    head, newline, _ = data[:40].partition(b"\n")
    _, is_there, number = head.rpartition(b" is ")
    return int(number) if newline and is_there and number.isdigit() else 0


def batch_size(seed: str, number: int) -> int:
    """Operations from this one on that are synced together: 1 to 4."""
    return 1 + _bytes(seed, number, _SHAPE_BYTES)[6] % 4


def operations(seed: str, last: int) -> Iterator[Operation]:
    """The first ones."""
    return (operation(seed, number) for number in range(1, last + 1))


def changed_rows(seed: str, number: int) -> tuple[int, int]:
    """Keys of the rows of a transaction."""
    shape = _bytes(seed, number, _SHAPE_BYTES)
    first = int.from_bytes(shape[:2], "big") % ROWS
    return first, (first + 1 + int.from_bytes(shape[2:4], "big") % (ROWS - 1)) % ROWS


def row_value(seed: str, number: int, key: int) -> bytes:
    """The value of a row after a transaction."""
    size = int.from_bytes(_bytes(seed, number, _SHAPE_BYTES)[4:6], "big") % _VALUE_BYTES
    return _bytes(f"{seed}/row {key}", number, 1 + size)
