"""The backend: Django's own for SQLite, whose connections use the VFS, WAL mode and FULL.

- A database in memory, and a NAME that is a URI, are opened as Django opens them.
- So is the database of a test, and it keeps its journal mode: the runner copies its file for
  `--parallel`, and a copy of the file alone lacks a WAL and a log.
- `init_command` and `transaction_mode` work with Django 4.2, too. Django has them from 5.1 on.
"""

import django
from django.db.backends.sqlite3 import base, client, creation

import onejournal

_HAS_COMMANDS = django.VERSION >= (5, 1)
_OURS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL")


class DatabaseClient(client.DatabaseClient):
    """`manage.py dbshell`: the shell loads the extension before it opens the database."""

    @classmethod
    def settings_to_cmd_args_env(cls, settings_dict, parameters):
        if not _is_logged(settings_dict):
            return super().settings_to_cmd_args_env(settings_dict, parameters)
        commands = [f'.load "{onejournal.loadable_path()}"', f'.open "{_uri(settings_dict)}"']
        options = [word for command in commands for word in ("-cmd", command)]
        return [cls.executable_name, *options, ":memory:", *parameters], None


class DatabaseCreation(creation.DatabaseCreation):
    """Test databases. A copy for a worker of `--parallel` is one, too."""

    def get_test_db_clone_settings(self, suffix):
        settings = super().get_test_db_clone_settings(suffix)
        return {**settings, "TEST": {**settings["TEST"], "NAME": settings["NAME"]}}


class DatabaseWrapper(base.DatabaseWrapper):
    client_class = DatabaseClient
    creation_class = DatabaseCreation

    def get_connection_params(self):
        params = super().get_connection_params()
        for name in onejournal.OPTIONS:
            params.pop(name, None)
        if not _HAS_COMMANDS:
            self.transaction_mode = params.pop("transaction_mode", None)
            self.init_commands = params.pop("init_command", "").split(";")
        if _is_logged(self.settings_dict):
            params["database"] = _uri(self.settings_dict)
            self.init_commands = [*_OURS, *self.init_commands]
        return params

    def get_new_connection(self, conn_params):
        onejournal.load_once(base.Database)
        with onejournal.explaining(base.Database):
            connection = super().get_new_connection(conn_params)
        if not _HAS_COMMANDS:
            for command in filter(None, map(str.strip, self.init_commands)):
                connection.execute(command)
        return connection

    def _start_transaction_under_autocommit(self):
        if _HAS_COMMANDS or self.transaction_mode is None:
            super()._start_transaction_under_autocommit()
        else:
            self.cursor().execute(f"BEGIN {self.transaction_mode}")


def _is_logged(settings):
    """Whether the settings name a file by its path, and no test's."""
    name = settings["NAME"]
    test = settings["TEST"]["NAME"]
    is_test = test is not None and str(name) == str(test)
    return not is_test and str(name) != ":memory:" and not str(name).startswith("file:")


def _uri(settings):
    options = {k: v for k, v in settings["OPTIONS"].items() if k in onejournal.OPTIONS}
    return onejournal.uri(settings["NAME"], **options)
