//! What a report says in words: the names of programs and commits, and the reasons for a verdict.

use probe::{CommitKind, Obstacle, Program, Reason};

/// The name of a program.
pub fn program(program: Program) -> &'static str {
    match program {
        Program::Etcd => "etcd",
        Program::Postgresql => "PostgreSQL",
        Program::Sqlite => "SQLite",
    }
}

/// What is committed.
pub fn commit(kind: CommitKind) -> &'static str {
    match kind {
        CommitKind::Overwrite => "4 KiB overwritten",
        CommitKind::Append => "4 KiB appended",
        CommitKind::SqliteRollback => "SQLite, DELETE",
    }
}

/// Why a disk is unsuitable.
pub fn obstacle(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::NothingDurable => "nothing is durable here",
        Obstacle::FlushesSuspicious => "flushes look ignored",
        Obstacle::FlushesCostNothing => {
            "flushes cost next to nothing, and whether they are honoured is not known"
        }
        Obstacle::TooSlow => "too slow",
    }
}

/// Why flushes are judged as they are.
pub fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::InMemory => "The probe measured memory. Nothing in it survives a power cut.",
        Reason::NoVolatileCache => {
            "The kernel knows the disk as one without a volatile cache (write through), so \
             there is nothing to flush."
        }
        Reason::NoCacheReported => {
            "The kernel assumes that the disk has no volatile cache (write through) and sends \
             it no flush. Check the data sheet. If it promises that nothing is lost in a power \
             cut, give --protected-cache."
        }
        Reason::CostsMoreThanAWrite => "A flush costs clearly more than a write.",
        Reason::ProtectedCache => {
            "You say that the cache of the disk survives a power cut (--protected-cache)."
        }
        Reason::NotSent => {
            "The kernel sent next to none of the flushes that fdatasync asked for. The data \
             are in the volatile cache of the disk (write back), or in memory behind a loop \
             device. Look for the mount option nobarrier."
        }
        Reason::CostsNextToNothing => {
            "The disk has a volatile cache (write back), and a flush costs next to nothing. \
             Either its cache survives a power cut, or the disk (or what emulates it) ignores \
             flushes. If the data sheet promises power-loss protection, give --protected-cache."
        }
        Reason::CacheUnknown => {
            "The storage below the file system does not say whether it has a volatile cache."
        }
        Reason::CostUnclear => {
            "A flush costs neither clearly more than a write nor next to nothing."
        }
        Reason::CostUnknown => {
            "The cost of a flush alone cannot be measured: writes do not bypass the page cache \
             here, or fdatasync does more than flush on this file system."
        }
    }
}
