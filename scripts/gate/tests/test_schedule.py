"""The order of tests, and which ones overlap."""

from __future__ import annotations

import unittest

from gate.schedule import Queue, longest_first
from gate.suite import Rule, Test
from gate.tests import fakes


class Order(unittest.TestCase):
    """Longest first."""

    def test_unknown_integration_tests_come_first_then_the_longest(self) -> None:
        unit = fakes.test("unit", kind="lib")
        short, long, unknown = map(fakes.test, ("short", "long", "unknown"))
        times = {short.label: 1.0, long.label: 9.0}
        self.assertEqual(longest_first([unit, short, long, unknown], times),
                         [unknown, long, short, unit])


class Overlap(unittest.TestCase):
    """What may run beside what."""

    def names(self, tests: list[Test]) -> list[str]:
        """Their names."""
        return [test.name for test in tests]

    def test_an_exclusive_test_waits_until_all_others_have_ended(self) -> None:
        alone, other, third = map(fakes.test, ("clock::alone", "a::other", "a::third"))
        queue = Queue([alone, other, third], [Rule("some", "clock", "it measures")])
        self.assertEqual(len(queue), 3)
        first, second = queue.take([]), queue.take([other])
        self.assertEqual((first, second), (other, third))
        self.assertIsNone(queue.take([third]))
        self.assertEqual(queue.take([]), alone)
        self.assertIsNone(queue.take([]))
        self.assertEqual(len(queue), 0)

    def test_tests_of_one_group_do_not_overlap_and_let_others_pass(self) -> None:
        one, two, other = map(fakes.test, ("port::one", "port::two", "a::other"))
        groups = {"port 80": [Rule("some", "port", "one port")]}
        queue = Queue([one, two, other], (), groups)
        self.assertEqual(queue.take([]), one)
        self.assertEqual(queue.take([one]), other)
        self.assertIsNone(queue.take([one, other]))
        self.assertEqual(queue.take([other]), two)
