//! Mounts a volume with the defaults, until it is unmounted: `volume IMAGE_OR_DEVICE DIR`.
//! `VOLUME_THREADS` and `VOLUME_DATA=ordered` change two of them.

use std::error::Error;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use device::{Disk, Metered};
use ext4::DataMode;
use host::Access;
use onejournal_mount::{Session, SessionOptions, Source, StatSource};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, dir] = &arguments[..] else { return Err("usage: volume TARGET DIR".into()) };
    let is_block = std::fs::metadata(target)?.file_type().is_block_device();
    let disk = Disk::open(target, Access::ReadWrite)?;
    if is_block {
        // From here on the kernel's mount holds the claim.
        disk.release_exclusive();
    }
    let device = Arc::new(Metered::new(disk));
    let mut open_options = ext4::OpenOptions::default();
    if std::env::var("VOLUME_DATA").is_ok_and(|mode| mode == "ordered") {
        open_options.data_mode = DataMode::Ordered;
    }
    let volume = ext4::Volume::open(device.clone(), open_options)?;
    let source = if is_block {
        Source::BlockDevice(target.into())
    } else {
        Source::Plain { name: target.clone() }
    };
    let mut options = SessionOptions::default();
    if let Ok(threads) = std::env::var("VOLUME_THREADS") {
        options.mount.thread_count = threads.parse()?;
    }
    let stat_source = StatSource {
        target: target.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        durability: "power",
        device_counters: Arc::new(move || device.counters()),
        memory_bytes_max: None,
        journal_target: None,
        journal_counters: None,
    };
    let place = onejournal_mount::MountPoint::open(Path::new(dir))?;
    let session = Session::mount(volume, &source, &place, &options, stat_source)?;
    println!("ready");
    Ok(session.run().map(drop)?)
}
