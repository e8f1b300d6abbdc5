"""What killed runs leave: directories, loop devices, the module's parameter."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from gate import fuse, loops, orphans, parameter, processes, record, remains
from gate.processes import Identity


def has_loops() -> bool:
    """Whether loop devices can be made."""
    return os.geteuid() == 0 and os.path.exists("/dev/loop-control")


class Connections(unittest.TestCase):
    def test_number_that_another_process_serves_already_is_not_cut(self):
        served = {1: {40, 41}, 2: {41}}
        with (
            mock.patch.object(fuse, "served_by", lambda pids: set().union(*map(served.get, pids))),
            mock.patch.object(processes, "all_ids", lambda: {1, 2}),
            mock.patch.object(fuse, "abort", set),
        ):
            self.assertEqual(fuse.cut({40, 41}, {1}), {40})
            self.assertEqual(fuse.cut({40, 41}, {1, 2}), {40, 41})


class Scratch(unittest.TestCase):
    """With a directory for runs of their own."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="gate-", dir="/var/tmp")
        self.addCleanup(holder.cleanup)
        self.directory = Path(holder.name)
        changed = mock.patch.object(record, "parents", return_value=[self.directory])
        changed.start()
        self.addCleanup(changed.stop)

    @contextlib.contextmanager
    def run_record(self) -> Iterator[record.Record]:
        """A run of this process; afterwards as if it had been killed."""
        run, lock = record.create()
        run.keeper = Identity(run.keeper.pid, run.keeper.start - 1)
        run.namespace, run.init = 1, Identity(1, 0)
        run.write()
        try:
            yield run
        finally:
            os.close(lock)


