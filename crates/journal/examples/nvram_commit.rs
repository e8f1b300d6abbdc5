//! Measures a commit to NVRAM: the cost of the engine on a medium that costs almost nothing.
//!
//! ```text
//! cargo run --release -p onejournal-journal --example nvram_commit -- [PATH] [ROUNDS] [NS_PER_LINE]
//! ```
//!
//! Without a PATH, or with `-`, the journal is in this process's memory. Otherwise the program
//! makes a file of 64 MiB at PATH (on tmpfs or a DAX file system) and removes it at the end. The
//! home device is in memory. A commit is a handle that changes the given number of bytes of one
//! block, `stop`, and `sync`, by one caller. `bare` is `write_durable` of as many bytes as the
//! record has. The two take turns. The program prints medians in nanoseconds.

use std::sync::Arc;
use std::time::Instant;

use device::{AddedLatency, Durability, MappedNvram, MemoryDevice, Nvram};
use onejournal_journal::{HomeBlock, Journal, Medium, Options, Space};

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
    println!("changed  record  bare_ns  commit_ns");
    for round in 0..HOME_BLOCKS as usize {
        commit(&journal, 1, round)?; // Every block is in memory from here on.
    }
    for changed_bytes in [128, 1024, 4096] {
        let before = journal.stats().journal_bytes;
        commit(&journal, changed_bytes, 1)?;
        let record = vec![7; usize::try_from(journal.stats().journal_bytes - before)?];
        let (mut bare, mut whole) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let slot = round as u64 % (BARE_BYTES / record.len() as u64);
            let started = Instant::now();
            nvram.write_durable(JOURNAL_BYTES + slot * record.len() as u64, &[&record])?;
            bare.push(started.elapsed().as_nanos());
            whole.push(commit(&journal, changed_bytes, round)?);
        }
        let written = journal.stats().journal_bytes - before - record.len() as u64;
        assert_eq!(written, (record.len() * rounds) as u64, "every commit has that size");
        let [bare, whole] = [bare, whole].map(median);
        println!("{changed_bytes:7}  {:6}  {bare:7}  {whole:9}", record.len());
    }
    Ok(())
}

/// Nanoseconds of a commit.
fn commit(journal: &Journal, changed_bytes: usize, round: usize) -> Result<u128, Failure> {
    let started = Instant::now();
    let mut handle = journal.begin(1)?;
    let block = handle.write(HomeBlock(round as u64 * 7 % HOME_BLOCKS))?;
    block[..changed_bytes].iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    let tid = handle.stop();
    journal.sync(tid)?;
    Ok(started.elapsed().as_nanos())
}

fn median(mut times: Vec<u128>) -> u128 {
    times.sort_unstable();
    times[times.len() / 2]
}
