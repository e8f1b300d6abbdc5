//! The users whose files and directories are trusted.
//!
//! This type says which users are trusted. The other rules are elsewhere: [`crate::Folder`] has the
//! rules for the directories of a log, `trusted_file` those for a file that an option names.

use rustix::process::geteuid;

/// Trusted users: the one that this process acts as, and perhaps root and one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// The user this process acts as.
    pub(crate) own: u32,
    /// One more user, who becomes the owner of files that root makes in a folder.
    pub(crate) owner: Option<Owner>,
    /// Whether root is trusted.
    pub(crate) has_root: bool,
}

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Trust {
    /// Trusts the user that this process acts as.
    pub fn own() -> Trust {
        Trust { own: geteuid().as_raw(), owner: None, has_root: false }
    }

    /// Trusts that user and `uid`. Files that root makes belong to `uid` and the group `gid`.
    pub fn own_and(uid: u32, gid: u32) -> Trust {
        Trust { owner: Some(Owner { uid, gid }), ..Trust::own() }
    }

    /// Trusts root, too.
    pub fn and_root(self) -> Trust {
        Trust { has_root: true, ..self }
    }

    pub(crate) fn has(self, uid: u32) -> bool {
        let is_owner = self.owner.is_some_and(|owner| owner.uid == uid);
        uid == self.own || is_owner || uid == 0 && self.has_root
    }
}
