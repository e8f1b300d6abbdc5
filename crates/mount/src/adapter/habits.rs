//! After which write of a file its sync comes.
//!
//! A commit may begin at any time, so one that begins when the last write before an `fsync` is
//! answered costs no promise, and the `fsync` finds it under way. Which write is the last one, a
//! file shows by its habit: all its transactions have as many writes as the one before (the log of
//! etcd and PostgreSQL, Redis), or as many bytes (SQLite's WAL with one page a transaction), or end
//! with the page of a WAL frame whose header says commit (SQLite). A sign that was right often
//! enough is believed, and all that are believed must agree. A commit that was in vain costs other
//! files a flush, so after each the signs have to be right four times as often.
//!
//! The format of SQLite's WAL: <https://sqlite.org/fileformat2.html#the_write_ahead_log>.

use std::collections::HashMap;

use device::sync::Mutex;
use ext4::InodeNo;

/// Files whose habits are kept; with one more, all are forgotten.
const KEPT_COUNT: usize = 1024;
/// Syncs in a row that a sign must have foretold to be believed: at first, and at most.
const RUN_MIN: u32 = 16;
const RUN_MAX: u32 = 4096;

const WAL_HEADER_BYTES: u64 = 32;
/// The header of a frame in a WAL: the number of its page, the size of the database after a commit
/// (0 in other frames), and more.
const FRAME_HEADER_BYTES: u64 = 24;
const COMMIT_SIZE: std::ops::Range<usize> = 4..8;
/// The pages that SQLite has.
const PAGE_BYTES: std::ops::RangeInclusive<u64> = 512..=65_536;

/// The habits of files that are synced.
#[derive(Default)]
pub(super) struct Habits(Mutex<HashMap<InodeNo, Habit>>);

impl Habits {
    /// Data were written to a file. Returns whether a sync is about to follow.
    pub(super) fn note_write(&self, ino: InodeNo, offset: u64, data: &[u8]) -> Foretold {
        match self.0.lock().get_mut(&ino) {
            Some(habit) => habit.note_write(offset, data),
            None => Foretold::default(),
        }
    }

    /// Whether to commit now. Not if something came between: the sync, or another write.
    pub(super) fn begin(&self, ino: InodeNo) -> bool {
        let mut habits = self.0.lock();
        let Some(habit) = habits.get_mut(&ino) else { return false };
        habit.has_begun = habit.is_foretold;
        habit.has_begun
    }

    /// No commit was begun.
    pub(super) fn give_up(&self, ino: InodeNo) {
        if let Some(habit) = self.0.lock().get_mut(&ino) {
            habit.has_begun = false;
        }
    }

    /// A file is synced.
    pub(super) fn note_sync(&self, ino: InodeNo) {
        let mut habits = self.0.lock();
        if habits.len() >= KEPT_COUNT && !habits.contains_key(&ino) {
            habits.retain(|_, habit| habit.has_sign());
            if habits.len() >= KEPT_COUNT {
                habits.clear();
            }
        }
        habits.entry(ino).or_default().note_sync();
    }

    /// The number may be another file's from now on.
    pub(super) fn forget(&self, ino: InodeNo) {
        self.0.lock().remove(&ino);
    }
}

/// What a write says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Foretold {
    /// A sync is about to follow.
    pub(super) is_last: bool,
    /// The commit that was begun after the write before was in vain.
    pub(super) was_in_vain: bool,
}

/// The habit of one file.
#[derive(Debug, Default)]
struct Habit {
    /// Since the last sync.
    written: Written,
    /// Between the two syncs before.
    usual: Written,
    frames: Frames,
    /// As many writes, as many bytes, the end of a transaction of SQLite.
    signs: [Sign; 3],
    /// The newest write was foretold as the last one before a sync.
    is_foretold: bool,
    /// And a commit was begun after it.
    has_begun: bool,
    /// Commits in vain.
    vain_count: u32,
}

/// Something that says that a write is the last one before a sync.
#[derive(Debug, Default)]
struct Sign {
    /// The first write since the last sync of which it said so, counted from 1.
    said_at: Option<u64>,
    /// How often it was right in a row.
    run: u32,
}

/// A WAL, as its writes show it.
#[derive(Debug, Default)]
struct Frames {
    /// Where the last header of a frame was written, and whether it says commit.
    header: Option<(u64, bool)>,
    page_bytes: Option<u64>,
}

/// What was written between two syncs.
#[derive(Debug, Default, Clone, Copy)]
struct Written {
    count: u64,
    bytes: u64,
}

impl Habit {
    /// Syncs in a row that a sign must have foretold.
    fn needed_run(&self) -> u32 {
        RUN_MIN.saturating_mul(4u32.saturating_pow(self.vain_count)).min(RUN_MAX)
    }

