//! The states of a connection's database in a rollback mode, and what SQLite's calls make of them,
//! without I/O.
//!
//! Three things change: what SQLite is told ([`Promise`]), what was written to the file
//! ([`Written`]), and where the rollback journal is ([`Journal`]). A test walks every state and
//! every call.

use super::held::HeldPages;

/// What SQLite is told of the file. It does not change during a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Nothing, because SQLite does not sync: the connection was set so, or SQLite was built so,
    /// and no sync was seen since (rule 8).
    NotSyncing,
    /// Nothing.
    Nothing,
    /// `BATCH_ATOMIC`.
    Batches,
}

/// What was written to the file since the lock for writing was taken, or since the last commit.
#[derive(Debug, Default)]
pub enum Written {
    /// Nothing.
    #[default]
    Nothing,
    /// Nothing, between *begin* and *commit*. These pages are held.
    Held(HeldPages),
    /// The pages of a transaction whose record is durable. SQLite may cut the file to this size.
    Committed { bytes: u64, sync: CommitSync },
    /// Something that is not part of a batch. The log was released before, so it holds nothing that
    /// contradicts it (rule 3).
    Direct,
    /// A part of a transaction that is in the log. The connection may still have the lock.
    Part,
}

/// The sync that SQLite makes after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitSync {
    /// It is still to come. The record is durable, so it has nothing to do.
    Expected,
    /// It has come.
    Seen,
}

/// Where SQLite has the rollback journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Journal {
    /// Nowhere, or in a file that it syncs.
    Synced,
    /// In memory, because the file said `BATCH_ATOMIC`. The journal may be that of an earlier
    /// transaction, which was rolled back while the lock was kept. The VFS is not told of that.
    InMemory,
    /// In memory. A batch failed, so SQLite will write the journal to a file, and not sync it.
    Spilling,
    /// In a file that SQLite does not sync (rule 7).
    Unsynced,
}

/// What becomes of *begin*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Pages are held from now on.
    Begun,
    /// The file was written already, which happens with `journal_mode=MEMORY`. SQLite goes on with
    /// a journal.
    Refused,
    /// A part of another transaction has to be completed first.
    Fails,
    /// SQLite was not told of batches.
    Unknown,
}

/// The states of a connection's database.
#[derive(Debug)]
pub struct States {
    promise: Promise,
    written: Written,
    journal: Journal,
}

impl States {
    /// The states of a new connection.
    pub fn new(is_syncing: bool) -> States {
        let promise = if is_syncing { Promise::Nothing } else { Promise::NotSyncing };
        States { promise, written: Written::Nothing, journal: Journal::Synced }
    }

    /// What SQLite is told.
    pub fn promise(&self) -> Promise {
        self.promise
    }

    /// The pages that are held, between *begin* and *commit*.
    pub fn held(&mut self) -> Option<&mut HeldPages> {
        match &mut self.written {
            Written::Held(held) => Some(held),
            _ => None,
        }
    }

    /// Whether the file has a part of a transaction, and so cannot be read.
    pub fn is_in_part(&self) -> bool {
        matches!(self.written, Written::Part)
    }

    /// Whether the file has this size according to the last record.
    pub fn has_committed(&self, size: u64) -> bool {
        matches!(self.written, Written::Committed { bytes, .. } if bytes == size)
    }

    /// Whether SQLite writes its journal without a sync (rule 7).
    pub fn is_journal_unsynced(&self) -> bool {
        matches!(self.journal, Journal::Spilling | Journal::Unsynced)
    }

    /// The shared lock was taken, and the file has whole transactions.
    pub fn entered(&mut self) {
        if let Written::Part = self.written {
            self.written = Written::Nothing;
        }
    }

    /// The lock for writing was taken.
    pub fn begin_transaction(&mut self) {
        if let Written::Direct = self.written {
            self.written = Written::Nothing;
        }
    }

    /// A transaction was committed. With `locking_mode=EXCLUSIVE` the next one takes no lock.
    pub fn end_transaction(&mut self) {
        self.begin_transaction();
        self.set_in_memory(false);
    }

