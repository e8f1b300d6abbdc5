//! A WAL that begins again while a checkpoint of another connection runs ("the WAL-reset bug"):
//! SQLite alone loses rows then, and with the extension on either side it does not.

#![allow(missing_docs)]

use crate::common::race::{Outcome, Sqlite, race};
use crate::common::{Place, library, load};
use onejournal_sqlite::Fault;
use onejournal_testing::{Need, own_process, skip};

/// Who opens a connection.
#[derive(Clone, Copy, Debug)]
enum Program {
    Plain,
    Extension,
}

/// Runs the race, in a new place, between the two programs.
fn between(sqlite: &Sqlite, writer: Program, checkpoint: Program) -> Outcome {
    let place = Place::new(false);
    let uri = |program| match program {
        Program::Plain => format!("file:{}?vfs=stops", place.path("a.db").display()),
        Program::Extension => place.uri("a.db", ""),
    };
    let [writer, checkpoint] = [writer, checkpoint].map(|program| sqlite.open(&uri(program)));
    race(&place.path("a.db"), writer, checkpoint, || sqlite.open(&uri(Program::Plain)))
}

/// What the race does without the extension.
fn assert_as_released(sqlite: &Sqlite) {
    let found = between(sqlite, Program::Plain, Program::Plain);
    assert!(found.has_restarted, "{found:?}");
    assert_eq!(found.is_good(), !sqlite.has_the_bug(), "{found:?}");
}

/// What it does if one of the two has the extension, or both.
fn assert_safe(sqlite: &Sqlite) {
    use Program::{Extension, Plain};
    for (writer, checkpoint, restarts) in
        [(Extension, Plain, false), (Plain, Extension, true), (Extension, Extension, false)]
    {
        let found = between(sqlite, writer, checkpoint);
        assert!(found.is_good(), "{writer:?} {checkpoint:?} {found:?}");
        assert_eq!(found.has_restarted, restarts, "{writer:?} {checkpoint:?} {found:?}");
    }
}

#[test]
fn bundled_sqlite_loses_rows_only_without_the_extension() {
    own_process!();
    use Program::{Extension, Plain};
    let sqlite = Sqlite::bundled();
    assert!(sqlite.has_the_bug(), "then the canaries below find nothing");
    sqlite.stop_checkpoints();
    load();
    assert_as_released(&sqlite);
    assert_safe(&sqlite);
    // Each rule of the extension is needed; where both have it, one is enough.
    for (writer, checkpoint, fault, is_good) in [
        (Extension, Plain, Fault::RestartsDuringCheckpoint, false),
        (Plain, Extension, Fault::CopiesAfterRestart, false),
        (Extension, Extension, Fault::RestartsDuringCheckpoint, true),
        (Extension, Extension, Fault::CopiesAfterRestart, true),
    ] {
        let found = fault::with(fault, || between(&sqlite, writer, checkpoint));
        assert_eq!(found.is_good(), is_good, "{writer:?} {checkpoint:?} {fault:?} {found:?}");
    }
}

#[test]
fn sqlite_of_the_system_loses_rows_only_without_the_extension() {
    own_process!();
    let Some(sqlite) = Sqlite::of_system() else {
        return skip(Need::Program, "needs libsqlite3.so.0");
    };
    sqlite.stop_checkpoints();
    sqlite.load_extension(&library());
    assert_as_released(&sqlite);
    assert_safe(&sqlite);
}
