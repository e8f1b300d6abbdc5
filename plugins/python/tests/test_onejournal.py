"""Run with a Python whose sqlite3 can load extensions: python3 -m unittest discover plugins/python/tests"""

import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import unittest

import onejournal

WRITER = """
import sys, onejournal
db = onejournal.connect(sys.argv[1], memory=sys.argv[2], isolation_level=None)
db.execute("PRAGMA journal_mode=WAL")
db.execute("PRAGMA synchronous=FULL")
db.execute("CREATE TABLE IF NOT EXISTS t (x)")
number = 0
while True:
    db.execute("INSERT INTO t VALUES (?)", (number,))
    print(number, flush=True)
    number += 1
"""


class Extension(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.memory = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.path = pathlib.Path(self.place.name) / "a b%.db"

    def tearDown(self):
        self.place.cleanup()
        self.memory.cleanup()

    def test_a_database_stays_an_ordinary_one(self):
        db = onejournal.connect(self.path, memory=self.memory.name)
        self.assertEqual(db.execute("PRAGMA journal_mode=WAL").fetchone(), ("wal",))
        with db:
            db.execute("CREATE TABLE t (x)")
            db.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(1000)])
        self.assertTrue(db.execute("SELECT onejournal_version()").fetchone()[0])
        db.close()
        plain = sqlite3.connect(self.path)
        self.assertEqual(plain.execute("SELECT count(*), sum(x) FROM t").fetchone(), (1000, 499500))
        self.assertEqual(plain.execute("PRAGMA integrity_check").fetchone(), ("ok",))
        plain.close()

    def test_what_a_killed_process_committed_is_there(self):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(self.path), self.memory.name], stdout=subprocess.PIPE, text=True)
        last = [int(writer.stdout.readline()) for _ in range(50)][-1]
        writer.send_signal(signal.SIGKILL)
        last = max([last, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        writer.wait()
        writer.stdout.close()
        db = onejournal.connect(self.path, memory=self.memory.name)
        count, largest = db.execute("SELECT count(*), max(x) FROM t").fetchone()
        db.close()
        self.assertGreaterEqual(largest, last)
        self.assertEqual(count, largest + 1)

    def test_a_missing_library_is_named(self):
        before = os.environ.get("ONEJOURNAL_LIBRARY")
        os.environ["ONEJOURNAL_LIBRARY"] = "/nonexistent/library.so"
        try:
            with self.assertRaisesRegex(FileNotFoundError, "/nonexistent/library.so"):
                onejournal.loadable_path()
        finally:
            if before is None:
                del os.environ["ONEJOURNAL_LIBRARY"]
            else:
                os.environ["ONEJOURNAL_LIBRARY"] = before


if __name__ == "__main__":
    unittest.main()
