"""What becomes of a test, by its exit code and output."""

from __future__ import annotations

import dataclasses
import unittest

from gate import commands, outcome
from gate.outcome import FAILED, PASSED, SKIPPED, Need
from gate.tests import fakes

_OK = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out\n"


class Outcomes(unittest.TestCase):
    """Passed, failed, skipped."""

    def judged(self, code: int, output: str) -> outcome.Outcome:
        """The outcome of a test with this end."""
        return outcome.judge(fakes.test("m::name"), "", 1.0, code, output)

    def test_a_test_that_ran_has_passed(self) -> None:
        self.assertEqual(self.judged(0, "test m::name ... ok\n" + _OK).status, PASSED)

    def test_a_test_that_did_not_run_has_failed(self) -> None:
        none = _OK.replace("1 passed", "0 passed")
        self.assertEqual(self.judged(0, none).status, FAILED)
        self.assertEqual(self.judged(0, "").status, FAILED)

    def test_exit_codes_and_signals_are_named(self) -> None:
        self.assertEqual(self.judged(101, _OK).reason, "exit code 101")
        self.assertEqual(self.judged(-6, _OK).reason, "ended by SIGABRT")

    def test_a_skip_is_counted_at_the_start_of_a_line_or_after_the_tests_name(self) -> None:
        for start in ("", "test m::name ... "):
            judged = self.judged(0, f"{start}skipped: fuse: needs /dev/fuse\nok\n{_OK}")
            self.assertEqual(judged.status, SKIPPED)
            self.assertEqual(judged.needs, [Need("fuse", "needs /dev/fuse")])

    def test_what_only_looks_like_a_skip_is_none(self) -> None:
        for line in ("it was skipped: root: no", "skipped: needs root", "skipped: A B: c"):
            self.assertEqual(self.judged(0, f"{line}\n{_OK}").status, PASSED, line)

    def test_a_failure_after_a_skip_is_a_failure(self) -> None:
        self.assertEqual(self.judged(101, "skipped: root: x\n").status, FAILED)

    def test_the_command_that_replays_a_test_has_its_seed_and_tier(self) -> None:
        judged = self.judged(101, "")
        self.assertEqual(
            outcome.replay(judged, "gate", 7),
            "ONEJOURNAL_SEED=7 ONEJOURNAL_TIER=gate "
            "cargo test -p some --test it -- --exact m::name",
        )
        again = outcome.replay(dataclasses.replace(judged, way="io_uring"), "long", 7)
        self.assertIn("--transport io_uring", again)
        self.assertIn("'some/it m::name'", again)

    def test_the_end_of_a_long_output_is_shown(self) -> None:
        shown = outcome.tail("\n".join(map(str, range(100))), 3)
        self.assertEqual(shown.split(), ["...", "97", "lines", "before", "97", "98", "99"])


class Counting(unittest.TestCase):
    """Closing lines of other programs."""

    def test_results_of_several_programs_are_summed(self) -> None:
        failed = "test result: FAILED. 2 passed; 3 failed; 1 ignored; 0 measured\n"
        self.assertEqual(commands.harness_counts(_OK + failed), (3, 3, 1))

    def test_pythons_tests_are_counted(self) -> None:
        self.assertEqual(commands.unittest_count("....\nRan 4 tests in 0.001s\n\nOK\n"), 4)
        self.assertEqual(commands.unittest_count("Traceback"), 0)

    def test_a_program_that_takes_too_long_is_ended(self) -> None:
        self.assertEqual(commands.run(["sleep", "100"], 0.1).failure, "ended after 0 s")
        self.assertEqual(commands.run(["false"]).failure, "exit code 1")
        ran = commands.run(["sh", "-c", "echo out; echo err >&2"], 10, keep_output=True)
        self.assertEqual(ran, ("", "out\nerr\n", 0))
