"""The results file: JSON that can be committed, with a line for each cut."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import Any

from .acknowledged import replace
from .lines import Message

SCHEMA = 1
# The counts of a verdict on one history.
_COUNTS = ("lost", "torn", "disordered")
_EXAMPLES_SAID = 3


class Differs(Exception):
    """The file belongs to another run."""


def now() -> str:
    """UTC."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime())


def revision() -> str:
    """Git's, of these scripts, with a `+` if something is not committed."""

    def git(*words: str) -> str:
        command = ["git", "-c", "safe.directory=*", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return ""


class Results:
    """All that is known of a run; `save` writes it."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self.values: dict[str, Any] = {
            "schema": SCHEMA, "what": "real-power-cut", "begun": now(), "ended": "",
            "revision": revision(), "settings": settings, "target": {}, "summary": {}, "cuts": [],
        }
        if path.exists():
            self.values = json.loads(path.read_text(encoding="utf-8"))
            _expect_same(self.values["settings"], settings, f"{path} was begun with")

    @staticmethod
    def seed_of(path: Path) -> int | None:
        """The seed of a run that goes on."""
        if not path.exists():
            return None
        return int(json.loads(path.read_text(encoding="utf-8"))["settings"]["seed"])

    @property
    def cuts(self) -> list[dict[str, Any]]:
        """All that were judged."""
        cuts: list[dict[str, Any]] = self.values["cuts"]
        return cuts

    @property
    def keeps_history(self) -> bool:
        """Whether the target owes a prefix of history."""
        return bool(self.values["target"]["settings"]["keeps_history"])

    @property
    def is_canary(self) -> bool:
        """Whether the target acknowledges before the sync."""
        return bool(self.values["target"]["settings"]["acknowledges_early"])

    def meet(self, hello: Message) -> None:
        """It must be the same target with the same settings, after each boot."""
        target = {"settings": hello["settings"], **hello["about"]}
        if not self.values["target"]:
            self.values["target"] = target
        known = self.values["target"]
        _expect_same(known["settings"], target["settings"], "the target was started with")

    def add(self, cut: dict[str, Any]) -> None:
        """A cut that was judged."""
        self.cuts.append({"number": len(self.cuts) + 1, **cut})
        self.values["ended"] = now()
        self.values["summary"] = self._summary()
        self.save()

    def last_line(self) -> str:
        """What is said of the last cut."""
        cut = self.cuts[-1]
        parts = []
        for name, found in cut["found"].items():
            counts = ", ".join(f"{found[count]} {count}" for count in _COUNTS)
            parts.append(f"{name}: {cut['acknowledged'].get(name, 0)} acknowledged, "
                         f"{found['found']} found, {counts}")
            parts += found.get("examples", [])[:_EXAMPLES_SAID]
        return f"cut {cut['number']}: " + "; ".join([*parts, *_damage(cut)])

    def failures(self) -> list[dict[str, Any]]:
        """Cuts after which the target did not keep what it owes."""
        return [cut for cut in self.cuts if is_failure(cut, self.keeps_history)]

    def _summary(self) -> dict[str, Any]:
        mounts = [cut["mount_seconds"] for cut in self.cuts if "mount_seconds" in cut]
        total: dict[str, Any] = {
            "cuts": sum(cut["power_losses"] for cut in self.cuts),
            "during_recovery": sum(cut["power_losses"] - 1 for cut in self.cuts),
            "acknowledged": sum(cut["operations"] for cut in self.cuts),
        }
        for name in _COUNTS:
            total[name] = sum(found[name] for cut in self.cuts for found in cut["found"].values())
        total["damaged"] = sum(bool(_damage(cut)) for cut in self.cuts)
        total["failures"] = len(self.failures())
        if mounts:
            total["mount_seconds_median"] = round(median(mounts), 3)
            total["mount_seconds_max"] = max(mounts)
        return total

    def closing_line(self) -> str:
        """The summary, and what it means."""
        total = self.values["summary"]
        counts = ", ".join(f"{total[name]} {name}" for name in (*_COUNTS, "damaged"))
        if self.is_canary:
            means = "the canary was found out" if total["failures"] else "THE CANARY WAS MISSED"
        else:
            means = f"{total['failures']} FAILURES" if total["failures"] else "no failure"
        return (f"{total['cuts']} power cuts, {total['acknowledged']} acknowledged operations, "
                f"{counts}: {means}; {self.path}")

    def save(self) -> None:
        """One line for each cut, so that a difference is readable."""
        head = {key: value for key, value in self.values.items() if key != "cuts"}
        text = json.dumps(head, indent=1)[:-2] + ',\n "cuts": ['
        text += ",".join("\n  " + json.dumps(cut) for cut in self.cuts)
        replace(self.path, (text + "\n ]\n}\n").encode())


def _expect_same(known: dict[str, Any], given: dict[str, Any], what: str) -> None:
    other = sorted(key for key in known.keys() | given.keys() if known.get(key) != given.get(key))
    if other:
        key = other[0]
        raise Differs(f"{what} {key}={known.get(key)}, not {given.get(key)}: use the same settings,"
                      " or another results file")


def _damage(cut: dict[str, Any]) -> list[str]:
    texts = [cut.get("damage"), *(found.get("damage") for found in cut["found"].values())]
    return [text for text in texts if text]


def judged(acknowledged: dict[str, int], verdict: Message) -> dict[str, Any]:
    """A verdict as it is kept: without empty texts and lists."""

    def filled(fields: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in fields.items() if value not in ("", [])}

    found = {name: filled(each) for name, each in verdict["found"].items()}
    rest = {key: value for key, value in verdict.items() if key not in ("say", "found")}
    return {"acknowledged": dict(acknowledged), "found": found, **filled(rest)}


def is_prefix(verdict: Message) -> bool:
    """Whether the writer can go on from there."""
    wrong = any(found.get(key) for found in verdict["found"].values()
                for key in (*_COUNTS, "damage"))
    return not wrong and not verdict.get("damage")


def is_failure(cut: dict[str, Any], keeps_history: bool) -> bool:
    """Loss and damage always; what is torn or disordered, where history is owed. A transaction of
    SQLite is whole on every file system."""
    found = cut["found"]
    if _damage(cut) or any(each["lost"] for each in found.values()):
        return True
    if found.get("rows", {}).get("torn"):
        return True
    return keeps_history and any(each["torn"] or each["disordered"] for each in found.values())
