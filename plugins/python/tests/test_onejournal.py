"""Run with a Python whose sqlite3 can load extensions:
python3 -m unittest discover plugins/python/tests"""

import ctypes
import os
import pathlib
import shutil
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

    def refused(self, text, database=None, **options):
        """It is not opened, and the exception says why; nothing is left beside the database."""
        with self.assertRaisesRegex(sqlite3.OperationalError, text) as caught:
            onejournal.connect(database or self.path, **{"memory": self.memory.name, **options})
        if hasattr(caught.exception.__cause__, "sqlite_errorname"):  # Python 3.11
            self.assertEqual(caught.exception.sqlite_errorname, "SQLITE_CANTOPEN")

    def test_an_exception_says_why(self):
        missing = pathlib.Path(self.place.name) / "no" / "such" / "log"
        self.refused(f"there is no directory {missing.parent}", log=missing)
        self.assertFalse(missing.parent.parent.exists())
        self.refused("durability=maybe is not known", durability="maybe")
        self.refused("recover=please is not known", recover="please")
        nvram = pathlib.Path(self.place.name) / "nvram"
        self.refused(f"nvram={nvram}: there is no directory", nvram=nvram)
        self.assertFalse(nvram.exists() or (pathlib.Path(self.place.name) / ".onejournal").exists())
        # What failed before explains nothing that the extension has no part in.
        with self.assertRaisesRegex(sqlite3.OperationalError, "^unable to open database file$"):
            onejournal.connect("/nonexistent/directory/app.db")

    def test_a_misspelled_parameter_is_named(self):
        onejournal.connect(":memory:").close()
        opened = sqlite3.connect(
            f"file:{self.place.name}/a.db?vfs=onejournal&_timeout=3&psow=1", uri=True
        )
        opened.close()
        with self.assertRaises(sqlite3.OperationalError):
            sqlite3.connect(f"file:{self.place.name}/a.db?vfs=onejournal&lgo=/tmp/log", uri=True)
        asking = sqlite3.connect(":memory:")
        text = asking.execute("SELECT onejournal_last_error()").fetchone()[0]
        self.assertRegex(text, "parameter lgo is not known")
        asking.close()

    def test_every_connection_has_the_functions(self):
        onejournal.connect(self.path, memory=self.memory.name).close()
        uri = f"file:{self.place.name}/b.db?vfs=onejournal"
        for other in (sqlite3.connect(":memory:"), sqlite3.connect(uri, uri=True)):
            self.assertIn('"commits":', other.execute("SELECT onejournal_stat()").fetchone()[0])
            self.assertTrue(other.execute("SELECT onejournal_version()").fetchone()[0])
            other.close()

    def test_a_uri_is_quoted(self):
        onejournal.load_once(sqlite3)
        path = pathlib.Path(self.place.name) / "a?b=c&d #%41.db"
        opened = sqlite3.connect(onejournal.uri(path, memory=self.memory.name), uri=True)
        opened.execute("PRAGMA journal_mode=WAL")
        stat = opened.execute("SELECT onejournal_stat()").fetchone()[0]
        self.assertIn(f'"path":"{path.resolve()}"', stat)
        opened.close()
        self.assertTrue(path.exists())
        with self.assertRaisesRegex(TypeError, "lgo is no option"):
            onejournal.uri(path, lgo="log")

    def test_a_database_in_memory_makes_no_file(self):
        before = os.getcwd()
        os.chdir(self.place.name)
        try:
            db = onejournal.connect(":memory:")
            db.execute("CREATE TABLE t (x)")
            db.close()
            self.assertEqual(os.listdir(), [])
            with self.assertRaisesRegex(ValueError, "log cannot be given"):
                onejournal.connect(":memory:", log="log")
            with self.assertRaisesRegex(ValueError, "give the path"):
                onejournal.connect("file:app.db?mode=ro")
            self.assertEqual(os.listdir(), [])
        finally:
            os.chdir(before)

    def test_a_second_copy_of_sqlite_is_told(self):
        onejournal.connect(self.path, memory=self.memory.name).close()
        with open("/proc/self/maps") as maps:
            library = next((line.split()[-1] for line in maps if "libsqlite3.so" in line), None)
        if library is None:
            self.skipTest("this Python's SQLite is not a library of its own")
        copy = pathlib.Path(self.place.name) / "another.so"
        shutil.copy(library, copy)
        other = ctypes.CDLL(str(copy))
        other.sqlite3_errmsg.restype = ctypes.c_char_p
        db, message = ctypes.c_void_p(), ctypes.c_char_p()
        self.assertEqual(other.sqlite3_open(b":memory:", ctypes.byref(db)), 0)
        self.assertEqual(other.sqlite3_enable_load_extension(db, 1), 0)
        path, entry = onejournal.loadable_path().encode(), onejournal._ENTRY.encode()
        found = other.sqlite3_load_extension(db, path, entry, ctypes.byref(message))
        self.assertEqual(found, 1)
        self.assertIn(b"another copy of SQLite", message.value)
        other.sqlite3_close(db)
        # The first copy goes on.
        onejournal.connect(self.path, memory=self.memory.name).close()

    def test_what_a_killed_process_committed_is_there(self):
        command = [sys.executable, "-c", WRITER, str(self.path), self.memory.name]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
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
