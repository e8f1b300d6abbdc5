"""What became of one test: passed, failed or skipped, and why."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .suite import Test

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

# What `onejournal_testing::skip` prints. The test harness may have begun the line.
_SKIP = re.compile(r"^(?:test \S+ \.\.\. )?skipped: ([a-z0-9_-]+): (.*)$", re.MULTILINE)
_RESULT = re.compile(r"^test result: ok\. (\d+) passed; 0 failed; (\d+) ignored", re.MULTILINE)
_TAIL_LINES = 60
_MOST_LOG_BYTES = 64 << 20


class Need(NamedTuple):
    """Something that is missing here, and what says so."""

    name: str
    why: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One test in one pass."""

    test: Test
    # Which way to the kernel it used, if that is not the usual one.
    way: str
    status: str
    seconds: float
    # Why the test failed, if it did.
    reason: str = ""
    needs: Sequence[Need] = ()
    log: Path | None = None

    @property
    def label(self) -> str:
        """Its name in the output."""
        return f"{self.test.label} [{self.way}]" if self.way else self.test.label


def read_log(log: Path) -> str:
    """What a test has printed; the end of it if that is very much."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _MOST_LOG_BYTES))
        return file.read().decode(errors="replace")


def skips(output: str) -> list[Need]:
    """What the test said that it lacks."""
    return [Need(*found) for found in _SKIP.findall(output)]


def failure(code: int, output: str) -> str:
    """Why a test that ended with this code has failed; empty if it passed."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    if code > 0:
        return f"exit code {code}"
    if not any(passed == "1" for passed, _ in _RESULT.findall(output)):
        return "the program did not run it"
    return ""


def judge(test: Test, way: str, seconds: float, code: int, output: str) -> Outcome:
    """The outcome of a test that has ended."""
    reason = failure(code, output)
    if reason:
        return Outcome(test, way, FAILED, seconds, reason)
    needs = skips(output)
    return Outcome(test, way, SKIPPED if needs else PASSED, seconds, needs=needs)


def tail(output: str, count: int = _TAIL_LINES) -> str:
    """The last lines, each one moved to the right."""
    lines = output.rstrip("\n").splitlines()
    left_out = [f"... {len(lines) - count} lines before"] if len(lines) > count else []
    return "\n".join(f"    {line}" for line in left_out + lines[-count:])


def replay(outcome: Outcome, tier: str, seed: int) -> str:
    """The command that runs the test once more, in the same way."""
    test = outcome.test
    settings = f"ONEJOURNAL_SEED={seed} ONEJOURNAL_TIER={tier}"
    if outcome.way:
        words = ["scripts/test", tier, "--no-lints", "--transport", "io_uring"]
        words += ["-p", test.program.package.name, "--exact", test.label]
        return f"ONEJOURNAL_SEED={seed} {shlex.join(words)}"
    words = ["cargo", "test", *test.program.selection(), "--", "--exact", test.name]
    return f"{settings} {shlex.join(words)}"
