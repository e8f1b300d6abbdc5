"""The controller: lets the target write, cuts its power at random moments, and keeps the verdicts.

A run begins with a power cut, because a controller that was interrupted does not know what its
target does. What was acknowledged before is judged after it.
"""

from __future__ import annotations

import dataclasses
import random
import socket
import time
from collections.abc import Mapping
from typing import Any

from . import results
from .acknowledged import Acknowledged, State
from .lines import PROTOCOL, Closed, Lines, Message
from .power import Power
from .results import Results

# A longer history makes the judge slow.
_EPOCH_OPERATIONS = 20_000
_ANSWER_SECONDS = 60
# A target that has been without power says nothing for so long.
_SILENCE_SECONDS = 1.0
# A new target's recovery takes this long, until it is known.
_RECOVERY_SECONDS = 2.0


class Stopped(Exception):
    """The run cannot go on."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the command line asks for."""

    seed: int
    cuts: int
    # The power is cut between so many seconds after the first acknowledgement.
    seconds: tuple[float, float]
    # Share of boots whose recovery is cut.
    recovery_share: float
    # How long the power stays off.
    off_seconds: float
    # How long a boot may take, and a verdict.
    boot_seconds: float
    judge_seconds: float
    keeps_going: bool


class Controller:
    """One run."""

    def __init__(
        self,
        plan: Plan,
        power: Power,
        listener: socket.socket,
        kept: Results,
        acknowledged: Acknowledged,
    ) -> None:
        self._plan, self._power, self._listener = plan, power, listener
        self._results, self._acknowledged = kept, acknowledged
        self._recovery_seconds = _RECOVERY_SECONDS
        self._losses = 0
        self._switched_on = 0.0

    @property
    def _number(self) -> int:
        """The number of the cut that is judged next."""
        return len(self._results.cuts) + 1

    def _chance(self, what: str) -> random.Random:
        return random.Random(f"{self._plan.seed} {self._number} {self._losses} {what}")

    def run(self) -> bool:
        """Whether the target kept what it owes; of a canary, whether it was found out."""
        if self._acknowledged.state.has_begun:
            self._acknowledged.state.about["interrupted"] = True
        self._cut(None)
        while True:
            lines = self._meet()
            try:
                verdict = self._judge(lines)
                if verdict is None:
                    continue
                self._keep(verdict)
                if self._is_finished():
                    lines.send("stop")
                    self._expect(lines, "stopped", _ANSWER_SECONDS)
                    self._acknowledged.remove()
                    return bool(self._results.failures()) == self._results.is_canary
                self._write(lines, verdict)
            except Closed as error:
                raise Stopped(f"the target ended the connection before a cut: {error}") from error
            finally:
                lines.close()

    def _is_finished(self) -> bool:
        has_failed = bool(self._results.failures()) and not self._plan.keeps_going
        return has_failed or len(self._results.cuts) >= self._plan.cuts

    def _meet(self) -> Lines:
        """Waits for the next boot."""
        deadline = self._switched_on + self._plan.boot_seconds
        while time.monotonic() < deadline:
            self._listener.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                connected, _ = self._listener.accept()
            except (TimeoutError, socket.timeout):
                break
            lines = Lines(connected)
            try:
                self._check(self._expect(lines, "hello", _ANSWER_SECONDS))
                return lines
            except Closed:
                # It tries again.
                lines.close()
            except BaseException:
                lines.close()
                raise
        raise Stopped(f"the target did not report within {self._plan.boot_seconds:.0f} s of --on")

    def _check(self, hello: Message) -> None:
        if hello["protocol"] != PROTOCOL:
            raise Stopped("controller and target are not of one version")
        state = self._acknowledged.state
        if hello["boot"] == state.boot:
            raise Stopped("the target has not lost its power: it says the same boot id")
        state.boot = hello["boot"]
        state.about["boot_seconds"] = round(time.monotonic() - self._switched_on, 1)
        self._results.meet(hello)

    def _expect(self, lines: Lines, word: str, seconds: float) -> Message:
        message = lines.receive(seconds)
        if message is None:
            raise Stopped(f"the target did not say `{word}` within {seconds:.0f} s")
        if message["say"] != word:
            raise Stopped(f"the target: {message.get('why', message['say'])}")
        return message

    def _judge(self, lines: Lines) -> Message | None:
        """The verdict; `None` if the power was cut before it came."""
        state = self._acknowledged.state
        epoch = state.epoch if state.has_begun else 0
        lines.send("judge", seed=self._plan.seed, epoch=epoch, acknowledged=state.numbers)
        chance = self._chance("recovery")
        if epoch and chance.random() < self._plan.recovery_share:
            if not lines.is_ready(chance.uniform(0, self._recovery_seconds)):
                self._cut(lines)
                return None
        return self._expect(lines, "verdict", self._plan.judge_seconds)

    def _keep(self, verdict: Message) -> None:
        """Writes the results, if there was something to judge."""
        state = self._acknowledged.state
        self._recovery_seconds = verdict.get("mount_seconds", 0) + verdict.get("judge_seconds", 0)
        if state.has_begun:
            about = {"epoch": state.epoch, **state.about, "power_losses": self._losses,
                     "operations": state.count}
            self._results.add({**about, **results.judged(state.numbers, verdict)})
            print(self._results.last_line(), flush=True)
        elif verdict["damage"]:
            raise Stopped(f"the target: {verdict['damage']}")
        self._losses = 0
        self._acknowledged.begin(State(state.epoch, boot=state.boot))

    def _write(self, lines: Lines, verdict: Message) -> None:
        """Lets the target write, until the cut."""
        state = self._next_state(verdict)
        moment = self._chance("cut").uniform(*self._plan.seconds)
        mode = ("WAL", "DELETE")[self._number % 2]
        state.about = {"journal_mode": mode, "after_seconds": round(moment, 3)}
        self._acknowledged.begin(state)
        lines.send("go", seed=self._plan.seed, epoch=state.epoch, found=state.start,
                   is_new=not any(state.start.values()), journal_mode=mode)
        self._expect(lines, "begun", self._plan.judge_seconds)
        if not self._take(lines, self._plan.judge_seconds):
            raise Stopped("the target writes nothing")
        end = time.monotonic() + moment
        while (left := end - time.monotonic()) > 0:
            self._take(lines, left)
        self._cut(lines)

    def _next_state(self, verdict: Message) -> State:
        found: Mapping[str, Any] = verdict["found"]
        numbers = {name: each["found"] for name, each in found.items()}
        state = self._acknowledged.state
        goes_on = (
            any(numbers.values())
            and results.is_prefix(verdict)
            and max(numbers.values()) < _EPOCH_OPERATIONS
        )
        if not goes_on:
            numbers = {"files": 0, "rows": 0}
        epoch = state.epoch if goes_on else state.epoch + 1
        return State(epoch, True, state.boot, dict(numbers), dict(numbers))

    def _take(self, lines: Lines, seconds: float) -> bool:
        """Waits for acknowledgements; whether some came."""
        message = lines.receive(seconds)
        if message is None:
            return False
        if message["say"] != "done":
            raise Stopped(f"the target: {message.get('why', message['say'])}")
        self._add(lines, message)
        return True

    def _add(self, lines: Lines, done: Message) -> None:
        self._acknowledged.add({name: number for name, number in done.items() if name != "say"})
        if not lines.has_line:
            self._acknowledged.sync()

    def _cut(self, lines: Lines | None) -> None:
        """What arrives meanwhile was acknowledged, too. That the target's disk fails is no wonder:
        it may lose its power before the processor does."""
        self._losses += 1
        self._power.off(self._number)
        end = time.monotonic() + self._plan.off_seconds
        try:
            while lines and (left := end - time.monotonic()) > 0:
                message = lines.receive(left)
                if message is not None and message["say"] == "done":
                    self._add(lines, message)
            if lines and lines.is_ready(_SILENCE_SECONDS):
                raise Stopped("the target still writes: --off does not cut its power")
        except Closed:
            pass
        time.sleep(max(0.0, end - time.monotonic()))
        self._acknowledged.sync()
        self._refuse_waiting()
        self._power.on(self._number)
        self._switched_on = time.monotonic()

    def _refuse_waiting(self) -> None:
        """Connections of the boot that has just ended."""
        self._listener.settimeout(0)
        while True:
            try:
                connected, _ = self._listener.accept()
            except (BlockingIOError, TimeoutError, socket.timeout):
                return
            connected.close()
