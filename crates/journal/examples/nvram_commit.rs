//! Measures a commit to NVRAM: the cost of the engine on a medium that costs almost nothing.
//!
//! ```text
//! cargo run --release -p onejournal-journal --example nvram_commit -- \
//!     [PATH] [ROUNDS] [NS_PER_LINE]
//! ```
//!
//! Without a PATH, or with `-`, the journal is in this process's memory. Otherwise the program
//! makes a file of 64 MiB at PATH (on tmpfs or a DAX file system) and removes it at the end. The
//! home device is in memory. The measured calls take turns. The program prints medians in
//! nanoseconds:
//!
//! | column | what |
//! |---|---|
//! | `bare_ns` | a bare persist of as many bytes as the record has: a copy, the write-back of its cache lines, a fence |
//! | `record_ns` | `write_durable` of as many bytes, as the engine writes its record: from a length on, lines bypass the cache |
//! | `work_ns` | that, and the work on memory that no commit of a changed block avoids: a copy of the block, a comparison with the older version, a checksum |
//! | `commit_ns` | a handle that changes the given number of bytes of one block, `stop`, and `sync`, by one caller |
//! | `ratio` | `commit_ns` over `bare_ns` |
//!
//! SFENCE orders the stores after it, but the processor executes further instructions until the
//! memory has the bytes; the next locked instruction waits for that. So each measured call ends
//! with a full fence: until then no other thread can learn that the bytes are durable.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use device::compare::compare;
use device::{AddedLatency, Durability, MappedNvram, MemoryDevice, Nvram};
use onejournal_journal::{BLOCK_BYTES, BlockBytes, HomeBlock, Journal, Medium, Options, Space};

/// The allocator that the `onejournal` program uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error>;

const JOURNAL_BYTES: u64 = 64 << 20;
const BARE_BYTES: u64 = 8 << 20;
const HOME_BLOCKS: u64 = 2048;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let path = args.next().filter(|path| path != "-");
    let rounds: usize = args.next().map_or(Ok(20_000), |text| text.parse())?;
    let ns_per_line: u64 = args.next().map_or(Ok(0), |text| text.parse())?;
    let len_bytes = JOURNAL_BYTES + BARE_BYTES;
    let mapped = match &path {
        Some(path) => MappedNvram::create(path, len_bytes, Some(Durability::Process))?,
        None => MappedNvram::in_memory(usize::try_from(len_bytes)?)?,
    };
    let result = measure(Arc::new(AddedLatency::new(mapped, ns_per_line)), rounds);
    if let Some(path) = &path {
        std::fs::remove_file(path)?;
    }
    result
}

fn measure(nvram: Arc<dyn Nvram>, rounds: usize) -> Result<(), Failure> {
    let home = Arc::new(MemoryDevice::new((HOME_BLOCKS * 4096) as usize, 4096));
    let medium = Medium::Nvram(nvram.clone());
    let space = Space::on(medium, std::iter::once(0..JOURNAL_BYTES).collect())?;
    let options = Options { commit_interval: None, ..Options::default() };
    let journal = Journal::open(home, space, [1; 16], options)?;
    let mut blocks = Blocks::new();
    println!("changed  record  bare_ns  record_ns  work_ns  commit_ns  ratio");
    for round in 0..HOME_BLOCKS as usize {
        commit(&journal, 1, round)?; // Every block is in memory from here on.
    }
    for changed_bytes in [128, 1024, 4096] {
        let before = journal.stats().journal_bytes;
        commit(&journal, changed_bytes, 1)?;
        let record = vec![7; usize::try_from(journal.stats().journal_bytes - before)?];
        let offset_of = |round: usize| {
            let slot = round as u64 % (BARE_BYTES / record.len() as u64);
            JOURNAL_BYTES + slot * record.len() as u64
        };
        let mut times = [const { Vec::new() }; 4];
        let [bare, write, work, whole] = &mut times;
        for round in 0..rounds {
            let (bare_at, at) = (offset_of(3 * round), offset_of(3 * round + 1));
            bare.push(timed(|| {
                nvram.store(bare_at, &record)?;
                Ok(nvram.persist()?)
            })?);
            write.push(timed(|| Ok(nvram.write_durable(at, &[&record])?))?);
            work.push(timed(|| {
                blocks.change(changed_bytes, round);
                black_box(crc32c::crc32c(black_box(&record)));
                Ok(nvram.write_durable(offset_of(3 * round + 2), &[&record])?)
            })?);
            whole.push(timed(|| commit(&journal, changed_bytes, round))?);
        }
        let written = journal.stats().journal_bytes - before - record.len() as u64;
        assert_eq!(written, (record.len() * rounds) as u64, "every commit has that size");
        let [bare, write, work, whole] = times.map(median);
        let ratio = whole as f64 / bare as f64;
        println!(
            "{changed_bytes:7}  {:6}  {bare:7}  {write:9}  {work:7}  {whole:9}  {ratio:5.2}",
            record.len()
        );
    }
    Ok(())
}

/// Nanoseconds until all stores of `call` have left the processor.
fn timed(call: impl FnOnce() -> Result<(), Failure>) -> Result<u128, Failure> {
    fence(Ordering::SeqCst); // Not those of the call before.
    let started = Instant::now();
    call()?;
    fence(Ordering::SeqCst);
    Ok(started.elapsed().as_nanos())
}

fn commit(journal: &Journal, changed_bytes: usize, round: usize) -> Result<(), Failure> {
    let mut handle = journal.begin(1)?;
    change(handle.write(HomeBlock(round as u64 * 7 % HOME_BLOCKS))?, changed_bytes);
    let tid = handle.stop();
    Ok(journal.sync(tid)?)
}

fn change(block: &mut BlockBytes, changed_bytes: usize) {
    block[..changed_bytes].iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
}

/// As many blocks as the journal changes, and one more.
struct Blocks {
    newest: Vec<Box<BlockBytes>>,
    spare: Box<BlockBytes>,
}

impl Blocks {
    fn new() -> Blocks {
        let block = Box::new([1; BLOCK_BYTES]);
        Blocks { newest: vec![block.clone(); HOME_BLOCKS as usize], spare: block }
    }

    /// Makes a new version of a block, and compares it with the older one.
    fn change(&mut self, changed_bytes: usize, round: usize) {
        let newest = &mut self.newest[round * 7 % HOME_BLOCKS as usize];
        self.spare.copy_from_slice(newest.as_slice());
        change(&mut self.spare, changed_bytes);
        black_box(compare(newest, &self.spare));
        std::mem::swap(newest, &mut self.spare);
    }
}

fn median(mut times: Vec<u128>) -> u128 {
    times.sort_unstable();
    times[times.len() / 2]
}
