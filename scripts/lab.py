"""Systems to measure, and the papers' SQLite workload: shared by scripts/demo and scripts/bench.

Every system lives in a scratch folder, on a file of its own; it is set up, measured and taken down by
the same calls, and taken down also when the caller fails. Device operations are counted where they
happen: by the loop device for kernel file systems, by OneJournal itself for a volume in a file.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RELEASE = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release")
PROGRAM = os.path.join(RELEASE, "onejournal")
BENCH_PROGRAM = os.path.join(RELEASE, "onejournal-bench")
IS_ROOT = os.geteuid() == 0
SBIN = os.environ["PATH"] + ":/usr/sbin:/sbin"
ENV = {**os.environ, "PATH": SBIN}


def run(*command, check=True, **kwargs):
    """Runs a command, keeping what it prints; raises with that text when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENV, **kwargs)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout}")
    return done


def has(program):
    return shutil.which(program, path=SBIN) is not None


class EmulatedDisk:
    """A disk of `onejournal-bench device` at `self.image`; without latency until `slow_down`."""

    def __init__(self, dir, size_mib, preset):
        self.dir = dir
        self.image = os.path.join(dir, "disk")
        self.preset = preset
        os.makedirs(dir, exist_ok=True)
        command = [BENCH_PROGRAM, "device", "--preset", "zero", "--size-mib", str(size_mib), dir]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENV)
        if self.process.stdout.readline() != "ready\n":
            self.process.wait()
            raise RuntimeError(f"{' '.join(command)} failed")

    def control(self, *command):
        return run(BENCH_PROGRAM, "control", self.dir, *command).stdout

    def slow_down(self):
        self.control("set", self.preset)
        self.control("reset")

    def counters(self):
        counted = json.loads(self.control())
        return {"flushes": counted["flushes"], "writes": counted["writes"], "bytes": counted["write_bytes"]}

    def stop(self):
        self.process.terminate()
        self.process.wait()


class System:
    """A file system on a file of `size_mib`, mounted at `self.dir`. With a `preset` the file is an
    emulated disk, always below a loop device, and the file system is made without its latency."""

    name = "?"
    preset = None
    disk = None

    def __init__(self, scratch, size_mib):
        self.label = "".join(c if c.isalnum() else "-" for c in self.name)
        self.image = os.path.join(scratch, self.label + ".img")
        self.dir = os.path.join(scratch, self.label)
        self.size_mib = size_mib
        self.loop = None
        self.mounted = False

    def set_up(self):
        os.makedirs(self.dir, exist_ok=True)
        if self.preset:
            self.disk = EmulatedDisk(self.dir + "-disk", self.size_mib, self.preset)
            self.image = self.disk.image
        else:
            self.write_image()
        self.make()
        self.mount()
        self.mounted = True
        if self.disk:
            os.sync()
            self.disk.slow_down()

    def write_image(self):
        # Written, not only allocated, so that no side pays for the file below it growing.
        with open(self.image, "wb") as image:
            block = bytes(1 << 20)
            for _ in range(self.size_mib):
                image.write(block)
            os.fsync(image.fileno())

    def attach_loop(self):
        self.loop = run("losetup", "-f", "--show", "--direct-io=on", self.image).stdout.strip()
        return self.loop

    def tear_down(self):
        if self.mounted:
            self.unmount()
            self.mounted = False
        if self.loop:
            run("losetup", "-d", self.loop)
            self.loop = None
        if self.disk:
            self.disk.stop()
            self.disk = None
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.image)

    def counters(self):
        """Flushes, writes and bytes written that reached the device so far."""
        if self.disk:
            return self.disk.counters()
        fields = open(f"/sys/block/{os.path.basename(self.loop)}/stat").read().split()
        return {"flushes": int(fields[15]), "writes": int(fields[4]), "bytes": int(fields[6]) * 512}

    def make(self):
        raise NotImplementedError

    def mount(self):
        raise NotImplementedError

    def unmount(self):
        run("umount", self.dir)