    fn has_sign(&self) -> bool {
        self.signs.iter().any(|sign| sign.run >= self.needed_run())
    }

    fn note_write(&mut self, offset: u64, data: &[u8]) -> Foretold {
        let was_in_vain = std::mem::take(&mut self.has_begun);
        if was_in_vain {
            self.vain_count += 1;
            self.signs.iter_mut().for_each(|sign| sign.run = 0);
        }
        self.written.count += 1;
        self.written.bytes += data.len() as u64;
        let Written { count, bytes } = self.written;
        let has_frame_ended = self.frames.note_write(offset, data);
        let say_so = [count == self.usual.count, bytes == self.usual.bytes, has_frame_ended];
        for (sign, says_so) in self.signs.iter_mut().zip(say_so) {
            sign.note_write(says_so, count);
        }
        let needed = self.needed_run();
        let mut believed = self.signs.iter().filter(|sign| sign.run >= needed).peekable();
        let is_last = believed.peek().is_some() && believed.all(|sign| sign.said_at == Some(count));
        self.is_foretold = is_last;
        Foretold { is_last, was_in_vain }
    }

    fn note_sync(&mut self) {
        (self.is_foretold, self.has_begun) = (false, false);
        let written = std::mem::take(&mut self.written);
        if written.count == 0 {
            return;
        }
        self.signs.iter_mut().for_each(|sign| sign.note_sync(written.count));
        self.usual = written;
    }
}

impl Sign {
    fn note_write(&mut self, says_so: bool, write_count: u64) {
        if says_so && self.said_at.is_none() {
            self.said_at = Some(write_count);
        }
    }

    fn note_sync(&mut self, write_count: u64) {
        let is_right = self.said_at.take() == Some(write_count);
        self.run = if is_right { self.run.saturating_add(1) } else { 0 };
    }
}

impl Frames {
    /// Whether a frame may begin there; a piece of a page can be as long as a header.
    fn may_be_header(&self, offset: u64) -> bool {
        let frame_bytes = self.page_bytes.map(|bytes| FRAME_HEADER_BYTES + bytes);
        frame_bytes.is_none_or(|bytes| offset % bytes == WAL_HEADER_BYTES)
    }

