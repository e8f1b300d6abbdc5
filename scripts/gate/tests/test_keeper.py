"""Runs that end in every way while a test is in the trap (`trap`): nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path
from unittest import mock

from gate import fuse, keeper, processes, record, remains, room

SCRIPTS = Path(__file__).resolve().parents[2]
_WAIT_SECONDS = 60


def can_be_trapped() -> bool:
    """Whether FUSE can be mounted here, and namespaces be made."""
    return os.path.exists("/dev/fuse") and room.why_no_namespaces() == ""


def runs() -> set[Path]:
    """Directories of runs, but for those of other sessions of this user."""
    return set(record.directories())


class Caller:
    """A process group whose leader is the caller of a keeper."""

    def __init__(self, *words: str) -> None:
        before = runs()
        environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("MAKELEVEL", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gate.tests.kept", *words],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self.process.stdout
        said = self.process.stdout.readline()
        assert said == b"trapped\n", said
        own = [run for run in map(record.read, runs() - before) if run and self._is_own(run)]
        self.runs: list[record.Record] = own

    def _is_own(self, run: record.Record) -> bool:
        return run.keeper.pid in processes.descendants(self.process.pid)

    @property
    def run(self) -> record.Record:
        """Its record, which `end` ways leave out."""
        (run,) = self.runs
        return run

    def kill_with_keeper(self) -> None:
        """Neither of them sees the end of the other one."""
        self.process.send_signal(signal.SIGSTOP)
        os.kill(self.run.keeper.pid, signal.SIGKILL)
        self.process.kill()

    def wait(self) -> int:
        """Its exit code."""
        assert self.process.stdout
        self.process.stdout.close()
        return self.process.wait(_WAIT_SECONDS)


class Ending(unittest.TestCase):
    """What all these tests have in common."""

    def expect_nothing_of(self, caller: Caller) -> None:
        """Waits until the keeper is done, if it lives."""
        run = caller.run
        deadline = time.monotonic() + _WAIT_SECONDS
        while run.keeper.is_there():
            self.assertLess(time.monotonic(), deadline, "the keeper does not end")
            time.sleep(0.01)
        self.assertFalse(run.scratch.exists())
        self.assertEqual(run.members(), set())
        subprocess.run(["sync"], check=True, timeout=_WAIT_SECONDS)


class PlainRuns(Ending):
    """Without namespaces, as they are without root."""

    def test_a_signal_to_the_caller_ends_daemons(self) -> None:
        caller = Caller("plain")
        caller.process.send_signal(signal.SIGINT)
        self.assertEqual(caller.wait(), 128 + signal.SIGINT)
        self.expect_nothing_of(caller)

    def test_the_callers_group_is_killed_and_daemons_end(self) -> None:
        caller = Caller("plain")
        os.killpg(caller.process.pid, signal.SIGKILL)
        caller.wait()
        self.expect_nothing_of(caller)

    def test_caller_and_keeper_are_killed_and_the_next_run_ends_daemons(self) -> None:
        caller = Caller("plain")
        caller.kill_with_keeper()
        caller.wait()
        self.assertNotEqual(caller.run.members(), set())
        self.assertEqual(keeper.run_kept(lambda room: 7), 7)
        self.expect_nothing_of(caller)


@unittest.skipUnless(can_be_trapped(), "needs root, namespaces and /dev/fuse")
class KilledRuns(Ending):
    """Each test leaves a run in one way."""

    def test_the_body_ends_while_a_test_is_stuck(self) -> None:
        caller = Caller("end")
        self.assertEqual(caller.wait(), 5)

    def test_a_signal_to_the_caller_ends_a_trap_in_another_namespace(self) -> None:
        caller = Caller("private")
        caller.process.send_signal(signal.SIGTERM)
        self.assertEqual(caller.wait(), 128 + signal.SIGTERM)
        self.expect_nothing_of(caller)

    def test_the_callers_group_is_killed_and_the_mount_was_detached(self) -> None:
        caller = Caller("detached")
        os.killpg(caller.process.pid, signal.SIGKILL)
        caller.wait()
        self.expect_nothing_of(caller)

    def test_the_keeper_is_killed(self) -> None:
        caller = Caller("private", "detached")
        os.kill(caller.run.keeper.pid, signal.SIGKILL)
        caller.wait()
        self.expect_nothing_of(caller)

    def test_caller_and_keeper_are_killed_and_the_next_run_cleans(self) -> None:
        caller = Caller()
        caller.kill_with_keeper()
        caller.wait()
        self.assertTrue(caller.run.scratch.exists())
        self.assertEqual(keeper.run_kept(lambda room: 7), 7)
        self.expect_nothing_of(caller)

    def test_canary_a_trap_is_one(self) -> None:
        caller = Caller()
        caller.kill_with_keeper()
        caller.wait()
        with mock.patch.object(fuse, "abort"), mock.patch.object(remains, "END_SECONDS", 0.5):
            problems = remains.end_processes(caller.run)
        self.assertTrue(any("cannot be ended" in problem for problem in problems), problems)
        keeper.remove_earlier()
        self.expect_nothing_of(caller)
