"""Programs that a step runs, with a limit of time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable, NamedTuple

_RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)
_UNITTEST = re.compile(r"^Ran (\d+) tests? in", re.MULTILINE)


# Exit code of a program that cannot run here, and has said why.
CANNOT_RUN = 77


class Counts(NamedTuple):
    """Of test programs."""

    passed: int
    failed: int
    ignored: int


def harness_counts(output: str) -> Counts:
    """The sum of the lines `test result:` of Rust's test programs."""
    found = [tuple(map(int, numbers)) for numbers in _RESULT.findall(output)]
    return Counts(*(sum(numbers[index] for numbers in found) for index in range(3)))


def unittest_count(output: str) -> int:
    """How many tests Python's unittest ran."""
    return sum(map(int, _UNITTEST.findall(output)))


class Ran(NamedTuple):
    """A program that has ended."""

    # Empty if it succeeded.
    failure: str
    # If it was asked for.
    output: str
    code: int | None = None


def _end_group(process: subprocess.Popen[bytes], was_late: threading.Event) -> None:
    was_late.set()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Program:
    """A program that runs in a session of its own, whose lines may be read meanwhile."""

    def __init__(
        self,
        words: Sequence[str],
        limit_seconds: float | None = None,
        environment: Mapping[str, str] | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            list(words),
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        self._limit_seconds = limit_seconds
        self._was_late = threading.Event()
        self._timer: threading.Timer | None = None
        self.code: int | None = None
        if limit_seconds is not None:
            self._timer = threading.Timer(
                limit_seconds, _end_group, (self._process, self._was_late)
            )
            self._timer.start()

    def lines(self) -> Iterator[str]:
        """What it prints, line by line, if its output is a pipe."""
        for line in self._process.stdout or ():
            yield line.decode(errors="replace")

    def end(self) -> str:
        """Waits for the end; returns the failure, or nothing."""
        self.code = code = self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        if self._timer:
            self._timer.cancel()
            self._timer.join()
        if self._was_late.is_set():
            return f"ended after {self._limit_seconds:.0f} s"
        return f"exit code {code}" if code else ""


def run(
    words: Sequence[str],
    limit_seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
    keep_output: bool = False,
    see: Callable[[str], None] | None = None,
) -> Ran:
    """Runs a program. Its output goes where ours goes, or is returned."""
    pipe, same = (subprocess.PIPE, subprocess.STDOUT) if keep_output else (None, None)
    try:
        program = Program(words, limit_seconds, environment, pipe, same)
    except OSError as error:
        return Ran(str(error), "")
    lines = []
    for line in program.lines():
        lines.append(line)
        if see:
            see(line)
    return Ran(program.end(), "".join(lines), program.code)
