"""The command line of `scripts/real-power-cut`."""

from __future__ import annotations

import argparse
import random
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from . import target
from .acknowledged import Acknowledged
from .controller import Controller, Plan, Stopped
from .power import NoSwitch, Power
from .results import Differs, Results

_DESCRIPTION = """Cuts the power of a computer again and again, and looks whether everything that
its disk acknowledged is there. `target` runs on that computer, `control` on another one, which can
switch its supply. docs/how-to/real-hardware.md explains both."""


def _add_control(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--results", required=True, type=Path, metavar="FILE",
        help="JSON; a run that was interrupted goes on")
    add("--off", required=True, metavar="COMMAND", help="cuts the supply")
    add("--on", required=True, metavar="COMMAND", help="switches it on")
    add("--start", default="", metavar="COMMAND",
        help="starts the target's side (ssh); without it, the target does that when it boots")
    add("--listen", default="127.0.0.1:7077", metavar="ADDRESS:PORT")
    add("--cuts", type=int, default=100, metavar="N")
    add("--seed", type=int, help="of the moments and of the data")
    add("--seconds", type=float, nargs=2, default=(2.0, 30.0), metavar=("FROM", "TO"),
        help="of writing before a cut")
    add("--recovery-cuts", type=float, default=0.25, metavar="SHARE",
        help="of the boots whose recovery is cut")
    add("--off-seconds", type=float, default=10.0, metavar="S", help="without power")
    add("--boot-seconds", type=float, default=300.0, metavar="S", help="limit of a boot")
    add("--judge-seconds", type=float, default=1800.0, metavar="S", help="limit of a verdict")
    add("--keep-going", action="store_true", help="do not stop at the first failure")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/real-power-cut", description=_DESCRIPTION)
    sides = parser.add_subparsers(dest="side", required=True)
    _add_control(sides.add_parser("control", help="the side that cuts the power"))
    target.add_options(sides.add_parser("target", help="the side with the disk; as root"))
    return parser


def _listener(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    listener = socket.create_server((host, int(port)), reuse_port=False)
    print(f"real-power-cut: listens on {host}:{listener.getsockname()[1]}", flush=True)
    return listener


def _control(options: argparse.Namespace) -> int:
    acknowledged = Acknowledged(options.results.with_name(options.results.name + ".acknowledged"))
    seed = options.seed
    if seed is None:
        seed = Results.seed_of(options.results) or random.getrandbits(32)
    if not 0 <= options.recovery_cuts <= 0.9:
        raise ValueError("--recovery-cuts is from 0 to 0.9: with 1 no recovery would ever end")
    plan = Plan(
        seed, options.cuts, tuple(options.seconds), options.recovery_cuts, options.off_seconds,
        options.boot_seconds, options.judge_seconds, options.keep_going,
    )
    settings = {"seed": seed, "seconds": list(plan.seconds), "off_seconds": plan.off_seconds,
                "recovery_cuts": plan.recovery_share}
    kept = Results(options.results, settings)
    power = Power(options.off, options.on, options.start)
    try:
        with _listener(options.listen) as listener:
            is_good = Controller(plan, power, listener, kept, acknowledged).run()
    finally:
        power.close()
        acknowledged.close()
    print(kept.closing_line(), flush=True)
    return 0 if is_good else 1


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 as it should be, 1 not, 2 it could not be found out."""
    options = _parser().parse_args(arguments)
    try:
        return target.main(options) if options.side == "target" else _control(options)
    except (Differs, NoSwitch, Stopped, OSError, ValueError) as error:
        print(f"real-power-cut: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("real-power-cut: interrupted; the same command goes on", file=sys.stderr)
        return 130
