"""What was acknowledged, on the controller's disk before the power is cut.

`RESULTS.acknowledged` is lines of JSON. The first one has the epoch and what the last verdict has
found; each later one has acknowledgements. It is synced whenever lines were received. A new first
line replaces the whole file.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO


def replace(path: Path, data: bytes) -> None:
    """A file has the old content or the new one, whatever happens."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclasses.dataclass
class State:
    """What the target must have."""

    epoch: int = 0
    # The target was told to write, so there is something to judge.
    has_begun: bool = False
    # The last boot that was seen.
    boot: str = ""
    # The last operations that were there when the writer began, and that are acknowledged now.
    start: dict[str, int] = dataclasses.field(default_factory=dict)
    numbers: dict[str, int] = dataclasses.field(default_factory=dict)
    # More for the results.
    about: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def count(self) -> int:
        """Operations that were acknowledged since the writer began."""
        return sum(self.numbers.values()) - sum(self.start.values())


class Acknowledged:
    """The file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.state = _read(path)
        self._file: BinaryIO | None = None

    def begin(self, state: State) -> None:
        """From now on this is what the target must have."""
        self.close()
        self.state = state
        replace(self._path, json.dumps(dataclasses.asdict(state)).encode() + b"\n")
        self._file = self._path.open("ab")

    def add(self, numbers: Mapping[str, int]) -> None:
        """Acknowledgements; `sync` makes them durable."""
        if self._file is None:
            raise ValueError("acknowledged before the epoch began")
        self.state.numbers.update(numbers)
        self._file.write(json.dumps(dict(numbers)).encode() + b"\n")

    def sync(self) -> None:
        """They are on the disk."""
        if self._file:
            self._file.flush()
            os.fdatasync(self._file.fileno())

    def close(self) -> None:
        """Everything is synced."""
        if self._file:
            self.sync()
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Nothing is to be judged any more."""
        self.close()
        self._path.unlink(missing_ok=True)


def _read(path: Path) -> State:
    """The last line may be torn: the controller may have lost its power, too."""
    if not path.exists():
        return State()
    first, *rest = path.read_bytes().split(b"\n")
    state = State(**json.loads(first))
    for line in rest:
        try:
            numbers: Any = json.loads(line)
            state.numbers.update(numbers)
        except ValueError:
            continue
    return state
