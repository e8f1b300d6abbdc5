//! Keeps the parts of changes of several ranges until the last one comes (`operations::ranges`).
//!
//! A program may end before it sends the last part, and nothing tells the volume. So changes are
//! dropped when all of them take too much memory: the oldest change of the user whose changes take
//! most. So no user can drop the changes of a user who has less. A program whose change was dropped
//! gets `ESTALE`, and nothing was changed.

use std::collections::HashMap;
use std::sync::Arc;

use device::sync::Mutex;
use ext4::InodeNo;
use host::Account;
use rustix::io::Errno;
use volume_client::{RANGES_BYTES_MAX, RangePart};

/// Memory for the parts of all changes: at least four changes of the largest size.
const KEPT_BYTES_MAX: usize = 10 * RANGES_BYTES_MAX;
/// Ranges in the first parts of a change: as many as take the memory of its largest data.
const RANGE_COUNT_MAX: usize = RANGES_BYTES_MAX / RANGE_BYTES;
/// Memory for a range beside its data.
const RANGE_BYTES: usize = 64;
/// Bytes that a change counts beside its ranges. It bounds how many changes a part is looked for
/// in.
const CHANGE_BYTES: usize = 64 << 10;

/// Which change a part belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChangeKey {
    /// The user who sends it.
    pub(super) uid: u32,
    /// To whom its memory counts.
    pub(super) account: Account,
    pub(super) ino: InodeNo,
    /// The number that the program has chosen.
    pub(super) id: [u8; 16],
}

/// The first parts of a change.
#[derive(Default)]
pub(super) struct Staged {
    /// `None`: the change has one part only, and there is nothing before it.
    key: Option<ChangeKey>,
    part_count: u32,
    data_bytes: usize,
    ranges: Vec<(u64, Vec<u8>)>,
}

impl Staged {
    /// Their ranges.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.ranges.iter().map(|(offset, bytes)| (*offset, &bytes[..]))
    }

    fn memory_bytes(&self) -> usize {
        CHANGE_BYTES + self.data_bytes + self.ranges.len() * RANGE_BYTES
    }
}

/// The parts of all changes, the change that has waited longest for a part first.
#[derive(Default)]
pub(super) struct RangeParts(Mutex<Vec<Arc<Staged>>>);

impl RangeParts {
    /// Takes a part that is not the last.
    pub(super) fn add(&self, key: ChangeKey, part: &RangePart<'_>) -> Result<(), Errno> {
        let mut changes = self.0.lock();
        let mut staged = match changes.iter().position(|staged| staged.key == Some(key)) {
            Some(at) => changes.remove(at),
            None => Arc::new(Staged { key: Some(key), ..Staged::default() }),
        };
        if part.number != staged.part_count {
            return Err(Errno::STALE);
        }
        // Shared only while a last part is served, which is the end of the change.
        let change = Arc::get_mut(&mut staged).ok_or(Errno::STALE)?;
        change.part_count += 1;
        for (offset, bytes) in &part.ranges {
            change.data_bytes += bytes.len();
            change.ranges.push((*offset, bytes.to_vec()));
        }
        if change.data_bytes > RANGES_BYTES_MAX || change.ranges.len() > RANGE_COUNT_MAX {
            return Err(Errno::FBIG);
        }
        changes.push(staged);
        while changes.iter().map(|staged| staged.memory_bytes()).sum::<usize>() > KEPT_BYTES_MAX {
            let at = first_to_drop(&changes);
            changes.remove(at);
        }
        Ok(())
    }

    /// The parts before this one, which is the last.
    pub(super) fn find(&self, key: ChangeKey, part: &RangePart<'_>) -> Result<Arc<Staged>, Errno> {
        let changes = self.0.lock();
        match changes.iter().find(|staged| staged.key == Some(key)) {
            Some(staged) if staged.part_count == part.number => Ok(staged.clone()),
            None if part.number == 0 => Ok(Arc::default()),
            _ => Err(Errno::STALE),
        }
    }

    /// The change is made, or failed.
    pub(super) fn forget(&self, key: ChangeKey) {
        self.0.lock().retain(|staged| staged.key != Some(key));
    }
}

/// The oldest change of a user whose changes take most.
fn first_to_drop(changes: &[Arc<Staged>]) -> usize {
    let user_of = |staged: &Staged| staged.key.map(|key| key.account);
    let mut taken: HashMap<Option<Account>, usize> = HashMap::new();
    for staged in changes {
        *taken.entry(user_of(staged)).or_default() += staged.memory_bytes();
    }
    let most = taken.values().max().copied();
    let is_largest = |staged: &Arc<Staged>| taken.get(&user_of(staged)).copied() == most;
    changes.iter().position(is_largest).expect("there are changes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first part of a change, with half the data that a change may have.
    fn begin(parts: &RangeParts, uid: u32, account: Account) -> ChangeKey {
        let bytes = vec![0; RANGES_BYTES_MAX / 2];
        let ranges = vec![(0, &bytes[..])];
        let part = RangePart { id: [0; 16], number: 0, is_last: false, is_durable: false, ranges };
        let key = ChangeKey { uid, account, ino: InodeNo::ROOT, id: part.id };
        assert_eq!(parts.add(key, &part), Ok(()));
        key
    }

    #[test]
    fn regression_a_user_with_many_numbers_drops_no_change_of_another() {
        let parts = RangeParts::default();
        let kept = begin(&parts, 1000, Account::own());
        // Each number has one change, no more than the other user.
        for uid in 100_000..100_040 {
            begin(&parts, uid, Account::UNKNOWN);
        }
        let changes = parts.0.lock();
        assert!(changes.len() < 41, "some were dropped");
        assert!(changes.iter().any(|staged| staged.key == Some(kept)));
    }
}
