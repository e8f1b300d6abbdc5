"""`scripts/real-disk`: the rows of README on a disk that the user names.

`onejournal probe` measures the disk alone, then experiments of the laboratory run on it, each of
them shrunk. In a directory the file systems are images on loop devices; a block device is
overwritten. An experiment that would take longer than what is left of the time, or has no room, is
left out, and the results say so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import disk, machine, table
from .acknowledged import replace
from .results import now, revision

SCHEMA = 1
_MIB = 1 << 20
_ROOT = Path(__file__).resolve().parents[2]
# What the kernel's file system itself needs, and what stays free.
_SPARE_MIB = 1024


class Experiment(NamedTuple):
    """An experiment of the laboratory."""

    name: str
    # The size of all its images.
    mib: int
    # About how often it flushes.
    flushes: int
    # On a disk that takes no time.
    seconds: int
    rounds: int = 3


# In the order in which they get the time that is there.
EXPERIMENTS = (
    Experiment("sqlite-one-row", 10 * 320, 15_000, 20),
    # Bytes are the same in each round.
    Experiment("sqlite-bytes", 8 * 768, 38_000, 68, rounds=1),
    Experiment("atomic-writes", 4 * 320, 2_700, 10),
    Experiment("group-commit", 4 * 320, 20_000, 20),
    Experiment("fast14-cases", 11 * 384, 11_000, 30, rounds=2),
    Experiment("bulk", 7 * 384, 1_000, 20, rounds=2),
    Experiment("sqlite-extension", 7 * 1024, 40_000, 60),
    Experiment("djfs-fio", 15 * 384, 5_000, 96, rounds=2),
)


class Refused(Exception):
    """The disk cannot be measured."""


class Place(NamedTuple):
    """Where it is measured."""

    path: Path
    is_device: bool

    @property
    def device(self) -> str:
        """As the laboratory's `--device` names it."""
        return f"{'block' if self.is_device else 'dir'}:{self.path}"

    def free_mib(self) -> int:
        """Room for images."""
        if self.is_device:
            with self.path.open("rb") as file:
                return file.seek(0, os.SEEK_END) // _MIB
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize // _MIB - _SPARE_MIB


def place_of(path: Path, may_overwrite: bool) -> Place:
    """Refuses what must not, or cannot, be measured."""
    if not path.exists():
        raise Refused(f"{path} does not exist")
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        if not disk.layers(disk.device_number(path)):
            raise Refused(f"{path} is not on a disk (tmpfs, FUSE, network, btrfs): name a"
                          " directory of ext4 or XFS, or a device")
        return Place(path.resolve(), False)
    if not stat.S_ISBLK(mode):
        raise Refused(f"{path} is neither a directory nor a block device")
    used = disk.why_in_use(path)
    if used:
        raise Refused(f"{path} is in use: {used}")
    if not may_overwrite:
        about = disk.sentence(disk.disks(path))
        raise Refused(f"everything on {path} would be lost ({about}); --yes says that you want it")
    return Place(path.resolve(), True)


class Speed(NamedTuple):
    """What `onejournal probe` says about the disk."""

    # The speed of the largest durable writes.
    mib_s: float
    # The time of a durable write of 4 KiB.
    flush_seconds: float


def speed_of(probe: dict[str, Any]) -> Speed:
    """The medians of writes and their flushes."""
    seconds = {int(size["len_bytes"]): size["write_and_flush"]["p50_ns"] / 1e9
               for size in probe["sizes"]}
    largest = max(seconds)
    return Speed(largest / _MIB / seconds[largest], seconds[4096])


def why_left_out(
    each: Experiment, place: Place, free_mib: int, speed: Speed, left_seconds: float
) -> str:
    """Nothing if there is room and time."""
    if each.mib > free_mib:
        return f"needs {each.mib} MiB, {free_mib} MiB are free"
    # Parts of a device are not filled before.
    images = 0 if place.is_device else each.mib / speed.mib_s
    needed = each.seconds + images + each.flushes * speed.flush_seconds
    if needed > left_seconds:
        return f"needs about {needed:.0f} s, {left_seconds:.0f} s are left (--minutes)"
    return ""


def rows_of(section: dict[str, Any], device: str) -> list[dict[str, Any]]:
    """Rows on the disk itself, without its path."""
    rows = []
    for row in section["rows"]:
        panel, colon, rest = row["panel"].partition(device)
        if colon and not panel:
            rows.append({"experiment": section["id"], **row, "panel": rest.lstrip(": ")})
    return rows


def summary_of(section: dict[str, Any]) -> dict[str, Any]:
    """What is kept of an experiment beside its rows."""
    kept = ("settings", "left_out", "notes", "rounds")
    values = {"experiment": section["id"], **{key: section[key] for key in kept if section[key]}}
    disturbed = len(section["disturbances"])
    return {**values, "seconds": round(section["seconds"]), "disturbed_rounds": disturbed}


