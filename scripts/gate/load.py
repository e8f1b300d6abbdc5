"""The test step many times on a slow processor, which is where races show."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import shutil
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from . import keeper, pool, tables
from .outcome import FAILED, PASSED, SKIPPED
from .passes import Pass
from .report import Report, say
from .schedule import Queue

# A test on a slow processor may take that much longer than its share says.
_LIMIT_SCALE = 2.0


@dataclasses.dataclass(frozen=True)
class Load:
    """What is asked for."""

    # Percent of one processor for each run; all of the machine if there is none.
    percent: int | None
    times: int
    side_by_side: int


class _Found(NamedTuple):
    """One test of one run."""

    label: str
    status: str
    reason: str
    log: str


def limit_seconds(usual: float, load: Load) -> float:
    """The limit for one test, longer on a slower processor."""
    share = (load.percent or 100) / 100
    return usual * _LIMIT_SCALE * max(1.0, load.side_by_side, 1 / share)


def run(load: Load, passes: Sequence[Pass], settings: pool.Settings, report: Report) -> None:
    """Runs all passes so many times, each time in a room of its own."""
    directory = settings.directory / "load"
    shutil.rmtree(directory, ignore_errors=True)
    for each in passes:
        each.begin()
        limit = limit_seconds(settings.limit_seconds, load)
        some = dataclasses.replace(settings, way=each.way, limit_seconds=limit)
        _run_pass(load, each, some, directory, report)
        each.check(say)


def _run_pass(
    load: Load, each: Pass, settings: pool.Settings, directory: Path, report: Report
) -> None:
    waiting = list(range(1, load.times + 1))
    running: dict[int, Path] = {}
    found: dict[Path, list[_Found]] = {}
    while waiting or running:
        while waiting and len(running) < load.side_by_side:
            name = f"{each.way or 'dev_fuse'}-{waiting.pop(0):02}"
            place = directory / name
            place.mkdir(parents=True)
            running[_start(load, each, settings, place)] = place
        child, _ = os.wait()
        place = running.pop(child)
        found[place] = _read(place)
        say(f"{place.name}: {_counts(found[place])}")
    _summarize(found, load, report)


def _start(load: Load, each: Pass, settings: pool.Settings, place: Path) -> int:
    """Forks a caller of a keeper, whose output goes to a file."""
    child = os.fork()
    if child != 0:
        return child
    try:
        output = os.open(place / "output.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        own = dataclasses.replace(settings, directory=place)
        keeper.run_kept(lambda room: _body(each, own, place), load.percent)
    except BaseException:  # pylint: disable=broad-except
        traceback.print_exc()
    finally:
        os._exit(0)


def _body(each: Pass, settings: pool.Settings, place: Path) -> int:
    begun = time.monotonic()
    report = Report(os.environ["ONEJOURNAL_TIER"], int(os.environ["ONEJOURNAL_SEED"]), False)
    report.expect(len(each.tests))
    pool.Pool(settings, report.add).run(Queue(each.tests, tables.EXCLUSIVE, tables.GROUPS))
    found = [
        _Found(outcome.label, outcome.status, outcome.reason, str(outcome.log))
        for outcome in report.outcomes
    ]
    new = place / "outcomes.new"
    new.write_text(json.dumps(found), encoding="utf-8")
    new.rename(place / "outcomes.json")
    say(f"{time.monotonic() - begun:.0f} s")
    return report.close()


def _read(place: Path) -> list[_Found]:
    """The outcomes of a run. A run that was ended has one failure."""
    try:
        values = json.loads((place / "outcomes.json").read_text(encoding="utf-8"))
        return [_Found(*value) for value in values]
    except (OSError, ValueError):
        return [_Found("the run", FAILED, "did not end", str(place / "output.log"))]


def _counts(found: Sequence[_Found]) -> str:
    counts = collections.Counter(each.status for each in found)
    return ", ".join(f"{counts[status]} {status}" for status in (PASSED, FAILED, SKIPPED))


def _summarize(found: dict[Path, list[_Found]], load: Load, report: Report) -> None:
    failures: dict[str, list[_Found]] = collections.defaultdict(list)
    for outcomes in found.values():
        for each in outcomes:
            report.passed_elsewhere += each.status == PASSED
            if each.status == SKIPPED:
                report.skip("what its output says", [each.label])
            if each.status == FAILED:
                failures[each.label].append(each)
    for label, some in sorted(failures.items()):
        reasons = ", ".join(sorted({each.reason for each in some}))
        report.fail(f"{label}: in {len(some)} of {load.times} runs ({reasons})", some[0].log)
