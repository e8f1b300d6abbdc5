"""Ends real runs at random moments, and looks whether anything of them is left.

    scripts/test-killed-run [--times 20] [--seed N] [-- WORD ...]

The words choose what is run, as for `scripts/test`; without them it is the test whose servers are
killed themselves. A first run is left alone, and says how long one takes. The others are ended in
turns: SIGTERM to the program, SIGKILL of its process group, SIGKILL of program and keeper at once.
After the last one the next run has to clean. Then `sync` returns, and no mount, loop device,
process, shared memory or file is left.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from . import commands, fuse, keeper, loops, parameter, processes, record, room, stuck

ROOT = Path(__file__).resolve().parents[2]
_SELECTION = ["-p", "onejournal-cli", "--", "killed"]
# In the environment of all processes of a run that this program starts.
_MARK = "ONEJOURNAL_KILLED_RUN"
_END_SECONDS = 90
_SYNC_SECONDS = 60


class Left(Exception):
    """Something was left."""


@dataclasses.dataclass
class Run:
    """A run of `scripts/test`, the leader of a process group."""

    process: subprocess.Popen[bytes]
    mark: str

    @staticmethod
    def start(words: Sequence[str], output: Path) -> Run:
        """In a session of its own, as a terminal's job."""
        mark = f"{os.getpid()}-{random.getrandbits(32):x}"
        environment = {**os.environ, _MARK: mark, "ONEJOURNAL_TEST_FAST": "1"}
        # These say something about the run around this one.
        for name in ("MAKELEVEL", record.RUN_VARIABLE, stuck.TEST_VARIABLE):
            environment.pop(name, None)
        with output.open("wb") as file:
            process = subprocess.Popen(
                [str(ROOT / "scripts" / "test"), *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Run(process, mark)

    def members(self) -> set[int]:
        """All its processes, the keeper among them."""

        def look() -> str:
            own = os.getpid()
            others = (pid for pid in processes.all_ids() if pid != own)
            found = [pid for pid in others if processes.environment(pid).get(_MARK) == self.mark]
            return "done " + " ".join(str(pid) for pid in found if processes.is_running(pid))

        words = stuck.bounded(look, _SYNC_SECONDS).split()
        if not words:
            raise Left("a process is stuck: its environment cannot be read")
        return set(map(int, words[1:]))

    def record(self) -> record.Record | None:
        """What the next run would know, if the run has come so far."""
        own = processes.descendants(self.process.pid)
        found = (record.read(scratch) for scratch in record.directories())
        return next((each for each in found if each and each.keeper.pid in own), None)


def _terminate(run: Run, _known: record.Record | None) -> None:
    run.process.send_signal(signal.SIGTERM)


def _kill_group(run: Run, _known: record.Record | None) -> None:
    os.killpg(run.process.pid, signal.SIGKILL)


def _kill_with_keeper(run: Run, known: record.Record | None) -> None:
    processes.send(run.process.pid, signal.SIGSTOP)
    if known:
        processes.send(known.keeper.pid, signal.SIGKILL)
    processes.send(run.process.pid, signal.SIGKILL)


Way = Callable[[Run, "record.Record | None"], None]
_WAYS: list[tuple[str, Way]] = [
    ("SIGTERM to the program", _terminate),
    ("SIGKILL of the process group", _kill_group),
    ("SIGKILL of program and keeper", _kill_with_keeper),
]


def _wait_for(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _END_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise Left(what)
        time.sleep(0.1)


def _is_mounted(known: record.Record) -> bool:
    """Whether a process sees the run's files or shared memory in its mount namespace."""
    shm = known.shm_device and f"{os.major(known.shm_device)}:{os.minor(known.shm_device)}"
    seen = set()
    for pid in processes.all_ids():
        namespace = processes.namespace_of(pid, "mnt")
        if namespace in seen:
            continue
        seen.add(namespace)
        for line in processes.read(f"/proc/{pid}/mountinfo").splitlines():
            is_shm = shm and line.split(" ")[2] == shm and " - tmpfs " in line
            if is_shm or known.marker in line or known.scratch.name in line:
                return True
    return False


def _is_put_back(known: record.Record) -> bool:
    """Whether `enable_uring` is what it was; other live runs may have changed it."""
    if known.io_uring is None or record.others_notes(known.scratch):
        return True
    return parameter.value() == known.io_uring


def _unseen_connections(before: set[int]) -> set[int]:
    """New FUSE connections that belong to no process. Other runs of this machine may have some
    that do; they are seen only where all processes are."""
    if not processes.sees_all():
        return set()
    everyone = processes.all_ids()
    new = fuse.existing() - before
    return new - fuse.mounted_by(everyone) - fuse.served_by(everyone)


def _loops_of(known: record.Record) -> list[str]:
    marks = (f"/{known.marker}/", known.scratch.name)
    return [
        loop.path
        for loop in loops.attached()
        if any(mark in loop.path for mark in marks) or loop.backing.device == known.shm_device
    ]


def expect_nothing(run: Run, known: record.Record | None, before: set[int]) -> None:
    """Raises `Left` if something of the run is there after a while."""
    _wait_for("processes are left", lambda: not run.members())
    try:
        subprocess.run(["sync"], check=True, timeout=_SYNC_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Left("sync does not return") from error
    if known:
        _wait_for("the namespace is left", lambda: not known.members())
        _wait_for("a mount is left", lambda: not _is_mounted(known))
        _wait_for(f"loop devices are left: {_loops_of(known)}", lambda: not _loops_of(known))
        _wait_for(f"{known.scratch} is left", lambda: not known.scratch.exists())
        group = known.cgroup
        _wait_for(f"{group} is left", lambda: not (group and os.path.exists(group)))
        # Tests change it for a moment.
        _wait_for(f"{parameter.PATH} has changed", lambda: _is_put_back(known))
    _wait_for("FUSE connections are left", lambda: not _unseen_connections(before))


def _run_undisturbed(words: Sequence[str], output: Path) -> float:
    """Builds and measures. Whether all tests pass is not the question here."""
    for _ in range(2):
        begun = time.monotonic()
        Run.start(words, output).process.wait()
        said = output.read_text(errors="replace")
        closing = re.search(r"^(\d+) passed, \d+ failed, \d+ skipped$", said, re.MULTILINE)
        if not closing or closing[1] == "0":
            print(said)
            raise Left("no test passed in a run that nothing has ended")
    return time.monotonic() - begun


def _end_one(words: Sequence[str], way: Way, seconds: float, output: Path) -> None:
    before = fuse.existing()
    run = Run.start(words, output)
    time.sleep(seconds)
    known = run.record()
    way(run, known)
    run.process.wait(_END_SECONDS)
    if way is _kill_with_keeper:
        keeper.run_kept(lambda room: 0)
    expect_nothing(run, known, before)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/test-killed-run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.getrandbits(32))
    words = list(arguments)
    place = words.index("--") if "--" in words else len(words)
    parsed = parser.parse_args(words[:place])
    parsed.words = words[place + 1:] or _SELECTION
    return parsed


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    parsed = _parsed(arguments)
    lacks = room.why_no_namespaces()
    if lacks:
        print(f"skipped: namespaces: {lacks}", file=sys.stderr)
        return commands.CANNOT_RUN
    fuse.open_control()
    keeper.remove_earlier()
    chance = random.Random(parsed.seed)
    print(f"test-killed-run: --seed {parsed.seed}", flush=True)
    name, seconds = "nothing was ended", 0.0
    output = Path(os.environ.get("TMPDIR", "/var/tmp")) / f"onejournal-killed-{os.getpid()}.log"
    try:
        duration = _run_undisturbed(parsed.words, output)
        print(f"one run takes {duration:.1f} s", flush=True)
        for index in range(parsed.times):
            name, way = _WAYS[index % len(_WAYS)]
            seconds = chance.uniform(0, duration)
            _end_one(parsed.words, way, seconds, output)
            print(f"{index + 1}: {name} after {seconds:.2f} s left nothing", flush=True)
    except (Left, subprocess.TimeoutExpired) as error:
        print(f"test-killed-run: FAILED: {name}, {seconds:.2f} s: {error}", file=sys.stderr)
        print(f"replay: scripts/test-killed-run --seed {parsed.seed}", file=sys.stderr)
        return 1
    finally:
        output.unlink(missing_ok=True)
    return 0
