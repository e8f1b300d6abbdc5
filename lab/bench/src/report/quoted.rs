//! The figures that documents quote from the results. In a document
//!
//! ```text
//! <!-- results: NAME -->
//! | a table |
//! <!-- end of results -->
//! ```
//!
//! holds the table or the number of that name, and `onejournal-bench report DIR --documents ROOT`
//! writes it. A test compares, so that no document says another figure than the report.
//!
//! `results: verdict ID: WORDS` is the measured value of the verdict of an experiment whose claim
//! has these words. The page of open gaps has one for every missed verdict.

use std::fs;
use std::path::{Path, PathBuf};

use super::document::Table;
use super::markdown;
use super::number::{shown, whole};
use super::place::Place;
use crate::error::{Error, Result};
use crate::results::{ALL_HOME_KIB, SectionFile, Verdict};

const EXT4: &str = "ext4 ordered";
const XFS: &str = "XFS";
const VOLUME: &str = "OneJournal";
const BOTH: &str = "OneJournal, SQLite extension";
const EXTENSION: &str = "ext4 ordered, SQLite extension";
const ATOMIC: &str = "OneJournal, atomic_writes";
const NVRAM: &str = "OneJournal, NVRAM";
const NVME: &str = "OneJournal, journal on nvme";
/// A cell that was not measured.
const NONE: &str = "";

/// A quoted table: for each row a place in the results, and a system for each column.
struct Quoted {
    name: &'static str,
    columns: &'static [&'static str],
    rows: &'static [Line],
}

struct Line {
    what: &'static str,
    place: Place,
    systems: &'static [&'static str],
}

