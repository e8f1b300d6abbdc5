"""Canaries of `scripts/test-killed-run`: it finds what it looks for."""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from gate import killed_runs, record
from gate.killed_runs import Left, Run


class Canaries(unittest.TestCase):
    """Each one leaves something."""

    def setUp(self) -> None:
        for name, value in (("_END_SECONDS", 0.3), ("_SYNC_SECONDS", 30)):
            changed = mock.patch.object(killed_runs, name, value)
            changed.start()
            self.addCleanup(changed.stop)
        holder = tempfile.TemporaryDirectory(prefix="gate-", dir="/var/tmp")
        self.addCleanup(holder.cleanup)
        self.directory = Path(holder.name)

    def ended_run(self) -> Run:
        """A run that left nothing."""
        process = subprocess.Popen(["true"])
        process.wait()
        return Run(process, "ended")

    def known(self) -> record.Record:
        """Its record, of a namespace that has ended."""
        with mock.patch.object(record, "parents", return_value=[self.directory]):
            known, lock = record.create()
        os.close(lock)
        known.namespace = 1
        return known

    def expect(self, what: str, run: Run, known: record.Record | None) -> None:
        """Something is found."""
        with self.assertRaisesRegex(Left, what):
            killed_runs.expect_nothing(run, known, set(range(1 << 10)))

    def test_a_run_that_left_nothing(self) -> None:
        known = self.known()
        for path in known.scratch.iterdir():
            path.unlink()
        known.scratch.rmdir()
        killed_runs.expect_nothing(self.ended_run(), known, set(range(1 << 10)))

    def test_canary_a_process_is_left(self) -> None:
        environment = {**os.environ, killed_runs._MARK: "left"}
        with subprocess.Popen(["sleep", "100"], env=environment) as process:
            self.expect("processes", Run(process, "left"), None)
            process.kill()

    def test_canary_files_are_left(self) -> None:
        self.expect("onejournal-run-.* is left", self.ended_run(), self.known())

    def test_canary_a_control_group_is_left(self) -> None:
        known = self.known()
        known.cgroup = str(self.directory)
        with mock.patch.object(Path, "exists", return_value=False):
            self.expect("gate-.* is left", self.ended_run(), known)

    def test_canary_the_parameter_has_changed(self) -> None:
        known = self.known()
        known.io_uring = "another"
        with mock.patch.object(Path, "exists", return_value=False):
            with mock.patch.object(record, "others_notes", return_value=[]):
                self.expect("enable_uring has changed", self.ended_run(), known)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_canary_a_loop_device_is_left(self) -> None:
        known = self.known()
        image = known.scratch / "image"
        image.write_bytes(bytes(1 << 20))
        attach = ["losetup", "-f", "--show", str(image)]
        try:
            device = subprocess.run(attach, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            self.skipTest("needs loop devices")
        try:
            self.expect("loop devices are left", self.ended_run(), known)
        finally:
            subprocess.run(["losetup", "-d", device.strip()], check=True)
