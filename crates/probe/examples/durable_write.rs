//! The cost of each way to write durably: time, and flushes of the device.
//!
//! ```text
//! cargo run --release -p onejournal-probe --example durable_write -- PATH [SIZE_KIB,...] [ROUNDS]
//! ```
//!
//! If PATH does not exist, the program makes a file of 64 MiB and removes it at the end. An
//! existing file or block device is OVERWRITTEN, so the program asks for `OVERWRITE=yes` in the
//! environment. The ways take turns within each round, so that all of them meet the same state of
//! the device. Flushes are counted for the whole device that PATH is on, including those of other
//! users. A loop device that nothing else uses gives exact numbers.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use device::{AlignedBuf, BlockDevice, Disk};
use host::Access;
use io_uring::{IoUring, opcode, types};
use onejournal_probe::{Latencies, disk_stats};
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;

const AREA_BYTES: u64 = 64 << 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Writes the bytes at the offset, durably.
type Write<'a> = dyn FnMut(u64, &[u8]) -> io::Result<()> + 'a;

/// One way to write durably.
struct Way<'a> {
    name: &'static str,
    write: Box<Write<'a>>,
    times: Latencies,
    flush_count: u64,
}

impl<'a> Way<'a> {
    fn new(name: &'static str, write: impl FnMut(u64, &[u8]) -> io::Result<()> + 'a) -> Self {
        Way { name, write: Box::new(write), times: Latencies::default(), flush_count: 0 }
    }
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let path =
        PathBuf::from(args.next().ok_or("usage: durable_write PATH [SIZE_KIB,...] [ROUNDS]")?);
    let sizes = args.next().unwrap_or_else(|| "4,16,64,1024,2048".to_owned());
    let sizes: Vec<usize> = sizes.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let round_count: u64 = args.next().unwrap_or_else(|| "200".to_owned()).parse()?;

    let made = !path.exists();
    if made {
        let mut file = File::create(&path)?;
        (0..AREA_BYTES >> 20).try_for_each(|_| file.write_all(&[0; 1 << 20]))?;
        file.sync_all()?;
    } else if std::env::var_os("OVERWRITE").is_none_or(|value| value != "yes") {
        return Err("PATH exists and would be overwritten; set OVERWRITE=yes if it may be".into());
    }
    let measured = measure(&path, &sizes, round_count);
    if made {
        fs::remove_file(&path)?;
    }
    measured
}

fn measure(path: &Path, sizes_kib: &[usize], round_count: u64) -> Outcome<()> {
    let disk = Disk::open(path, Access::ReadWrite)?;
    let flags = OFlags::DIRECT.bits().cast_signed();
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    let mut ring = IoUring::builder().setup_coop_taskrun().build(2)?;
    let device = device_of(path)?;
    let area_bytes = disk.size_bytes().min(AREA_BYTES);
    println!("{} sector {} bytes", path.display(), disk.sector_bytes());
    println!("{:>9} {:<24} {:>10} {:>10} {:>8}", "KiB", "way", "median us", "p99 us", "flushes");
    for &size_kib in sizes_kib {
        let data = AlignedBuf::from_slice(&vec![0x5a; size_kib << 10]);
        let mut ways = [
            Way::new("pwritev2(RWF_DSYNC)", |offset, data| pwrite(&file, offset, data, true)),
            Way::new("io_uring(RWF_DSYNC)", |offset, data| uring(&mut ring, &file, offset, data)),
            Way::new("pwrite, fdatasync", |offset, data| {
                pwrite(&file, offset, data, false)?;
                file.sync_data()
            }),
            Way::new("Disk::write_durable", |offset, data| {
                disk.write_durable(offset, data).map_err(io::Error::other)
            }),
        ];
        let slot_count = area_bytes / data.len() as u64;
        for slot in 0..round_count * ways.len() as u64 {
            let way_count = ways.len() as u64;
            let way = &mut ways[usize::try_from(slot % way_count)?];
            let before = flush_count(device)?;
            let start = Instant::now();
            (way.write)(slot % slot_count * data.len() as u64, &data)?;
            way.times.add(start.elapsed());
            way.flush_count += flush_count(device)? - before;
        }
        ways.iter().for_each(|way| print(size_kib, way));
    }
    Ok(())
}

fn print(size_kib: usize, way: &Way<'_>) {
    let Some(times) = way.times.percentiles() else { return };
    let micros = |ns: u64| ns as f64 / 1e3;
    let flushes = way.flush_count as f64 / times.count as f64;
    let (median, p99) = (micros(times.p50_ns), micros(times.p99_ns));
    println!("{size_kib:>9} {:<24} {median:>10.1} {p99:>10.1} {flushes:>8.2}", way.name);
}

fn pwrite(file: &File, offset: u64, data: &[u8], dsync: bool) -> io::Result<()> {
    let flags = if dsync { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    let count = rustix::io::pwritev2(file, &[IoSlice::new(data)], offset, flags)?;
    whole(count, data)
}

fn uring(ring: &mut IoUring, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
    let len_bytes = u32::try_from(data.len()).map_err(io::Error::other)?;
    let write = opcode::Write::new(types::Fd(file.as_raw_fd()), data.as_ptr(), len_bytes)
        .offset(offset)
        .rw_flags(ReadWriteFlags::DSYNC.bits().cast_signed())
        .build();
    // SAFETY: `file` and `data` are borrowed until this function returns; it returns when the
    // write has completed, and anything else ends the process.
    unsafe { ring.submission().push(&write) }.expect("the ring is empty");
    loop {
        let entered = ring.submit_and_wait(1);
        if let Some(completed) = ring.completion().next() {
            let count = usize::try_from(completed.result());
            let error = io::Error::from_raw_os_error(-completed.result());
            return count.map_err(|_| error).and_then(|count| whole(count, data));
        }
        if entered.is_err_and(|e| e.kind() != io::ErrorKind::Interrupted) {
            std::process::abort();
        }
    }
}

fn whole(count: usize, data: &[u8]) -> io::Result<()> {
    if count == data.len() { Ok(()) } else { Err(io::Error::other("a short write")) }
}

/// The numbers of the block device that `path` is, or is stored on; of the whole disk for a
/// partition, because the kernel counts no flushes of a partition.
fn device_of(path: &Path) -> Outcome<(u32, u32)> {
    let metadata = fs::metadata(path)?;
    let is_block = metadata.file_type().is_block_device();
    let device = if is_block { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let own = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if !own.join("partition").exists() {
        return Ok((major, minor));
    }
    let whole = fs::read_to_string(own.join("../dev"))?;
    let (major, minor) = whole.trim().split_once(':').ok_or("no device number in sysfs")?;
    Ok((major.parse()?, minor.parse()?))
}

/// Flushes that the device has completed; 0 if the kernel does not count them.
fn flush_count(device: (u32, u32)) -> Outcome<u64> {
    let stats = disk_stats()?.into_iter().find(|stats| stats.device == device);
    Ok(stats.and_then(|stats| stats.flush_count).unwrap_or(0))
}
