//! What SQLite does for a one-row transaction, call by call, in each of its journal modes, with
//! `synchronous=FULL`: rollback journal (DELETE, TRUNCATE, PERSIST) and write-ahead log.

use super::script::Script;
use crate::op::{Op, at};

const PAGE: u64 = 4096;

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<Op> {
    let mut script = Script::new(seed, 2, op_count);
    script.create("app.db");
    script.write("app.db", 0, 4 * PAGE as usize);
    script.fdatasync("app.db");
    let first_mode = script.rng.usize(..4);
    let mut transaction = 0;
    while !script.is_full() {
        match (first_mode + transaction / 3) % 4 {
            0 => rollback(&mut script, End::Delete),
            1 => rollback(&mut script, End::Truncate),
            2 => rollback(&mut script, End::Persist),
            _ => wal(&mut script, transaction),
        }
        transaction += 1;
    }
    script.ops
}

/// How a rollback journal ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Delete,
    Truncate,
    Persist,
}

fn rollback(script: &mut Script, end: End) {
    let journal = "app.db-journal";
    let page = 1 + script.rng.u64(..6);
    script.create(journal);
    script.write(journal, 0, 512);
    for index in 0..2 {
        // Page number, the page as it was, checksum.
        let start = 512 + index * (PAGE + 8);
        script.write(journal, start, 4);
        script.write(journal, start + 4, PAGE as usize);
        script.write(journal, start + 4 + PAGE, 4);
    }
    script.fdatasync(journal);
    // The header again, now with the number of pages.
    script.write(journal, 0, 12);
    script.fdatasync(journal);
    script.push(Op::Fsync { target: at(""), data_only: false });
    script.write("app.db", 0, PAGE as usize);
    script.write("app.db", page * PAGE, PAGE as usize);
    script.fdatasync("app.db");
    match end {
        End::Delete => {
            script.unlink(journal);
            script.push(Op::Fsync { target: at(""), data_only: false });
        }
        End::Truncate => {
            script.truncate(journal, 0);
            script.fdatasync(journal);
        }
        End::Persist => {
            script.write(journal, 0, 28);
            script.fdatasync(journal);
        }
    }
}

fn wal(script: &mut Script, transaction: usize) {
    let wal = "app.db-wal";
    script.create(wal);
    let frame = PAGE + 24;
    let place = transaction as u64 % 3;
    if place == 0 {
        script.write(wal, 0, 32);
        script.fdatasync(wal);
    }
    script.write(wal, 32 + place * frame, 24);
    script.write(wal, 32 + place * frame + 24, PAGE as usize);
    script.fdatasync(wal);
    if place == 2 {
        // A checkpoint of the WAL: its pages go to the database file.
        for _ in 0..3 {
            let page = script.rng.u64(..8);
            script.write("app.db", page * PAGE, PAGE as usize);
        }
        script.fdatasync("app.db");
    }
}
