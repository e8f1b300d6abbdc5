"""What a run prints: progress, failures, what was skipped, what was slow, and the closing line."""

from __future__ import annotations

import collections
import time
from collections.abc import Sequence

from .outcome import FAILED, PASSED, SKIPPED, Outcome, read_log, replay, tail

_SLOWEST = 20
_PROGRESS_SECONDS = 30


def say(text: str) -> None:
    """A line, at once."""
    print(text, flush=True)


class Report:
    """Collects outcomes. A step that is not a test counts as one if it fails."""

    def __init__(self, tier: str, seed: int, verbose: bool) -> None:
        self.tier = tier
        self.seed = seed
        self.outcomes: list[Outcome] = []
        # Steps and checks that failed: name, and what to do.
        self.broken: list[tuple[str, str]] = []
        self.passed_elsewhere = 0
        self._skipped_elsewhere = 0
        self._skipped: dict[str, list[str]] = collections.defaultdict(list)
        self._verbose = verbose
        self._expected = 0
        self._begun = self._said = 0.0

    def expect(self, count: int) -> None:
        """So many outcomes are to come, for the progress."""
        self._expected = len(self.outcomes) + count
        self._begun = self._said = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        """A test has ended."""
        self.outcomes.append(outcome)
        if outcome.status == FAILED:
            self._say_failure(outcome)
        elif self._verbose:
            needs = "".join(f" ({need.name}: {need.why})" for need in outcome.needs)
            say(f"{outcome.status:7} {outcome.seconds:7.2f} s  {outcome.label}{needs}")
        for need in outcome.needs if outcome.status == SKIPPED else ():
            self._skipped[need.name].append(f"{outcome.label}: {need.why}")
        now = time.monotonic()
        if now - self._said > _PROGRESS_SECONDS or len(self.outcomes) == self._expected:
            self._said = now
            say(f"{len(self.outcomes)} of {self._expected} tests, {self.count(FAILED)} failed, "
                f"{now - self._begun:.0f} s")

    def _say_failure(self, outcome: Outcome) -> None:
        say(f"FAILED {outcome.label}: {outcome.reason}, {outcome.seconds:.1f} s")
        if outcome.log:
            say(tail(read_log(outcome.log)))

    def skip(self, need: str, examples: Sequence[str]) -> None:
        """Things that are no tests of the pool were skipped."""
        if examples:
            self._skipped[need] += examples
        self._skipped_elsewhere += len(examples)

    def fail(self, name: str, advice: str) -> None:
        """Something that is not a test of the pool has failed."""
        say(f"FAILED {name}")
        self.broken.append((name, advice))

    def count(self, status: str) -> int:
        """Tests with this status."""
        return sum(outcome.status == status for outcome in self.outcomes)

    def close(self) -> int:
        """Prints everything that is said at the end; returns the exit code."""
        for part in (self._packages(), self._slowest(), self._skips(), self._failures()):
            if part:
                say("\n" + "\n".join(part))
        failed = self.count(FAILED) + len(self.broken)
        passed = self.count(PASSED) + self.passed_elsewhere
        skipped = self.count(SKIPPED) + self._skipped_elsewhere
        say(f"\n{passed} passed, {failed} failed, {skipped} skipped")
        return 1 if failed else 0

    def _packages(self) -> list[str]:
        groups: dict[str, list[Outcome]] = collections.defaultdict(list)
        for outcome in self.outcomes:
            groups[outcome.test.program.label].append(outcome)
        return [_package_line(name, groups[name]) for name in sorted(groups)]

    def _slowest(self) -> list[str]:
        slowest = sorted(self.outcomes, key=lambda outcome: -outcome.seconds)[:_SLOWEST]
        lines = [f"{outcome.seconds:8.1f} s  {outcome.label}" for outcome in slowest]
        return ["the slowest tests", *lines] if lines else []

    def _skips(self) -> list[str]:
        lines = [
            f"{len(examples):6} for lack of {need}, such as {examples[0]}"
            for need, examples in sorted(self._skipped.items())
        ]
        return ["skipped", *lines] if lines else []

    def _failures(self) -> list[str]:
        lines: list[str] = []
        for outcome in self.outcomes:
            if outcome.status == FAILED:
                lines += [f"  {outcome.label}: {outcome.reason}",
                          f"    {replay(outcome, self.tier, self.seed)}",
                          f"    {outcome.log}"]
        for name, advice in self.broken:
            lines += [f"  {name}", f"    {advice}"]
        return ["failures, and how to run them again", *lines] if lines else []


def _package_line(name: str, outcomes: Sequence[Outcome]) -> str:
    counts = collections.Counter(outcome.status for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    words = [f"{counts[status]} {status}" for status in (PASSED, FAILED, SKIPPED) if counts[status]]
    return f"{name}: {', '.join(words)}, {seconds:.0f} s"
