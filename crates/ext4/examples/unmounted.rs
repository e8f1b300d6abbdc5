//! Opens an ext4 image without mounting it, appends a line to a file in its root directory, and
//! shows the root directory and the file.
//!
//! ```sh
//! truncate -s 64M image && mke2fs -q -t ext4 -b 4096 image
//! cargo run -p onejournal-ext4 --example unmounted -- image notes.txt "a line"
//! ```
//!
//! The line is durable when `fsync` returns. If the program dies later, the next opening recovers
//! it from the journal. After `close` the image is an ordinary ext4, which the kernel mounts.

use std::error::Error as StdError;
use std::sync::Arc;

use device::Disk;
use host::Access;
use onejournal_ext4::{Error, InodeNo, NewNode, OpenOptions, Owner, RootVolume};

fn main() -> Result<(), Box<dyn StdError>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, name, line] = &arguments[..] else {
        return Err("usage: unmounted IMAGE NAME LINE".into());
    };
    // An image that this machine uses already is refused here.
    let device = Arc::new(Disk::open(image, Access::ReadWrite)?);
    let volume = RootVolume::open(device, OpenOptions::default())?;
    let result = append_and_show(&volume, name.as_bytes(), line);
    // Without this call the volume is as after a crash: recovered at the next opening.
    volume.close()?;
    result
}

/// Appends the line, makes it durable, and prints the root directory and the file.
pub fn append_and_show(
    volume: &RootVolume,
    name: &[u8],
    line: &str,
) -> Result<(), Box<dyn StdError>> {
    let file = match volume.lookup(InodeNo::ROOT, name) {
        Err(Error::NotFound) => {
            volume.make(InodeNo::ROOT, name, NewNode::Regular, 0o644, 0, Owner::default())?
        }
        found => found?,
    };
    volume.write(file.ino, file.size_bytes, format!("{line}\n").as_bytes())?;
    volume.fsync(file.ino, false)?;

    volume.read_dir(InodeNo::ROOT, 0, &mut |entry| {
        println!("{:>8}  {}", entry.ino.0, String::from_utf8_lossy(entry.name));
        true
    })?;
    let mut bytes = vec![0; usize::try_from(volume.get_attr(file.ino)?.size_bytes)?];
    let count = volume.read(file.ino, 0, &mut bytes)?;
    print!("{}", String::from_utf8_lossy(&bytes[..count]));
    // `lookup` and `make` pin the inode: as long as it is pinned, its number is not used again.
    volume.forget(file.ino, 1);
    Ok(())
}
