"""The order of tests, and which of them may run at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Callable

from .suite import Rule, Test, is_in

Times = Mapping[str, float]


def longest_first(tests: Iterable[Test], times: Times) -> list[Test]:
    """By the times of the last run. A test that is not known may be long if it is an integration
    test: these come first."""

    def rank(test: Test) -> float:
        known = times.get(test.label)
        if known is not None:
            return -known
        return float("-inf") if test.program.kind == "test" else 0.0

    return sorted(tests, key=rank)


class Queue:
    """Tests that are to be run. Tests that run alone come last, when the others are done."""

    def __init__(
        self,
        tests: Sequence[Test],
        exclusive: Sequence[Rule] = (),
        groups: Mapping[str, Sequence[Rule]] | None = None,
    ) -> None:
        self._exclusive = [test for test in tests if is_in(test, exclusive)]
        self._others = [test for test in tests if not is_in(test, exclusive)]
        self._groups = _members(tests, groups or {})

    def __len__(self) -> int:
        return len(self._others) + len(self._exclusive)

    def take(self, running: Sequence[Test]) -> Test | None:
        """The next test that may run beside those that are running; nothing if there is none."""
        if self._others:
            busy = {group for test in running for group in self._groups.get(test, ())}
            return self._first(lambda test: busy.isdisjoint(self._groups.get(test, ())))
        if self._exclusive and not running:
            return self._exclusive.pop(0)
        return None

    def _first(self, may_run: Callable[[Test], bool]) -> Test | None:
        for index, test in enumerate(self._others):
            if may_run(test):
                return self._others.pop(index)
        return None


def _members(
    tests: Iterable[Test], groups: Mapping[str, Sequence[Rule]]
) -> dict[Test, list[str]]:
    found: dict[Test, list[str]] = {}
    for test in tests:
        for group, rules in groups.items():
            if is_in(test, rules):
                found.setdefault(test, []).append(group)
    return found