const fn line(what: &'static str, place: Place, systems: &'static [&'static str]) -> Line {
    Line { what, place, systems }
}

const WAL_INSERT: Place = Place::bytes("WAL in use, random", "insert");
const WAL_UPDATE: Place = Place::bytes("WAL in use, random", "update");
const WAL_INSERT_TEXT: Place = Place::bytes("WAL in use, text", "insert");
const WAL_UPDATE_TEXT: Place = Place::bytes("WAL in use, text", "update");
const PACED: Place = Place::bytes("WAL in use, a commit every 0.25 s, random", "insert");
const PACED_UPDATE: Place = Place::bytes("WAL in use, a commit every 0.25 s, random", "update");
const WAL_GROWS: Place = Place::bytes("WAL that grows, random", "insert");
const DELETE_UPDATE: Place = Place::bytes("DELETE, random", "update");
const DELETE_UPDATE_TEXT: Place = Place::bytes("DELETE, text", "update");
const REUSED: Place = one_row("ssd311: WAL", "update");
const COMMIT_DELETE: Place = one_row("ssd311: DELETE", "update");
const IN_USE: Place = one_row("ssd311: WAL", "insert");
const THOUSAND: Place = cases("ssd311: WAL in use, 1000 op/txn", "update");
const GROWING: Place = one_row("ssd311: WAL that grows", "insert");
const EMMC_IN_USE: Place = cases("emmc: WAL in use, 1 op/txn", "insert");
const EMMC_GROWING: Place = cases("emmc: WAL, 1 op/txn", "insert");
const SSD_GROWING: Place = cases("ssd311: WAL, 1 op/txn", "insert");
const ATOMIC_EMMC: Place = Place::time("atomic-writes", "emmc: DELETE", "update");
const PGBENCH: Place = clients("16");
const ALL: &[&str] = &[EXT4, XFS, VOLUME, EXTENSION, BOTH];
const THREE_AND_BOTH: &[&str] = &[EXT4, XFS, VOLUME, BOTH];
const THREE: &[&str] = &[EXT4, XFS, VOLUME];
const FOUR: &[&str] = &[EXT4, XFS, VOLUME, EXTENSION];
const NO_EXTENSION: &[&str] = &[EXT4, XFS, VOLUME, NONE];
const MANY: Place = Place::writers("ssd311", "8 processes, 64 databases");
const ONE_ON_SSD: Place = Place::writers("ssd311", "1 writer");
const ONE_HERE: Place = Place::writers("this disk", "1 writer");
const FAST_WAL: Place = one_row("loop: WAL", "update");
const FAST_DELETE: Place = one_row("loop: DELETE", "update");
const ON_A_FAST_DISK: &[&str] = &["scratch folder", NONE, NONE, "scratch folder, SQLite extension"];
const SYNCED_APPEND: Place = Place::time("file-systems", "append and fdatasync", "4 KiB")
    .metric("bytes written for a commit", "KiB");

const fn cases(panel: &'static str, case: &'static str) -> Place {
    Place::time("fast14-cases", panel, case)
}

const fn one_row(panel: &'static str, case: &'static str) -> Place {
    Place::time("sqlite-one-row", panel, case)
}

const fn clients(count: &'static str) -> Place {
    Place::time("pgbench", "ssd840", count).metric("transactions a second", "tx/s")
}

const fn network(count: &'static str) -> Place {
    Place::time("journal-device", "cloud: PostgreSQL", count)
        .metric("transactions a second", "tx/s")
}

const fn tpcc(panel: &'static str) -> Place {
    Place::time("djfs-tpcc", panel, "all transactions").metric("tpmC", "")
}

const TABLES: &[Quoted] = &[
    Quoted {
        name: "gained",
        columns: &["kernel ext4", "XFS", "volume", "SQLite extension on ext4"],
        rows: &[
            line("Bytes written for a commit of SQLite, WAL, insert of one row", WAL_INSERT, FOUR),
            line("the same insert, values of English words", WAL_INSERT_TEXT, FOUR),
            line("the same insert, random values, a commit every 0.25 s", PACED, FOUR),
            line("WAL, update of a random row", WAL_UPDATE, FOUR),
            line("the same update, values of English words", WAL_UPDATE_TEXT, FOUR),
            line("DELETE mode, update of a random row, random values", DELETE_UPDATE, FOUR),
            line(
                "Time of a commit, DELETE mode, update of one row, SATA SSD",
                COMMIT_DELETE,
                NO_EXTENSION,
            ),
            line(
                "Time of a commit, DELETE mode with `-o atomic_writes`, eMMC",
                ATOMIC_EMMC,
                &[EXT4, XFS, ATOMIC, NONE],
            ),
            line("8 processes with 64 SQLite databases, WAL, SATA SSD", MANY, FOUR),
            line(
                "16 processes that append 200 bytes and call `fsync`, SATA SSD",
                Place::time("group-commit", "ssd311: append 200 bytes and fsync", "16")
                    .metric("syncs a second", "syncs/s"),
                NO_EXTENSION,
            ),
        ],
    },
    Quoted {
        name: "lost",
        columns: &["kernel ext4", "XFS", "volume", "SQLite extension on ext4"],
        rows: &[
            line(
                "Time of a commit of SQLite, WAL, update of one row, SATA SSD",
                REUSED,
                NO_EXTENSION,
            ),
            line("the same, on a disk whose flush takes 0.1 ms", FAST_WAL, NO_EXTENSION),
            line("DELETE mode, update of one row, on that disk", FAST_DELETE, NO_EXTENSION),
            line("8 processes with 64 SQLite databases, WAL, SATA SSD", MANY, FOUR),
            line("one writer, WAL, SATA SSD", ONE_ON_SSD, FOUR),
            line("one writer, WAL, on a disk whose flush takes 0.1 ms", ONE_HERE, ON_A_FAST_DISK),
            line(
                "1,000 updates of random rows in one commit, WAL, SATA SSD",
                THOUSAND,
                NO_EXTENSION,
            ),
            line("PostgreSQL 15 (`pgbench`), 16 clients, SATA SSD", PGBENCH, NO_EXTENSION),
            line(
                "the same: bytes written for a transaction, all brought home",
                home_of_transaction("ssd840: a fixed number, random"),
                NO_EXTENSION,
            ),
            line("PostgreSQL 15, 16 clients, network disk", network("16 clients"), NO_EXTENSION),
            line(
                "MariaDB 10.11, doublewrite buffer, redo log of 4 MB, 16 clients, SATA SSD",
                double("ssd840: MariaDB", "16 clients"),
                NO_EXTENSION,
            ),
            line(
                "Unpack an archive of 10,000 small files, disk in memory",
                Place::time("bulk", "small files", "unpack").metric("time", "s"),
                NO_EXTENSION,
            ),
            line(
                "Read a file of 512 MiB, disk in memory",
                Place::time("bulk", "large file", "read").metric("time", "s"),
                NO_EXTENSION,
            ),
            line(
                "Random writes of 4 KiB that are never synced, SATA SSD",
                Place::time("djfs-fio", "ssd840", "never").metric("writes a second", "writes/s"),
                NO_EXTENSION,
            ),
            line("Bytes of an append of 4 KiB and its `fdatasync`", SYNCED_APPEND, NO_EXTENSION),
        ],
    },
    Quoted {
        name: "one-insert",
        columns: &["kernel ext4", "XFS", "volume"],
        rows: &[
            line("WAL in use: writes to the disk", IN_USE.count("writes", ""), THREE),
            line("flushes", IN_USE.count("flushes", ""), THREE),
            line("bytes, all brought home later included", WAL_INSERT, THREE),
            line("WAL that grows: writes to the disk", GROWING.count("writes", ""), THREE),
            line("flushes", GROWING.count("flushes", ""), THREE),
            line("bytes, all brought home later included", WAL_GROWS, THREE),
        ],
    },
    Quoted {
        name: "sqlite-bytes",
        columns: &["kernel ext4", "XFS", "volume", "extension on ext4", "both"],
        rows: &[
            line("WAL, insert", WAL_INSERT, ALL),
            line("the same, a commit every 0.25 s", PACED, ALL),
            line("WAL, update of a random row", WAL_UPDATE, ALL),
            line("the same, a commit every 0.25 s", PACED_UPDATE, ALL),
            line("WAL, insert, values of English words", WAL_INSERT_TEXT, ALL),
            line("WAL, update, values of English words", WAL_UPDATE_TEXT, ALL),
            line("WAL that grows, insert", WAL_GROWS, ALL),
            line("DELETE, insert", Place::bytes("DELETE, random", "insert"), ALL),
            line("DELETE, update of a random row", DELETE_UPDATE, ALL),
            line("DELETE, update, values of English words", DELETE_UPDATE_TEXT, ALL),
        ],
    },
    Quoted {
        name: "sqlite-times",
        columns: &["kernel ext4", "XFS", "volume", "volume and extension"],
        rows: &[
            line("eMMC, WAL in use, insert of one row (1)", EMMC_IN_USE, THREE_AND_BOTH),
            line("eMMC, WAL that grows, insert of one row (1)", EMMC_GROWING, THREE_AND_BOTH),
            line(
                "eMMC, DELETE, update of one row (1)",
                cases("emmc: rollback journal, 1 op/txn", "update"),
                THREE_AND_BOTH,
            ),
            line("SSD, WAL in use, update of one row (2)", REUSED, NO_EXTENSION),
            line(
                "SSD, DELETE, update of one row (1)",
                cases("ssd311: rollback journal, 1 op/txn", "update"),
                THREE_AND_BOTH,
            ),
            line("SSD, WAL, 1,000 updates of random rows (1)", THOUSAND, THREE_AND_BOTH),
            line(
                "SSD, DELETE, 1,000 updates of random rows (1)",
                cases("ssd311: rollback journal, 1000 op/txn", "update"),
                THREE_AND_BOTH,
            ),
        ],
    },
    Quoted {
        name: "sqlite-rates",
        columns: &["kernel ext4", "XFS", "volume", "volume and extension", "extension on ext4"],
        rows: &[
            line(
                "SSD, WAL, 8 processes with 64 databases (3)",
                MANY,
                &[EXT4, XFS, VOLUME, BOTH, EXTENSION],
            ),
            line(
                "TPC-C on the model of a Samsung 840 SSD, WAL: new orders a minute (4)",
                tpcc("ssd840: WAL"),
                &[EXT4, XFS, VOLUME, BOTH, NONE],
            ),
            line(
                "the same, PERSIST (4)",
                tpcc("ssd840: rollback journal (PERSIST)"),
                &[EXT4, XFS, VOLUME, BOTH, NONE],
            ),
        ],
    },
    Quoted {
        name: "pgbench",
        columns: &["kernel ext4", "XFS", "volume", "volume, journal on a faster medium"],
        rows: &[
            line("SSD, 1 client", clients("1"), &[EXT4, XFS, VOLUME, NVRAM]),
            line("SSD, 16 clients", PGBENCH, &[EXT4, XFS, VOLUME, NVRAM]),
            line("SSD, 64 clients", clients("64"), &[EXT4, XFS, VOLUME, NVRAM]),
            line(
                "SSD, 16 clients: bytes written for a transaction, all brought home",
                home_of_transaction("ssd840: a fixed number, random"),
                &[EXT4, XFS, VOLUME, NVRAM],
            ),
            line(
                "the same, values of English words",
                home_of_transaction("ssd840: a fixed number, text"),
                &[EXT4, XFS, VOLUME, NVRAM],
            ),
            line("network disk, 1 client", network("1 client"), &[EXT4, XFS, VOLUME, NVME]),
            line("network disk, 16 clients", network("16 clients"), &[EXT4, XFS, VOLUME, NVME]),
        ],
    },
    Quoted {
        name: "sd-card-bytes",
        columns: &["kernel ext4", "XFS", "volume", "SQLite extension on ext4"],
        rows: &[
            line("WAL, insert of one row", WAL_INSERT, FOUR),
            line("the same, a commit every 0.25 s", PACED, FOUR),
            line("WAL, update of a random row", WAL_UPDATE, FOUR),
            line("the same, a commit every 0.25 s", PACED_UPDATE, FOUR),
            line("DELETE, update of a random row", DELETE_UPDATE, FOUR),
            line("WAL, insert of one row, English words", WAL_INSERT_TEXT, FOUR),
            line("WAL, update of a random row, English words", WAL_UPDATE_TEXT, FOUR),
            line("DELETE, update of a random row, English words", DELETE_UPDATE_TEXT, FOUR),
        ],
    },
    Quoted {
        name: "sd-card-times",
        columns: &["kernel ext4", "XFS", "volume", "volume and SQLite extension"],
        rows: &[
            line("WAL in use, insert of one row", EMMC_IN_USE, THREE_AND_BOTH),
            line("WAL that grows, insert of one row", EMMC_GROWING, THREE_AND_BOTH),
            line(
                "DELETE, update of one row",
                cases("emmc: rollback journal, 1 op/txn", "update"),
                THREE_AND_BOTH,
            ),
            line(
                "WAL, 1,000 updates of random rows",
                cases("emmc: WAL in use, 1000 op/txn", "update"),
                THREE_AND_BOTH,
            ),
        ],
    },
];

/// Tables of the pages of databases other than SQLite.
const OF_DATABASES: &[Quoted] = &[
    Quoted {
        name: "double-write-postgresql",
        columns: &[
            "kernel ext4",
            "XFS",
            "volume, no full page writes",
            "the same, journal on NVRAM or NVMe",
        ],
        rows: &[
            line("SATA SSD, 1 client", double("ssd840: PostgreSQL", "1 client"), SSD_NO_PAGES),
            line("the same, p99", p99("ssd840: PostgreSQL", "1 client"), SSD_NO_PAGES),
            line("SATA SSD, 16 clients", double("ssd840: PostgreSQL", "16 clients"), SSD_NO_PAGES),
            line("the same, p99", p99("ssd840: PostgreSQL", "16 clients"), SSD_NO_PAGES),
            line("network disk, 1 client", double("cloud: PostgreSQL", "1 client"), NET_NO_PAGES),
            line("the same, p99", p99("cloud: PostgreSQL", "1 client"), NET_NO_PAGES),
            line(
                "network disk, 16 clients",
                double("cloud: PostgreSQL", "16 clients"),
                NET_NO_PAGES,
            ),
            line("the same, p99", p99("cloud: PostgreSQL", "16 clients"), NET_NO_PAGES),
        ],
    },
    Quoted {
        name: "double-write-mariadb",
        columns: &[
            "kernel ext4",
            "XFS",
            "volume",
            "volume, no doublewrite",
            "journal on NVMe, no doublewrite",
            "journal on NVRAM, no doublewrite",
        ],
        rows: &[
            line("1 client", double("ssd840: MariaDB", "1 client"), NO_DOUBLEWRITE),
            line("16 clients", double("ssd840: MariaDB", "16 clients"), NO_DOUBLEWRITE),
        ],
    },
    Quoted {
        name: "etcd",
        columns: &["kernel ext4", "XFS", "volume", "volume, journal on NVRAM"],
        rows: &[
            line(
                "SSD: mean time of a sync of the log",
                etcd("ssd840", "log sync", "ms"),
                WITH_NVRAM,
            ),
            line("SSD: puts a second, 8 clients", etcd("ssd840", "puts a second", ""), WITH_NVRAM),
            line(
                "SSD: etcd's disk benchmark (99 % of syncs; below 10 ms is good)",
                etcd("ssd840", "disk benchmark, p99", "ms"),
                WITH_NVRAM,
            ),
            line(
                "hard disk: mean time of a sync of the log",
                etcd("hdd", "log sync", "ms"),
                WITH_NVRAM,
            ),
            line(
                "hard disk: puts a second, 8 clients",
                etcd("hdd", "puts a second", ""),
                WITH_NVRAM,
            ),
            line(
                "hard disk: etcd's disk benchmark",
                etcd("hdd", "disk benchmark, p99", "ms"),
                WITH_NVRAM,
            ),
            line(
                "SSD: bytes written for a put, all brought home",
                home_of_puts("ssd840"),
                WITH_NVRAM,
            ),
            line("the same, values of English words", home_of_puts("ssd840: text"), WITH_NVRAM),
            line(
                "hard disk: bytes written for a put, all brought home",
                home_of_puts("hdd"),
                WITH_NVRAM,
            ),
        ],
    },
    Quoted {
        name: "rocksdb-volume",
        columns: &["kernel ext4", "XFS", "volume", "volume, journal on NVRAM"],
        rows: &[
            line("RocksDB", put("RocksDB"), WITH_NVRAM),
            line("LevelDB", put("LevelDB"), WITH_NVRAM),
            line("flushes (RocksDB)", put("RocksDB").count("flushes", ""), WITH_NVRAM),
            line("bytes written, all brought home (RocksDB)", home_of_put("ssd311"), WITH_NVRAM),
            line("the same, values of English words", home_of_put("ssd311: text"), WITH_NVRAM),
        ],
    },
    Quoted {
        name: "leveldb-plugin",
        columns: &["without", "plug-in, log on the disk", "without (2)", "plug-in, NVRAM lane"],
        rows: &[
            line("values of 100 bytes", plugin("100 bytes"), PLUGIN),
            line("values of 1,600 bytes", plugin("1600 bytes"), PLUGIN),
        ],
    },
    Quoted {
        name: "redis",
        columns: &["kernel ext4", "XFS", "volume"],
        rows: &[
            line("1 process", appends("1"), THREE),
            line("4 processes", appends("4"), THREE),
            line("16 processes", appends("16"), THREE),
        ],
    },
    Quoted {
        name: "journal-device",
        columns: &[
            "ext4 ordered",
            "ext4, journal on the NVMe disk",
            "XFS, log on the NVMe disk",
            "volume, journal on the NVMe disk",
        ],
        rows: &[
            line(
                "SQLite, WAL in use, insert of one row",
                Place::time("journal-device", "cloud: SQLite", "insert"),
                ON_NVME,
            ),
            line(
                "etcd, sync of its log",
                on_network("cloud: etcd", "log sync").metric("log sync", "ms"),
                ON_NVME,
            ),
            line(
                "etcd, puts a second of 8 clients",
                on_network("cloud: etcd", "puts a second").metric("puts a second", ""),
                ON_NVME,
            ),
            line("PostgreSQL, `pgbench`, 1 client", network("1 client"), ON_NVME),
            line("PostgreSQL, `pgbench`, 16 clients", network("16 clients"), ON_NVME),
        ],
    },
];

/// Tables of the pages for developers.
const OF_DEVELOPERS: &[Quoted] = &[
    Quoted {
        name: "tpcc-deltas",
        columns: &["OneJournal", "`delta=xor-lzo`", "`atomic_writes`", "SQLite extension on ext4"],
        rows: &[
            line("PERSIST, pages of 4 KiB: a change", deltas(PERSIST, PAGES_4K), IN_PERSIST),
            line("all journal bytes", traffic(PERSIST, PAGES_4K), IN_PERSIST),
            line("PERSIST, pages of 1 KiB: a change", deltas(PERSIST, PAGES_1K), IN_PERSIST),
            line("all journal bytes", traffic(PERSIST, PAGES_1K), IN_PERSIST),
            line("WAL, pages of 4 KiB: a change", deltas(WAL, PAGES_4K), IN_WAL),
            line("all journal bytes", traffic(WAL, PAGES_4K), IN_WAL),
            line("WAL, pages of 1 KiB: a change", deltas(WAL, PAGES_1K), IN_WAL),
            line("all journal bytes", traffic(WAL, PAGES_1K), IN_WAL),
        ],
    },
    Quoted {
        name: "nvram-latency",
        columns: &["as in DJFS", "OneJournal delta", "whole blocks"],
        rows: &[
            line("+0 ns", latency("0"), ON_SLOW_NVRAM),
            line("+10 ns", latency("10"), ON_SLOW_NVRAM),
            line("+20 ns", latency("20"), ON_SLOW_NVRAM),
            line("+30 ns", latency("30"), ON_SLOW_NVRAM),
            line("+40 ns", latency("40"), ON_SLOW_NVRAM),
        ],
    },
];

const PERSIST: &str = "deltas: rollback journal (PERSIST)";
const WAL: &str = "deltas: WAL";
const PAGES_4K: &str = "pages of 4096 bytes";
const PAGES_1K: &str = "pages of 1024 bytes";
const XOR_LZO: &str = "OneJournal, NVRAM, delta=xor-lzo";
const IN_PERSIST: &[&str] = &[NVRAM, XOR_LZO, "OneJournal, NVRAM, atomic_writes", NONE];
const IN_WAL: &[&str] = &[NVRAM, XOR_LZO, NONE, "ext4 ordered, SQLite extension (NVRAM)"];

const fn deltas(panel: &'static str, pages: &'static str) -> Place {
    Place::time("djfs-tpcc", panel, pages).metric("delta size", "%")
}

const fn traffic(panel: &'static str, pages: &'static str) -> Place {
    Place::time("djfs-tpcc", panel, pages).metric("journal traffic", "%")
}

const ON_SLOW_NVRAM: &[&str] = &[
    "as in DJFS, 4 regions, NVRAM",
    "OneJournal delta, NVRAM",
    "NVRAM journaling as in DJFS, NVRAM",
];

/// The case has so many nanoseconds more.
const fn latency(more_ns: &'static str) -> Place {
    Place::time("djfs-nvram-latency", "TPC-C, PERSIST", more_ns).metric("normalised tpmC", "")
}

/// The bytes that a write and its `fsync` of `djfs-fio` cost the disk.
const fn home(panel: &'static str) -> Place {
    let place = Place::time("djfs-fio", panel, "fsync every 1").metric("writes a second", "");
    place.count("written KiB", "KiB")
}

const REGIONS: Place = home("ssd840: regions");
/// With a journal that is not full in the end.
const BURST: Place = home("ssd840");

const UNSAFE: &str = "ext4 ordered, no double write (unsafe)";
const NO_DOUBLE: &str = "OneJournal, no double write";
const NVRAM_NO_DOUBLE: &str = "OneJournal, NVRAM, no double write";
const NVME_NO_DOUBLE: &str = "OneJournal, journal on nvme, no double write";
const SSD_NO_PAGES: &[&str] = &[EXT4, XFS, NO_DOUBLE, NVRAM_NO_DOUBLE];
const NET_NO_PAGES: &[&str] = &[EXT4, XFS, NO_DOUBLE, NVME_NO_DOUBLE];
const NO_DOUBLEWRITE: &[&str] = &[EXT4, XFS, VOLUME, NO_DOUBLE, NVME_NO_DOUBLE, NVRAM_NO_DOUBLE];
const WITH_NVRAM: &[&str] = &[EXT4, XFS, VOLUME, NVRAM];
const PLUGIN: &[&str] = &[
    "log file (with stream, group log)",
    "stream, group log",
    "log file (with stream, NVRAM lane)",
    "stream, NVRAM lane",
];
const ON_NVME: &[&str] = &[EXT4, "ext4 ordered, journal on nvme", "XFS, log on nvme", NVME];

const fn double(panel: &'static str, case: &'static str) -> Place {
    Place::time("double-write", panel, case).metric("transactions a second", "tx/s")
}

const fn p99(panel: &'static str, case: &'static str) -> Place {
    Place::time("double-write", panel, case).metric("latency, p99", "ms")
}

/// The metric has the name of the case.
const fn etcd(panel: &'static str, case: &'static str, unit: &'static str) -> Place {
    Place::time("etcd", panel, case).metric(case, unit)
}

const fn put(database: &'static str) -> Place {
    Place::time("rocksdb-fillsync", "ssd311", database).metric("put", "µs")
}

const fn home_of_puts(panel: &'static str) -> Place {
    etcd(panel, "puts a second", "").count(ALL_HOME_KIB, "KiB")
}

const fn home_of_put(panel: &'static str) -> Place {
    let place = Place::time("rocksdb-fillsync", panel, "RocksDB").metric("put", "µs");
    place.count(ALL_HOME_KIB, "KiB")
}

const fn home_of_transaction(panel: &'static str) -> Place {
    let place = Place::time("pgbench", panel, "16 clients").metric("transactions a second", "tx/s");
    place.count(ALL_HOME_KIB, "KiB")
}

const fn plugin(value: &'static str) -> Place {
    Place::time("xlog-leveldb", "emmc", value).metric("put", "µs")
}

const fn appends(processes: &'static str) -> Place {
    Place::time("group-commit", "ssd311: append 200 bytes and fsync", processes)
        .metric("syncs a second", "syncs/s")
}

/// A server that answers requests and does nothing.
const EMPTY_SERVER: &str = "empty server";
const READ_GIB: Place = Place::time("limits", "memory: 1 GiB", "read").metric("time of 1 GiB", "s");

const fn write_and_sync(panel: &'static str) -> Place {
    Place::time("limits", panel, "overwrite").metric("time of a write and its sync", "µs")
}

const fn on_network(panel: &'static str, case: &'static str) -> Place {
    Place::time("journal-device", panel, case)
}

/// How many times better one system is than its peer.
struct Gain {
    name: &'static str,
    place: Place,
    peer: &'static str,
    ours: &'static str,
}

const fn gain(
    name: &'static str,
    place: Place,
    (peer, ours): (&'static str, &'static str),
) -> Gain {
    Gain { name, place, peer, ours }
}

const GAINS: &[Gain] = &[
    gain("gain sqlite wal emmc", EMMC_IN_USE, (EXT4, VOLUME)),
    gain("gain sqlite wal grows emmc", EMMC_GROWING, (EXT4, VOLUME)),
    gain("gain sqlite wal grows emmc xfs", EMMC_GROWING, (XFS, VOLUME)),
    gain("gain sqlite wal grows ssd", SSD_GROWING, (EXT4, VOLUME)),
    gain("gain sqlite wal grows ssd xfs", SSD_GROWING, (XFS, VOLUME)),
    gain("gain sqlite wal ssd", REUSED, (EXT4, VOLUME)),
    gain("gain atomic writes emmc", ATOMIC_EMMC, (EXT4, ATOMIC)),
    gain("gain sqlite 1000 ssd", THOUSAND, (EXT4, VOLUME)),
    gain("gain sqlite 1000 ssd extension", THOUSAND, (EXT4, BOTH)),
    gain("gain bytes insert", WAL_INSERT, (EXT4, VOLUME)),
    gain("gain bytes update", WAL_UPDATE, (EXT4, VOLUME)),
    gain("gain bytes delete", DELETE_UPDATE, (EXT4, VOLUME)),
    gain("gain bytes delete xfs", DELETE_UPDATE, (XFS, VOLUME)),
    gain("gain bytes insert extension", WAL_INSERT, (EXT4, EXTENSION)),
    gain("gain bytes update extension", WAL_UPDATE, (EXT4, EXTENSION)),
    gain("gain one fast disk", ONE_HERE, (ON_A_FAST_DISK[0], ON_A_FAST_DISK[3])),
    gain("gain one ssd", ONE_ON_SSD, (EXT4, EXTENSION)),
    gain("gain one ssd volume", ONE_ON_SSD, (EXT4, VOLUME)),
    gain("gain pgbench ssd 1", clients("1"), (EXT4, VOLUME)),
    gain("gain pgbench ssd", PGBENCH, (EXT4, VOLUME)),
    gain("gain pgbench ssd xfs", clients("16"), (XFS, VOLUME)),
    gain("gain pgbench network", network("16 clients"), (EXT4, VOLUME)),
    gain("gain pgbench network xfs", network("16 clients"), (XFS, VOLUME)),
    gain("gain pgbench nvram 1", clients("1"), (EXT4, NVRAM)),
    gain("gain pgbench nvram 64", clients("64"), (EXT4, NVRAM)),
    gain("gain checkpoints network 1", double("cloud: PostgreSQL", "1 client"), (EXT4, VOLUME)),
    gain("gain checkpoints network 16", double("cloud: PostgreSQL", "16 clients"), (EXT4, VOLUME)),
    gain("gain checkpoints disk 16", double("loop: PostgreSQL", "16 clients"), (EXT4, VOLUME)),
    gain("gain no pages ssd 1", double("ssd840: PostgreSQL", "1 client"), (EXT4, NO_DOUBLE)),
    gain("gain no pages ssd 16", double("ssd840: PostgreSQL", "16 clients"), (EXT4, NO_DOUBLE)),
    gain("gain no pages network", double("cloud: PostgreSQL", "16 clients"), (EXT4, NO_DOUBLE)),
    gain("gain no pages network xfs", double("cloud: PostgreSQL", "16 clients"), (XFS, NO_DOUBLE)),
    gain(
        "gain no pages network nvme xfs",
        double("cloud: PostgreSQL", "16 clients"),
        (XFS, NVME_NO_DOUBLE),
    ),
    gain(
        "gain no pages network nvme",
        double("cloud: PostgreSQL", "16 clients"),
        (EXT4, NVME_NO_DOUBLE),
    ),
    gain("gain no pages disk 1", double("loop: PostgreSQL", "1 client"), (EXT4, NO_DOUBLE)),
    gain("gain no pages disk 16", double("loop: PostgreSQL", "16 clients"), (EXT4, NO_DOUBLE)),
    gain("gain mariadb 1", double("ssd840: MariaDB", "1 client"), (EXT4, NO_DOUBLE)),
    gain("gain mariadb 16", double("ssd840: MariaDB", "16 clients"), (EXT4, NO_DOUBLE)),
    gain("gain mariadb unsafe 1", double("ssd840: MariaDB", "1 client"), (EXT4, UNSAFE)),
    gain("gain mariadb unsafe 16", double("ssd840: MariaDB", "16 clients"), (EXT4, UNSAFE)),
    gain("gain mariadb doublewrite", double("ssd840: MariaDB", "16 clients"), (EXT4, VOLUME)),
    gain("gain etcd ssd", etcd("ssd840", "puts a second", ""), (EXT4, VOLUME)),
    gain("gain etcd hdd", etcd("hdd", "puts a second", ""), (EXT4, VOLUME)),
    gain("gain etcd hdd xfs", etcd("hdd", "puts a second", ""), (XFS, VOLUME)),
    gain("gain etcd nvram ssd", etcd("ssd840", "puts a second", ""), (EXT4, NVRAM)),
    gain("gain etcd nvram hdd", etcd("hdd", "puts a second", ""), (EXT4, NVRAM)),
    gain("gain etcd nvram hdd xfs", etcd("hdd", "puts a second", ""), (XFS, NVRAM)),
    gain("gain rocksdb", put("RocksDB"), (EXT4, VOLUME)),
    gain("gain rocksdb xfs", put("RocksDB"), (XFS, VOLUME)),
    gain("gain rocksdb nvram", put("RocksDB"), (EXT4, NVRAM)),
    gain("gain leveldb nvram", put("LevelDB"), (EXT4, NVRAM)),
    gain("gain rocksdb nvram xfs", put("RocksDB"), (XFS, NVRAM)),
    gain("gain leveldb nvram xfs", put("LevelDB"), (XFS, NVRAM)),
    gain("gain leveldb plugin", plugin("100 bytes"), (PLUGIN[0], PLUGIN[1])),
    gain("gain read over empty server", READ_GIB, (EMPTY_SERVER, EXT4)),
    gain("gain empty server over read", READ_GIB, (VOLUME, EMPTY_SERVER)),
    gain("gain appends", appends("1"), (EXT4, VOLUME)),
    gain("gain appends xfs", appends("1"), (XFS, VOLUME)),
];

/// A value of one system.
struct One {
    name: &'static str,
    place: Place,
    system: &'static str,
    is_whole: bool,
}

const fn one(name: &'static str, place: Place, system: &'static str) -> One {
    One { name, place, system, is_whole: false }
}

const fn requests(name: &'static str, place: Place, system: &'static str) -> One {
    one(name, place.count("FUSE requests", ""), system)
}

/// How often a commit in DELETE mode does it, as a whole number.
const fn times(name: &'static str, count: &'static str, system: &'static str) -> One {
    One { is_whole: true, ..one(name, COMMIT_DELETE.count(count, ""), system) }
}

const ONE_UPDATE: Place = cases("ssd311: WAL in use, 1 op/txn", "update");
const ORDER_SYNC: &str = "OneJournal, order=sync";
const DOUBLEWRITE: Place = double("ssd840: MariaDB", "16 clients");
const STOPS: Place = DOUBLEWRITE.metric("slowest quarter second", "%");
/// Nothing is durable.
const EATMYDATA: &str = "ext4 ordered, eatmydata";
const PEAK: Place = Place::time("memory", "100-byte writes by 8 processes", "peak")
    .metric("resident memory", "MiB");
/// Two, four and eight regions, which go home when their room is needed, or at once.
const LATE: [&str; 3] = [
    "OneJournal delta, NVRAM, journal of 32 MiB, regions=2",
    "OneJournal delta, NVRAM, journal of 32 MiB, regions=4",
    "OneJournal delta, NVRAM, journal of 32 MiB, regions=8",
];
const EARLY: [&str; 3] = [
    "OneJournal delta, NVRAM, journal of 32 MiB, regions=2, checkpoint=early",
    "OneJournal delta, NVRAM, journal of 32 MiB, regions=4, checkpoint=early",
    "OneJournal delta, NVRAM, journal of 32 MiB, regions=8, checkpoint=early",
];
const VALUES: &[One] = &[
    requests("requests 1000 updates", THOUSAND, VOLUME),
    requests("requests one update", ONE_UPDATE, VOLUME),
    requests("requests 1000 updates order=sync", THOUSAND, ORDER_SYNC),
    requests("requests one update order=sync", ONE_UPDATE, ORDER_SYNC),
    requests("requests tpcc", tpcc("ssd840: WAL"), VOLUME),
    requests("requests tpcc order=sync", tpcc("ssd840: WAL"), ORDER_SYNC),
    times("picture ext4 writes", "writes", EXT4),
    times("picture ext4 flushes", "flushes", EXT4),
    one("picture ext4 bytes", DELETE_UPDATE, EXT4),
    one("picture ext4 time", COMMIT_DELETE, EXT4),
    times("picture volume writes", "writes", VOLUME),
    times("picture volume flushes", "flushes", VOLUME),
    one("picture volume bytes", DELETE_UPDATE, VOLUME),
    one("picture volume time", COMMIT_DELETE, VOLUME),
    one("picture xfs bytes", DELETE_UPDATE, XFS),
    one("picture xfs time", COMMIT_DELETE, XFS),
    one("picture ext4 time with a WAL", REUSED, EXT4),
    one("picture volume time with a WAL", REUSED, VOLUME),
    one("fast disk wal ext4", FAST_WAL, EXT4),
    one("fast disk wal volume", FAST_WAL, VOLUME),
    one("fast disk delete ext4", FAST_DELETE, EXT4),
    one("fast disk delete volume", FAST_DELETE, VOLUME),
    one("picture ext4 bytes with a WAL", WAL_INSERT, EXT4),
    one("picture volume bytes with a WAL", WAL_INSERT, VOLUME),
    one("requests time ssd", write_and_sync("ssd311: 4 KiB and fdatasync"), EMPTY_SERVER),
    one("requests time disk", write_and_sync("loop: 4 KiB and fdatasync"), EMPTY_SERVER),
    one("doublewrite ext4 bytes", DOUBLEWRITE.count("written KiB", "KiB"), EXT4),
    one("doublewrite volume bytes", DOUBLEWRITE.count("written KiB", "KiB"), VOLUME),
    one("stops ext4", STOPS, EXT4),
    one("stops volume", STOPS, VOLUME),
    one("memory peak", PEAK, VOLUME),
    one("puts nvme", on_network("cloud: etcd", "puts a second").metric("puts a second", ""), NVME),
    one("puts nvram", etcd("ssd840", "puts a second", ""), NVRAM),
    one("pgbench nvme 1", network("1 client"), NVME),
    one("pgbench nvme 16", network("16 clients"), NVME),
    one("pgbench unsafe 1", clients("1"), EATMYDATA),
    one("pgbench unsafe 16", clients("16"), EATMYDATA),
    one("home burst early", BURST, ON_SLOW_NVRAM[0]),
    one("home 2 late", REGIONS, LATE[0]),
    one("home 4 late", REGIONS, LATE[1]),
    one("home 8 late", REGIONS, LATE[2]),
    one("home 2 early", REGIONS, EARLY[0]),
    one("home 4 early", REGIONS, EARLY[1]),
    one("home 8 early", REGIONS, EARLY[2]),
];

const BEGIN: &str = "<!-- results: ";
const END: &str = "<!-- end of results -->";
/// The beginning of a verdict's name.
const VERDICT: &str = "verdict ";

/// Writes all quoted figures of the documents below `root` again.
pub fn write(root: &Path, files: &[SectionFile]) -> Result<()> {
    for path in documents(root)? {
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        let new = renewed(&text, files)
            .map_err(|text| Error::other(format!("{}: {text}", path.display())))?;
        if new != text {
            fs::write(&path, new).map_err(Error::at(&path))?;
        }
    }
    Ok(())
}

/// README, and the pages and pictures in `docs`, but not the report.
fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut all = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::at(&folder))?.flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("results") {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "md" || extension == "svg")
            {
                all.push(path);
            }
        }
    }
    all.sort();
    Ok(all)
}

