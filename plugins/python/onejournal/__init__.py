"""SQLite commits without an fsync of the WAL, durable all the same.

    import onejournal

    db = onejournal.connect("app.db")     # a sqlite3.Connection
    db.execute("PRAGMA journal_mode=WAL")

`connect` opens a database through the VFS "onejournal"; it stays an ordinary SQLite database.
Options:

    log         directory of the log, or its daemon's socket (named socket, NAME.sock or
                NAME.socket); by default `.onejournal` beside the database
    nvram       directory on NVRAM for the log's lanes
    durability  what that NVRAM survives, if less than a power cut: "reboot" or "process"
    memory      a tmpfs for the log's shared memory, /dev/shm by default; the same in all processes
    recover     "discard": give up what is logged when the database was changed without the
                extension
    checkpoint  "background": a thread makes the checkpoints of a WAL, so that commits rarely wait

Everything else is handed to sqlite3.connect(). When the extension refuses the database, the
exception says why. Later errors are explained by `SELECT onejournal_last_error()`, in the thread
that met them. A database in memory (":memory:") is an ordinary one.

`onejournal.django` is a backend for Django.
"""

import contextlib
import os
import pathlib
import urllib.parse

__all__ = ["connect", "load", "load_once", "loadable_path", "uri"]

_LIBRARY = "libonejournal_sqlite.so"
_ENTRY = "sqlite3_onejournal_init"
OPTIONS = ("log", "nvram", "durability", "memory", "recover", "checkpoint")
_loaded_modules = set()


def loadable_path():
    """The path of the loadable extension, for any program that can load one."""
    named = os.environ.get("ONEJOURNAL_LIBRARY")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).with_name(_LIBRARY)
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: install the wheel, or set ONEJOURNAL_LIBRARY")
    return str(path)


def load(connection):
    """Loads the extension through `connection` (of sqlite3 or apsw). From then on, every connection
    that this copy of SQLite opens in this process can use the VFS and has the SQL functions. A
    second copy of SQLite in the process (apsw brings its own) is refused."""
    if hasattr(connection, "enableloadextension"):  # apsw
        connection.enableloadextension(True)
        try:
            connection.loadextension(loadable_path(), _ENTRY)
        finally:
            connection.enableloadextension(False)
        return
    if not hasattr(connection, "enable_load_extension"):
        raise RuntimeError(
            "this Python's sqlite3 cannot load extensions: use one that is built with "
            "--enable-loadable-sqlite-extensions (a distribution's usually is), or apsw"
        )
    connection.enable_load_extension(True)
    try:
        # The function's keyword for an entry is newer than the versions served; SQL has always had
        # it.
        connection.execute("SELECT load_extension(?, ?)", (loadable_path(), _ENTRY))
    finally:
        connection.enable_load_extension(False)


@contextlib.contextmanager
def explaining(module):
    """Errors of `module` get the extension's own text, if it has one; SQLite's is "unable to open
    database file"."""
    try:
        yield
    except module.Error as error:
        explained = _explained(error, module)
        if explained is error:
            raise
        raise explained from error


def _explained(error, module):
    asking = module.connect(":memory:")
    try:
        text = asking.execute("SELECT onejournal_last_error()").fetchone()[0]
    finally:
        asking.close()
    if text is None:
        return error
    explained = type(error)(text)
    for name in ("sqlite_errorcode", "sqlite_errorname"):
        if hasattr(error, name):
            setattr(explained, name, getattr(error, name))
    return explained


def load_once(module):
    """Loads the extension through a connection of `module` (sqlite3), if this process has not done
    so yet."""
    if module in _loaded_modules:
        return
    opener = module.connect(":memory:")
    try:
        load(opener)
    finally:
        opener.close()
    _loaded_modules.add(module)


def uri(database, **options):
    """The URI of the database at the path `database`, quoted, with the VFS and with options of
    OneJournal. After `load_once(sqlite3)`, sqlite3.connect(uri(path), uri=True) opens it."""
    for name in options:
        if name not in OPTIONS:
            raise TypeError(f"{name} is no option of OneJournal: {', '.join(OPTIONS)}")
    wanted = {k: os.fspath(v) for k, v in options.items() if v is not None}
    query = urllib.parse.urlencode({"vfs": "onejournal", **wanted}, quote_via=urllib.parse.quote)
    return f"file:{urllib.parse.quote(os.path.abspath(os.fsencode(database)))}?{query}"


def connect(
    database, *, log=None, nvram=None, durability=None, memory=None, recover=None, checkpoint=None,
    module=None, **options
):
    """Opens `database` through the VFS. `module`: sqlite3 (default) or one with the same
    interface."""
    if module is None:
        import sqlite3 as module
    load_once(module)
    name = os.fsdecode(database)
    if name.startswith("file:"):
        raise ValueError(
            f"{name}: give the path of the database, and options by name; URIs are for "
            "sqlite3.connect()"
        )
    wanted = {"log": log, "nvram": nvram, "durability": durability, "memory": memory}
    wanted.update(recover=recover, checkpoint=checkpoint)
    wanted = {k: v for k, v in wanted.items() if v is not None}
    if name in ("", ":memory:"):
        if wanted:
            raise ValueError(
                f"a database that is not kept has no log: {', '.join(wanted)} cannot be given"
            )
        return module.connect(name, **options)
    with explaining(module):
        return module.connect(uri(name, **wanted), uri=True, **options)
