"""The backend for Django. Without Django they are skipped."""

import json
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile
import unittest

try:
    import django
    from django.conf import settings
    from django.db import DEFAULT_DB_ALIAS, OperationalError
    from django.db.utils import ConnectionHandler
except ImportError:
    raise unittest.SkipTest("needs Django")

settings.configure()
django.setup()


class Backend(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        memory = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(memory.cleanup)
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        self.path = self.place / "a b%41.db"
        self.memory = memory.name

    def connection(self, name=None, test_name=None, **options):
        database = {
            "ENGINE": "onejournal.django",
            "NAME": name or self.path,
            "OPTIONS": {"memory": self.memory, **options},
            "TEST": {"NAME": test_name},
        }
        return self.opened(database)

    def opened(self, database):
        connection = ConnectionHandler({DEFAULT_DB_ALIAS: database})[DEFAULT_DB_ALIAS]
        self.addCleanup(connection.close)
        return connection

    def value(self, connection, sql):
        with connection.cursor() as cursor:
            return cursor.execute(sql).fetchone()[0]

    def databases(self, connection):
        """The paths of the open databases that have OneJournal."""
        stat = json.loads(self.value(connection, "SELECT onejournal_stat()"))
        return [database["path"] for database in stat["databases"]]

    def test_a_path_is_opened_with_a_log_in_wal_mode_with_full(self):
        connection = self.connection()
        self.assertEqual(self.value(connection, "PRAGMA journal_mode"), "wal")
        self.assertEqual(self.value(connection, "PRAGMA synchronous"), 2)
        self.assertEqual(self.databases(connection), [str(self.path.resolve())])
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (x)")
            cursor.execute("INSERT INTO t VALUES (1)")
        connection.close()
        plain = sqlite3.connect(self.path)
        self.assertEqual(plain.execute("SELECT x FROM t").fetchone(), (1,))
        plain.close()

    def test_options_of_onejournal_and_commands_are_taken(self):
        log = self.place / "the log"
        command = "PRAGMA synchronous=EXTRA; PRAGMA cache_size=7"
        connection = self.connection(log=log, init_command=command)
        self.assertEqual(self.value(connection, "PRAGMA synchronous"), 3)
        self.assertEqual(self.value(connection, "PRAGMA cache_size"), 7)
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (x)")
        self.assertTrue((log / "group.log").exists())
        self.assertFalse((self.place / ".onejournal").exists())

    def test_an_error_says_why(self):
        with self.assertRaisesRegex(OperationalError, "durability=maybe is not known"):
            self.connection(durability="maybe").ensure_connection()

    def read_then_write(self, **options):
        """A transaction that reads, and writes after another connection has tried to write."""
        first, second = self.connection(**options), self.connection(timeout=0)
        with first.cursor() as cursor:
            cursor.execute("CREATE TABLE t (x)")
        first.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
        try:
            self.value(first, "SELECT count(*) FROM t")
            try:
                with second.cursor() as cursor:
                    cursor.execute("INSERT INTO t VALUES (2)")
            except OperationalError:
                pass
            with first.cursor() as cursor:
                cursor.execute("INSERT INTO t VALUES (1)")
        finally:
            first.rollback()

    def test_immediate_transactions_are_not_locked_out(self):
        self.read_then_write(transaction_mode="IMMEDIATE")

    def test_deferred_transactions_are_locked_out(self):
        with self.assertRaisesRegex(OperationalError, "database is locked"):
            self.read_then_write()

    def test_databases_of_tests_are_plain(self):
        self.connection().ensure_connection()  # loads the extension
        name = self.place / "test.db"
        test = self.connection(name, test_name=name)
        clone = self.opened(test.creation.get_test_db_clone_settings("1"))
        memory = self.connection("file:memorydb?mode=memory&cache=shared")
        for connection in (test, clone, memory):
            self.assertEqual(self.databases(connection), [str(self.path.resolve())])
        for connection in (test, clone):
            self.assertEqual(self.value(connection, "PRAGMA journal_mode"), "delete")
        self.assertTrue((self.place / "test_1.db").exists())

    @unittest.skipUnless(shutil.which("sqlite3"), "needs the sqlite3 shell")
    def test_the_shell_has_the_extension(self):
        connection = self.connection()
        sql = "SELECT json_extract(onejournal_stat(), '$.databases[0].path') FROM sqlite_master"
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (x)")
        client, database = connection.client, connection.settings_dict
        command, _ = client.settings_to_cmd_args_env(database, [sql])
        shell = subprocess.run(command, capture_output=True, text=True, check=True)
        self.assertEqual(shell.stdout.strip(), str(self.path.resolve()), shell.stderr)


if __name__ == "__main__":
    unittest.main()
