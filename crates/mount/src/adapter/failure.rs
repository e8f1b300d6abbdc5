//! Why a request fails.

use rustix::io::Errno;

/// Why a request fails.
pub(super) enum Failure {
    /// By the rules of the protocol.
    Errno(Errno),
    /// In the volume.
    Volume(ext4::Error),
    /// Not now: too many threads block. Nothing was changed.
    Later,
    /// Not an error: an [`fuse::Answerer`] answers.
    HandedOver,
    /// The volume has to be made writable first.
    NotWritable,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::Errno(errno)
    }
}

impl From<ext4::Error> for Failure {
    fn from(error: ext4::Error) -> Self {
        Failure::Volume(error)
    }
}

/// Outcome of a request; the payload is in the reply.
pub(super) type Outcome = Result<(), Failure>;
