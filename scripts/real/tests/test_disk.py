"""Disks are named and refused by what /sys and /proc say."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from real import disk, measure, table
from real.measure import EXPERIMENTS, Experiment, Measurement, Place, Refused, Speed

ROOT = Path(__file__).resolve().parents[3]


def rows_of_readme(readme: str, name: str) -> list[str]:
    """The first cells of a table that README quotes."""
    quoted = readme.split(f"<!-- results: {name} -->")[1].split("<!-- end of results -->")[0]
    lines = [line for line in quoted.splitlines() if line.startswith("| ")]
    return [line.split("|")[1].strip() for line in lines[1:]]


SECTION = {
    "id": "sqlite-one-row", "settings": {"scale": "quick"}, "left_out": [], "notes": [],
    "rounds": 3, "error": None, "disturbances": [{"round": 0}], "seconds": 41.7,
    "rows": [
        {"panel": "dir:/x: DELETE", "case": "update", "system": "ext4 ordered",
         "metric": "transaction time", "unit": "ms", "better": "lower", "median": 2.4312},
        {"panel": "dir:/x: DELETE", "case": "update", "system": "OneJournal",
         "metric": "transaction time", "unit": "ms", "better": "lower", "median": 1.69},
        {"panel": "this disk: DELETE", "case": "update", "system": "OneJournal",
         "metric": "transaction time", "unit": "ms", "better": "lower", "median": 7.0},
    ],
}


class Sys(unittest.TestCase):
    """A small /sys and /proc."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="real-")
        self.addCleanup(holder.cleanup)
        self.sys, self.proc = Path(holder.name) / "sys", Path(holder.name) / "proc"
        self.card = self.device("devices/mmc/mmc0/block/mmcblk0", "179:0")
        self.part = self.device("devices/mmc/mmc0/block/mmcblk0/mmcblk0p2", "179:2")
        self.put(self.part / "partition", "2")
        self.put(self.card / "size", "61952000")
        self.put(self.card / "queue" / "write_cache", "write back")
        for name, value in (("name", "SC32G"), ("fwrev", "0x3"), ("type", "SD"),
                            ("date", "05/2021"), ("serial", "0x1234")):
            self.put(self.card / "device" / name, value)
        self.put(self.proc / "swaps", "Filename Type")
        self.put(self.proc / "self" / "mountinfo", "22 1 0:5 / /proc rw - proc proc rw")
        # A device node that is no device.
        self.node = Path(holder.name) / "node"
        self.node.touch()
        patched = mock.patch.object(disk, "device_number", return_value="179:0")
        patched.start()
        self.addCleanup(patched.stop)

    def put(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")

    def device(self, place: str, number: str) -> Path:
        path = self.sys / place
        self.put(path / "dev", number)
        link = self.sys / "dev" / "block" / number
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
        return path

    def used(self) -> str:
        return disk.why_in_use(self.node, self.sys, self.proc)


class Names(Sys):
    """Facts."""

    def test_a_partition_is_on_its_disk(self) -> None:
        found = disk.layers("179:2", self.sys)
        self.assertEqual([each.name for each in found], ["mmcblk0"])
        self.assertEqual(disk.layers("0:44", self.sys), [])

    def test_layers_go_down_to_disks(self) -> None:
        mapped = self.device("devices/virtual/block/dm-0", "254:0")
        (mapped / "slaves").mkdir()
        (mapped / "slaves" / "mmcblk0p2").symlink_to(self.part)
        found = disk.layers("254:0", self.sys)
        self.assertEqual([each.name for each in found], ["dm-0", "mmcblk0"])

    def test_a_card_is_named_without_its_serial_number(self) -> None:
        facts = disk.describe(self.card)
        self.assertEqual(facts, {
            "name": "mmcblk0", "transport": "mmc", "model": "SC32G", "firmware": "0x3",
            "type": "SD", "made": "05/2021", "gib": 29.5, "rotational": False,
            "cache": "write back", "fua": False,
        })
        self.assertEqual(disk.sentence([facts]), "mmcblk0, SC32G, mmc, 29.5 GiB, write back")
        self.assertEqual(disk.sentence([]), "not a disk")


class InUse(Sys):
    """Devices that must not be overwritten."""

    def test_a_free_device(self) -> None:
        self.assertEqual(self.used(), "")

    def test_a_mounted_partition_of_it(self) -> None:
        self.put(self.proc / "self" / "mountinfo",
                 "30 1 179:2 / /srv/data rw - ext4 /dev/mmcblk0p2 rw")
        self.assertEqual(self.used(), "mmcblk0p2 is mounted on /srv/data")

    def test_swap_space(self) -> None:
        self.put(self.proc / "swaps", "Filename Type\n/dev/mmcblk0p2 partition 1 0 -2")
        self.assertEqual(self.used(), "/dev/mmcblk0p2 is swap space")

    def test_a_holder(self) -> None:
        (self.part / "holders" / "dm-0").mkdir(parents=True)
        self.assertEqual(self.used(), "mmcblk0p2 is used by dm-0")

    def test_an_exclusive_user(self) -> None:
        with mock.patch.object(os, "open", side_effect=OSError(16, "Device or resource busy")):
            self.assertIn("busy", self.used())


class Choice(unittest.TestCase):
    """What is measured, and where."""

    def test_what_is_no_disk_is_refused(self) -> None:
        with tempfile.TemporaryDirectory(prefix="real-") as name:
            with mock.patch.object(disk, "layers", return_value=[]):
                with self.assertRaisesRegex(Refused, "not on a disk"):
                    measure.place_of(Path(name), False)
            with self.assertRaisesRegex(Refused, "does not exist"):
                measure.place_of(Path(name) / "x", True)
            file = Path(name) / "file"
            file.touch()
            with self.assertRaisesRegex(Refused, "neither"):
                measure.place_of(file, True)

    def test_a_device_is_overwritten_only_if_it_is_free_and_yes_was_said(self) -> None:
        node = Path("/dev/loop-control")
        with mock.patch.object(stat, "S_ISBLK", return_value=True):
            with mock.patch.multiple(disk, why_in_use=lambda _: "sda1 is mounted on /",
                                     disks=lambda _: []):
                with self.assertRaisesRegex(Refused, "in use: sda1 is mounted on /"):
                    measure.place_of(node, True)
            with mock.patch.multiple(disk, why_in_use=lambda _: "", disks=lambda _: []):
                with self.assertRaisesRegex(Refused, "would be lost .* --yes"):
                    measure.place_of(node, False)
                self.assertEqual(measure.place_of(node, True).device, "block:/dev/loop-control")

    def test_room_and_time(self) -> None:
        each = Experiment("x", 1000, 500, 20)
        for is_device, free, mib_s, left, why in (
            (False, 2000, 100.0, 36.0, ""),
            (False, 999, 100.0, 36.0, "needs 1000 MiB, 999 MiB are free"),
            (False, 2000, 100.0, 34.0, "needs about 35 s, 34 s are left"),
            # A part of a device is not filled before.
            (True, 2000, 1.0, 26.0, ""),
        ):
            place, speed = Place(Path("/x"), is_device), Speed(mib_s, 0.01)
            said = measure.why_left_out(each, place, free, speed, left)
            self.assertTrue(said.startswith(why) if why else said == "", said)

    def test_the_speed_is_that_of_the_largest_write(self) -> None:
        sizes = [{"len_bytes": 4096, "write_and_flush": {"p50_ns": 2_000_000}},
                 {"len_bytes": 1 << 20, "write_and_flush": {"p50_ns": 50_000_000}}]
        speed = measure.speed_of({"sizes": sizes})
        self.assertAlmostEqual(speed.mib_s, 20.0)
        self.assertAlmostEqual(speed.flush_seconds, 0.002)


class Results(unittest.TestCase):
    """What is kept."""

    def test_rows_of_this_disk_and_their_table(self) -> None:
        rows = measure.rows_of(SECTION, "dir:/x")
        self.assertEqual([row["panel"] for row in rows], ["DELETE", "DELETE"])
        self.assertEqual(table.cells(rows), [
            ("time of a commit, DELETE mode, update of one row", "2.43 ms", "", "1.69 ms", ""),
        ])
        lines = table.text(rows).splitlines()
        self.assertEqual(lines[0].split("  ")[-1].strip(), "extension on ext4")
        self.assertEqual([table.shown(value) for value in (0.8634, 56.4, 13261.2)],
                         ["0.863", "56.4", "13,261"])

    def test_an_experiment_that_fails_is_no_success(self) -> None:
        probe = {"sizes": [{"len_bytes": 4096, "write_and_flush": {"p50_ns": 1000}}]}
        for error, has_failed in (("mkfs.btrfs failed", True), ("", False)):
            with mock.patch.multiple(disk, disks=lambda _: []):
                run = Measurement(Place(Path("/x"), True), Path("/x"), 600)
            run.values["probe"] = probe
            run._probe = lambda: None  # type: ignore[method-assign]
            run._experiment = lambda _, why=error: why  # type: ignore[method-assign]
            with mock.patch.object(Place, "free_mib", return_value=5000):
                with mock.patch("builtins.print"):
                    run.run([EXPERIMENTS[0]])
            self.assertEqual(run.has_failed, has_failed)
            self.assertEqual(bool(run.values["left_out"]), has_failed)

    def test_all_fit_ten_minutes_of_a_device_and_most_those_of_a_slow_card(self) -> None:
        def seconds(experiments: Sequence[Experiment], flush_seconds: float) -> float:
            return sum(each.seconds + each.flushes * flush_seconds for each in experiments)

        self.assertLess(seconds(EXPERIMENTS, 0.002), 600)
        self.assertLess(seconds(EXPERIMENTS[:-3], 0.005), 600)
        self.assertEqual([each.name for each in EXPERIMENTS[-3:]],
                         ["bulk", "sqlite-extension", "djfs-fio"])

    def test_every_line_of_the_table_is_of_an_experiment(self) -> None:
        names = {each.name for each in EXPERIMENTS}
        self.assertEqual({line.experiment for line in table.LINES}, names)

    def test_the_table_has_the_lines_of_readme_that_need_no_server(self) -> None:
        """Each line is a row of README, in other words, and both are measured alike."""
        quoted = (ROOT / "lab/bench/src/report/quoted.rs").read_text(encoding="utf-8")
        for line in table.LINES:
            if line.panel:
                self.assertIn(line.panel, quoted)
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        rows = {row for name in ("gained", "lost") for row in rows_of_readme(readme, name)}
        servers = "PostgreSQL|MariaDB|the same: bytes written for a transaction"
        # Measured in a virtual machine or in full only, and lines of another row on a second disk.
        others = ("the same insert, values of English words|"
                  "Bytes of an append|the same, on a disk whose|DELETE mode, .*, on that disk|"
                  "one writer, WAL, on a disk whose")
        left_out = [row for row in rows if re.match(f"{servers}|{others}", row)]
        self.assertEqual(len(rows) - len(left_out), len(table.LINES))

    def test_a_file_has_a_line_for_each_row(self) -> None:
        with tempfile.TemporaryDirectory(prefix="real-") as name:
            path = Path(name) / "results.json"
            with mock.patch.multiple(disk, disks=lambda _: [{"name": "x"}]):
                values: dict[str, Any] = Measurement(Place(Path(name), False), path, 60).values
            values["rows"] = measure.rows_of(SECTION, "dir:/x")
            values["experiments"].append(measure.summary_of(SECTION))
            measure.save(path, values)
            text = path.read_text(encoding="utf-8")
        self.assertEqual(json.loads(text), values)
        self.assertEqual(sum('"median"' in line for line in text.splitlines()), 2)
        self.assertEqual(values["experiments"][0]["disturbed_rounds"], 1)
        self.assertIn("\n1 of 3 rounds were disturbed", measure.said(values))
        self.assertNotIn(name, text)
