//! The process that a request comes from: what the header of the request does not say of it.
//!
//! While its request is served the sender waits in the kernel, so its number cannot be used again
//! and its credentials do not change. The kernel may act with other credentials (overlayfs acts for
//! its mounter). Then user or group differ from those of the header, and the process counts as
//! unknown. Capabilities count in the user namespace of this process only.

use crate::abi::InHeader;

/// Number of the capability to act as the owner of any file.
pub const CAP_FOWNER: u32 = 3;
/// Number of the capability to keep set-user-ID and set-group-ID bits.
pub const CAP_FSETID: u32 = 4;
/// Number of the capability to set the immutable and append-only flags.
pub const CAP_LINUX_IMMUTABLE: u32 = 9;
/// Number of the capability to administer the machine: mounts, labels of volumes, `trusted.*`.
pub const CAP_SYS_ADMIN: u32 = 21;

/// What is known of the sender of a request, from `/proc`. To find it costs several system calls.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Caller {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// A bit for each; `None`: not known, then root has all and others have none.
    capabilities: Option<u64>,
}

impl Caller {
    /// The sender of a request.
    pub fn of(header: &InHeader) -> Caller {
        let unknown = Caller { uid: header.uid, gid: header.gid, ..Caller::default() };
        // A process of another namespace of processes has no number here.
        if header.pid == 0 {
            return unknown;
        }
        let dir = format!("/proc/{}", header.pid);
        let Ok(status) = std::fs::read_to_string(format!("{dir}/status")) else { return unknown };
        let Some(mut found) = parse(&status) else { return unknown };
        if (found.uid, found.gid) != (header.uid, header.gid) {
            return unknown;
        }
        let namespace = |dir: &str| std::fs::read_link(format!("{dir}/ns/user")).ok();
        match (namespace(&dir), namespace("/proc/self")) {
            (Some(its), Some(ours)) if its == ours => {}
            // Whatever it may do there, it may not do here.
            (Some(_), Some(_)) => found.capabilities = Some(0),
            _ => found.capabilities = None,
        }
        found
    }

    /// Whether the sender has the capability with this number. Where its capabilities are not
    /// known, root has all and other users have none.
    pub fn has_capability(&self, number: u32) -> bool {
        match self.capabilities {
            Some(capabilities) => capabilities & 1 << number != 0,
            None => self.uid == 0,
        }
    }

    /// Whether the sender is in this group. Where its groups are not known, it is in that of the
    /// header only.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Takes `/proc/PID/status` apart. User and group are those for files, the fourth of their lines.
fn parse(status: &str) -> Option<Caller> {
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let numbers = |name: &str| -> Option<Vec<u32>> {
        line(name)?.split_whitespace().map(|number| number.parse().ok()).collect()
    };
    Some(Caller {
        uid: *numbers("Uid:")?.get(3)?,
        gid: *numbers("Gid:")?.get(3)?,
        groups: numbers("Groups:")?,
        capabilities: Some(u64::from_str_radix(line("CapEff:")?.trim(), 16).ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tsh\nUid:\t1\t2\t3\t1000\nGid:\t5\t6\t7\t100\nGroups:\t4 24 \n\
                          CapInh:\t0000000000000000\nCapEff:\t0000000000000208\n";

    #[test]
    fn credentials_are_those_for_files() {
        let caller = parse(STATUS).unwrap();
        let groups = vec![4, 24];
        let expected = Caller { uid: 1000, gid: 100, groups, capabilities: Some(0x208) };
        assert_eq!(caller, expected);
        assert!(caller.is_in_group(100) && caller.is_in_group(24) && !caller.is_in_group(7));
        assert!(caller.has_capability(CAP_FOWNER) && caller.has_capability(CAP_LINUX_IMMUTABLE));
        assert!(!caller.has_capability(CAP_FSETID));
        assert_eq!(parse("Uid:\t1\t2\t3\n"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_process_that_does_not_fit_the_header_is_not_believed() {
        let pid = std::process::id();
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let header = InHeader { pid, uid: uid.as_raw(), gid: gid.as_raw(), ..InHeader::default() };
        assert!(Caller::of(&header).capabilities.is_some());
        for other in [
            InHeader { uid: header.uid + 1, ..header },
            InHeader { gid: header.gid + 1, ..header },
            InHeader { pid: 0, ..header },
            InHeader { pid: u32::MAX, ..header },
        ] {
            let caller = Caller::of(&other);
            assert_eq!((caller.uid, caller.gid), (other.uid, other.gid));
            assert_eq!((caller.capabilities, caller.groups.len()), (None, 0), "{other:?}");
            assert_eq!(caller.has_capability(CAP_FOWNER), other.uid == 0);
        }
    }
}
