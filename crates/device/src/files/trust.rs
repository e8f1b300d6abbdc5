//! The users whose files and directories are believed.
//!
//! What is believed is one question; what must hold of a file is another: [`crate::Folder`] has the rules for the
//! directories of a log, `trusted_file` those for a file that an option names.

use rustix::process::geteuid;

/// Users whose files are believed: the one this process acts as, and perhaps root and one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// The user this process acts as.
    pub(crate) own: u32,
    /// One more. What root makes in a folder belongs to it.
    pub(crate) owner: Option<Owner>,
    /// Whether root is one of them.
    pub(crate) has_root: bool,
}

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Trust {
    /// The user that this process acts as.
    pub fn own() -> Trust {
        Trust { own: geteuid().as_raw(), owner: None, has_root: false }
    }

    /// That user, and `uid`. What root makes belongs to `uid` and the group `gid`.
    pub fn own_and(uid: u32, gid: u32) -> Trust {
        Trust { owner: Some(Owner { uid, gid }), ..Trust::own() }
    }

    /// These users, and root.
    pub fn and_root(self) -> Trust {
        Trust { has_root: true, ..self }
    }

    pub(crate) fn has(self, uid: u32) -> bool {
        let is_owner = self.owner.is_some_and(|owner| owner.uid == uid);
        uid == self.own || is_owner || uid == 0 && self.has_root
    }
}