def save(path: Path, values: dict[str, Any]) -> None:
    """JSON with a line for each row."""
    lines = []
    for key, value in values.items():
        if isinstance(value, list):
            inner = ",".join("\n  " + json.dumps(each) for each in value)
            lines.append(f" {json.dumps(key)}: [{inner}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    replace(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def said(values: dict[str, Any]) -> str:
    """The disk and the table, for the screen."""
    flushes = values["probe"].get("flushes", {}).get("verdict", "unknown")
    rounds = sum(each.get("rounds", 0) for each in values["experiments"])
    disturbed = sum(each["disturbed_rounds"] for each in values["experiments"])
    return (f"{disk.sentence(values['disk'])}\nflushes look {flushes}\n"
            f"{disturbed} of {rounds} rounds were disturbed by other programs\n\n"
            + table.text(values["rows"]))


class Measurement:
    """One run."""

    def __init__(self, place: Place, programs: Path, seconds: float) -> None:
        self._place, self._programs, self._seconds = place, programs, seconds
        self._begun = time.monotonic()
        # An experiment that had room and time.
        self.has_failed = False
        self.values: dict[str, Any] = {
            "schema": SCHEMA, "what": "real-disk", "date": now(), "revision": revision(),
            "machine": machine.this(),
            "kind": "device" if place.is_device else "directory",
            "disk": disk.disks(place.path), "build": {}, "probe": {}, "experiments": [],
            "left_out": [], "rows": [],
        }

    def run(self, experiments: Sequence[Experiment]) -> None:
        """Fills `values`."""
        self._probe()
        speed = speed_of(self.values["probe"])
        for each in experiments:
            left = self._seconds - (time.monotonic() - self._begun)
            why = why_left_out(each, self._place, self._place.free_mib(), speed, left)
            if not why:
                why = self._experiment(each)
                self.has_failed |= bool(why)
            if why:
                print(f"real-disk: {each.name}: not measured: {why}", flush=True)
                self.values["left_out"].append({"experiment": each.name, "why": why})

    def _probe(self) -> None:
        words = [str(self._programs / "onejournal"), "probe", "--json"]
        words += ["--destroy", "--force"] if self._place.is_device else []
        ran = subprocess.run([*words, str(self._place.path)], stdout=subprocess.PIPE, check=False)
        if ran.returncode != 0:
            raise Refused("onejournal probe failed")
        self.values["probe"] = json.loads(ran.stdout)
        del self.values["probe"]["path"]

    def _experiment(self, each: Experiment) -> str:
        """Why it has no results."""
        print(f"real-disk: {each.name}", flush=True)
        scratch = None if self._place.is_device else self._place.path
        with tempfile.TemporaryDirectory(prefix="real-disk-", dir=scratch) as name:
            out, folder = Path(name) / "out", Path(name) / "images"
            folder.mkdir()
            device = self._place.device if scratch is None else f"dir:{folder}"
            words = [str(self._programs / "onejournal-bench"), each.name, "--quick",
                     "--rounds", str(each.rounds), "--device", device, "--out", str(out)]
            words += ["--scratch", name] if scratch else []
            subprocess.run(words, stdout=subprocess.DEVNULL, check=False)
            results = out / f"{each.name}.json"
            if not results.exists():
                return "it failed"
            file = json.loads(results.read_text(encoding="utf-8"))
        self.values["build"] = file["build"]
        self.values["experiments"].append(summary_of(file["section"]))
        self.values["rows"] += rows_of(file["section"], device)
        return file["section"]["error"] or ""


def _programs() -> Path:
    target = Path(os.environ.get("CARGO_TARGET_DIR", _ROOT / "target")) / "release"
    names = ("onejournal", "onejournal-bench", "libonejournal_sqlite.so")
    missing = [name for name in names if not (target / name).exists()]
    if missing:
        raise Refused(f"{target} has no {missing[0]}: run `cargo build --release -p onejournal-cli"
                      " -p onejournal-sqlite -p onejournal-bench`")
    return target.resolve()


def _default_out(facts: list[dict[str, Any]]) -> Path:
    below = facts[-1]
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{below.get('model', '')} {below['name']}").strip("-")
    return Path(f"real-disk-{name.lower()}.json")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/real-disk", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    names = [each.name for each in EXPERIMENTS]
    add("path", type=Path, metavar="DIR_OR_DEVICE")
    add("--yes", action="store_true", help="a block device may be overwritten")
    add("--out", type=Path, metavar="FILE", help="the results; default: named after the disk")
    add("--minutes", type=float, default=10.0)
    add("--only", action="append", choices=names, metavar="EXPERIMENT",
        help="repeatable: " + ", ".join(names))
    return parser


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 measured, 1 an experiment failed, 2 refused."""
    options = _parser().parse_args(arguments)
    try:
        if os.geteuid() != 0:
            raise Refused("it mounts file systems: run it as root")
        programs = _programs()
        if shutil.which("mke2fs", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            raise Refused("mke2fs is missing: install e2fsprogs")
        place = place_of(options.path, options.yes)
        measurement = Measurement(place, programs, 60 * options.minutes)
        facts = measurement.values["disk"]
        out = (options.out or _default_out(facts)).absolute()
        chosen = [each for each in EXPERIMENTS if not options.only or each.name in options.only]
        gib = sum(each.mib for each in chosen) / 1024 + 1.7
        print(f"real-disk: {disk.sentence(facts)}: may write {gib:.0f} GiB", flush=True)
        measurement.run(chosen)
        save(out, measurement.values)
    except (Refused, OSError) as error:
        print(f"real-disk: {error}", file=sys.stderr)
        return 2
    print(f"\n{said(measurement.values)}\n\n{out}")
    return 1 if measurement.has_failed else 0
