"""The order of a run: lints, one build, the tests in each way to the kernel, and the rest."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from . import cargo, commands, leaks, load, pool, suite, tables
from .budget import Clock, scale
from .cargo import Executable, Workspace
from .outcome import Outcome
from .passes import Pass, plan
from .report import Report, say
from .room import Room
from .schedule import Queue, longest_first
from .suite import Choice, Ignored, Test
from .tiers import SEED_VARIABLE, TIER_VARIABLE, Seed

_PROGRESS_SECONDS = 30


@dataclasses.dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    tier: str
    seed: Seed
    packages: Sequence[str] = ()
    choice: Choice = Choice()
    has_lints: bool = True
    transport: str = "both"
    jobs: int = 4
    verbose: bool = False
    load: load.Load | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out: only then budgets hold."""
        return not self.packages and self.choice.is_all and self.load is None


class Broken(Exception):
    """A step without which the rest makes no sense."""


class Runner:
    """One run, inside the keeper's room."""

    def __init__(self, options: Options, room: Room) -> None:
        self.options = options
        self.room = room
        self.report = Report(options.tier, options.seed.value, options.verbose)
        self.clock = Clock(say)
        self.budgets: Mapping[str, float] = {}
        if options.is_whole:
            budgets = tables.BUDGETS[options.tier]
            self.budgets = {name: seconds * scale() for name, seconds in budgets.items()}
        self.workspace = Workspace({}, Path("target"))

    def run(self) -> int:
        """Returns the exit code."""
        self._head()
        try:
            self._steps()
        except Broken:
            pass
        except suite.CannotList as error:
            self.report.fail("a program does not list its tests", str(error))
        say("\n" + "\n".join(self.clock.table()))
        for name in self.clock.far_over():
            self.report.fail(f"{name} took more than twice its budget", "see the table")
        return self.report.close()

    def _head(self) -> None:
        seed, lacks = self.options.seed, self.room.lacks
        say(f"tier {self.options.tier}, {SEED_VARIABLE}={seed.value} ({seed.origin}), "
            f"{self.options.jobs} tests at once")
        if lacks:
            say(f"without namespaces of its own ({lacks}): tests see the machine's processes")
        os.environ[TIER_VARIABLE] = self.options.tier
        os.environ[SEED_VARIABLE] = str(seed.value)

    def _steps(self) -> None:
        self._read_workspace()
        if self.options.has_lints and self.options.is_whole:
            with self._step("lints"):
                self._lints()
        for extra in tables.EXTRAS[self.options.tier] if self.options.is_whole else ():
            if extra.is_first:
                self._extra(extra)
        with self._step("build"):
            programs = self._build()
        with self._step("tests"):
            self._tests(programs)
        if not self.options.load:
            with self._step("rest"):
                self._rest()
        for extra in tables.EXTRAS[self.options.tier] if self.options.is_whole else ():
            if not extra.is_first:
                self._extra(extra)

    def _step(self, name: str) -> AbstractContextManager[None]:
        return self.clock.step(name, self.budgets.get(name))

    def _limit(self, name: str) -> float | None:
        """A step that is one program ends when it is far over its budget."""
        budget = self.budgets.get(name)
        return None if budget is None else 2 * budget

    def _must(
        self,
        words: Sequence[str],
        limit: float | None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        say("$ " + shlex.join(words))
        ran = commands.run(words, limit, environment)
        if ran.failure:
            self.report.fail(f"{shlex.join(words)}: {ran.failure}", shlex.join(words))
            raise Broken

    def _read_workspace(self) -> None:
        words = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
        try:
            ran = subprocess.run(words, stdout=subprocess.PIPE, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            self.report.fail("cargo metadata", str(error))
            raise Broken from error
        self.workspace = cargo.workspace(ran.stdout.decode())
        for name in self.options.packages:
            if self.workspace.named(name) is None:
                self.report.fail(f"there is no package {name}", "cargo metadata --no-deps")
                raise Broken

    @property
    def directory(self) -> Path:
        """Where the gate keeps what it knows and what failures left."""
        return self.workspace.target / "gate"

    def _lints(self) -> None:
        limit = self._limit("lints")
        self._must(["cargo", "fmt", "--all", "--check"], limit)
        self._must(["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--",
                    "-D", "warnings"], limit)
        self._must(["cargo", "doc", "--workspace", "--no-deps", "--quiet"], limit,
                   environment={"RUSTDOCFLAGS": "-D warnings"})

    def _build(self) -> list[Executable]:
        words = cargo.build_command()
        say("$ " + shlex.join(words))
        quiet = [] if self.options.verbose else ["--quiet"]
        program = commands.Program([*words, *quiet], self._limit("build"), stdout=subprocess.PIPE)
        found, count, said = [], 0, time.monotonic()
        for line in program.lines():
            count += line.startswith('{"reason":"compiler-artifact"')
            executable = cargo.executable(line, self.workspace)
            if executable:
                found.append(executable)
            if time.monotonic() - said > _PROGRESS_SECONDS:
                said = time.monotonic()
                say(f"{count} targets built")
        failure = program.end()
        if failure:
            self.report.fail(f"the build: {failure}", shlex.join(words))
            raise Broken
        return found

    def _tests(self, programs: Sequence[Executable]) -> None:
        tests: list[Test] = []
        ignored: list[Ignored] = []
        packages = self.options.packages
        for program in programs:
            if packages and program.package.name not in packages:
                continue
            some, some_ignored = suite.load(program)
            tests += some
            ignored += some_ignored
        chosen = [test for test in tests if self.options.choice.has(test)]
        say(f"{len(programs)} programs with {len(tests)} tests, {len(chosen)} chosen")
        if not chosen:
            self.report.fail("no test is chosen", "the filters are parts of PACKAGE/TARGET NAME")
            return
        if self.options.choice.is_all:
            self.report.skip("a reason to run (ignored)",
                             [f"{each.test.label}: {each.reason}" for each in ignored
                              if not each.reason.startswith("a process of")])
        passes, missing = plan(chosen, self.options.tier, self.options.transport)
        self._note_missing(missing)
        if self.options.load:
            load.run(self.options.load, passes, self._pool_settings(), self.report)
            return
        pool.empty(self.directory)
        self.report.expect(sum(len(each.tests) for each in passes))
        for each in passes:
            self._pass(each)

    def _note_missing(self, missing: Sequence[str]) -> None:
        if missing:
            must_run = os.environ.get("ONEJOURNAL_MUST_RUN", "").split(",")
            if {"uring", "all"} & set(must_run):
                self.report.fail("tests cannot run through io_uring, but must", missing[0])
            self.report.skip("uring", missing)

    def _pool_settings(self) -> pool.Settings:
        default = tables.TEST_LIMIT_SECONDS[self.options.tier]
        limit = float(os.environ.get("ONEJOURNAL_TEST_LIMIT", default))
        libraries = [self.workspace.target / "debug" / "deps", self.workspace.target / "debug"]
        path = [*map(str, libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return pool.Settings(
            jobs=self.options.jobs,
            limit_seconds=limit,
            directory=self.directory,
            is_private=self.room.is_private,
            environment={"LD_LIBRARY_PATH": ":".join(path), "ONEJOURNAL_ALONE": "1"},
        )

    def _pass(self, each: Pass) -> None:
        each.begin()
        times = read_times(self.directory)
        known = {test.label: times[key] for test in each.tests
                 if (key := _time_key(test.label, each.way)) in times}
        order = longest_first(each.tests, known)
        settings = dataclasses.replace(self._pool_settings(), way=each.way)
        begun = len(self.report.outcomes)
        pool.Pool(settings, self.report.add).run(Queue(order, tables.EXCLUSIVE, tables.GROUPS))
        write_times(self.directory, self.report.outcomes[begun:])
        each.check(say)
        if self.room.is_private:
            for line in leaks.end_all():
                say(line)

    def _rest(self) -> None:
        if self.options.is_whole:
            self._own_tests()
            self._documentation()

    def _own_tests(self) -> None:
        """Python's tests of the scripts."""
        words = [sys.executable, "-m", "unittest", "discover", "-s", "scripts", "-t", "scripts"]
        say("$ " + shlex.join(words))
        ran = commands.run(words, self._limit("rest"), keep_output=True,
                           environment={"PYTHONDONTWRITEBYTECODE": "1"})
        count = commands.unittest_count(ran.output)
        if ran.failure or not count:
            say(ran.output)
            self.report.fail("the tests of the scripts", shlex.join(words))
        else:
            self.report.passed_elsewhere += count

    def _documentation(self) -> None:
        words = ["cargo", "test", "--workspace", "--doc"]
        say("$ " + shlex.join(words))
        ran = commands.run(words, self._limit("rest"), keep_output=True)
        counts = commands.harness_counts(ran.output)
        self.report.passed_elsewhere += counts.passed
        self.report.skip("a reason to run (ignored)", ["a documentation test"] * counts.ignored)
        if ran.failure:
            say(ran.output)
            self.report.fail(f"documentation tests: {ran.failure}", shlex.join(words))

    def _extra(self, extra: tables.Extra) -> None:
        seed = str(self.options.seed.value)
        words = [word.replace("{seed}", seed) for word in extra.command]
        environment = {key: value.replace("{seed}", seed)
                       for key, value in extra.environment.items()}
        settings = "".join(f"{key}={value} " for key, value in environment.items())
        with self.clock.step(extra.name, extra.budget * scale()):
            say(f"$ {settings}{shlex.join(words)}")
            ran = commands.run(words, 2 * extra.budget * scale(), environment)
        if ran.code == commands.CANNOT_RUN:
            self.report.skip("what its output names", [extra.name])
        elif ran.failure:
            self.report.fail(f"{extra.name}: {ran.failure}", settings + shlex.join(words))
        else:
            self.report.passed_elsewhere += 1


def _time_key(label: str, way: str) -> str:
    return f"{label} [{way}]" if way else label


def read_times(directory: Path) -> dict[str, float]:
    """How long each test took when it was last run."""
    try:
        values = json.loads((directory / "times.json").read_text(encoding="utf-8"))
        return {str(label): float(seconds) for label, seconds in values.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def write_times(directory: Path, outcomes: Sequence[Outcome]) -> None:
    """Renews them; tests that were not run keep theirs."""
    times = read_times(directory)
    times.update({outcome.label: round(outcome.seconds, 3) for outcome in outcomes})
    (directory / "times.json").write_text(json.dumps(times, indent=0), encoding="utf-8")
