//! A file that is looked at before it is opened.
//!
//! Opening a pipe waits for its other end, opening a tape rewinds it, and opening a watchdog starts
//! it. A user who exchanges the file at a path between the look and the opening would choose what
//! is opened. So the path is followed once, to a descriptor without access, and the file is opened
//! through that descriptor.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, Stat, fstat, open};
use rustix::io::Result;

use crate::descriptor::{above_standard, link_to};

/// The file that a path led to.
pub struct Found {
    place: OwnedFd,
    /// Its attributes.
    pub stat: Stat,
}

impl Found {
    /// The file at `path`. `follow`: nothing, or `NOFOLLOW`, with which a link is found itself.
    pub fn at(path: &Path, follow: OFlags) -> Result<Found> {
        let how = OFlags::PATH | OFlags::CLOEXEC | follow;
        Found::of(above_standard(|| open(path, how, Mode::empty()))?)
    }

    /// A file that is open without access.
    pub fn of(place: OwnedFd) -> Result<Found> {
        let stat = fstat(&place)?;
        Ok(Found { place, stat })
    }

    /// Opens the file.
    pub fn open(&self, how: OFlags) -> Result<OwnedFd> {
        let path = link_to(&self.place);
        above_standard(|| open(&path, how | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Read;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn a_file_that_was_looked_at_is_opened_and_no_other_in_its_place() {
        let home = tempfile::tempdir().expect("directory");
        let at = |name: &str| home.path().join(name);
        fs::write(at("image"), "found").expect("written");
        let found = Found::at(&at("image"), OFlags::empty()).expect("found");
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("pipe");
        fs::rename(at("pipe"), at("image")).expect("exchanged");
        // Opening the pipe would wait for ever.
        let mut text = String::new();
        let file = found.open(OFlags::RDONLY).expect("opened");
        File::from(file).read_to_string(&mut text).expect("read");
        assert_eq!(text, "found");
    }
}
