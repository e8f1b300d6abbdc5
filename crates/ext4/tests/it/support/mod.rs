//! What the tests of names and attributes share: a volume in memory, and listing directories.

#![allow(dead_code)] // not every test uses everything

use crate::common;

use std::path::PathBuf;
use std::sync::Arc;

use device::MemoryDevice;
use onejournal_ext4::{Attr, FileKind, InodeNo, NewNode, OpenOptions};
use onejournal_ext4::{Owner, Result, RootVolume, Volume};

/// An image, and the device in memory that holds its bytes.
pub struct Image {
    image: common::Image,
    device: Arc<MemoryDevice>,
}

impl Image {
    /// A volume of so many MiB with these further options of `mke2fs`.
    pub fn new(size_mib: u64, options: &[&str]) -> Image {
        Image::tuned(size_mib, options, &[])
    }

    /// The same, changed by `tune2fs`.
    pub fn tuned(size_mib: u64, options: &[&str], tune2fs: &[&str]) -> Image {
        let seed = "hash_seed=76a3c2d1-0f4e-4b8a-9c5d-e1f203948576";
        let arguments = [&["-I", "256", "-E", seed], options].concat();
        let image = common::Image::new(&arguments, &format!("{size_mib}M"));
        if !tune2fs.is_empty() {
            let path = image.path();
            let path = path.to_str().expect("a path in UTF-8");
            let output = common::run("tune2fs", &[tune2fs, &[path]].concat());
            assert!(output.status.success(), "tune2fs {tune2fs:?}: {output:?}");
        }
        let device = image.device();
        Image { image, device }
    }

    /// The image with the device's content read from the file again.
    pub fn loaded(self) -> Image {
        let device = self.image.device();
        Image { device, ..self }
    }

    pub fn path(&self) -> PathBuf {
        self.image.path()
    }

    /// The volume, deterministic: a clock that counts, no threads.
    pub fn open(&self) -> RootVolume {
        common::open(&self.device).expect("a volume")
    }

    /// The same with other options.
    pub fn open_with(&self, options: OpenOptions) -> RootVolume {
        RootVolume::open(self.device.clone(), options).expect("a volume")
    }

    /// Writes the device's content to the file.
    pub fn save(&self) -> PathBuf {
        self.image.save(&self.device);
        self.path()
    }

    /// The closed volume must satisfy `e2fsck -fn`.
    pub fn check(&self, scenario: &str) {
        self.save();
        let (code, text) = self.image.e2fsck("-fn");
        assert_eq!(code, 0, "{scenario}: e2fsck says\n{text}");
    }

    /// What `debugfs` answers about the saved image.
    pub fn debugfs(&self, request: &str) -> String {
        self.image.debugfs(request)
    }
}

/// Makes a node without leaving a pin.
pub fn make(volume: &RootVolume, parent: InodeNo, name: &[u8], node: NewNode<'_>) -> Result<Attr> {
    let attr = volume.make(parent, name, node, 0o755, 0, Owner::default())?;
    volume.forget(attr.ino, 1);
    Ok(attr)
}

/// Looks a name up without leaving a pin.
pub fn lookup(volume: &Volume, parent: InodeNo, name: &[u8]) -> Result<Attr> {
    let attr = volume.lookup(parent, name)?;
    volume.forget(attr.ino, 1);
    Ok(attr)
}

/// One entry, owned.
pub type Listed = (Vec<u8>, InodeNo, Option<FileKind>);

/// All entries from `cursor` on, at most `limit`; and the cursor after them.
pub fn read_some(volume: &Volume, dir: InodeNo, cursor: u64, limit: usize) -> (Vec<Listed>, u64) {
    let (mut entries, mut last) = (Vec::new(), cursor);
    let mut each = |entry: onejournal_ext4::DirEntry<'_>| {
        if entries.len() == limit {
            return false;
        }
        entries.push((entry.name.to_vec(), entry.ino, entry.kind));
        last = entry.cursor;
        true
    };
    volume.read_dir(dir, cursor, &mut each).expect("a readable directory");
    (entries, last)
}

/// All entries but `.` and `..`, which must come first.
pub fn list(volume: &Volume, dir: InodeNo) -> Vec<Listed> {
    let (mut entries, _) = read_some(volume, dir, 0, usize::MAX);
    let rest = entries.split_off(2);
    assert_eq!((&entries[0].0[..], entries[0].1), (&b"."[..], dir));
    assert_eq!(&entries[1].0[..], b"..");
    rest
}
