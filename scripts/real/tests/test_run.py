"""A controller and a target on this machine: whole runs, on a directory in place of a disk."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

from real.acknowledged import Acknowledged, State
from real.controller import Controller, Plan, Stopped
from real.lines import PROTOCOL, Closed, Lines
from real.power import NoSwitch, Power
from real.results import Differs, Results

SETTINGS = {"seed": 7}
TARGET = Path(__file__).with_name("fake_target.py")
# Takes away what was acknowledged.
LOSE = "; rm -rf {data}/*/epoch-*"


class Run(unittest.TestCase):
    """What is needed for one."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="real-")
        self.addCleanup(holder.cleanup)
        self.directory = Path(holder.name)
        self.data = self.directory / "data"
        self.data.mkdir()
        self.path = self.directory / "results.json"
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.listener.close)
        silence = mock.patch("builtins.print")
        silence.start()
        self.addCleanup(silence.stop)

    def power(self, loses: str = "", options: str = "") -> Power:
        port = self.listener.getsockname()[1]
        words = [sys.executable, "-B", str(TARGET), str(port), str(self.data), *options.split()]
        pid = self.directory / "pid"
        off = f"if [ -e {pid} ]; then kill -9 $(cat {pid}); rm {pid}{loses}; fi"
        off = off.format(data=self.data)
        power = Power(off, f"{shlex.join(words)} 2>/dev/null & echo $! >{pid}")
        self.addCleanup(subprocess.run, off, shell=True, check=False)
        return power

    def controller(self, power: Power, cuts: int = 3, recovery_share: float = 0.5) -> Controller:
        plan = Plan(seed=7, cuts=cuts, seconds=(0.1, 0.3), recovery_share=recovery_share,
                    off_seconds=0.2, boot_seconds=60, judge_seconds=60, keeps_going=False)
        self.kept = Results(self.path, SETTINGS)
        self.acknowledged = Acknowledged(self.directory / "acknowledged")
        self.addCleanup(self.acknowledged.close)
        return Controller(plan, power, self.listener, self.kept, self.acknowledged)


class Runs(Run):
    """Nothing is lost, or something is."""

    def test_nothing_is_lost(self) -> None:
        self.assertTrue(self.controller(self.power()).run())
        read = Results(self.path, SETTINGS)
        self.assertEqual(len(read.cuts), 3)
        summary = read.values["summary"]
        self.assertEqual((summary["lost"], summary["torn"], summary["failures"]), (0, 0, 0))
        self.assertGreaterEqual(summary["cuts"], 3)
        self.assertGreater(summary["acknowledged"], 0)
        self.assertIn("no failure", read.closing_line())
        self.assertFalse((self.directory / "acknowledged").exists())

    def test_a_loss_ends_the_run(self) -> None:
        self.assertFalse(self.controller(self.power(LOSE)).run())
        self.assertEqual(len(self.kept.cuts), 1)
        self.assertIn("No such file", self.kept.cuts[0]["found"]["files"]["damage"])
        self.assertIn("1 FAILURES", self.kept.closing_line())

    def test_a_canary_is_found_out(self) -> None:
        self.assertTrue(self.controller(self.power(LOSE, "--early")).run())
        self.assertIn("was found out", self.kept.closing_line())

    def test_a_target_that_keeps_its_power_is_noticed(self) -> None:
        power = mock.Mock(on=lambda _: threading.Thread(target=self.never_end, daemon=True).start())
        with self.assertRaisesRegex(Stopped, "still writes"):
            self.controller(power, recovery_share=0).run()

    def never_end(self) -> None:
        """A target that acknowledges without a pause."""
        lines = Lines(socket.create_connection(self.listener.getsockname()))
        settings = {"keeps_history": True, "acknowledges_early": False}
        lines.send("hello", protocol=PROTOCOL, boot="1", settings=settings, about={})
        lines.receive()
        lines.send("verdict", found={}, damage="")
        lines.receive()
        lines.send("begun")
        number = 0
        try:
            while True:
                number += 1
                lines.send("done", rows=number)
        except Closed:
            lines.close()

    def test_a_disk_that_fails_while_the_power_is_cut_is_no_failure(self) -> None:
        def switch_off(_: int) -> None:
            target.send("done", files=3)
            target.send("failed", why="Input/output error")
            target.close()

        target = Lines(socket.create_connection(self.listener.getsockname()))
        lines = Lines(self.listener.accept()[0])
        self.addCleanup(lines.close)
        controller = self.controller(mock.Mock(off=switch_off))
        self.acknowledged.begin(State(1, True))
        controller._cut(lines)  # noqa: SLF001
        self.assertEqual(self.acknowledged.state.numbers, {"files": 3})

    def test_a_target_that_did_not_boot_anew_is_noticed(self) -> None:
        with self.assertRaisesRegex(Stopped, "same boot id"):
            self.controller(self.power("", "--same-boot"), recovery_share=0).run()

    def test_other_settings_are_refused(self) -> None:
        self.assertTrue(self.controller(self.power(), cuts=1).run())
        with self.assertRaisesRegex(Differs, "seed=7, not 8"):
            Results(self.path, {"seed": 8})
        with self.assertRaisesRegex(Differs, "acknowledges_early=False, not True"):
            self.controller(self.power("", "--early"), cuts=2).run()


class Interrupted(Run):
    """A controller ends right after a cut."""

    def interrupted(self, loses: str) -> bool:
        """The second controller's answer."""

        def switch_on(cut: int) -> None:
            if cut == 2:
                raise KeyboardInterrupt
            power.on(cut)

        power = self.power(loses)
        falling = mock.Mock(off=power.off, on=switch_on)
        with self.assertRaises(KeyboardInterrupt):
            self.controller(falling, recovery_share=0).run()
        self.acknowledged.close()
        return self.controller(power, recovery_share=0).run()

    def test_it_goes_on(self) -> None:
        self.assertTrue(self.interrupted(""))
        self.assertEqual([cut["number"] for cut in self.kept.cuts], [1, 2, 3])
        self.assertEqual([cut.get("interrupted", False) for cut in self.kept.cuts],
                         [False, True, False])

    def test_what_was_acknowledged_before_is_judged(self) -> None:
        # The first controller's last cut takes something away.
        self.assertFalse(self.interrupted('; if [ "$CUT" = 2 ]; then :' + LOSE + "; fi"))
        damaged = ["damage" in cut["found"]["files"] for cut in self.kept.cuts]
        self.assertEqual(damaged, [False, True])


class Switch(unittest.TestCase):
    """The commands."""

    def test_a_command_that_fails_is_named(self) -> None:
        with self.assertRaisesRegex(NoSwitch, "`exit 3`: exit code 3"):
            Power("exit 3", "true").off(1)

    def test_the_number_of_the_cut_and_the_start(self) -> None:
        with tempfile.TemporaryDirectory(prefix="real-") as name:
            fifo = Path(name) / "fifo"
            subprocess.run(["mkfifo", str(fifo)], check=True)
            power = Power(f"echo $CUT >{name}/off", "true", f"echo started >{fifo}; sleep 1000")
            power.on(1)
            self.assertEqual(fifo.read_text(encoding="utf-8"), "started\n")
            power.off(4)
            self.assertEqual((Path(name) / "off").read_text(encoding="utf-8"), "4\n")