class OneJournal(System):
    """OneJournal on the file itself, or on a loop device over it."""

    def __init__(self, scratch, size_mib, on_loop=False, options="data=auto", preset=None):
        on_loop = on_loop or preset is not None
        self.preset = preset
        self.name = "OneJournal" + (" on loop" if on_loop and not preset else "")
        if options != "data=auto":
            self.name += f" {options}"
        self.on_loop = on_loop
        self.options = options
        super().__init__(scratch, size_mib)

    def make(self):
        run(PROGRAM, "mkfs", "--force", self.image)

    def mount(self):
        target = self.attach_loop() if self.on_loop else self.image
        run(PROGRAM, "mount", "-o", self.options, target, self.dir)

    def unmount(self):
        run(PROGRAM, "umount", self.dir)

    def stat(self):
        return json.loads(run(PROGRAM, "stat", "--json", self.dir).stdout)

    def pid(self):
        return int(os.getxattr(self.dir, "user.onejournal.pid"))

    def counters(self):
        if self.disk:
            return self.disk.counters()
        stat = self.stat()
        return {"flushes": stat["device_flushes"], "writes": stat["device_writes"], "bytes": stat["device_bytes_written"]}


class KernelExt4(System):
    """The kernel's ext4 on a loop device; without a journal if there are no options."""

    def __init__(self, scratch, size_mib, options, preset=None):
        self.preset = preset
        self.name = f"ext4 {options or 'without a journal'}"
        self.options = options
        super().__init__(scratch, size_mib)

    def make(self):
        features = [] if self.options else ["-O", "^has_journal"]
        run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", *features, "-E", "lazy_itable_init=0,nodiscard", self.image)

    def mount(self):
        run("mount", "-t", "ext4", "-o", self.options or "defaults", self.attach_loop(), self.dir)


class Fuse2fs(System):
    """Debian's fuse2fs on a loop device."""

    name = "fuse2fs"

    def make(self):
        run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-E", "lazy_itable_init=0,nodiscard", self.image)

    def mount(self):
        run("fuse2fs", self.attach_loop(), self.dir, "-o", "fakeroot")


@contextlib.contextmanager
def io_uring_allowed():
    """Lets FUSE servers use io_uring, where the kernel can, and puts the setting back."""
    parameter = "/sys/module/fuse/parameters/enable_uring"
    if os.geteuid() != 0 or not os.path.exists(parameter) or os.environ.get("IO_URING") == "off":
        yield
        return
    before = open(parameter).read()
    open(parameter, "w").write("Y")
    try:
        yield
    finally:
        open(parameter, "w").write(before)


@contextlib.contextmanager
def systems_up(systems, say=lambda text: None):
    """Sets the systems up; takes down what came up, whatever happens."""
    with io_uring_allowed():
        yield from _systems_up(systems, say)


def _systems_up(systems, say):
    up = []
    previous = signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        for system in systems:
            say(f"setting up {system.name}")
            up.append(system)
            system.set_up()
        yield systems
    finally:
        for system in reversed(up):
            try:
                system.tear_down()
            except Exception as error:  # one system that does not come down must not keep the others up
                print(f"taking down {system.name}: {error}")
        signal.signal(signal.SIGTERM, previous)


