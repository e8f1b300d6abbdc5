"""What the next run knows of a run: a directory below `/var/tmp` with a lock and a record.

The keeper holds the lock as long as it lives. So a directory whose lock is free belongs to a run
that was killed together with its keeper, and the next run removes what the record names. The
record is replaced as a whole, never changed.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import stat
import tempfile
import time
from pathlib import Path

from . import processes
from .processes import Identity

PREFIX = "onejournal-run-"
NEW_PREFIX = "onejournal-new-"
# In the environment of all processes of a run.
RUN_VARIABLE = "ONEJOURNAL_RUN"


def boot_id() -> str:
    """Another one after each boot of the machine."""
    return processes.read("/proc/sys/kernel/random/boot_id").strip()


def parents() -> list[Path]:
    """Where the directories of runs are: the first one is where a new one is made. `/var/tmp` is
    hardly ever a tmpfs."""
    chosen = os.environ.get("TMPDIR")
    places = [Path(chosen)] if chosen else []
    places.append(Path("/var/tmp"))
    return list(dict.fromkeys(place.resolve() for place in places))


@dataclasses.dataclass
class Record:
    """One run."""

    scratch: Path
    boot: str
    keeper: Identity
    # First process of the PID namespace. While it exists, the number of the namespace is its own.
    init: Identity | None = None
    namespace: int | None = None
    # `st_dev` of the run's own /dev/shm.
    shm_device: int | None = None
    # What `enable_uring` is to be again.
    io_uring: str | None = None
    cgroup: str | None = None

    @property
    def run(self) -> str:
        """Its name."""
        return self.scratch.name[len(PREFIX):]

    @property
    def marker(self) -> str:
        """A directory with this name, and nothing of anybody else, is part of the path of every
        file below the run's TMPDIR."""
        return f"oj-{self.run}"

    def write(self) -> None:
        """Replaces what is on the disk."""
        text = json.dumps(dataclasses.asdict(self), default=str)
        new = self.scratch / "record.new"
        new.write_text(text, encoding="utf-8")
        new.rename(self.scratch / "record.json")

    def members(self) -> set[int]:
        """The processes of the run that run."""
        if self.boot != boot_id():
            return set()
        if self.namespace is None:
            found = self._related()
        elif self.init and self.init.is_there():
            found = processes.inhabitants(self.namespace)
        else:
            found = set()
        return {pid for pid in found if processes.is_running(pid)}

    def _related(self) -> set[int]:
        """Without namespaces: the keeper adopts all. For others, who come when it is dead or about
        to be, the environment tells. A run inside of this one carries another name."""
        own = os.getpid()
        if own == self.keeper.pid:
            return processes.descendants(own)
        return {
            pid
            for pid in processes.all_ids()
            if pid != own and processes.environment(pid).get(RUN_VARIABLE) == self.run
        }


def read(scratch: Path) -> Record | None:
    """The record in a directory, if it has one."""
    try:
        values = json.loads((scratch / "record.json").read_text(encoding="utf-8"))
        values["scratch"] = scratch
        values["keeper"] = Identity(*values["keeper"])
        values["init"] = values["init"] and Identity(*values["init"])
        return Record(**values)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def lock(scratch: Path, flags: int = 0) -> int | None:
    """The locked descriptor; nothing if another process holds it, or if there is none."""
    try:
        descriptor = os.open(scratch / "lock", os.O_RDWR | flags, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def create() -> tuple[Record, int]:
    """A record for a run of the calling process, and its lock. Other users may pass through the
    directory. It gets its name when it is locked and has a record."""
    new = Path(tempfile.mkdtemp(prefix=NEW_PREFIX, dir=parents()[0]))
    new.chmod(0o711)
    locked = lock(new, os.O_CREAT)
    if locked is None:
        raise OSError(f"{new} cannot be locked")
    record = Record(new, boot_id(), processes.identity(os.getpid()))
    record.write()
    record.scratch = new.rename(new.with_name(PREFIX + new.name[len(NEW_PREFIX):]))
    return record, locked


def _is_own(directory: Path) -> bool:
    """Only what this user made is believed: others may write to /var/tmp."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def directories() -> list[Path]:
    """The directories of this user's runs, live or dead."""
    found = [path for parent in parents() for path in parent.glob(f"{PREFIX}*")]
    return sorted({path for path in found if _is_own(path)})


def unborn() -> list[Path]:
    """Directories that never became a run's, since an hour."""
    found = [path for parent in parents() for path in parent.glob(f"{NEW_PREFIX}*")]
    return [path for path in found if _is_own(path) and time.time() - path.lstat().st_mtime > 3600]


def others_notes(own: Path) -> list[str]:
    """What the other live runs have noted as the value of `enable_uring` from before."""
    notes = []
    for scratch in directories():
        if scratch == own:
            continue
        locked = lock(scratch)
        if locked is not None:
            os.close(locked)
            continue
        other = read(scratch)
        if other and other.io_uring:
            notes.append(other.io_uring)
    return notes
