//! The one map from the errors of the layers below to errno.

use ext4::Error;
use rustix::io::Errno;

/// The errno that tells a program about `error`.
pub fn errno(error: &Error) -> Errno {
    match error {
        // The journal latches its abort: every later change fails the same way.
        Error::Journal(_) => Errno::IO,
        Error::Corrupt { .. } => Errno::UCLEAN,
        Error::NoVolume(_)
        | Error::EndMissing { .. }
        | Error::Incompatible(_)
        | Error::NeedsCheck(_)
        | Error::MarkedAsDamaged
        | Error::NotClosed
        | Error::WrongJournal(_)
        | Error::JournalMissing { .. }
        | Error::NotRepaired(_)
        | Error::NothingToGiveUp
        | Error::NoThread(_)
        | Error::LargeBlockMap(_) => Errno::OPNOTSUPP,
        Error::Claimed { .. } => Errno::BUSY,
        Error::NotFound => Errno::NOENT,
        Error::Exists => Errno::EXIST,
        Error::NotDirectory => Errno::NOTDIR,
        Error::IsDirectory => Errno::ISDIR,
        Error::NotEmpty => Errno::NOTEMPTY,
        Error::NoSpace => Errno::NOSPC,
        Error::NameTooLong => Errno::NAMETOOLONG,
        Error::TooManyLinks => Errno::MLINK,
        Error::InvalidArgument => Errno::INVAL,
        Error::NotPermitted => Errno::PERM,
        Error::ReadOnly => Errno::ROFS,
        Error::FileTooBig => Errno::FBIG,
        Error::NoAttribute => Errno::NODATA,
        Error::NoSuchOffset => Errno::NXIO,
        // What ext4 in the kernel says when an attribute finds no room.
        Error::AttributeTooLarge => Errno::NOSPC,
        // A program that copies attributes leaves this one out, and says so if it was told to copy
        // it.
        Error::WouldTear | Error::NotSupported => Errno::OPNOTSUPP,
    }
}

/// Whether an operator should hear of it: damage and failing media, not a program's mistakes.
pub(crate) fn is_grave(error: &Error) -> bool {
    matches!(error, Error::Journal(_) | Error::Corrupt { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_medium_are_never_a_mere_refusal() {
        let aborted = Error::Journal(journal::JournalError::Aborted("flush failed".into()));
        assert_eq!(errno(&aborted), Errno::IO);
        assert!(is_grave(&aborted));
        assert_eq!(errno(&Error::corrupt("extent", "inode 12")), Errno::UCLEAN);
        assert!(!is_grave(&Error::NotFound));
    }
}
