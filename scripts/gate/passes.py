"""Which tests run in which way to the kernel: `/dev/fuse` first, then io_uring."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Callable

from . import parameter, tables
from .suite import Test, is_in

TRANSPORTS = ("both", "dev_fuse", "io_uring")


@dataclasses.dataclass(frozen=True)
class Pass:
    """Tests, and the value of the module's parameter meanwhile."""

    # Said beside each test, if it is not the usual way.
    way: str
    value: str | None
    tests: Sequence[Test]

    def begin(self) -> None:
        """Sets the parameter."""
        if self.value is not None:
            parameter.change(self.value)

    def check(self, say: Callable[[str], None]) -> None:
        """Says if another process has changed the parameter."""
        if self.value is not None and parameter.value() != self.value:
            say(f"{parameter.PATH} is not {self.value} any more: another process has changed it")


def plan(tests: Sequence[Test], tier: str, transport: str) -> tuple[list[Pass], list[str]]:
    """The passes, and what cannot be run through io_uring here."""
    second = list(tests)
    if tier == "gate":
        second = [test for test in tests if is_in(test, tables.TRANSPORT)]
    can_set = parameter.change(parameter.DEV_FUSE)
    passes: list[Pass] = []
    if transport != "io_uring":
        passes.append(Pass("", parameter.DEV_FUSE if can_set else None, tests))
    if transport == "dev_fuse" or not second:
        return passes, []
    if can_set and parameter.change(parameter.IO_URING):
        return [*passes, Pass("io_uring", parameter.IO_URING, second)], []
    why = f"{parameter.PATH} cannot be set"
    return passes, [f"{test.label} [io_uring]: {why}" for test in second]
