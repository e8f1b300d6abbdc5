"""A run under a keeper: whatever is killed, nothing of the run is left.

    caller     waits; holds the writing end of a pipe, the lifeline
      keeper   in a session of its own, so that it survives the end of the caller's process group
        init   first process of a PID namespace, with a mount namespace, /dev/shm and /var/tmp
          body what is run

- The caller is ended by a signal: it closes the lifeline, and waits for the keeper.
- The caller is killed: the kernel closes the lifeline.
- The body ends: init says so, with the exit code. It does not end itself, because the kernel lets
  it end only after all others, and one of them may be stuck.
- The keeper sees one of these, kills what is there, removes what is left.
- The keeper is killed: init gets SIGKILL from the kernel, and with it all processes of its
  namespace. The caller removes what is left. If it was killed, too, the next run does.

Without the right to make namespaces the processes are the same; keeper and init adopt the orphans
of the run, and the keeper kills all its descendants.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Callable, NoReturn

from . import cgroup, fuse, linux, orphans, parameter, processes, record, remains
from .record import Record

_SHM = Path("/dev/shm")
_LEAST_SHM_BYTES = 1 << 30
_VAR_TMP = Path("/var/tmp")
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Exit code of a body that ended with an exception.
BROKEN = 70


class Stopped(Exception):
    """The caller got this signal, and the run was removed."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@dataclasses.dataclass
class Room:
    """Where the body runs."""

    run: Record
    # Why there are no namespaces; empty if there are.
    lacks: str

    @property
    def is_private(self) -> bool:
        """Whether the processes that the body sees are those of the run."""
        return not self.lacks


Body = Callable[[Room], int]


def say(text: str) -> None:
    """A line for the user, who may be gone."""
    try:
        print(f"test: {text}", file=sys.stderr, flush=True)
    except OSError:
        pass


# The caller.


def run_kept(body: Body, percent: int | None = None) -> int:
    """Runs `body` in a process of its own, and returns its exit code; `percent` of one processor
    are for it."""
    lifeline, held = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(held)
        _leave(lambda: _Keeper(body, percent).keep(lifeline))
    os.close(lifeline)
    return _wait(child, held)


def _wait(keeper: int, held: int) -> int:
    caught: list[int] = []

    def stop(number: int, _frame: object) -> None:
        if not caught:
            os.close(held)
        caught.append(number)

    previous = {number: signal.getsignal(number) for number in _STOPS}
    for number, handler in previous.items():
        # As `nohup` wants it.
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    _end_with_make()
    try:
        status = os.waitpid(keeper, 0)[1]
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if not caught:
        os.close(held)
    if os.WIFSIGNALED(status):
        say("the keeper was killed")
        remove_earlier()
    if caught:
        raise Stopped(caught[0])
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else BROKEN


def _end_with_make() -> None:
    """When `make` is killed alone, nobody waits for the run."""
    if "MAKELEVEL" in os.environ:
        parent = os.getppid()
        linux.end_with_parent(signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)


def remove_earlier() -> None:
    """Removes what killed runs left."""
    child = os.fork()
    if child == 0:
        _leave(_remove_earlier_here)
    os.waitpid(child, 0)


def _remove_earlier_here() -> int:
    fuse.open_control()
    remains.remove_earlier(say)
    orphans.remove(say)
    return 0


def _leave(work: Callable[[], int]) -> NoReturn:
    """Ends a forked process after its work."""
    code = BROKEN
    try:
        code = work()
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BaseException:  # pylint: disable=broad-except
        traceback.print_exc()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        pass
    os._exit(code)


# The keeper.


class _Keeper:
    """Starts init, waits, and removes the run."""

    def __init__(self, body: Body, percent: int | None) -> None:
        self.body = body
        self.percent = percent

    def keep(self, lifeline: int) -> int:
        """Returns the body's exit code."""
        os.setsid()
        linux.name_process("gate-keeper")
        stopped = _stop_pipe()
        _remove_earlier_here()
        self.run, self.lock = record.create()
        try:
            code = self._keep(lifeline, stopped)
        except cgroup.CannotLimit as error:
            say(str(error))
            code = 2
        finally:
            problems = remains.remove(self.run)
        for problem in problems:
            say(problem)
        return code or bool(problems)

    def _keep(self, lifeline: int, stopped: int) -> int:
        if self.percent is not None:
            group = cgroup.make(f"onejournal-test-{self.run.run}", self.percent)
            self.run.cgroup = str(group)
        if os.access(parameter.PATH, os.W_OK):
            parameter.note(self.run)
        self.run.write()
        linux.adopt_orphans()
        lacks = why_no_namespaces()
        facts = self._start_init(lacks, [lifeline, stopped])
        ready, _, _ = select.select([lifeline, stopped, facts], [], [])
        # A body that has ended when the caller is stopped has a code, too.
        if facts not in ready:
            return 128 + signal.SIGTERM
        code = os.read(facts, 16)
        return int(code) if code else BROKEN

    def _start_init(self, lacks: str, foreign: list[int]) -> int:
        """Forks init, and lets the body begin when the record has everything. Returns the pipe
        from which the body's exit code comes; the pipes tell each side if the other one ended."""
        own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)
        if not lacks:
            linux.unshare(linux.CLONE_NEWPID)
        facts, tell = os.pipe()
        permit, go = os.pipe()
        child = os.fork()
        if child == 0:
            for descriptor in [*foreign, facts, go, own_namespace, self.lock]:
                os.close(descriptor)
            _leave(lambda: _Init(self.body, self.run, lacks).begin(tell, permit))
        if not lacks:
            linux.return_to(own_namespace, linux.CLONE_NEWPID)
        for descriptor in (tell, permit, own_namespace):
            os.close(descriptor)
        text = os.read(facts, 4096)
        if text:
            self._note(child, lacks, json.loads(text))
            os.write(go, b".")
        os.close(go)
        return facts

    def _note(self, init: int, lacks: str, facts: dict[str, int | None]) -> None:
        self.run.init = processes.identity(init)
        if not lacks:
            self.run.namespace = processes.namespace_of(init, "pid")
            self.run.shm_device = facts["shm_device"]
        self.run.write()


