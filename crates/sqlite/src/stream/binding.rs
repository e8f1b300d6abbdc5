//! Which stream of which log is a database's: an attribute of the database file says it.
//!
//! The attribute `user.onejournal` is text, a field in each line:
//!
//! ```text
//! 1                     version
//! LOG                   the log's UUID
//! FILE                  which file it was written to (`host::FileId::lasting`), 32 hex digits
//! STREAM                name of the stream
//! DIRECTORY             where the log was: directory, or a daemon's socket; the rest of the value
//! ```
//!
//! A copy of a database may carry the attribute of the original. FILE tells it. Every user who may
//! write the database may write the attribute. So STREAM is believed only if it is the name of the
//! stream of FILE in LOG (`names`): another file's stream is never this one's.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use host::{FileId, with_own_descriptors};
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use crate::stream::names;

/// Name of the attribute.
const ATTRIBUTE: &str = "user.onejournal";
const VERSION: &[u8] = b"1";
/// Most bytes of the value. ext4 has room for less than a block.
const BYTES_MAX: usize = 3000;

/// The stream that a database's transactions are in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The log's UUID.
    pub log: String,
    /// Which file it was made for.
    pub file: u128,
    /// Name of the stream.
    pub stream: String,
    /// Where the log was.
    pub directory: PathBuf,
}

/// What the attribute says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    /// There is none.
    None,
    /// A stream.
    Binding(Binding),
    /// Nothing that this version knows, or it cannot be read.
    Unknown(String),
}

impl Attribute {
    /// The attribute of the file at `path`.
    pub fn read(path: &Path) -> Attribute {
        let mut value = vec![0; BYTES_MAX];
        match rustix::fs::getxattr(path, ATTRIBUTE, value.as_mut_slice()) {
            Ok(len_bytes) => {
                let unknown = || Attribute::Unknown("it is of another version".into());
                Binding::parse(&value[..len_bytes]).map_or_else(unknown, Attribute::of)
            }
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Attribute::None,
            Err(errno) => Attribute::Unknown(errno.to_string()),
        }
    }
}

impl Attribute {
    /// The attribute that names this stream.
    fn of(binding: Binding) -> Attribute {
        match names::is_name_of(&binding.log, binding.file, &binding.stream) {
            true => Attribute::Binding(binding),
            false => Attribute::Unknown(format!(
                "it names the stream {}, which is not that of the file it was made for. Another \
                 user may have written it: remove it (setfattr -x {ATTRIBUTE}), and the name of \
                 the stream finds the stream",
                binding.stream
            )),
        }
    }
}

impl Binding {
    fn to_bytes(&self) -> Vec<u8> {
        let file = format!("{:032x}", self.file);
        let directory = self.directory.as_os_str().as_bytes();
        let fields =
            [VERSION, self.log.as_bytes(), file.as_bytes(), self.stream.as_bytes(), directory];
        fields.join(&b'\n')
    }

    fn parse(bytes: &[u8]) -> Option<Binding> {
        let mut fields = bytes.splitn(5, |byte| *byte == b'\n');
        if fields.next()? != VERSION {
            return None;
        }
        let mut text = || Some(std::str::from_utf8(fields.next()?).ok()?.to_owned());
        let (log, file, stream) = (text()?, text()?, text()?);
        let file = u128::from_str_radix(&file, 16).ok()?;
        let directory = OsString::from_vec(fields.next()?.to_vec()).into();
        Some(Binding { log, file, stream, directory })
    }

    /// Writes the attribute of the file at `path`, which is `file`, durably.
    ///
    /// # Errors
    /// `EAGAIN` if the path leads to another file now.
    pub fn write(&self, path: &Path, file: &FileId) -> rustix::io::Result<()> {
        let mut value = self.to_bytes();
        if value.len() > BYTES_MAX {
            // The path is for people, and to find the log again if another one is named.
            value = Binding { directory: PathBuf::new(), ..self.clone() }.to_bytes();
        }
        change(path, file, |opened| {
            rustix::fs::fsetxattr(opened, ATTRIBUTE, &value, XattrFlags::empty())
        })
    }
}

/// Removes the attribute, durably.
pub fn unbind(path: &Path, file: &FileId) -> rustix::io::Result<()> {
    change(path, file, |opened| match rustix::fs::fremovexattr(opened, ATTRIBUTE) {
        Err(Errno::NODATA) => Ok(()),
        removed => removed,
    })
}

/// Changes an attribute and syncs the file. Its descriptor is closed in a table of its own, so that
/// SQLite's locks stay.
fn change(
    path: &Path,
    file: &FileId,
    f: impl FnOnce(&std::os::fd::OwnedFd) -> rustix::io::Result<()> + Send,
) -> rustix::io::Result<()> {
    with_own_descriptors(|| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&opened)?;
        if (found.st_dev, found.st_ino) != (file.device, file.inode) {
            return Err(Errno::AGAIN);
        }
        f(&opened)?;
        rustix::fs::fsync(&opened)
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(directory: &str) -> Binding {
        let log = "a".repeat(32);
        let stream = names::of_file(Path::new("a.db"), &log, 7);
        Binding { log, file: 7, stream, directory: directory.into() }
    }

    #[test]
    fn an_attribute_is_read_back() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let id = FileId::of(&file).expect("told");
        assert_eq!(Attribute::read(file.path()), Attribute::None);
        for directory in ["/a/b", "/with\na line", ""] {
            binding(directory).write(file.path(), &id).expect("written");
            let found = Attribute::read(file.path());
            assert_eq!(found, Attribute::Binding(binding(directory)));
        }
        binding(&"/long".repeat(1000)).write(file.path(), &id).expect("written");
        assert_eq!(Attribute::read(file.path()), Attribute::Binding(binding("")));
        let other = FileId { inode: id.inode + 1, ..id };
        assert_eq!(unbind(file.path(), &other), Err(Errno::AGAIN), "another file");
        unbind(file.path(), &id).expect("removed");
        unbind(file.path(), &id).expect("removed twice");
        assert_eq!(Attribute::read(file.path()), Attribute::None);
    }

    #[test]
    fn regression_a_stream_of_another_file_is_not_believed() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let id = FileId::of(&file).expect("told");
        let good = binding("/a");
        for (log, of) in [(good.log.as_str(), 8 << 64), ("bbbbbbbb", 7)] {
            let stream = names::of_file(Path::new("a.db"), log, of);
            Binding { stream, ..good.clone() }.write(file.path(), &id).expect("written");
            let Attribute::Unknown(why) = Attribute::read(file.path()) else { panic!("{of}") };
            assert!(why.contains("not that of the file") && why.contains("setfattr -x"), "{why}");
        }
    }

    #[test]
    fn golden_bytes() {
        let (log, id) = ("a".repeat(32), format!("{:032x}", 7));
        let golden = format!("1\n{log}\n{id}\ndb-a.db-aaaaaaaa-{id}\n/a/b");
        assert_eq!(binding("/a/b").to_bytes(), golden.as_bytes());
        for wrong in [&b"2\na\n7\ns\n/d"[..], b"1\na\n7\ns", b"1\na\nx\ns\n/d", b"", b"1"] {
            assert_eq!(Binding::parse(wrong), None);
        }
    }
}