/// The text with its quoted figures as the results have them.
fn renewed(text: &str, files: &[SectionFile]) -> std::result::Result<String, String> {
    let mut new = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(" -->").ok_or("a mark without an end")?;
        let (old, after) = after.split_once(END).ok_or(format!("{name}: no {END}"))?;
        let figures = figures(name, files).ok_or(format!("{name}: not among the results"))?;
        let lines = if old.starts_with('\n') { "\n" } else { "" };
        new.push_str(&format!("{before}{BEGIN}{name} -->{lines}{figures}{END}"));
        rest = after;
    }
    new.push_str(rest);
    Ok(new)
}

fn tables() -> impl Iterator<Item = &'static Quoted> {
    TABLES.iter().chain(OF_DATABASES).chain(OF_DEVELOPERS)
}

/// The table or number of this name.
fn figures(name: &str, files: &[SectionFile]) -> Option<String> {
    if let Some(table) = tables().find(|table| table.name == name) {
        return Some(markdown::of_table(&table.draw(files)?));
    }
    if let Some(verdict) = name.strip_prefix(VERDICT) {
        return Some(verdict_of(verdict, files)?.measured.clone());
    }
    if let Some(one) = VALUES.iter().find(|one| one.name == name) {
        let value = one.place.value(files, one.system)?;
        return Some(if one.is_whole { whole(value.round() as u64) } else { shown(value) });
    }
    let gain = GAINS.iter().find(|gain| gain.name == name)?;
    let value = gain.place.gain(files, gain.peer, gain.ours)?;
    let digits = if value < 1.0 { 2 } else { usize::from(value < 10.0) };
    Some(format!("{value:.digits$}"))
}

