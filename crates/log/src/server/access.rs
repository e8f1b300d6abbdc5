//! Who may do what with a stream.

use std::collections::HashMap;

use device::sync::Mutex;
use host::Account;

use crate::error::Refusal;
use crate::host::StreamMeta;
use crate::wire::transport::Peer;
use crate::{LogError, Result, StreamName};

/// What a client wants to do with a stream, as a permission bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Read,
    Write,
    /// Know that the stream exists. Allowed to users that may read or write.
    Know,
    /// Remove the stream, or give up what is damaged. Allowed to its owner only.
    Own,
}

/// Whether a user may do everything: root, and the daemon's own user.
pub(super) fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Whether `peer` may do `wish` with the stream.
pub(super) fn allows(meta: &StreamMeta, peer: &Peer, wish: Wish) -> bool {
    let is_owner = peer.uid == meta.uid;
    let bits = if is_owner {
        meta.mode >> 6
    } else if peer.gid == meta.gid || peer.groups.contains(&meta.gid) {
        meta.mode >> 3
    } else {
        meta.mode
    };
    match wish {
        Wish::Read => bits & 4 != 0,
        Wish::Write => bits & 2 != 0,
        Wish::Know => bits & 6 != 0,
        Wish::Own => is_owner,
    }
}

/// An error if `peer` may not do `wish`.
pub(super) fn check(name: &StreamName, meta: &StreamMeta, peer: &Peer, wish: Wish) -> Result<()> {
    match is_trusted(peer.uid) || allows(meta, peer, wish) {
        true => Ok(()),
        false => {
            let (uid, owner) = (peer.uid, meta.uid);
            let doing = match wish {
                Wish::Read => "reading",
                Wish::Write => "writing",
                Wish::Know => "opening",
                Wish::Own => {
                    return Err(LogError::Denied(format!(
                        "stream {name}: removing or repairing, as user {uid}; user {owner} made \
                         it, and only that user, the daemon's user and root may do that"
                    )));
                }
            };
            Err(Refusal::NotPermitted { stream: name.to_string(), doing, uid, owner }.into())
        }
    }
}

/// How many streams each user has made since the daemon started.
#[derive(Default)]
pub(super) struct Made(Mutex<HashMap<Account, usize>>);

impl Made {
    /// Counts one more stream. An error if the user has made `limit` already.
    pub(super) fn count(&self, uid: u32, limit: usize) -> Result<()> {
        let mut made = self.0.lock();
        let count = made.entry(Account::of(uid)).or_default();
        if *count >= limit && !is_trusted(uid) {
            return Err(LogError::Denied(format!("user {uid} has made {limit} streams already")));
        }
        *count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_group_and_others_have_their_bits() {
        let meta = |mode| StreamMeta { id: 0, salt: 0, uid: 10, gid: 20, mode, quota_bytes: 0 };
        let peer = |uid, gid, groups: &[u32]| Peer { uid, gid, groups: groups.to_vec() };
        let (owner, member) = (peer(10, 99, &[]), peer(11, 20, &[]));
        let (also, other) = (peer(12, 99, &[5, 20]), peer(13, 99, &[5]));
        let can = |mode: u32, wish: Wish| {
            [&owner, &member, &also, &other].map(|peer| allows(&meta(mode), peer, wish))
        };
        assert_eq!(can(0o600, Wish::Read), [true, false, false, false]);
        assert_eq!(can(0o640, Wish::Read), [true, true, true, false]);
        assert_eq!(can(0o640, Wish::Write), [true, false, false, false]);
        assert_eq!(can(0o046, Wish::Read), [false, true, true, true], "the first class counts");
        assert_eq!(can(0o002, Wish::Know), [false, false, false, true]);
        assert_eq!(can(0o666, Wish::Own), [true, false, false, false]);
    }

    #[test]
    fn streams_are_counted() {
        let made = Made::default();
        let stranger = rustix::process::geteuid().as_raw() + 1;
        assert!(made.count(stranger, 1).is_ok());
        assert!(matches!(made.count(stranger, 1), Err(LogError::Denied(_))));
        assert!(made.count(0, 0).is_ok(), "root");
    }
}