    /// The lock for writing was released.
    pub fn unlocked(&mut self) {
        if let Written::Held(_) | Written::Committed { .. } = self.written {
            self.written = Written::Nothing;
        }
        self.journal = Journal::Synced;
    }

    /// What SQLite is told in the transaction that begins.
    pub fn offer(&mut self, has_log: bool) {
        self.promise = match (self.promise, has_log) {
            (Promise::NotSyncing, _) => Promise::NotSyncing,
            (Promise::Nothing | Promise::Batches, true) => Promise::Batches,
            (Promise::Nothing | Promise::Batches, false) => Promise::Nothing,
        };
    }

    /// The connection is set not to sync. `false`: that is refused, because SQLite has a journal in
    /// memory and would go on with it (rule 8).
    #[must_use]
    pub fn stop_syncing(&mut self) -> bool {
        let may = matches!(self.journal, Journal::Synced | Journal::Unsynced);
        if may {
            self.promise = Promise::NotSyncing;
        }
        may
    }

    /// A sync of the file. `true`: it belongs to a commit whose record is durable, so there is
    /// nothing to do.
    #[must_use]
    pub fn sync(&mut self) -> bool {
        if let Written::Committed { sync: sync @ CommitSync::Expected, .. } = &mut self.written {
            *sync = CommitSync::Seen;
            return true;
        }
        if self.promise == Promise::NotSyncing {
            self.promise = Promise::Nothing;
        }
        false
    }

    /// *Begin*.
    pub fn begin_batch(&mut self) -> Begin {
        match (self.promise, &self.written) {
            (Promise::NotSyncing | Promise::Nothing, _) => Begin::Unknown,
            (Promise::Batches, Written::Part) => Begin::Fails,
            (Promise::Batches, Written::Direct) => {
                self.set_unsynced(true);
                Begin::Refused
            }
            (Promise::Batches, Written::Nothing | Written::Held(_) | Written::Committed { .. }) => {
                self.written = Written::Held(HeldPages::default());
                Begin::Begun
            }
        }
    }

    /// *Commit*: takes the held pages. `None`: there was no *begin*.
    pub fn take_held(&mut self) -> Option<HeldPages> {
        match std::mem::take(&mut self.written) {
            Written::Held(held) => Some(held),
            other => {
                self.written = other;
                None
            }
        }
    }

    /// The held pages were committed. The database has `bytes`.
    pub fn committed(&mut self, bytes: u64) {
        self.written = Written::Committed { bytes, sync: CommitSync::Expected };
    }

    /// The record of the held pages is durable, and some of them were written.
    pub fn failed_in_part(&mut self) {
        self.written = Written::Part;
    }

    /// The batch failed, and SQLite drops it. `false`: SQLite was not told of batches.
    #[must_use]
    pub fn roll_back_batch(&mut self) -> bool {
        if self.promise != Promise::Batches {
            return false;
        }
        let _ = self.take_held();
        self.set_unsynced(true);
        true
    }

    /// Something that is not part of a batch will be written. Returns whether the log has to be
    /// released first. An error: a part of a transaction has to be completed before.
    pub fn begin_direct(&mut self) -> Result<bool, ()> {
        match self.written {
            Written::Part => Err(()),
            Written::Direct => Ok(false),
            Written::Nothing | Written::Held(_) => Ok(true),
            Written::Committed { .. } => {
                self.written = Written::Nothing;
                Ok(true)
            }
        }
    }

    /// The log was released.
    pub fn released(&mut self) {
        self.written = Written::Direct;
    }

    /// SQLite looks where it may open its journal. It has asked for the promise before.
    pub fn place_journal(&mut self) {
        self.set_in_memory(self.promise == Promise::Batches);
    }

    /// SQLite opened its journal as a file.
    pub fn open_journal(&mut self) {
        self.set_in_memory(false);
    }

    /// The extension synced the journal.
    pub fn journal_synced(&mut self) {
        self.set_unsynced(false);
    }

    fn set_in_memory(&mut self, is_in_memory: bool) {
        self.journal = match (is_in_memory, self.is_journal_unsynced()) {
            (false, false) => Journal::Synced,
            (true, false) => Journal::InMemory,
            (true, true) => Journal::Spilling,
            (false, true) => Journal::Unsynced,
        };
    }