class Runs(Scratch):
    """Of the gate."""

    def removed(self) -> list[str]:
        """What the next run says when it cleans."""
        said: list[str] = []
        remains.remove_earlier(said.append)
        return said

    def test_a_live_run_is_left_alone_and_a_dead_one_removed(self) -> None:
        with self.run_record() as run:
            (run.scratch / "tmp").mkdir()
            self.assertEqual(self.removed(), [])
            self.assertTrue(run.scratch.exists())
        self.assertEqual(self.removed(), [f"removing what a killed run left: {run.scratch}"])
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_a_record_says_the_same_when_it_is_read(self) -> None:
        with self.run_record() as run:
            run.io_uring, run.shm_device = "N", 5
            run.write()
            self.assertEqual(record.read(run.scratch), run)
        self.assertIsNone(record.read(self.directory))

    def test_directories_of_other_users_are_not_believed(self) -> None:
        with self.run_record() as run:
            self.assertEqual(record.directories(), [run.scratch])
            with mock.patch("os.geteuid", return_value=os.geteuid() + 1):
                self.assertEqual(record.directories(), [])
            link = self.directory / f"{record.PREFIX}link"
            link.symlink_to(run.scratch)
            self.assertEqual(record.directories(), [run.scratch])

    def test_the_parameter_is_put_back_by_the_last_run(self) -> None:
        setting = self.directory / "parameter"
        setting.write_text("N")
        with mock.patch.object(parameter, "PATH", str(setting)):
            with self.run_record() as one, self.run_record() as two:
                parameter.note(one)
                self.assertTrue(parameter.change("Y"))
                parameter.note(two)
                self.assertEqual((one.io_uring, two.io_uring), ("N", "N"))
                self.assertTrue(parameter.put_back(one))
                self.assertEqual(parameter.value(), "Y")
                self.assertTrue(parameter.put_back(two))
                self.assertEqual(parameter.value(), "N")

    @unittest.skipUnless(has_loops(), "needs root and /dev/loop-control")
    def test_a_partition_of_a_loop_device_that_is_detached_goes_away(self):
        image = self.directory / "image"
        image.write_bytes(bytes(1 << 20))
        command = ["losetup", "-f", "--show", str(image)]
        device = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        device = device.strip()
        partition = Path("/sys/block", Path(device).name, Path(device).name + "p1")
        subprocess.run(["addpart", device, "1", "8", "8"], check=True)
        remains.remove_earlier(lambda _: None)
        self.assertTrue(partition.exists(), "the device is in use")
        subprocess.run(["losetup", "-d", device], check=True)
        self.assertTrue(partition.exists())
        remains.remove_earlier(lambda _: None)
        self.assertFalse(partition.exists())

    @unittest.skipUnless(has_loops(), "needs root and /dev/loop-control")
    def test_loop_devices_and_immutable_files_are_removed(self) -> None:
        with self.run_record() as run:
            tmp = run.scratch / run.marker
            tmp.mkdir()
            for name in ("kept", "deleted"):
                with (tmp / name).open("wb") as file:
                    file.truncate(16 << 20)
            devices = [self.attach(tmp / name) for name in ("kept", "deleted")]
            subprocess.run(["addpart", devices[0], "1", "2048", "8192"], check=False)
            (tmp / "deleted").unlink()
            subprocess.run(["chattr", "+i", str(tmp / "kept")], check=False)
        self.assertEqual(self.removed(), [f"removing what a killed run left: {run.scratch}"])
        self.assertFalse(run.scratch.exists())
        # The numbers of the devices may belong to other programs already.
        left = {loop.path for loop in loops.attached() if run.marker in loop.path}
        self.assertEqual(left, set())

    def attach(self, image: Path) -> str:
        """A loop device over a file."""
        command = ["losetup", "-f", "--show", str(image)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Orphans(Scratch):
    """Of a plain `cargo test`."""

    def orphan(self, seconds_old: float) -> Path:
        """A directory of a test that was changed so long ago."""
        path = Path(tempfile.mkdtemp(prefix=orphans.PREFIX, dir=self.directory))
        (path / "image").touch()
        then = time.time() - seconds_old
        os.utime(path, (then, then))
        return path

    def found(self) -> list[Path]:
        """With a fake view of the machine's processes."""
        with mock.patch.object(processes, "sees_all", return_value=True):
            return orphans.find([self.directory])

    def test_a_directory_older_than_all_live_programs_is_an_orphan(self) -> None:
        path = self.orphan(100)
        with mock.patch.object(orphans, "_is_ours", return_value=False):
            self.assertEqual(self.found(), [path])
        with mock.patch.object(orphans, "_earliest_start", return_value=time.time() - 50):
            self.assertEqual(self.found(), [path])
        with mock.patch.object(orphans, "_earliest_start", return_value=time.time() - 150):
            self.assertEqual(self.found(), [])

    def test_a_directory_that_a_process_uses_is_none(self) -> None:
        path = self.orphan(100)
        with subprocess.Popen(["sleep", "100"], cwd=path) as user:
            with mock.patch.object(orphans, "_is_ours", return_value=False):
                self.assertEqual(self.found(), [])
            user.kill()

    def test_programs_of_this_project_are_known_by_their_path(self) -> None:
        for program, is_ours in [
            ("/w/target/debug/deps/it-0123456789abcdef", True),
            ("/w/target/debug/deps/it-0123456789abcdef (deleted)", True),
            ("/usr/local/bin/onejournal", True),
            ("/home/user/onejournal/bin/other", False),
            ("/usr/bin/python3", False),
        ]:
            with mock.patch.object(processes, "program_of", return_value=program):
                self.assertEqual(orphans._is_ours(1), is_ours, program)

    def test_an_orphan_is_removed_with_its_loop_device(self) -> None:
        path = self.orphan(100)
        said: list[str] = []
        with mock.patch.object(orphans, "find", return_value=[path]):
            orphans.remove(said.append)
        self.assertEqual(said, [f"removing what a killed test left: {path}"])
        self.assertFalse(path.exists())


class Mountinfo(unittest.TestCase):
    """FUSE mounts in the text of a `mountinfo`."""

    TEXT = r"""
36 25 0:32 / /home/user/far rw - fuse.sshfs host:/ rw
37 25 7:3 / /var/tmp/a\040b/m rw shared:1 - fuseblk /dev/loop3 rw
38 25 8:1 / / rw - ext4 /dev/sda1 rw
39 25 0:40 / /sys/fs/fuse/connections rw - fusectl fusectl rw
"""

    def test_connections_have_the_numbers_of_their_devices(self) -> None:
        text = self.TEXT.strip()
        self.assertEqual(fuse.mounted(text), {32, 7 << 20 | 3})
        self.assertEqual(fuse.mounted(text, "/var/tmp/a b/"), {7 << 20 | 3})
