//! What the unit tests of the adapter stand on: an adapter over a volume in memory, and requests to
//! it.

use std::process::Command;
use std::sync::Arc;

use device::MemoryDevice;
use ext4::{DataMode, InodeNo, NewNode, Owner, Volume};
use fuse::abi::{InHeader, Opcode};
use fuse::{Answer, Body, FileSystem, Notifier, Reply, Request};

use crate::adapter::{Adapter, AtomicWrites};
use crate::stat::StatSource;

const IMAGE_BYTES: u64 = 16 << 20;

/// A new volume.
pub(super) fn image() -> tempfile::NamedTempFile {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(IMAGE_BYTES).unwrap();
    let mke2fs = Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-F", "-b", "4096", "-I", "256", "-J", "size=4"])
        .arg(image.path())
        .status();
    assert!(mke2fs.expect("mke2fs is installed").success());
    image
}

/// An adapter over the volume on `device`. In mode `journal` it offers atomic writes.
pub(super) fn adapter_on(device: Arc<MemoryDevice>, data_mode: DataMode) -> Adapter {
    let options = ext4::OpenOptions {
        background: false,
        commit_interval: None,
        random_seed: 1,
        data_mode,
        ..ext4::OpenOptions::default()
    };
    let stat_source = StatSource {
        target: "memory".into(),
        version: "test".into(),
        durability: "process",
        device_counters: Arc::new(device::Counters::default),
        memory_bytes_max: None,
        journal_target: None,
        journal_counters: None,
    };
    let volume = Volume::open(device, options).unwrap();
    let notifier = Arc::new(Notifier::start(|_| {}).unwrap());
    let is_offered = data_mode == DataMode::Journal;
    let atomic = is_offered.then(|| AtomicWrites::new(&volume, notifier.clone(), 3));
    let agreed_flags = fuse::abi::init::SETXATTR_EXT;
    Adapter::new(volume, stat_source, agreed_flags, Some(notifier), atomic)
}

/// An adapter over a new volume.
pub(super) fn adapter(data_mode: DataMode) -> Adapter {
    let bytes = std::fs::read(image().path()).unwrap();
    adapter_on(Arc::new(MemoryDevice::from_bytes(bytes, 512)), data_mode)
}

/// Makes an empty file in the root of the volume.
pub(super) fn make(volume: &Volume, name: &[u8], owner: Owner) -> InodeNo {
    volume.as_root().make(InodeNo::ROOT, name, NewNode::Regular, 0o644, 0, owner).unwrap().ino
}

/// Two files, the first of which takes all the space; and how many bytes that is.
pub(super) fn full(volume: &Volume) -> (InodeNo, InodeNo, u64) {
    let [old, new] = [&b"old"[..], b"new"].map(|name| make(volume, name, Owner::default()));
    let (data, mut size_bytes) = (vec![7; 1 << 16], 0);
    while let Ok(written_bytes) = volume.as_root().write(old, size_bytes, &data) {
        size_bytes += written_bytes as u64;
    }
    (old, new, size_bytes)
}

/// Serves a request of root's.
pub(super) fn serve(server: &impl FileSystem, opcode: u32, ino: InodeNo, body: &[u8]) -> Answer {
    serve_for(0, server, opcode, ino, body)
}

/// Serves a request of the user `uid`.
pub(super) fn serve_for(
    uid: u32,
    server: &impl FileSystem,
    opcode: u32,
    ino: InodeNo,
    body: &[u8],
) -> Answer {
    let header = InHeader { opcode, nodeid: u64::from(ino.0), uid, ..InHeader::default() };
    let opcode = Opcode::from_wire(opcode);
    let mut room = [0; 256];
    let request = Request { header, opcode, body: Body::whole(body) };
    server.serve(&request, &mut Reply::new(&mut room))
}