    fn set_unsynced(&mut self, is_unsynced: bool) {
        let is_in_memory = matches!(self.journal, Journal::InMemory | Journal::Spilling);
        self.journal = if is_unsynced { Journal::Unsynced } else { Journal::Synced };
        self.set_in_memory(is_in_memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISES: [Promise; 3] = [Promise::NotSyncing, Promise::Nothing, Promise::Batches];
    const JOURNALS: [Journal; 4] =
        [Journal::Synced, Journal::InMemory, Journal::Spilling, Journal::Unsynced];

    /// What was written, and how the table names it.
    fn written() -> [Written; 6] {
        let committed = |sync| Written::Committed { bytes: 7, sync };
        [
            Written::Nothing,
            Written::Held(HeldPages::default()),
            committed(CommitSync::Expected),
            committed(CommitSync::Seen),
            Written::Direct,
            Written::Part,
        ]
    }

    fn name(written: &Written) -> &'static str {
        match written {
            Written::Nothing => "nothing",
            Written::Held(_) => "held",
            Written::Committed { sync: CommitSync::Expected, .. } => "expected",
            Written::Committed { sync: CommitSync::Seen, .. } => "seen",
            Written::Direct => "direct",
            Written::Part => "part",
        }
    }

    /// A call, and what it makes of each state. `-`: it stays. The answer is the same for all
    /// states, or is looked at in another test.
    struct Row {
        call: fn(&mut States),
        promise: [&'static str; 3],
        written: [&'static str; 6],
        journal: [&'static str; 4],
    }

    const STAYS_3: [&str; 3] = ["-"; 3];
    const STAYS_4: [&str; 4] = ["-"; 4];
    const STAYS_6: [&str; 6] = ["-"; 6];

    /// Columns: `NotSyncing Nothing Batches`, `nothing held expected seen direct part`, and `Synced
    /// InMemory Spilling Unsynced`.
    fn table() -> Vec<Row> {
        let row = |call, promise, written, journal| Row { call, promise, written, journal };
        let unlocked = ["-", "nothing", "nothing", "nothing", "-", "-"];
        let in_file = ["-", "Synced", "Unsynced", "-"];
        vec![
            row(States::entered, STAYS_3, ["-", "-", "-", "-", "-", "nothing"], STAYS_4),
            row(States::begin_transaction, STAYS_3, ["-", "-", "-", "-", "nothing", "-"], STAYS_4),
            row(States::end_transaction, STAYS_3, ["-", "-", "-", "-", "nothing", "-"], in_file),
            row(States::unlocked, STAYS_3, unlocked, ["-", "Synced", "Synced", "Synced"]),
            row(|it| it.offer(true), ["-", "Batches", "-"], STAYS_6, STAYS_4),
            row(|it| it.offer(false), ["-", "-", "Nothing"], STAYS_6, STAYS_4),
            row(|it| drop(it.take_held()), STAYS_3, ["-", "nothing", "-", "-", "-", "-"], STAYS_4),
            row(|it| it.committed(7), STAYS_3, ["expected"; 6], STAYS_4),
            row(States::failed_in_part, STAYS_3, ["part"; 6], STAYS_4),
            row(begin_direct, STAYS_3, DIRECT, STAYS_4),
            row(States::released, STAYS_3, ["direct"; 6], STAYS_4),
            row(States::open_journal, STAYS_3, STAYS_6, in_file),
            row(States::journal_synced, STAYS_3, STAYS_6, ["-", "-", "InMemory", "Synced"]),
        ]
    }

    /// Its answer is in another test.
    fn begin_direct(states: &mut States) {
        let _ = states.begin_direct();
    }

    const DIRECT: [&str; 6] = ["-", "-", "nothing", "nothing", "-", "-"];

    /// Every state, with its place in the columns.
    fn each(mut f: impl FnMut(States, [usize; 3])) {
        for (p, promise) in PROMISES.into_iter().enumerate() {
            for (j, journal) in JOURNALS.into_iter().enumerate() {
                for (w, written) in written().into_iter().enumerate() {
                    f(States { promise, written, journal }, [p, w, j]);
                }
            }
        }
    }

    fn names(states: &States) -> [String; 3] {
        let (promise, journal) = (states.promise, states.journal);
        [format!("{promise:?}"), name(&states.written).into(), format!("{journal:?}")]
    }

    #[test]
    fn each_call_changes_each_state_as_the_table_says() {
        for (number, row) in table().iter().enumerate() {
            each(|mut states, [p, w, j]| {
                let before = names(&states);
                (row.call)(&mut states);
                let wanted = [row.promise[p], row.written[w], row.journal[j]];
                for ((wanted, before), found) in wanted.iter().zip(&before).zip(names(&states)) {
                    let wanted = if *wanted == "-" { before } else { *wanted };
                    assert_eq!(found, wanted, "row {number} of {before:?}");
                }
            });
        }
    }

    /// Calls whose effect depends on several of the states.
    #[test]
    fn each_call_is_answered_in_each_state() {
        use Journal::{InMemory, Spilling, Synced, Unsynced};
        each(|mut states, [_, w, _]| {
            let (promise, journal) = (states.promise, states.journal);
            let begun = states.begin_batch();
            let (answer, after) = match (promise, w) {
                (Promise::NotSyncing | Promise::Nothing, _) => (Begin::Unknown, STAYS_6[w]),
                (Promise::Batches, 4) => (Begin::Refused, "direct"),
                (Promise::Batches, 5) => (Begin::Fails, "part"),
                (Promise::Batches, _) => (Begin::Begun, "held"),
            };
            let after = if after == "-" { name(&written()[w]) } else { after };
            assert_eq!((begun, name(&states.written)), (answer, after));
            let unsynced = if matches!(journal, InMemory | Spilling) { Spilling } else { Unsynced };
            let is_refused = begun == Begin::Refused;
            assert_eq!(states.journal, if is_refused { unsynced } else { journal });
            assert_eq!(states.promise, promise);
        });
        each(|mut states, [_, w, _]| {
            let (promise, journal) = (states.promise, states.journal);
            let is_known = states.roll_back_batch();
            assert_eq!(is_known, promise == Promise::Batches);
            let unsynced = if matches!(journal, InMemory | Spilling) { Spilling } else { Unsynced };
            assert_eq!(states.journal, if is_known { unsynced } else { journal });
            let after = if is_known && w == 1 { "nothing" } else { name(&written()[w]) };
            assert_eq!((states.promise, name(&states.written)), (promise, after));
        });
        each(|mut states, [_, w, _]| {
            let (promise, journal) = (states.promise, states.journal);
            let is_done = states.sync();
            assert_eq!(is_done, w == 2, "only the sync of a commit");
            let seen = if is_done { "seen" } else { name(&written()[w]) };
            let is_first = !is_done && promise == Promise::NotSyncing;
            let after = if is_first { Promise::Nothing } else { promise };
            assert_eq!((states.promise, states.journal), (after, journal));
            assert_eq!(name(&states.written), seen);
        });
        each(|mut states, [_, w, _]| {
            let (promise, journal) = (states.promise, states.journal);
            let may = states.stop_syncing();
            assert_eq!(may, matches!(journal, Synced | Unsynced));
            let after = if may { Promise::NotSyncing } else { promise };
            assert_eq!((states.promise, states.journal), (after, journal));
            assert_eq!(name(&states.written), name(&written()[w]));
        });
        each(|mut states, [_, w, _]| {
            let (promise, journal) = (states.promise, states.journal);
            states.place_journal();
            let wanted = match (promise == Promise::Batches, journal) {
                (true, Synced | InMemory) => InMemory,
                (true, Spilling | Unsynced) => Spilling,
                (false, Synced | InMemory) => Synced,
                (false, Spilling | Unsynced) => Unsynced,
            };
            assert_eq!((states.promise, states.journal), (promise, wanted));
            assert_eq!(name(&states.written), name(&written()[w]));
        });
        each(|mut states, [_, w, _]| {
            let wanted = [Ok(true), Ok(true), Ok(true), Ok(true), Ok(false), Err(())][w];
            assert_eq!(states.begin_direct(), wanted);
        });
    }
}
