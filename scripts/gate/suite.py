"""The tests of all programs, and how to choose among them."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Iterable, Sequence

from .cargo import Executable

_LIST_SECONDS = 60
# An ignored test with such a reason is a process of another test, and no test itself.
_PART = re.compile(r"^(a process of|a step of|run by)\b")
_IGNORED = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. ignored(?:, (.*))?$")


class CannotList(Exception):
    """A program does not list its tests."""


@dataclasses.dataclass(frozen=True)
class Test:
    """One test of one program."""

    program: Executable
    name: str

    @property
    def label(self) -> str:
        """Its name in the output."""
        return f"{self.program.label} {self.name}"


@dataclasses.dataclass(frozen=True)
class Ignored:
    """A test with the attribute `ignore`."""

    test: Test
    reason: str


def parse_list(text: str) -> list[str]:
    """The names in the output of `--list --format terse`."""
    lines = (line.rpartition(": ") for line in text.splitlines())
    return [name for name, _, kind in lines if kind in ("test", "benchmark")]


def parse_ignored(text: str) -> list[tuple[str, str]]:
    """Names and reasons in the output of a run of ignored tests."""
    found = (_IGNORED.match(line) for line in text.splitlines())
    return [(match[1], match[2] or "without a reason") for match in found if match]


def _output(program: Executable, words: Sequence[str]) -> str:
    try:
        ran = subprocess.run(
            [str(program.path), *words],
            cwd=program.package.directory,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=_LIST_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotList(f"{program.label}: {error}") from error
    return ran.stdout.decode(errors="replace")


def load(program: Executable) -> tuple[list[Test], list[Ignored]]:
    """The tests of a program, and those that are ignored."""
    listing = ["--list", "--format", "terse"]
    names = parse_list(_output(program, listing))
    ignored_names = parse_list(_output(program, [*listing, "--ignored"]))
    ignored = []
    if ignored_names:
        # Nothing runs: all that is selected is ignored.
        said = parse_ignored(_output(program, ["--exact", *ignored_names]))
        tests = ((Test(program, name), reason) for name, reason in said)
        ignored = [Ignored(test, reason) for test, reason in tests if not _PART.match(reason)]
    left = set(names) - set(ignored_names)
    return [Test(program, name) for name in names if name in left], ignored


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which tests are run: all, or those with a filter in their label, or exact names."""

    filters: Sequence[str] = ()
    exact: Sequence[str] = ()

    def has(self, test: Test) -> bool:
        """Whether the test is chosen."""
        if self.exact:
            return test.name in self.exact or test.label in self.exact
        return not self.filters or any(part in test.label for part in self.filters)

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return not self.filters and not self.exact


@dataclasses.dataclass(frozen=True)
class Rule:
    """Tests of one package: one by its name, those of a module, or all; and why they are named."""

    package: str
    name: str
    reason: str

    def has(self, test: Test) -> bool:
        """Whether the rule is about this test."""
        is_named = self.name in ("", test.name) or test.name.startswith(f"{self.name}::")
        return test.program.package.name == self.package and is_named


def is_in(test: Test, rules: Iterable[Rule]) -> bool:
    """Whether a rule is about this test."""
    return any(rule.has(test) for rule in rules)
