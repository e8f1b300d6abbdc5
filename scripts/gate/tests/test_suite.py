"""Which tests there are, and which are chosen."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from gate import suite, tables
from gate.suite import Choice, Rule
from gate.tests import fakes


class Listing(unittest.TestCase):
    """What test programs say about themselves."""

    def test_a_program_lists_its_tests_and_gives_reasons_for_ignored_ones(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            tests, ignored = suite.load(fakes.program(Path(directory)))
        names = [test.name for test in tests]
        self.assertEqual(names, ["passes", "fails", "hangs", "lacks", "keeps", "none"])
        # `part` is a process of another test.
        self.assertEqual([(each.test.name, each.reason) for each in ignored],
                         [("slow", "measures")])

    def test_a_program_that_cannot_list_is_named(self) -> None:
        with self.assertRaisesRegex(suite.CannotList, "some/it"):
            suite.load(fakes.test("name").program)

    def test_other_lines_of_a_list_are_left_out(self) -> None:
        self.assertEqual(suite.parse_list("a::b: test\nnoise\nc: benchmark\n2 tests: no\n"),
                         ["a::b", "c"])

    def test_ignored_tests_with_and_without_a_reason(self) -> None:
        text = "running 2 tests\ntest a ... ignored\ntest b::c ... ignored, run by the judge\n"
        self.assertEqual(suite.parse_ignored(text),
                         [("a", "without a reason"), ("b::c", "run by the judge")])


class Choosing(unittest.TestCase):
    """Filters, exact names and rules."""

    def test_a_filter_is_a_part_of_the_label(self) -> None:
        test = fakes.test("killed::a_server_ends", "onejournal-cli")
        self.assertTrue(Choice(["cli/it killed"]).has(test))
        self.assertTrue(Choice().has(test))
        self.assertFalse(Choice(["order"]).has(test))

    def test_an_exact_name_is_no_part(self) -> None:
        test = fakes.test("a::b")
        self.assertTrue(Choice(exact=["a::b"]).has(test))
        self.assertTrue(Choice(exact=["some/it a::b"]).has(test))
        self.assertFalse(Choice(exact=["b"]).has(test))

    def test_a_rule_knows_a_module_and_a_test(self) -> None:
        rule = Rule("onejournal-cli", "killed", "why")
        for name in ("killed::x", "killed::inside::x", "killed"):
            self.assertTrue(rule.has(fakes.test(name, "onejournal-cli")), name)
        for test in (fakes.test("killed::x"), fakes.test("unkilled::x", "onejournal-cli"),
                     fakes.test("other::killed::x", "onejournal-cli")):
            self.assertFalse(rule.has(test), test)
        self.assertTrue(Rule("onejournal-cli", "", "why").has(fakes.test("x", "onejournal-cli")))
