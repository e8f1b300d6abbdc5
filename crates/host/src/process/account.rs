//! To whom a limit counts a user.
//!
//! A limit for each user is none for a person with 65,536 user numbers. `/etc/subuid` gives such
//! numbers to users, who take them in a user namespace (subuid(5)). So a limit counts them to the
//! user who owns them, in whatever namespace they are used: with a set-user-ID program, such a user
//! leaves the namespace and keeps the number.
//!
//! Numbers that belong to root count each for itself. Root gives them to containers, whose users do
//! not trust each other. So do those of the user of this process, whom limits do not hold.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The user to whom a limit counts what a user takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(u32);

const RANGES: &str = "/etc/subuid";
const USERS: &str = "/etc/passwd";
/// How old what is known of these files may be.
const FRESH: Duration = Duration::from_secs(1);
const ROOT: u32 = 0;

/// Lock: a leaf.
static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

impl Account {
    /// That of users who are not known.
    pub const UNKNOWN: Account = Account(u32::MAX);
    /// That of root.
    pub const ROOT: Account = Account(ROOT);

    /// That of the user of this process.
    pub fn own() -> Account {
        Account(rustix::process::geteuid().as_raw())
    }

    /// The account of the user `uid`.
    pub fn of(uid: u32) -> Account {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_fresh = |known: &&mut Known| now.saturating_duration_since(known.at) < FRESH;
        match known.as_mut().filter(is_fresh) {
            Some(known) => known.ranges.account(uid),
            None => {
                let stamps = [RANGES, USERS].map(|path| Stamp::of(Path::new(path)));
                let same = known.take().filter(|known| known.stamps == stamps);
                let ranges = same.map_or_else(Ranges::read, |known| known.ranges);
                known.insert(Known { at: now, stamps, ranges }).ranges.account(uid)
            }
        }
    }

    /// Whether limits for each user do not hold it: root, and the user of this process.
    pub fn is_trusted(self) -> bool {
        [Account::ROOT, Account::own()].contains(&self)
    }
}

/// What the files said.
struct Known {
    at: Instant,
    stamps: [Option<Stamp>; 2],
    ranges: Ranges,
}

/// Differs after a file was changed or replaced.
#[derive(PartialEq, Eq)]
struct Stamp {
    place: (u64, u64),
    changed: (i64, i64),
    len_bytes: u64,
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let of = |found: Metadata| Stamp {
            place: (found.dev(), found.ino()),
            changed: (found.ctime(), found.ctime_nsec()),
            len_bytes: found.len(),
        };
        fs::metadata(path).ok().map(of)
    }
}

/// Numbers that belong to a user.
struct Range {
    first: u32,
    count: u32,
    owner: u32,
}

/// The ranges, by their first numbers.
struct Ranges(Vec<Range>);

impl Ranges {
    fn read() -> Ranges {
        let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let own = rustix::process::geteuid().as_raw();
        Ranges::of(&text(RANGES), &text(USERS), own)
    }

    /// The ranges in the texts of both files, for a process of the user `own`.
    fn of(ranges: &str, users: &str, own: u32) -> Ranges {
        let numbers = users.lines().rev().filter_map(|line| {
            let mut words = line.split(':');
            Some((words.next()?, words.nth(1)?.parse().ok()?))
        });
        let mut numbers: HashMap<&str, u32> = numbers.collect();
        let mut all: Vec<Range> = Vec::new();
        for (owner, first, count) in ranges.lines().filter_map(range_in) {
            // A user who is not in the file of users counts as two: the own number, and the first
            // subordinate one.
            let number = numbers.entry(owner).or_insert_with(|| owner.parse().unwrap_or(first));
            all.push(Range { first, count, owner: *number });
        }
        all.retain(|range| ![ROOT, own].contains(&range.owner));
        all.sort_by_key(|range| range.first);
        Ranges(all)
    }

    fn account(&self, uid: u32) -> Account {
        let after = self.0.partition_point(|range| range.first <= uid);
        let mut before = self.0[..after].iter().rev();
        let range = before.find(|range| uid - range.first < range.count);
        Account(range.map_or(uid, |range| range.owner))
    }
}

/// What a line says, `owner:first:count`. The owner is a name or a number.
fn range_in(line: &str) -> Option<(&str, u32, u32)> {
    let mut words = line.trim().split(':');
    let owner = words.next()?;
    Some((owner, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:\n";

    fn accounts(ranges: &str, own: u32, uids: &[u32]) -> Vec<u32> {
        let ranges = Ranges::of(ranges, USERS, own);
        uids.iter().map(|uid| ranges.account(*uid).0).collect()
    }

    #[test]
    fn regression_subordinate_numbers_count_to_their_user() {
        let ranges = "ann:100000:65536\n1001:165536:10\nann:300000:1\n";
        let uids = [0, 1000, 99_999, 100_000, 165_535, 165_536, 165_545, 165_546, 300_000, 300_001];
        let expected = [0, 1000, 99_999, 1000, 1000, 1001, 1001, 165_546, 1000, 300_001];
        assert_eq!(accounts(ranges, 0, &uids), expected);
        assert_eq!(accounts("", 0, &uids), uids, "without the file each counts for itself");
    }

    #[test]
    fn numbers_of_root_and_of_the_own_user_count_for_themselves() {
        let ranges = "root:1:4294967294\nann:100000:10\nbob:200000:10\n";
        let uids = [5, 100_003, 100_020, 200_003];
        assert_eq!(accounts(ranges, 0, &uids), [5, 1000, 100_020, 1001]);
        assert_eq!(accounts(ranges, 1000, &uids), [5, 100_003, 100_020, 1001]);
    }

    #[test]
    fn a_user_without_a_known_number_has_one_account_for_all_ranges() {
        let ranges = "eve:500000:10\neve:600000:10\n";
        assert_eq!(accounts(ranges, 0, &[500_003, 600_003]), [500_000, 500_000]);
    }

    #[test]
    fn lines_that_are_no_ranges_are_passed_over() {
        let ranges = "# ann:1:2\n\nann\nann:x:5\nann:7:-1\nann:4294967290:4294967295\nann:20:0\n";
        assert_eq!(accounts(ranges, 0, &[0, 7, 20, u32::MAX]), [0, 7, 20, 1000]);
    }

    #[test]
    fn root_and_this_user_have_their_own_accounts() {
        assert_eq!(Account::of(ROOT), Account::ROOT);
        assert_eq!(Account::of(rustix::process::geteuid().as_raw()), Account::own());
        assert!(Account::ROOT.is_trusted() && Account::own().is_trusted());
        assert!(!Account::UNKNOWN.is_trusted());
    }
}
