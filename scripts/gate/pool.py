"""Runs tests, each in a process and a session of its own, some at once, with a limit of time."""

from __future__ import annotations

import dataclasses
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Callable

from . import linux, stuck
from .outcome import FAILED, Outcome, judge, read_log
from .schedule import Queue
from .suite import Test

# Longest name of a file, without its extension.
_MOST_NAME = 200
_REAP_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class Settings:
    """How tests are run."""

    jobs: int
    limit_seconds: float
    # For output and evidence.
    directory: Path
    # Set for each test, beside the environment of this process.
    environment: Mapping[str, str]
    way: str = ""
    # Whether each test gets a mount namespace of its own.
    is_private: bool = False


@dataclasses.dataclass
class _Running:
    test: Test
    process: subprocess.Popen[bytes]
    descriptor: int
    log: Path
    evidence: Path
    begun: float


def file_name(label: str) -> str:
    """A test's name as the name of a file."""
    return re.sub(r"[^A-Za-z0-9_.-]+", ".", label.replace("::", "."))[:_MOST_NAME].strip(".")


def _code_of(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:
        # It is left to the keeper.
        return -signal.SIGKILL


class Pool:
    """Runs a queue of tests."""

    def __init__(self, settings: Settings, report: Callable[[Outcome], None]) -> None:
        self._settings = settings
        self._report = report
        self._running: dict[int, _Running] = {}
        self._selector = selectors.DefaultSelector()
        self.failures = settings.directory / "failures"
        self._now = settings.directory / "running"
        for directory in (self.failures, self._now):
            directory.mkdir(parents=True, exist_ok=True)

    def run(self, queue: Queue) -> None:
        """Returns when all tests have ended."""
        while queue or self._running:
            self._start_some(queue)
            for key, _ in self._selector.select(self._patience()):
                self._finish(self._running[key.fd])
            for running in list(self._running.values()):
                if self._age(running) > self._settings.limit_seconds:
                    self._end_stuck(running)

    def _start_some(self, queue: Queue) -> None:
        while len(self._running) < self._settings.jobs:
            test = queue.take([running.test for running in self._running.values()])
            if test is None:
                break
            self._start(test)

    def _start(self, test: Test) -> None:
        name = file_name(f"{test.label}.{self._settings.way}")
        evidence, log = self._now / name, self._now / f"{name}.log"
        evidence.mkdir(exist_ok=True)
        begun = time.monotonic()
        with log.open("wb") as output:
            process = self._spawn(test, evidence, output)
        descriptor = os.pidfd_open(process.pid)
        self._running[descriptor] = _Running(test, process, descriptor, log, evidence, begun)
        self._selector.register(descriptor, selectors.EVENT_READ)

    def _spawn(self, test: Test, evidence: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **test.program.environment(),
            **self._settings.environment,
            stuck.TEST_VARIABLE: test.label,
            "ONEJOURNAL_KEEP": str(evidence),
            # The process is this test's only.
            "ONEJOURNAL_ALONE": "1",
        }
        return subprocess.Popen(
            [str(test.program.path), test.name, "--exact", "--nocapture", "--test-threads=1"],
            cwd=test.program.package.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # Mounts of one test are not in the way of another: a new mount namespace has copies of
            # all mounts that its maker sees, and a copy keeps a volume in use.
            preexec_fn=linux.unshare_mounts if self._settings.is_private else None,
        )

    def _age(self, running: _Running) -> float:
        return time.monotonic() - running.begun

    def _patience(self) -> float:
        ages = (self._age(running) for running in self._running.values())
        return max(0.0, self._settings.limit_seconds - max(ages, default=0.0)) + 0.01

    def _finish(self, running: _Running, reason: str | None = None) -> None:
        code = _code_of(running.process)
        seconds = self._age(running)
        self._selector.unregister(running.descriptor)
        os.close(running.descriptor)
        del self._running[running.descriptor]
        try:
            os.killpg(running.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        output = read_log(running.log)
        outcome = judge(running.test, self._settings.way, seconds, code, output)
        if reason:
            outcome = dataclasses.replace(outcome, status=FAILED, reason=reason)
        if outcome.status == FAILED:
            stuck.end(stuck.processes_of(running.process.pid, running.test.label))
        self._report(dataclasses.replace(outcome, log=self._keep(running, outcome)))

    def _keep(self, running: _Running, outcome: Outcome) -> Path | None:
        """Moves what a failure left to where it stays; a test that passed leaves nothing."""
        if outcome.status != FAILED:
            running.log.unlink()
            shutil.rmtree(running.evidence, ignore_errors=True)
            return None
        kept = self.failures / running.log.name
        running.log.rename(kept)
        if any(running.evidence.iterdir()):
            shutil.rmtree(self.failures / running.evidence.name, ignore_errors=True)
            running.evidence.rename(self.failures / running.evidence.name)
        else:
            running.evidence.rmdir()
        return kept

    def _end_stuck(self, running: _Running) -> None:
        """Notes what the processes of a test are doing, and ends them."""
        pids = stuck.processes_of(running.process.pid, running.test.label)
        said = stuck.describe(pids)
        with running.log.open("a", encoding="utf-8") as log:
            log.write(f"\nthe test did not end; its processes:\n{said}\n")
        stuck.end(pids | {running.process.pid})
        self._finish(running, f"ended after {self._age(running):.0f} s")


def empty(directory: Path) -> None:
    """Removes what the last run kept."""
    for name in ("failures", "running"):
        shutil.rmtree(directory / name, ignore_errors=True)
