//! What an older kernel cannot give a mount: one table for `onejournal stat`, for the warnings at a
//! mount, and for docs/reference/kernels.md.

use crate::counters::Counters;

/// Major and minor version of Linux.
pub type Version = (u32, u32);

/// From this version on syncfs(2) waits until the volume has the pages. Older ones send copies, and
/// wait for none.
pub const WAITS_SINCE: Version = (6, 16);

/// What is missing before a version.
struct Gap {
    since: Version,
    when: When,
    /// In `onejournal stat`, and in the page.
    text: &'static str,
}

/// Which mounts miss it.
enum When {
    /// A mount that was not told of the syncfs(2) that follows it, whatever the version is.
    Unheard,
    /// A mount with order=sync on an older kernel.
    OrderSync,
    /// Each mount on an older kernel.
    Older,
}

const UNHEARD: Gap = Gap {
    since: (6, 18),
    when: When::Unheard,
    text: "sync, syncfs and mount -i -o remount,ro do not reach the volume: use fsync, or \
           onejournal sync",
};
const NO_WAIT: Gap = Gap {
    since: WAITS_SINCE,
    when: When::OrderSync,
    text: "a rename over another file does not wait for data that the kernel is just sending \
           (order=sync): use fsync before it",
};
const NO_WAIT_IN_CHATTR: Gap = Gap {
    since: WAITS_SINCE,
    when: When::Older,
    text: "chattr +i does not wait for data that the kernel is just sending: use fsync before it",
};
const COARSE_TIMES: Gap = Gap {
    since: (6, 13),
    when: When::Older,
    text: "times of files are in steps of the kernel's clock, of 1 to 10 ms",
};
const WAITING_CLOSE: Gap = Gap {
    since: (6, 18),
    when: When::Older,
    text: "close waits while the file is synced through another descriptor",
};
const NO_BIRTH: Gap =
    Gap { since: (6, 6), when: When::Older, text: "statx does not tell when a file was made" };
const NO_UNNAMED_FILES: Gap = Gap {
    since: (6, 1),
    when: When::Older,
    text: "no file can be made without a name (O_TMPFILE)",
};
const OLD_TIMES: Gap = Gap {
    since: (6, 1),
    when: When::OrderSync,
    text: "fallocate may give no new times to a file that it does not lengthen (order=sync)",
};
const GAPS: [Gap; 8] = [
    UNHEARD,
    WAITING_CLOSE,
    NO_WAIT,
    NO_WAIT_IN_CHATTR,
    COARSE_TIMES,
    NO_BIRTH,
    NO_UNNAMED_FILES,
    OLD_TIMES,
];

impl Gap {
    /// Whether a mount has it on a kernel of this version; `None`: the version is not known.
    fn is_there(&self, version: Option<Version>, counters: &Counters) -> bool {
        match self.when {
            When::Unheard => counters.number("syncfs") == 0,
            When::OrderSync => {
                counters.text("order") == Some("sync") && is_before(version, self.since)
            }
            When::Older => is_before(version, self.since),
        }
    }
}

/// What this kernel does not give the mount with these counters.
pub fn missing(version: Option<Version>, counters: &Counters) -> Vec<&'static str> {
    let found = GAPS.iter().filter(|gap| gap.is_there(version, counters));
    found.map(|gap| gap.text).collect()
}

/// What is said once when a volume was mounted on `dir`. A user's mount hears of sync(1) on no
/// kernel, so only root is told.
pub fn warnings(
    version: Option<Version>,
    counters: &Counters,
    is_root: bool,
    dir: &str,
) -> Vec<String> {
    let mut found = Vec::new();
    if is_root && UNHEARD.is_there(version, counters) {
        found.push(format!(
            "this kernel does not tell {dir} of sync(1) and syncfs(2): use fsync(2), or \
             `onejournal sync {dir}` (Linux 6.18 is the first that does)"
        ));
    }
    if NO_WAIT.is_there(version, counters) {
        found.push(format!(
            "with order=sync, a rename over another file on {dir} does not wait for data that this \
             kernel is just sending: use fsync(2) before it (Linux 6.16 is the first that waits)"
        ));
    }
    found
}

/// Whether a kernel lacks what is there from `since` on. One that is not known is taken for old.
pub fn is_before(version: Option<Version>, since: Version) -> bool {
    version.is_none_or(|version| version < since)
}

/// The version of the running kernel.
pub fn version() -> Option<Version> {
    version_of(&std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?)
}

fn version_of(release: &str) -> Option<Version> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(order: &str, syncfs: u64) -> Counters {
        let text = format!(r#"{{"order":"{order}","syncfs":{syncfs}}}"#);
        Counters(serde_json::from_str(&text).unwrap())
    }

    /// The gaps of a mount by their versions, and the number of its warnings.
    fn found(version: Version, order: &str, syncfs: u64, is_root: bool) -> (Vec<Version>, usize) {
        let (version, counters) = (Some(version), counters(order, syncfs));
        let missing = missing(version, &counters);
        let gaps = GAPS.iter().filter(|gap| missing.contains(&gap.text));
        let warnings = warnings(version, &counters, is_root, "/mnt");
        (gaps.map(|gap| gap.since).collect(), warnings.len())
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(version_of("6.1.0-56-amd64"), Some((6, 1)));
        assert_eq!(version_of("7.2-rc1"), Some((7, 2)));
        assert_eq!(version_of("strange"), None);
    }

    #[test]
    fn gaps_follow_from_version_order_and_user() {
        let (new, old) = ((6, 18), [(6, 13), (6, 6)]);
        let of_5_15 = [&[new, new, (6, 16), (6, 16)], &old[..], &[(6, 1), (6, 1)]].concat();
        assert_eq!(found((5, 15), "sync", 0, true), (of_5_15.clone(), 2));
        assert_eq!(found((5, 15), "sync", 0, false), (of_5_15, 1));
        let of_6_1 = [&[new, new, (6, 16)], &old[..]].concat();
        assert_eq!(found((6, 1), "history", 0, true), (of_6_1, 1));
        assert_eq!(found((6, 15), "sync", 0, true), (vec![new, new, (6, 16), (6, 16)], 2));
        assert_eq!(found((6, 16), "sync", 0, true), (vec![new, new], 1));
        assert_eq!(found((6, 18), "sync", 1, true), (vec![], 0));
        // A stable kernel may have what came later.
        assert_eq!(found((6, 12), "history", 1, true), (vec![new, (6, 16), (6, 13)], 0));
        assert_eq!(found((7, 2), "sync", 0, false), (vec![(6, 18)], 0), "a user's mount");
    }

    #[test]
    fn the_page_has_every_row() {
        let page = include_str!("../../../docs/reference/kernels.md");
        for Gap { since: (major, minor), text, .. } in &GAPS {
            let row = page.lines().find(|line| line.contains(&format!("| {text} |")));
            let row = row.unwrap_or_else(|| panic!("no row with {text:?}"));
            assert!(row.contains(&format!("| {major}.{minor}")), "{row}");
        }
    }
}