/// The verdict of `ID: WORDS`; `None` if it is not exactly one.
fn verdict_of<'a>(name: &str, files: &'a [SectionFile]) -> Option<&'a Verdict> {
    let (id, words) = name.split_once(": ")?;
    let section = &files.iter().find(|file| file.section.id == id)?.section;
    let mut found = section.verdicts.iter().filter(|verdict| verdict.claim.contains(words));
    found.next().filter(|_| found.next().is_none())
}

impl Quoted {
    fn draw(&self, files: &[SectionFile]) -> Option<Table> {
        let columns = self.columns.iter().map(|column| (*column).to_owned());
        let header = std::iter::once(String::new()).chain(columns).collect();
        let rows = self.rows.iter().map(|line| line.cells(files)).collect::<Option<Vec<_>>>()?;
        Some(Table { header, rows, left_columns: 1 })
    }
}

impl Line {
    /// The best value is in bold.
    fn cells(&self, files: &[SectionFile]) -> Option<Vec<String>> {
        let value = |system: &&str| match *system {
            NONE => Some(None),
            system => self.place.value(files, system).map(Some),
        };
        let values = self.systems.iter().map(value).collect::<Option<Vec<_>>>()?;
        let is_lower_good = self.place.is_lower_good(files, self.systems.first()?)?;
        let order = |left: &f64, right: &f64| match is_lower_good {
            true => right.total_cmp(left),
            false => left.total_cmp(right),
        };
        let best = values.iter().flatten().copied().max_by(order)?;
        let cell = |value: &Option<f64>| match value {
            None => String::new(),
            Some(value) => {
                let text = format!("{} {}", shown(*value), self.place.unit);
                if *value == best { format!("**{}**", text.trim()) } else { text.trim().to_owned() }
            }
        };
        Some(std::iter::once(self.what.to_owned()).chain(values.iter().map(cell)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::EXPERIMENTS;
    use crate::results::{self, Outcome};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn stored() -> Vec<SectionFile> {
        let ids = EXPERIMENTS.iter().map(|experiment| experiment.id);
        results::read_all(&root().join("docs/results"), ids).expect("the stored results")
    }

    #[test]
    fn documents_say_what_the_results_say() {
        let files = stored();
        let mut quoted = 0;
        for path in documents(&root()).expect("documents") {
            let text = fs::read_to_string(&path).expect("a document");
            quoted += text.matches(BEGIN).count();
            let new =
                renewed(&text, &files).unwrap_or_else(|text| panic!("{}: {text}", path.display()));
            let again = "run: onejournal-bench report docs/results --documents .";
            assert!(new == text, "{}: {again}", path.display());
        }
        assert!(quoted >= tables().count(), "{quoted} quotations");
    }

    #[test]
    fn open_gaps_have_every_missed_verdict_and_no_other() {
        let files = stored();
        let page = root().join("docs/developers/benchmarks.md");
        let text = fs::read_to_string(page).expect("the page");
        let mark = format!("{BEGIN}{VERDICT}");
        let marks = text.split(&mark).skip(1);
        let names: Vec<&str> = marks.filter_map(|mark| mark.split(" -->").next()).collect();
        let mut quoted: Vec<*const Verdict> = Vec::new();
        for name in names {
            let verdict = verdict_of(name, &files).unwrap_or_else(|| panic!("{name}: not one"));
            assert_eq!(verdict.outcome, Outcome::Missed, "{name}: it is no gap any more");
            quoted.push(verdict);
        }
        let missing = files.iter().flat_map(|file| {
            let missed = |verdict: &&Verdict| verdict.outcome == Outcome::Missed;
            let here = file.section.verdicts.iter().filter(missed);
            here.map(move |verdict| (&file.section.id, verdict))
        });
        let missing: Vec<String> = missing
            .filter(|(_, verdict)| !quoted.contains(&std::ptr::from_ref(*verdict)))
            .map(|(id, verdict)| format!("{VERDICT}{id}: {}", verdict.claim))
            .collect();
        assert!(missing.is_empty(), "no row with a cause: {missing:#?}");
    }

    /// One of our systems is better than every peer in README's first table, and worse than the
    /// best of them in its second.
    #[test]
    fn gains_are_gains_and_losses_are_losses() {
        let files = stored();
        for (name, is_gain) in [("gained", true), ("lost", false)] {
            let table = tables().find(|table| table.name == name).expect("the table");
            for line in table.rows {
                let (peers, ours) = line.systems.split_at(2);
                // Over the best of the peers.
                let gain = |ours: &&str| {
                    let over = |peer: &&str| line.place.gain(&files, peer, ours);
                    peers.iter().filter_map(over).min_by(f64::total_cmp)
                };
                let mut gains = ours.iter().filter_map(gain);
                let holds = gains.any(|gain| if is_gain { gain > 1.0 } else { gain < 1.0 });
                assert!(holds, "{name}: {}", line.what);
            }
        }
    }

    #[test]
    fn every_quotation_is_in_a_document() {
        let documents = documents(&root()).expect("documents");
        let texts: Vec<String> =
            documents.iter().map(|path| fs::read_to_string(path).expect("a document")).collect();
        let names = tables().map(|table| table.name).chain(GAINS.iter().map(|gain| gain.name));
        let names = names.chain(VALUES.iter().map(|one| one.name));
        for name in names {
            let mark = format!("{BEGIN}{name} -->");
            assert!(texts.iter().any(|text| text.contains(&mark)), "{name}");
        }
    }

    #[test]
    fn another_figure_or_name_is_found() {
        let files = stored();
        let gain = GAINS[0].name;
        let text = format!("a {BEGIN}{gain} -->0.0{END} b");
        let new = renewed(&text, &files).expect("a name");
        assert!(new.starts_with("a ") && new.ends_with(" b") && !new.contains("-->0.0<"), "{new}");
        assert_eq!(renewed(&new, &files).as_ref(), Ok(&new));
        assert!(renewed(&format!("{BEGIN}nothing -->{END}"), &files).is_err());
        assert!(renewed(&format!("{BEGIN}{gain} -->1"), &files).is_err());
    }
}
