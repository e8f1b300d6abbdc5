"""The protocol's lines and the controller's files."""

from __future__ import annotations

import json
import socket
import tempfile
import unittest
from pathlib import Path
from typing import Any

from real.acknowledged import Acknowledged, State
from real.lines import Closed, Lines
from real.results import Results, is_failure, is_prefix, judged
from real.volume import Volume

CLEAN = {"found": 5, "lost": 0, "torn": 0, "disordered": 0, "damage": "", "examples": []}


def verdict(files: dict[str, Any], rows: dict[str, Any] | None = None, damage: str = "") -> Any:
    """A message of the target."""
    return {"say": "verdict", "damage": damage, "mount_seconds": 1.5,
            "found": {"files": {**CLEAN, **files}, "rows": {**CLEAN, **(rows or {})}}}


class Connection(unittest.TestCase):
    """Lines."""

    def setUp(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.other = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        listener.close()
        self.lines = Lines(accepted)
        self.addCleanup(self.other.close)
        self.addCleanup(self.lines.close)

    def test_lines_come_in_pieces_and_together(self) -> None:
        self.other.sendall(b'{"say":"done","files":1}\n{"say":"do')
        self.assertEqual(self.lines.receive(), {"say": "done", "files": 1})
        self.assertFalse(self.lines.has_line)
        self.assertIsNone(self.lines.receive(0))
        self.other.sendall(b'ne","rows":2}\n{"say":"x"}\n')
        self.assertTrue(self.lines.is_ready(None))
        self.assertEqual(self.lines.receive(), {"say": "done", "rows": 2})
        self.assertEqual(self.lines.receive(), {"say": "x"})

    def test_what_is_no_message_ends_it(self) -> None:
        for line in (b"GET / HTTP/1.0\n", b"[]\n", b"{}\n"):
            self.other.sendall(line)
            with self.assertRaises(Closed):
                self.lines.receive()
        self.other.close()
        with self.assertRaises(Closed):
            self.lines.receive()


class Kept(unittest.TestCase):
    """Files."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="real-")
        self.addCleanup(holder.cleanup)
        self.path = Path(holder.name) / "kept"

    def test_acknowledgements_survive_the_controller(self) -> None:
        kept = Acknowledged(self.path)
        self.assertFalse(kept.state.has_begun)
        kept.begin(State(3, True, "boot", {"files": 5, "rows": 1}, {"files": 5, "rows": 1}))
        kept.add({"files": 7})
        kept.add({"rows": 2})
        kept.add({"files": 9})
        kept.close()
        with self.path.open("ab") as file:
            file.write(b'{"files": 1')
        state = Acknowledged(self.path).state
        self.assertEqual((state.epoch, state.has_begun, state.boot), (3, True, "boot"))
        self.assertEqual((state.numbers, state.count), ({"files": 9, "rows": 2}, 5))

    def test_results_can_be_committed(self) -> None:
        kept = Results(self.path, {"seed": 7})
        settings = {"keeps_history": True, "acknowledges_early": False}
        kept.meet({"settings": settings, "about": {"machine": {"board": "a board"}}})
        for number in (1, 2):
            about = {"operations": 4, "power_losses": number}
            kept.add({**about, **judged({"files": 5}, verdict({}))})
        values = json.loads(self.path.read_text(encoding="utf-8"))
        self.assertEqual([cut["number"] for cut in values["cuts"]], [1, 2])
        self.assertEqual(values["cuts"][0]["found"]["files"],
                         {"found": 5, "lost": 0, "torn": 0, "disordered": 0})
        summary = values["summary"]
        self.assertEqual((summary["cuts"], summary["during_recovery"]), (3, 1))
        self.assertEqual((summary["acknowledged"], summary["mount_seconds_median"]), (8, 1.5))
        lines = self.path.read_text(encoding="utf-8").splitlines()
        self.assertEqual(sum('"number"' in line for line in lines), 2, "a line for each cut")

    def test_a_canary_without_a_loss_was_missed(self) -> None:
        kept = Results(self.path, {"seed": 7})
        settings = {"keeps_history": True, "acknowledges_early": True}
        kept.meet({"settings": settings, "about": {}})
        for lost, says in ((0, "THE CANARY WAS MISSED"), (1, "the canary was found out")):
            cut = judged({"files": 5}, verdict({"lost": lost}))
            kept.add({"operations": 4, "power_losses": 1, **cut})
            self.assertIn(says, kept.closing_line())


class Owed(unittest.TestCase):
    """What a target owes depends on the file system."""

    def test_failures(self) -> None:
        for files, rows, damage, with_history, without in (
            ({}, {}, "", False, False),
            ({"lost": 1}, {}, "", True, True),
            ({"damage": "x"}, {}, "", True, True),
            ({}, {}, "e2fsck", True, True),
            ({"torn": 1}, {}, "", True, False),
            ({"disordered": 1}, {}, "", True, False),
            ({}, {"torn": 1}, "", True, True),
            ({}, {"lost": 1}, "", True, True),
        ):
            said = verdict(files, rows, damage)
            cut = judged({}, said)
            self.assertEqual(is_failure(cut, True), with_history, cut)
            self.assertEqual(is_failure(cut, False), without, cut)
            self.assertEqual(is_prefix(said), not with_history, cut)

    def test_options_without_history(self) -> None:
        for system, options, keeps in (
            ("onejournal", "", True),
            ("onejournal", "noatime,data=auto", True),
            ("onejournal", "noatime,order=sync", False),
            ("onejournal", "data=ordered", False),
            ("ext4", "data=journal", False),
        ):
            volume = Volume(system, "/dev/x", Path("/x"), options)
            self.assertEqual(volume.keeps_history, keeps, options)
