"""Steps of a run, their times, and whether these keep to the budget."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Callable, NamedTuple

OK, OVER, FAR_OVER = "", "over budget", "more than twice the budget"


def verdict(seconds: float, budget: float | None) -> str:
    """A step that needs more than twice its budget fails the run: it hangs, or the gate has
    grown."""
    if budget is None or seconds <= budget:
        return OK
    return OVER if seconds <= 2 * budget else FAR_OVER


def scale() -> float:
    """Budgets are for two cores; ONEJOURNAL_BUDGET_SCALE is for a slower machine."""
    chosen = os.environ.get("ONEJOURNAL_BUDGET_SCALE")
    return float(chosen) if chosen else max(1.0, 2 / (os.cpu_count() or 1))


class Step(NamedTuple):
    """A step that has ended."""

    name: str
    seconds: float
    budget: float | None

    @property
    def verdict(self) -> str:
        """Empty if it kept to its budget."""
        return verdict(self.seconds, self.budget)


class Clock:
    """Measures steps one after the other."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.steps: list[Step] = []
        self._say = say

    @contextlib.contextmanager
    def step(self, name: str, budget: float | None) -> Iterator[None]:
        """Measures what is done inside."""
        self._say(f"== {name}")
        begun = time.monotonic()
        try:
            yield
        finally:
            step = Step(name, time.monotonic() - begun, budget)
            self.steps.append(step)
            self._say(f"== {name}: {step.seconds:.0f} s" + (step.verdict and f", {step.verdict}"))

    def table(self) -> list[str]:
        """Step, time, budget."""
        width = max([len(step.name) for step in self.steps] + [len("step")])
        lines = [f"{'step':{width}}  {'time':>8}  {'budget':>8}"]
        for step in self.steps:
            budget = "" if step.budget is None else f"{step.budget:.0f} s"
            line = f"{step.name:{width}}  {step.seconds:>6.0f} s  {budget:>8}  {step.verdict}"
            lines.append(line.rstrip())
        total = sum(step.seconds for step in self.steps)
        return [*lines, f"{'all':{width}}  {total:>6.0f} s"]

    def far_over(self) -> list[str]:
        """The steps that fail the run."""
        return [step.name for step in self.steps if step.verdict == FAR_OVER]
