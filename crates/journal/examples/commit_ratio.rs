//! Measures a commit against a bare durable write of the same number of bytes.
//!
//! ```text
//! cargo run --release -p onejournal-journal --example commit_ratio -- PATH [ROUNDS]
//! ```
//!
//! If PATH does not exist, the program makes a file of 64 MiB. An existing file or block device is
//! OVERWRITTEN, so the program asks for `OVERWRITE=yes` in the environment. Commit and bare write
//! take turns within one run, so that both meet the same state of the device. A commit is a handle
//! that changes n blocks, `stop`, and `sync`, by one caller. The bare write is `write_durable` of
//! as many bytes as the record has, in an area that was written before. The blocks hold random
//! bytes, so compressing them gains nothing. `work` is the bare write after the work on memory that
//! no commit avoids: a copy of each block for the caller, a copy into the record, a checksum.
//! `engine` is a commit to a device in memory: the share of the processor. The program prints
//! medians over the rounds.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{AlignedBuf, BlockDevice, Disk, MemoryDevice};
use host::Access;
use onejournal_journal::{BLOCK_BYTES, BlockBytes, Form, HomeBlock, Journal, Options, Space};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error>;

const HOME_BYTES: u64 = 8 << 20;
const RAW_BYTES: u64 = 8 << 20;
const TOTAL_BYTES: u64 = 64 << 20;
const UUID: [u8; 16] = [1; 16];

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("give the path of a file or block device that may be lost")?;
    let rounds: usize = args.next().map_or(Ok(2000), |text| text.parse())?;
    let disk: Arc<dyn BlockDevice> = Arc::new(open(Path::new(&path))?);
    let memory: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(TOTAL_BYTES as usize, disk.sector_bytes()));
    println!("blocks  bytes  raw_us  work_us  commit_us  ratio  engine_us");
    let (on_disk, in_memory) = (Bench::new(disk)?, Bench::new(memory)?);
    for block_count in [1, 2, 4, 8, 16] {
        measure(&on_disk, &in_memory, block_count, rounds)?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<Disk, Failure> {
    if path.exists() && std::env::var_os("OVERWRITE").is_none_or(|value| value != "yes") {
        return Err("it exists; OVERWRITE=yes in the environment gives it up".into());
    }
    if !path.exists() || path.metadata()?.is_file() {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.set_len(TOTAL_BYTES)?;
    }
    Ok(Disk::open(path, Access::ReadWrite)?)
}

/// A device: home blocks, an area for bare writes, a journal.
struct Bench {
    device: Arc<dyn BlockDevice>,
    journal: Journal,
}

impl Bench {
    fn new(device: Arc<dyn BlockDevice>) -> Result<Bench, Failure> {
        if device.size_bytes() < TOTAL_BYTES {
            return Err(format!("it is smaller than {TOTAL_BYTES} bytes").into());
        }
        let mut random = AlignedBuf::zeroed(1 << 20);
        fastrand::Rng::with_seed(1).fill(&mut random);
        for offset in (0..HOME_BYTES + RAW_BYTES).step_by(random.len()) {
            device.write(offset, &random)?;
        }
        let extent = HOME_BYTES + RAW_BYTES..TOTAL_BYTES;
        let space = Space::new(device.clone(), std::iter::once(extent).collect())?;
        let options = Options { commit_interval: None, ..Options::default() };
        let journal = Journal::open(device.clone(), space, UUID, options)?;
        Ok(Bench { device, journal })
    }

    fn commit(&self, block_count: u64, round: usize) -> Result<Duration, Failure> {
        let started = Instant::now();
        let mut handle = self.journal.begin(block_count as usize)?;
        for block in 0..block_count {
            let home = HomeBlock(block * 7);
            let mut bytes = handle.read(home)?;
            Arc::make_mut(&mut bytes)[round % BLOCK_BYTES] ^= 1;
            handle.put(home, bytes, Form::Block)?;
        }
        let tid = handle.stop();
        self.journal.sync(tid)?;
        Ok(started.elapsed())
    }

    fn write_bare(&self, data: &AlignedBuf, round: usize) -> Result<Duration, Failure> {
        let slots = RAW_BYTES / data.len() as u64;
        let offset = HOME_BYTES + round as u64 % slots * data.len() as u64;
        let started = Instant::now();
        self.device.write_durable(offset, data)?;
        Ok(started.elapsed())
    }

    /// The size of the record of a commit of this many blocks.
    fn record_bytes(&self, block_count: u64) -> Result<usize, Failure> {
        let before = self.journal.stats().journal_bytes;
        self.commit(block_count, 0)?;
        Ok(usize::try_from(self.journal.stats().journal_bytes - before)?)
    }
}

fn measure(disk: &Bench, memory: &Bench, block_count: u64, rounds: usize) -> Result<(), Failure> {
    let mut data = AlignedBuf::zeroed(disk.record_bytes(block_count)?);
    // Untouched zeros would all be one page, which is cheaper to write than a record.
    fastrand::Rng::with_seed(1).fill(&mut data);
    let mut times = [const { Vec::new() }; 4];
    let [bare, work, commit, engine] = &mut times;
    let mut blocks = Blocks::new(block_count);
    for round in 0..rounds {
        bare.push(disk.write_bare(&data, 2 * round)?);
        let started = Instant::now();
        blocks.change(&mut data, round);
        work.push(disk.write_bare(&data, 2 * round + 1).map(|_| started.elapsed())?);
        commit.push(disk.commit(block_count, round)?);
        engine.push(memory.commit(block_count, round)?);
    }
    let [bare, work, commit, engine] = times.map(median_us);
    let ratio = commit / bare;
    println!(
        "{block_count:6}  {:5}  {bare:6.1}  {work:7.1}  {commit:9.1}  {ratio:5.3}  {engine:9.1}",
        data.len()
    );
    Ok(())
}

/// As many blocks as a commit changes, each in two versions.
struct Blocks(Vec<[Box<BlockBytes>; 2]>);

impl Blocks {
    fn new(count: u64) -> Blocks {
        Blocks(
            (0..count).map(|_| [Box::new([1; BLOCK_BYTES]), Box::new([1; BLOCK_BYTES])]).collect(),
        )
    }

    /// Makes new versions, copies them to the end of the record, and checks it.
    fn change(&mut self, record: &mut [u8], round: usize) {
        let at = record.len() - self.0.len() * BLOCK_BYTES;
        for (versions, place) in self.0.iter_mut().zip(record[at..].chunks_mut(BLOCK_BYTES)) {
            versions.swap(0, 1);
            let [older, newer] = versions;
            newer.copy_from_slice(older.as_slice());
            newer[round % BLOCK_BYTES] ^= 1;
            place.copy_from_slice(newer.as_slice());
        }
        std::hint::black_box(crc32c::crc32c(std::hint::black_box(record)));
    }
}

fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
