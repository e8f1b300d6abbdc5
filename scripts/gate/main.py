"""The command line of the gate."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from . import keeper, tiers
from .load import Load
from .passes import TRANSPORTS
from .runner import Options, Runner
from .suite import Choice

ROOT = Path(__file__).resolve().parents[2]
_DESCRIPTION = """Checks everything: lints, one build, all tests, and what belongs to the tier.
Words after -- choose tests: parts of PACKAGE/TARGET NAME. A choice of tests or packages leaves out
the lints and the budgets. ONEJOURNAL_TEST_FAST=1 leaves out the lints, too."""


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/test",
        description=_DESCRIPTION,
        usage="%(prog)s [TIER] [OPTIONS] [-- WORD ...]",
    )
    add = parser.add_argument
    add("tier", nargs="?", choices=tiers.TIERS, default="gate")
    add("-p", "--package", action="append", default=[], help="only this package; repeatable")
    add("--exact", action="append", default=[], metavar="NAME", help="only this test; repeatable")
    add("--no-lints", action="store_true")
    add("--transport", choices=TRANSPORTS, default="both", help="ways to the kernel")
    add("--jobs", type=_count, default=2 * (os.cpu_count() or 1), help="tests at once")
    add("-v", "--verbose", action="store_true", help="a line for each test")
    add("--processor", type=_count, metavar="PERCENT",
        help="run the tests with this share of one processor")
    add("--times", type=_count, metavar="N", help="run the tests so many times")
    add("--side-by-side", type=_count, default=1, metavar="K", help="so many runs at once")
    return parser


def options(arguments: Sequence[str]) -> Options:
    """What the command line and the environment ask for."""
    words = list(arguments)
    filters: list[str] = []
    if "--" in words:
        place = words.index("--")
        words, filters = words[:place], words[place + 1:]
    parsed = _parser().parse_args(words)
    load: Load | None = None
    if parsed.processor is not None or parsed.times is not None or parsed.side_by_side > 1:
        times = parsed.times or parsed.side_by_side
        load = Load(parsed.processor, times, parsed.side_by_side)
    return Options(
        tier=parsed.tier,
        seed=tiers.seed(parsed.tier, ROOT),
        packages=parsed.package,
        choice=Choice(filters, parsed.exact),
        has_lints=not parsed.no_lints and not os.environ.get("ONEJOURNAL_TEST_FAST"),
        transport=parsed.transport,
        jobs=parsed.jobs,
        verbose=parsed.verbose,
        load=load,
    )


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    os.chdir(ROOT)
    chosen = options(arguments)
    try:
        return keeper.run_kept(lambda room: Runner(chosen, room).run())
    except keeper.Stopped as stopped:
        print(f"test: ended by {stopped}; everything of the run is removed", file=sys.stderr)
        # Callers such as make are to see the signal.
        signal.signal(stopped.number, signal.SIG_DFL)
        os.kill(os.getpid(), stopped.number)
        return 128 + stopped.number
