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

import json
import os
import select
import signal
import sys

from . import cgroup, fuse, linux, orphans, parameter, processes, record, remains
from .room import BROKEN, STOPS, Body, Init, leave, why_no_namespaces


class Stopped(Exception):
    """The caller got this signal, and the run was removed."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


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
        leave(lambda: _Keeper(body, percent).keep(lifeline))
    os.close(lifeline)
    return _wait(child, held)


def _wait(keeper: int, held: int) -> int:
    caught: list[int] = []

    def stop(number: int, _frame: object) -> None:
        if not caught:
            os.close(held)
        caught.append(number)

    previous = {number: signal.getsignal(number) for number in STOPS}
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
        leave(_remove_earlier_here)
    os.waitpid(child, 0)


def _remove_earlier_here() -> int:
    fuse.open_control()
    remains.remove_earlier(say)
    orphans.remove(say)
    return 0


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
            leave(lambda: Init(self.body, self.run, lacks).begin(tell, permit))
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
    for number in STOPS:
        signal.signal(number, lambda *_: None)
    return readable
