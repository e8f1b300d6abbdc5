"""Where a run's body runs: namespaces of its own, as far as they can be made, and their first
process, init."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Callable, NoReturn

from . import cgroup, fuse, linux, record
from .record import Record

_SHM = Path("/dev/shm")
_LEAST_SHM_BYTES = 1 << 30
_VAR_TMP = Path("/var/tmp")
# Signals that end a run.
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Exit code of a body that ended with an exception.
BROKEN = 70


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


def leave(work: Callable[[], int]) -> NoReturn:
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
            leave(_mount_proc)
        return os.WEXITSTATUS(os.waitpid(inner, 0)[1])

    child = os.fork()
    if child == 0:
        leave(attempt)
    code = os.WEXITSTATUS(os.waitpid(child, 0)[1])
    return os.strerror(code) if code else ""


def _mount_proc() -> int:
    try:
        flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
        linux.mount("proc", "/proc", "proc", flags)
    except OSError as error:
        return error.errno or 1
    return 0


class Init:
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
        for number in STOPS:
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
            # Without a namespace the kernel does not end it together with init.
            linux.end_with_parent(signal.SIGKILL)
            linux.name_process("gate-runner")
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            leave(lambda: self.body(Room(self.run, self.lacks)))
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
