//! The mount table of a process, as the kernel shows it in `/proc/PID/mountinfo`.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::backing::parse_device;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// The block device, or the number of a file system that has none.
    pub(crate) device: u64,
    pub(crate) point: PathBuf,
    pub(crate) kind: String,
    pub(crate) source: PathBuf,
}

impl Mounted {
    /// Whether a process of ours serves it.
    pub(crate) fn is_ours(&self) -> bool {
        self.kind.ends_with(".onejournal")
    }
}

/// The mounts in `table`, a path such as `/proc/self/mountinfo`; none if it cannot be read.
pub(crate) fn mounts(table: impl AsRef<Path>) -> Vec<Mounted> {
    let table = fs::read(table).unwrap_or_default();
    table.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

fn parse(line: &[u8]) -> Option<Mounted> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = words.iter().position(|word| *word == b"-")?;
    Some(Mounted {
        device: parse_device(std::str::from_utf8(words.get(2)?).ok()?)?,
        point: unescape_mount_path(words.get(4)?),
        kind: String::from_utf8_lossy(words.get(dash + 1)?).into_owned(),
        source: unescape_mount_path(words.get(dash + 2)?),
    })
}

/// A path of the mount table: the kernel writes space, tab, newline and backslash as a backslash and three
/// octal digits.
pub fn unescape_mount_path(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, byte) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table() {
        let line = b"61 28 7:3 / /a\\040b rw,relatime shared:1 - fuseblk.onejournal /dev/loop3 rw";
        let mounted = parse(line).expect("a mount");
        assert_eq!(mounted.device, rustix::fs::makedev(7, 3));
        assert_eq!(
            (mounted.point.as_path(), mounted.source.as_path()),
            (Path::new("/a b"), Path::new("/dev/loop3"))
        );
        assert!(mounted.is_ours());
        assert!(!parse(b"28 1 254:0 / / rw - ext4 /dev/root rw").expect("a mount").is_ours());
        assert_eq!(parse(b"garbage"), None);
        assert_eq!(parse(b""), None);
    }
}
