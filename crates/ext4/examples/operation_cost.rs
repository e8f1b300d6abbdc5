//! The cost of an operation without FUSE and without a device: medians over many small files on an
//! in-memory volume.
//!
//! `cargo run --release -p onejournal-ext4 --example operation_cost [FILE_COUNT]`

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use device::MemoryDevice;
use onejournal_ext4::{
    DataMode, InodeNo, NewNode, OpenOptions, Owner, RootVolume, SetAttr, SetTime,
};

/// The allocator that the `onejournal` program uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Name of an operation and what it cost each time, in nanoseconds.
type Costs = Vec<(&'static str, Vec<u64>)>;

fn main() {
    let file_count: u32 = std::env::args().nth(1).map_or(10_000, |n| n.parse().expect("a number"));
    for data_mode in [DataMode::Journal, DataMode::Ordered] {
        let volume = memory_volume(data_mode);
        let costs = run(&volume, file_count);
        println!("{data_mode:?}, {file_count} files in one directory:");
        for (name, mut nanoseconds) in costs {
            nanoseconds.sort_unstable();
            let total_us: u64 = nanoseconds.iter().sum::<u64>() / 1000;
            let mean_ns = total_us * 1000 / nanoseconds.len() as u64;
            println!("  {name:22} median {:6} ns, mean {mean_ns:6} ns", median(&nanoseconds));
        }
        volume.close().expect("closing a volume in memory");
    }
}

fn median(sorted: &[u64]) -> u64 {
    sorted[sorted.len() / 2]
}

fn memory_volume(data_mode: DataMode) -> RootVolume {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.as_file().set_len(512 << 20).expect("a sparse file");
    let made = Command::new("mke2fs")
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .args(["-q", "-F", "-t", "ext4", "-b", "4096"])
        .arg(file.path())
        .status()
        .expect("mke2fs (apt install e2fsprogs)");
    assert!(made.success(), "mke2fs failed");
    let bytes = std::fs::read(file.path()).expect("reading the image");
    let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
    let options = OpenOptions { data_mode, ..OpenOptions::default() };
    RootVolume::open(device, options).expect("opening the volume")
}

fn run(volume: &RootVolume, file_count: u32) -> Costs {
    let mut costs: Costs = Vec::new();
    let owner = Owner::default();
    let dir = volume.make(InodeNo::ROOT, b"d", NewNode::Directory, 0o755, 0, owner).expect("mkdir");
    let names: Vec<String> = (0..file_count).map(|n| format!("file-{n:06}.c")).collect();
    let data = vec![7u8; 4000];
    let mut inodes = Vec::new();
    measure(&mut costs, "make", &names, |name| {
        let made = volume.make(dir.ino, name.as_bytes(), NewNode::Regular, 0o644, 0, owner);
        inodes.push(made.expect("make").ino);
    });
    measure(&mut costs, "write 4000 bytes", &inodes, |ino| {
        volume.write(*ino, 0, &data).expect("write");
    });
    measure(&mut costs, "set_attr (time)", &inodes, |ino| {
        let change = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        volume.set_attr(*ino, &change).expect("set_attr");
    });
    measure(&mut costs, "set_attr (owner)", &inodes, |ino| {
        let change = SetAttr { uid: Some(7), gid: Some(7), ..SetAttr::default() };
        volume.set_attr(*ino, &change).expect("set_attr");
    });
    measure(&mut costs, "get_attr", &inodes, |ino| {
        volume.get_attr(*ino).expect("get_attr");
    });
    measure(&mut costs, "get_xattr (none)", &inodes, |ino| {
        volume.get_xattr(*ino, b"security.capability").expect_err("there is none");
    });
    measure(&mut costs, "overwrite 4000 bytes", &inodes, |ino| {
        volume.write(*ino, 0, &data).expect("write");
    });
    measure(&mut costs, "lookup + forget", &names, |name| {
        volume.forget(volume.lookup(dir.ino, name.as_bytes()).expect("lookup").ino, 1);
    });
    measure(&mut costs, "unlink", &names, |name| {
        volume.unlink(dir.ino, name.as_bytes()).expect("unlink");
    });
    measure(&mut costs, "forget (frees)", &inodes, |ino| volume.forget(*ino, 1));
    costs
}

fn measure<T>(costs: &mut Costs, name: &'static str, each: &[T], mut call: impl FnMut(&T)) {
    let mut nanoseconds = Vec::with_capacity(each.len());
    for item in each {
        let start = Instant::now();
        call(item);
        nanoseconds.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    costs.push((name, nanoseconds));
}
