"""A share of one processor."""

from __future__ import annotations

import os
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from gate import cgroup, keeper
from gate.room import Room


class Groups(unittest.TestCase):
    """Of both versions."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)

    def mountinfo(self, kind: str, options: str) -> str:
        """With the test's directory as the place of a hierarchy."""
        return f"30 24 0:26 / {self.root} rw,nosuid shared:9 - {kind} {kind} {options}\n"

    def made(self, mountinfo: str, own: str = "0::/\n") -> Path:
        """The group of a quarter of a processor."""
        texts = {"/proc/self/mountinfo": mountinfo, "/proc/self/cgroup": own}

        def read(path: Path) -> str:
            return texts[str(path)] if str(path) in texts else path.read_bytes().decode()

        with mock.patch.object(Path, "read_text", read):
            return cgroup.make("name", 25)

    def test_version_2_hands_the_controller_on(self) -> None:
        (self.root / "cgroup.controllers").write_text("cpuset cpu io\n")
        (self.root / "cgroup.subtree_control").write_text("io\n")
        group = self.made(self.mountinfo("cgroup2", "rw,nsdelegate"))
        self.assertEqual(group, self.root / "name")
        self.assertEqual((self.root / "cgroup.subtree_control").read_text(), "+cpu")
        self.assertEqual((group / "cpu.max").read_text(), "25000 100000")

    def test_version_1_stays_below_the_group_of_this_process(self) -> None:
        (self.root / "outer").mkdir()
        group = self.made(self.mountinfo("cgroup", "rw,cpu,cpuacct"), "4:cpu,cpuacct:/outer\n")
        self.assertEqual(group, self.root / "outer" / "name")
        self.assertEqual((group / "cpu.cfs_quota_us").read_text(), "25000")
        self.assertEqual((group / "cpu.cfs_period_us").read_text(), "100000")

    def test_without_the_controller_it_says_so(self) -> None:
        (self.root / "cgroup.controllers").write_text("io\n")
        with self.assertRaisesRegex(cgroup.CannotLimit, "no control groups"):
            self.made(self.mountinfo("cgroup2", "rw"))

    def test_a_group_with_processes_cannot_be_removed(self) -> None:
        (self.root / "name" / "inner").mkdir(parents=True)
        with mock.patch.object(cgroup, "_REMOVE_SECONDS", 0):
            self.assertFalse(cgroup.remove(self.root / "name"))
        (self.root / "name" / "inner").rmdir()
        self.assertTrue(cgroup.remove(self.root / "name"))
        self.assertTrue(cgroup.remove(self.root / "name"))


class Shares(unittest.TestCase):
    """On this machine."""

    def setUp(self) -> None:
        try:
            cgroup.remove(cgroup.make("onejournal-test-probe", 50))
        except cgroup.CannotLimit as error:
            self.skipTest(str(error))

    def test_a_run_is_slowed_down_and_its_group_removed(self) -> None:
        readable, writable = os.pipe()

        def spin(room: Room) -> int:
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                pass
            os.write(writable, str(room.run.cgroup).encode())
            return int(time.process_time() * 1000)

        used_ms = keeper.run_kept(spin, 10)
        # A tenth of half a second, and a period more.
        self.assertLess(used_ms, 200)
        group = Path(os.read(readable, 4096).decode())
        self.assertEqual(group.name[: len("onejournal-test-")], "onejournal-test-")
        self.assertFalse(group.exists())
        os.close(readable)
        os.close(writable)