def _stop_pipe() -> int:
    """Readable after a signal that asks the keeper to end."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in _STOPS:
        signal.signal(number, lambda *_: None)
    return readable


def why_no_namespaces() -> str:
    """Tries it in a process of its own; empty if a run can have namespaces."""
    if os.geteuid() != 0:
        return "not root"

    def attempt() -> int:
        try:
            linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWPID)
            linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        except OSError as error:
            return error.errno or 1
        inner = os.fork()
        if inner == 0:
            _leave(_mount_proc)
        return os.WEXITSTATUS(os.waitpid(inner, 0)[1])

    child = os.fork()
    if child == 0:
        _leave(attempt)
    code = os.WEXITSTATUS(os.waitpid(child, 0)[1])
    return os.strerror(code) if code else ""


def _mount_proc() -> int:
    try:
        flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
        linux.mount("proc", "/proc", "proc", flags)
    except OSError as error:
        return error.errno or 1
    return 0


# Init.


class _Init:
    """Makes the room, starts the body in it, and adopts what the tests leave."""

    def __init__(self, body: Body, run: Record, lacks: str) -> None:
        self.body = body
        self.run = run
        self.lacks = lacks

    def begin(self, tell: int, permit: int) -> int:
        """Ends only when it is killed, or when something is missing."""
        linux.end_with_parent(signal.SIGKILL)
        linux.name_process("gate-init")
        signal.set_wakeup_fd(-1)
        for number in _STOPS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.run.cgroup:
            cgroup.join(Path(self.run.cgroup))
        facts = {"shm_device": None if self.lacks else self._make_room()}
        os.environ["TMPDIR"] = str(self._make_tmp())
        os.environ[record.RUN_VARIABLE] = self.run.run
        os.write(tell, json.dumps(facts).encode())
        if not os.read(permit, 1):
            return BROKEN
        os.close(permit)
        self._run_body(tell)
        signal.pause()
        return BROKEN

    def _make_room(self) -> int | None:
        """A mount namespace with its own /proc, /dev/shm and /var/tmp; returns the second one's
        `st_dev`."""
        linux.unshare(linux.CLONE_NEWNS)
        linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        code = _mount_proc()
        if code:
            raise OSError(code, "/proc cannot be mounted")
        fuse.mount_control()
        # Programs that mount note options there.
        if os.path.isdir("/run/mount"):
            linux.mount("tmpfs", "/run/mount", "tmpfs", data="mode=755")
        if not _SHM.is_dir():
            return None
        size = max(_LEAST_SHM_BYTES, shutil.disk_usage(_SHM).total)
        linux.mount("tmpfs", str(_SHM), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV,
                    f"mode=1777,size={size}")
        return _SHM.stat().st_dev

    def _make_tmp(self) -> Path:
        """The directory for temporary files. In a namespace it is a short path in a /var/tmp of
        the run's own, because some tests use that one."""
        if self.lacks or _is_needed(_VAR_TMP):
            tmp = self.run.scratch / self.run.marker
        else:
            own = self.run.scratch / "tmp"
            own.mkdir()
            own.chmod(0o1777)
            linux.mount(str(own), str(_VAR_TMP), flags=linux.MS_BIND)
            tmp = _VAR_TMP / self.run.marker
        tmp.mkdir()
        tmp.chmod(0o1777)
        return tmp

    def _run_body(self, tell: int) -> None:
        """Tells the body's exit code. Reaps until no child is left."""
        body = os.fork()
        if body == 0:
            os.close(tell)
            linux.name_process("gate-runner")
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            _leave(lambda: self.body(Room(self.run, self.lacks)))
        linux.adopt_orphans()
        while True:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                return
            if pid == body:
                killed = os.WIFSIGNALED(status)
                code = 128 + os.WTERMSIG(status) if killed else os.WEXITSTATUS(status)
                os.write(tell, str(code).encode())


def _is_needed(directory: Path) -> bool:
    """Whether the build needs files that are in this directory."""
    cargo = os.environ.get("CARGO_HOME", "~/.cargo")
    rustup = os.environ.get("RUSTUP_HOME", "~/.rustup")
    target = os.environ.get("CARGO_TARGET_DIR", ".")
    places = [os.getcwd(), __file__, sys.executable, "~", cargo, rustup, target]
    places += os.environ.get("PATH", "").split(":")
    resolved = [Path(place).expanduser().resolve() for place in places]
    directory = directory.resolve()
    return any(directory in (place, *place.parents) for place in resolved)
