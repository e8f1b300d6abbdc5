"""Budgets of steps, and what a run prints at its end."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from gate import runner, tiers
from gate.budget import FAR_OVER, OK, OVER, Clock, Step, scale, verdict
from gate.outcome import FAILED, PASSED, SKIPPED, Need, Outcome
from gate.report import Report
from gate.tests import fakes


class Budgets(unittest.TestCase):
    """Kept, over, far over."""

    def test_only_twice_the_budget_fails_a_run(self) -> None:
        self.assertEqual([verdict(seconds, 10) for seconds in (10, 11, 20, 20.1)],
                         [OK, OVER, OVER, FAR_OVER])
        self.assertEqual(verdict(1e9, None), OK)

    def test_a_step_is_measured_and_stands_in_the_table(self) -> None:
        clock = Clock(lambda _: None)
        with clock.step("build", 300):
            pass
        clock.steps += [Step("tests", 700, 300), Step("rest", 130, 120)]
        table = clock.table()
        self.assertRegex(table[1], r"^build +0 s +300 s$")
        self.assertRegex(table[2], r"^tests +700 s +300 s +more than twice the budget$")
        self.assertRegex(table[3], r"^rest +130 s +120 s +over budget$")
        self.assertEqual(clock.far_over(), ["tests"])

    def test_a_step_that_fails_is_measured_too(self) -> None:
        clock = Clock(lambda _: None)
        with contextlib.suppress(ValueError), clock.step("lints", None):
            raise ValueError
        self.assertEqual([step.name for step in clock.steps], ["lints"])

    def test_a_slower_machine_is_given_more_time(self) -> None:
        with mock.patch.dict(os.environ, {"ONEJOURNAL_BUDGET_SCALE": "3"}):
            self.assertEqual(scale(), 3)
        with mock.patch("os.cpu_count", return_value=1), mock.patch.dict(os.environ):
            os.environ.pop("ONEJOURNAL_BUDGET_SCALE", None)
            self.assertEqual(scale(), 2)


class Reports(unittest.TestCase):
    """The end of the output."""

    def closed(self, report: Report) -> tuple[int, str]:
        """Exit code and output."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = report.close()
        return code, output.getvalue()

    def test_all_that_was_counted_is_in_the_last_line(self) -> None:
        report = Report("gate", 7, False)
        with contextlib.redirect_stdout(io.StringIO()):
            report.add(Outcome(fakes.test("good"), "", PASSED, 1.0))
            report.add(Outcome(fakes.test("bad"), "io_uring", FAILED, 2.0, "exit code 101"))
            needs = [Need("root", "needs root")]
            report.add(Outcome(fakes.test("poor"), "", SKIPPED, 3.0, needs=needs))
            report.fail("clippy", "cargo clippy")
        report.skip("uring", ["one", "two"])
        report.skip("nothing", [])
        report.passed_elsewhere += 10
        code, output = self.closed(report)
        self.assertEqual(code, 1)
        self.assertEqual(output.splitlines()[-1], "11 passed, 2 failed, 3 skipped")
        self.assertIn("     2 for lack of uring, such as one", output)
        self.assertIn("     1 for lack of root, such as some/it poor: needs root", output)
        self.assertNotIn("nothing", output)
        self.assertIn("some/it: 1 passed, 1 failed, 1 skipped, 6 s", output)
        self.assertIn("    cargo clippy", output)
        slowest = output.index("the slowest tests")
        self.assertLess(output.index("some/it poor", slowest), output.index("some/it good"))

    def test_a_run_without_failures_succeeds(self) -> None:
        report = Report("gate", 7, False)
        with contextlib.redirect_stdout(io.StringIO()):
            report.add(Outcome(fakes.test("good"), "", PASSED, 1.0))
        self.assertEqual(self.closed(report)[0], 0)


class Seeds(unittest.TestCase):
    """Where the seed comes from."""

    def test_the_gates_seed_is_the_same_in_each_run_of_one_tree(self) -> None:
        root = Path(__file__).resolve().parents[3]
        with mock.patch.dict(os.environ):
            os.environ.pop(tiers.SEED_VARIABLE, None)
            self.assertEqual(tiers.seed("gate", root), tiers.seed("gate", root))
            self.assertNotEqual(tiers.seed("long", root), tiers.seed("long", root))
            os.environ[tiers.SEED_VARIABLE] = "42"
            self.assertEqual(tiers.seed("long", root).value, 42)

    def test_without_git_the_seed_comes_from_the_lock_file(self) -> None:
        with tempfile.TemporaryDirectory() as directory, mock.patch.dict(os.environ):
            os.environ.pop(tiers.SEED_VARIABLE, None)
            root = Path(directory)
            (root / "Cargo.lock").write_text("some")
            seed = tiers.seed("gate", root)
        self.assertEqual(seed.origin, "the hash of Cargo.lock")
        self.assertLess(seed.value, 1 << 64)


class Times(unittest.TestCase):
    """What the next run knows of the last one."""

    def test_times_are_renewed_and_kept(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            self.assertEqual(runner.read_times(directory), {})
            one = Outcome(fakes.test("one"), "io_uring", PASSED, 1.5)
            runner.write_times(directory, [one, Outcome(fakes.test("two"), "", PASSED, 2.5)])
            runner.write_times(directory, [Outcome(fakes.test("two"), "", PASSED, 3.5)])
            self.assertEqual(runner.read_times(directory),
                             {"some/it one [io_uring]": 1.5, "some/it two": 3.5})
            (directory / "times.json").write_text("[]")
            self.assertEqual(runner.read_times(directory), {})
