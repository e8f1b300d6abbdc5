"""The judge finds each kind of failure in what the writer wrote, and nothing where nothing is."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import unittest
from pathlib import Path

from real import history, writer
from real.judge import Verdict, judge

SEED = "7/1"
COUNT = 200


class Written(unittest.TestCase):
    """A directory with both histories, and what was acknowledged of them."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="real-")
        self.addCleanup(holder.cleanup)
        self.directory = Path(holder.name) / "base" / "epoch-1"
        writer.prepare(self.directory)
        self.acknowledged = {"files": 0, "rows": 0}
        self.write(COUNT)

    def report(self, name: str, number: int) -> None:
        self.acknowledged[name] = number

    def write(self, until: int) -> None:
        files = writer.Files(self.directory, SEED, early=False)
        rows = writer.Rows(self.directory, SEED, early=False, journal_mode="WAL")
        while self.acknowledged["files"] < until:
            files.step(self.acknowledged["files"] + 1, self.report)
        while self.acknowledged["rows"] < until:
            rows.step(self.acknowledged["rows"] + 1, self.report)
        files.close()
        rows.close()

    def verdicts(self) -> tuple[Verdict, Verdict]:
        found = judge(self.directory, SEED, self.acknowledged)
        return found["files"], found["rows"]

    def last(self, name: str, before: int | None = None) -> history.Operation:
        """The last operation on an object, or on any page."""
        until = (before or self.acknowledged["files"] + 1) - 1
        return [each for each in history.operations(SEED, until)
                if name in (each.name, each.name.split(" ")[0])][-1]

    def put_page(self, page: int, data: bytes) -> None:
        with (self.directory / "pages").open("r+b") as file:
            file.seek(page * history.PAGE_BYTES)
            file.write(data)

    def unacknowledge(self, made: history.Operation) -> None:
        self.acknowledged["files"] = made.number - 1


class Files(Written):
    """The history of files."""

    def test_what_was_written_is_a_prefix_and_goes_on(self) -> None:
        for until in (COUNT, COUNT + 50):
            self.write(until)
            for name, verdict in zip(("files", "rows"), self.verdicts()):
                self.assertTrue(verdict.is_prefix, verdict.examples)
                self.assertEqual(verdict.found, self.acknowledged[name])

    def test_more_than_was_acknowledged_may_be_there(self) -> None:
        self.acknowledged = {"files": COUNT - 20, "rows": COUNT - 20}
        files, rows = self.verdicts()
        self.assertTrue(files.is_prefix and rows.is_prefix)
        self.assertGreaterEqual(files.found, COUNT)

    def test_an_old_page_is_lost_if_the_new_one_was_acknowledged(self) -> None:
        made = self.last("page")
        old = self.last(made.name, made.number)
        self.put_page(made.page, history.content(SEED, old))
        files, _ = self.verdicts()
        self.assertEqual((files.lost, files.torn, files.disordered), (1, 0, 0))
        self.assertIn(f"{made.name} has operation {old.number}", files.examples[0])

    def test_an_old_page_before_a_new_record_is_disordered(self) -> None:
        made = self.last("page", self.last(history.LOG).number)
        self.put_page(made.page, history.content(SEED, self.last(made.name, made.number)))
        self.unacknowledge(made)
        files, _ = self.verdicts()
        self.assertEqual((files.lost, files.torn, files.disordered), (0, 0, 1))

    def test_a_page_of_two_writes_is_torn(self) -> None:
        made = self.last("page")
        data = history.content(SEED, made)
        old = history.content(SEED, self.last(made.name, made.number))
        self.put_page(made.page, data[:4096] + old[4096:])
        files, _ = self.verdicts()
        self.assertEqual((files.lost, files.torn), (1, 1), "the new half was acknowledged")
        self.unacknowledge(made)
        files, _ = self.verdicts()
        self.assertEqual((files.lost, files.torn), (0, 1))
        self.put_page(made.page, data[:4096] + bytes(4096))
        self.assertEqual(self.verdicts()[0].lost, 1, "no operation since then wrote zeros")
        # Another page's content is not content of this one.
        self.put_page(made.page, history.content(SEED, self.last("page", made.number)))
        self.assertEqual(self.verdicts()[0].torn, 1)

    def test_the_beginning_of_a_record_is_no_record(self) -> None:
        made = self.last(history.LOG)
        # A log whose last record was under way, and nothing after it was written.
        for later in range(made.number + 1, self.acknowledged["files"] + 1):
            change = history.operation(SEED, later)
            self.assertNotEqual(change.name, history.LOG)
            old = history.content(SEED, self.last(change.name, made.number))
            if change.name == history.CONFIG:
                (self.directory / "config").write_bytes(old)
            else:
                self.put_page(change.page, old)
        log = self.directory / "log"
        whole = log.stat().st_size - made.size
        with log.open("r+b") as file:
            file.truncate(whole + 20)
        self.unacknowledge(made)
        files, _ = self.verdicts()
        self.assertTrue(files.is_prefix, files.examples)
        self.assertEqual((files.found, log.stat().st_size), (made.number - 1, whole))

    def test_an_acknowledged_record_is_lost(self) -> None:
        log = self.directory / "log"
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size - 1)
        size = log.stat().st_size
        files, _ = self.verdicts()
        self.assertEqual((files.lost, files.torn), (1, 0))
        self.assertEqual(log.stat().st_size, size, "the evidence stays")

    def test_other_bytes_in_the_log_are_torn(self) -> None:
        log = self.directory / "log"
        data = bytearray(log.read_bytes())
        data[-1] ^= 1
        log.write_bytes(data)
        self.assertEqual(self.verdicts()[0].torn, 1)

    def test_bytes_behind_the_log_are_torn(self) -> None:
        with (self.directory / "log").open("ab") as file:
            file.write(bytes(5000))
        self.assertEqual(self.verdicts()[0].torn, 1)

    def test_an_old_or_missing_file_is_lost(self) -> None:
        made = self.last(history.CONFIG)
        config = self.directory / "config"
        config.write_bytes(history.content(SEED, self.last(history.CONFIG, made.number)))
        self.assertEqual(self.verdicts()[0].lost, 1)
        config.unlink()
        self.assertEqual(self.verdicts()[0].lost, 1)
        self.unacknowledge(made)
        config.write_bytes(history.content(SEED, made)[:-1])
        self.assertEqual(self.verdicts()[0].lost, 1, "a part of a file that replaced another one")

    def test_a_missing_directory_is_damage_unless_nothing_was_acknowledged(self) -> None:
        shutil.rmtree(self.directory)
        for verdict in self.verdicts():
            self.assertNotEqual(verdict.damage, "")
        self.acknowledged = {"files": 0, "rows": 0}
        for verdict in self.verdicts():
            self.assertTrue(verdict.is_prefix)