    /// Whether the write completes a transaction.
    fn note_write(&mut self, offset: u64, data: &[u8]) -> bool {
        if data.len() as u64 == FRAME_HEADER_BYTES && self.may_be_header(offset) {
            let between = self.header.and_then(|(before, _)| offset.checked_sub(before));
            let page_bytes = between.and_then(|bytes| bytes.checked_sub(FRAME_HEADER_BYTES));
            self.page_bytes = page_bytes
                .filter(|bytes| bytes.is_power_of_two() && PAGE_BYTES.contains(bytes))
                .or(self.page_bytes);
            self.header = Some((offset, data[COMMIT_SIZE] != [0; 4]));
        }
        let end = offset + data.len() as u64;
        let (Some((header, true)), Some(page_bytes)) = (self.header, self.page_bytes) else {
            return false;
        };
        end == header + FRAME_HEADER_BYTES + page_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: InodeNo = InodeNo(12);

    /// Writes so many bytes at the end, and says what was foretold.
    struct Log {
        habits: Habits,
        end: u64,
    }

    impl Log {
        fn synced() -> Log {
            let habits = Habits::default();
            habits.note_sync(LOG);
            Log { habits, end: 32 }
        }

        fn write(&mut self, data: &[u8]) -> Foretold {
            let foretold = self.habits.note_write(LOG, self.end, data);
            self.end += data.len() as u64;
            foretold
        }

        /// The last of these writes is the last one before a sync. Returns the writes that were
        /// said to be.
        fn transaction(&mut self, writes: &[&[u8]]) -> Vec<usize> {
            let is_last =
                |(index, data): (usize, &&[u8])| self.write(data).is_last.then_some(index);
            let said = writes.iter().enumerate().filter_map(is_last).collect();
            self.habits.note_sync(LOG);
            said
        }
    }

    /// The header of a frame and its page, which the kernel sends in two pieces.
    fn frame(is_commit: bool, piece_bytes: usize) -> [Vec<u8>; 3] {
        let mut header = vec![1; 24];
        header[4..8].copy_from_slice(&u32::to_be_bytes(is_commit.into()));
        [header, vec![2; piece_bytes], vec![3; 4096 - piece_bytes]]
    }

    #[test]
    fn a_log_with_one_write_a_transaction_is_known_after_some_syncs() {
        let mut log = Log::synced();
        for round in 0..100 {
            let said = log.transaction(&[&vec![1; 100 + round]]);
            assert_eq!(said.is_empty(), round < 17, "round {round}");
        }
    }

    #[test]
    fn as_many_bytes_in_any_number_of_pieces_are_known() {
        let mut log = Log::synced();
        for round in 0..100 {
            let piece = vec![1; 1 + round % 7];
            let rest = vec![2; 500 - piece.len()];
            let pieces: &[&[u8]] = if round % 3 == 0 { &[&[3; 500]] } else { &[&piece, &rest] };
            let said = log.transaction(pieces);
            let wanted = if round < 17 { vec![] } else { vec![pieces.len() - 1] };
            assert_eq!(said, wanted, "round {round}");
        }
    }

    #[test]
    fn the_last_page_of_a_transaction_of_sqlite_is_known() {
        let mut log = Log::synced();
        for round in 0..100 {
            let pages = 1 + round % 4;
            let frames: Vec<_> = (1..=pages).map(|page| frame(page == pages, 1 + round)).collect();
            let pieces: Vec<&[u8]> = frames.iter().flatten().map(Vec::as_slice).collect();
            let said = log.transaction(&pieces);
            // The first header of all shows no size of a page.
            let wanted = if round < 17 { vec![] } else { vec![pieces.len() - 1] };
            assert_eq!(said, wanted, "round {round}");
        }
    }

    #[test]
    fn after_a_commit_in_vain_a_sign_must_be_right_four_times_as_often() {
        let mut log = Log::synced();
        let until_said = |log: &mut Log| {
            (0..).find(|_| !log.transaction(&[b"x"]).is_empty()).expect("it is said again")
        };
        assert_eq!(until_said(&mut log), 17);
        for wanted in [64, 256, 1024, 4096, 4096] {
            assert!(log.write(b"x").is_last && log.habits.begin(LOG));
            assert_eq!(log.write(b"x"), Foretold { is_last: false, was_in_vain: true });
            assert_eq!(log.write(b"x"), Foretold::default());
            log.habits.note_sync(LOG);
            // One transaction more, because the one before was of three writes.
            assert_eq!(until_said(&mut log), wanted + 1);
        }
    }

    /// The kernel sends most transactions in three pieces, and some in four.
    #[test]
    fn signs_that_do_not_agree_are_not_believed() {
        let mut log = Log::synced();
        for round in 0..200 {
            let pieces = if round % 50 == 49 { [10, 14, 1000, 3096] } else { [24, 1000, 3096, 0] };
            let pieces: Vec<_> = pieces.into_iter().filter(|bytes| *bytes > 0).collect();
            let data: Vec<_> = pieces.iter().map(|bytes| vec![0; *bytes]).collect();
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let said = log.transaction(&data);
            assert!(said.is_empty() || said == [data.len() - 1], "round {round}: {said:?}");
            assert!(round < 17 || round % 50 == 49 || !said.is_empty(), "round {round}");
        }
    }

    #[test]
    fn a_file_that_is_not_synced_has_no_habit() {
        let habits = Habits::default();
        for offset in 0..10_000 {
            assert_eq!(habits.note_write(LOG, offset, b"x"), Foretold::default());
        }
    }

    #[test]
    fn a_commit_is_not_begun_after_the_sync_or_the_next_write() {
        let mut log = Log::synced();
        (0..17).for_each(|_| _ = log.transaction(&[b"x"]));
        assert!(!log.habits.begin(LOG), "nothing was written");
        assert!(log.write(b"x").is_last && log.habits.begin(LOG));
        log.habits.note_sync(LOG);
        assert!(log.write(b"x").is_last);
        log.habits.note_sync(LOG);
        assert!(!log.habits.begin(LOG), "the sync has come");
        assert!(log.write(b"x").is_last);
        assert!(!log.write(b"x").was_in_vain, "it was not begun");
        assert!(!log.habits.begin(LOG), "another write has come");
    }

    #[test]
    fn a_new_file_and_one_of_many_without_a_sign_have_no_habit() {
        let mut log = Log::synced();
        (0..17).for_each(|_| _ = log.transaction(&[b"x"]));
        (100..100 + 2 * KEPT_COUNT as u32).for_each(|ino| log.habits.note_sync(InodeNo(ino)));
        assert!(log.habits.0.lock().len() <= KEPT_COUNT);
        assert!(log.write(b"x").is_last, "its habit is kept");
        log.habits.forget(LOG);
        log.habits.note_sync(LOG);
        assert!(!log.write(b"x").is_last);
    }

    #[test]
    fn syncs_without_a_write_change_nothing() {
        let mut log = Log::synced();
        for round in 0..100 {
            log.habits.note_sync(LOG);
            assert_eq!(log.transaction(&[b"x"]).is_empty(), round < 17, "round {round}");
        }
    }
}