class SqliteClient:
    """SQLite with batch atomic writes (`onejournal-bench sqlite`), a process for one database."""

    def __init__(self, system, journal_mode, rows):
        self.system = system
        command = [BENCH_PROGRAM, "sqlite", "--journal-mode", journal_mode, "--rows", str(rows)]
        path = os.path.join(system.dir, f"{journal_mode}-client.db")
        self.process = subprocess.Popen([*command, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"onejournal-bench sqlite ended on {self.system.name}")
        return line

    def transaction(self, operation, key):
        """One one-row transaction; its time in microseconds."""
        self.process.stdin.write(f"{operation} {key}\n")
        self.process.stdin.flush()
        return float(self.answer())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


JOURNAL_MODES = ("WAL", "DELETE", "TRUNCATE", "PERSIST")
OPERATIONS = ("insert", "update", "delete")


class SqliteCase:
    """The papers' table on one system: integer key, 100-character value."""

    def __init__(self, system, journal_mode, name="papers.db"):
        self.system = system
        self.count = 0
        self.path = os.path.join(system.dir, f"{journal_mode}-{name}")
        self.db = sqlite3.connect(self.path, isolation_level=None)
        self.db.execute(f"PRAGMA journal_mode={journal_mode}").fetchall()
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute("CREATE TABLE IF NOT EXISTS t(k INTEGER PRIMARY KEY, v TEXT)")

    def fill(self, row_count):
        self.db.execute("BEGIN")
        self.db.executemany("INSERT OR REPLACE INTO t VALUES(?, ?)", ((k, "x" * 100) for k in range(row_count)))
        self.db.execute("COMMIT")

    def transaction(self, operation, key):
        """One one-row transaction; its time in microseconds."""
        self.count += 1  # no two values alike: SQLite writes nothing when nothing changes
        value = f"{self.count:>8} {key:>10}".ljust(100, "abcdefghij"[key % 10])
        statement = {
            "insert": ("INSERT INTO t VALUES(?, ?)", (key, value)),
            "update": ("UPDATE t SET v = ? WHERE k = ?", (value, key)),
            "delete": ("DELETE FROM t WHERE k = ?", (key,)),
        }[operation]
        start = time.perf_counter_ns()
        self.db.execute(*statement)
        return (time.perf_counter_ns() - start) / 1000

    def close(self):
        self.db.close()


def sqlite_round(systems, journal_mode, per_operation, seed, results, warm_rows=200):
    """One round of one journal mode: the same random transactions on each system, taking turns in
    small groups. `results[(system, mode, operation)]` collects times and device counts."""
    cases = [SqliteCase(system, journal_mode, f"round{seed}.db") for system in systems]
    order = random.Random(seed)
    try:
        for case in cases:
            case.fill(warm_rows)
        group = 10
        keys = list(range(warm_rows, warm_rows + per_operation))
        for operation in OPERATIONS:
            order.shuffle(keys)
            for start in range(0, len(keys), group):
                turn = cases[:]
                order.shuffle(turn)
                for case in turn:
                    entry = results.setdefault(
                        (case.system.name, journal_mode, operation),
                        {"us": [], "flushes": 0, "writes": 0, "bytes": 0, "count": 0},
                    )
                    before = case.system.counters()
                    chunk = keys[start:start + group]
                    entry["us"] += [case.transaction(operation, key) for key in chunk]
                    after = case.system.counters()
                    for what in ("flushes", "writes", "bytes"):
                        entry[what] += after[what] - before[what]
                    entry["count"] += len(chunk)
    finally:
        for case in cases:
            case.close()
    for case in cases:
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(case.path + suffix)


def table(rows, header):
    """Rows of text as an aligned Markdown table."""
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]

    def line(cells):
        aligned = [str(c).ljust(w) if i == 0 else str(c).rjust(w) for i, (c, w) in enumerate(zip(cells, widths))]
        return "| " + " | ".join(aligned) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths)) + "|"
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def sqlite_table(results, systems):
    """µs, flushes, writes and KiB a transaction: one row a case and system."""
    rows = []
    for mode in JOURNAL_MODES:
        for operation in OPERATIONS:
            for system in systems:
                entry = results.get((system.name, mode, operation))
                if not entry:
                    continue
                count = entry["count"]
                rows.append([
                    f"{mode} {operation}", system.name, f"{statistics.median(entry['us']):.0f}",
                    f"{entry['flushes'] / count:.2f}", f"{entry['writes'] / count:.2f}",
                    f"{entry['bytes'] / 1024 / count:.1f}",
                ])
    return table(rows, ["case", "system", "µs", "flushes", "writes", "KiB"])
