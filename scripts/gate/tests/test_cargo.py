"""Reading cargo's messages."""

from __future__ import annotations

import unittest
from pathlib import Path

from gate import cargo
from gate.tests import fakes


class Messages(unittest.TestCase):
    """Of `cargo test --no-run`."""

    def test_a_test_program_has_its_package_and_directory(self) -> None:
        found = cargo.executable(fakes.artifact(), fakes.known())
        assert found
        self.assertEqual((found.kind, found.target), ("test", "it"))
        self.assertEqual(found.package.directory, Path("/w/some"))
        self.assertEqual(found.label, "some/it")
        self.assertEqual(found.selection(), ["-p", "some", "--test", "it"])

    def test_unit_tests_of_a_library_carry_the_packages_name(self) -> None:
        target = {"kind": ["cdylib", "rlib"], "name": "some"}
        found = cargo.executable(fakes.artifact(target=target), fakes.known())
        assert found
        self.assertEqual((found.kind, found.label), ("lib", "some"))
        self.assertEqual(found.selection(), ["-p", "some", "--lib"])

    def test_what_is_no_test_program_is_left_out(self) -> None:
        others = [
            "", "   Compiling some",
            fakes.artifact(executable=None),
            fakes.artifact(profile={"test": False}),
            fakes.artifact(reason="build-script-executed"),
            fakes.artifact(package_id="registry+https://github.com/index#serde@1.0.0"),
        ]
        for line in others:
            self.assertIsNone(cargo.executable(line, fakes.known()), line)

    def test_the_build_is_that_of_the_whole_workspace(self) -> None:
        self.assertIn("--workspace", cargo.build_command())

    def test_a_package_is_known_by_its_name(self) -> None:
        self.assertIsNotNone(fakes.known().named("other"))
        self.assertIsNone(fakes.known().named("third"))