class Rows(Written):
    """The history of SQLite."""

    def execute(self, *statement: object) -> None:
        database = sqlite3.connect(str(self.directory / "rows.db"))
        with database:
            database.execute(*statement)  # type: ignore[arg-type]
        database.close()

    def test_an_older_database_has_lost_transactions(self) -> None:
        database = self.directory / "rows.db"
        old = database.read_bytes()
        self.write(COUNT + 30)
        for each in self.directory.glob("rows.db-*"):
            each.unlink()
        database.write_bytes(old)
        _, rows = self.verdicts()
        self.assertEqual((rows.lost, rows.torn, rows.damage), (30, 0, ""))

    def test_half_a_transaction_is_torn(self) -> None:
        key, _ = history.changed_rows(SEED, COUNT)
        self.execute("DELETE FROM rows WHERE key = ?", (key,))
        _, rows = self.verdicts()
        self.assertEqual((rows.lost, rows.torn), (0, 1))

    def test_a_row_of_no_transaction_is_torn(self) -> None:
        self.execute("INSERT INTO rows VALUES (?, ?)", (history.ROWS + 1, b"x"))
        self.assertEqual(self.verdicts()[1].torn, 1)

    def test_a_broken_database_is_damage(self) -> None:
        database = self.directory / "rows.db"
        data = bytearray(database.read_bytes())
        data[4096:] = bytes(len(data) - 4096)
        database.write_bytes(data)
        self.assertIn("rows.db", self.verdicts()[1].damage)
        database.write_bytes(b"x" * len(data))
        self.assertIn("not a database", self.verdicts()[1].damage)


class History(unittest.TestCase):
    """It never changes, so that earlier results stay comparable."""

    def test_golden_operations(self) -> None:
        found = [(each.name, each.size) for each in history.operations("7/1", 4)]
        expected = [("page 45", 8192), ("page 37", 8192), ("page 36", 8192), ("log", 1182)]
        self.assertEqual(found, expected)

    def test_the_number_of_content(self) -> None:
        made = history.operation("7/1", 12)
        self.assertEqual(history.number_of(history.content("7/1", made)), 12)
        for data in (b"", bytes(100), b"page 1 is x\n", b"page 1 is 7", b"7\n"):
            self.assertEqual(history.number_of(data), 0)

    def test_two_different_rows_change(self) -> None:
        for number in range(1, 300):
            first, second = history.changed_rows("7/1", number)
            self.assertNotEqual(first, second)
            self.assertTrue(0 <= first < history.ROWS and 0 <= second < history.ROWS)
