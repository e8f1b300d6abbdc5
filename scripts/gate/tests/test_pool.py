"""Tests that pass, fail and hang, with a fake test program."""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
import unittest
from pathlib import Path

from gate import pool, processes, stuck
from gate.outcome import FAILED, PASSED, SKIPPED, Outcome
from gate.report import Report
from gate.schedule import Queue
from gate.suite import Test
from gate.tests import fakes


class Pools(unittest.TestCase):
    """A run of the fake program's tests."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.directory = Path(holder.name)
        self.program = fakes.program(self.directory)
        self.report = Report("gate", 7, False)

    def run_tests(self, *names: str, limit_seconds: float = 60) -> tuple[dict[str, Outcome], str]:
        """Outcomes by name, and what was printed."""
        settings = pool.Settings(3, limit_seconds, self.directory / "gate", {"WORD": "x"})
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            self.report.expect(len(names))
            queue = Queue([Test(self.program, name) for name in names])
            pool.Pool(settings, self.report.add).run(queue)
            self.report.close()
        return {each.test.name: each for each in self.report.outcomes}, output.getvalue()

    def test_passed_failed_skipped_and_not_run(self) -> None:
        found, output = self.run_tests("passes", "fails", "lacks", "none")
        self.assertEqual({name: outcome.status for name, outcome in found.items()},
                         {"passes": PASSED, "fails": FAILED, "lacks": SKIPPED, "none": FAILED})
        self.assertEqual(output.splitlines()[-1], "1 passed, 2 failed, 1 skipped")
        # The end of what it printed, at once, and at the end how to run it again.
        self.assertIn("it is broken", output)
        self.assertNotIn("\n    3\n", output)
        self.assertIn("cargo test -p some --test it -- --exact fails", output)

    def test_all_output_of_a_failure_is_kept_and_nothing_else(self) -> None:
        found, _ = self.run_tests("passes", "fails")
        kept = sorted(path.name for path in (self.directory / "gate").rglob("*"))
        self.assertEqual(kept, ["failures", "running", "some.it.fails.log"])
        log = found["fails"].log
        assert log
        self.assertIn("\n3\n", log.read_text())

    def test_evidence_of_a_failure_is_kept(self) -> None:
        self.run_tests("keeps")
        kept = self.directory / "gate" / "failures" / "some.it.keeps" / "run"
        self.assertEqual(kept.read_text(), "evidence\n")

    def test_a_test_that_hangs_is_described_and_ended_with_its_children(self) -> None:
        begun = time.monotonic()
        found, output = self.run_tests("hangs", "passes", limit_seconds=0.5)
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual(found["hangs"].status, FAILED)
        self.assertRegex(found["hangs"].reason, r"^ended after \d s$")
        self.assertIn("begins to wait", output)
        self.assertRegex(output, r"process \d+ thread \d+ \(sleep\): S in ")
        self.assertEqual(found["passes"].status, PASSED)
        left = [pid for pid in processes.all_ids() if processes.is_running(pid)
                and processes.environment(pid).get(stuck.TEST_VARIABLE) == "some/it hangs"]
        self.assertEqual(left, [])

    def test_names_of_files_have_no_slashes(self) -> None:
        self.assertEqual(pool.file_name("a/it b::c::d.io_uring"), "a.it.b.c.d.io_uring")
        self.assertEqual(len(pool.file_name("x" * 1000)), 200)
