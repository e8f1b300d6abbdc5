//! The cost of a durable store to NVRAM, through the cache and past it: median times, and the
//! length from which storing past the cache is faster.
//!
//! ```text
//! cargo run --release -p onejournal-device --example nvram_persist -- \
//!     [PATH] [ROUNDS] [NS_PER_LINE]
//! ```
//!
//! PATH is a DAX device or a file. It is OVERWRITTEN, so the program asks for `OVERWRITE=yes` in
//! the environment. Every durability class is accepted, also `process`. Without PATH, or with `-`,
//! the program uses memory of its own process. NS_PER_LINE nanoseconds of latency are added for
//! each cache line. The ways take turns within each round, so that all of them meet the same state
//! of the machine.

use std::path::Path;
use std::time::{Duration, Instant};

use host::Access;
use onejournal_device::{AddedLatency, Durability, MappedNvram, Nvram};

const AREA_BYTES: usize = 64 << 20;

/// Durable writes between two readings of the clock, because one reading takes tens of nanoseconds.
const BATCH_COUNT: usize = 16;

/// Bytes between one durable write and the next. With 0, each write begins on a line of its own.
/// With 13, a write begins anywhere in a line.
const GAPS_BYTES: [usize; 2] = [0, 13];

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// One way to write durably, and the time of one write in each batch.
struct Way {
    name: &'static str,
    stream_from_bytes: usize,
    times: Vec<Duration>,
}

impl Way {
    fn new(name: &'static str, stream_from_bytes: usize) -> Self {
        Way { name, stream_from_bytes, times: Vec::new() }
    }

    fn median_ns(&mut self) -> u128 {
        self.times.sort();
        self.times[self.times.len() / 2].as_nanos()
    }
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "-".to_owned());
    let round_count: usize = args.next().unwrap_or_else(|| "2000".to_owned()).parse()?;
    let ns_per_line: u64 = args.next().unwrap_or_else(|| "0".to_owned()).parse()?;

    let mut nvram = open(&path)?;
    let area_bytes = usize::try_from(nvram.len_bytes())?.min(AREA_BYTES);
    println!("{path}: durability {}, {ns_per_line} ns per line added", nvram.durability().name());
    println!(
        "{:>9} {:>6} {:>12} {:>12} {:>7}",
        "bytes", "gap", "cached ns", "streamed ns", "ratio"
    );
    let sizes = (6..=16).map(|log| 1 << log).filter(|&len_bytes| len_bytes * 4 <= area_bytes);
    for (len_bytes, gap_bytes) in sizes.flat_map(|len_bytes| GAPS_BYTES.map(|gap| (len_bytes, gap)))
    {
        let mut ways = [Way::new("cached", usize::MAX), Way::new("streamed", 0)];
        for round in 0..round_count {
            for way in &mut ways {
                nvram = nvram.with_stream_from_bytes(way.stream_from_bytes);
                let slow = AddedLatency::new(&nvram, ns_per_line);
                way.times.push(batch(&slow, round, len_bytes, len_bytes + gap_bytes)?);
            }
        }
        let [cached_ns, streamed_ns] = ways.each_mut().map(Way::median_ns);
        let faster = if streamed_ns < cached_ns { ways[1].name } else { ways[0].name };
        let ratio = streamed_ns as f64 / cached_ns as f64;
        println!(
            "{len_bytes:>9} {gap_bytes:>6} {cached_ns:>12} {streamed_ns:>12} {ratio:>7.2} {faster}"
        );
    }
    Ok(())
}

fn open(path: &str) -> Outcome<MappedNvram> {
    if path == "-" {
        return Ok(MappedNvram::in_memory(AREA_BYTES)?);
    }
    if Path::new(path).exists() && std::env::var_os("OVERWRITE").is_none_or(|v| v != "yes") {
        return Err("PATH exists and would be overwritten; set OVERWRITE=yes if it may be".into());
    }
    let open = |asked| MappedNvram::open(path, Access::ReadWrite, asked);
    open(None).or_else(|_| open(Some(Durability::Process))).map_err(Into::into)
}

/// Makes durable writes one after the other, as a journal does, and returns the time of one.
fn batch(
    nvram: &impl Nvram,
    round: usize,
    len_bytes: usize,
    stride_bytes: usize,
) -> Outcome<Duration> {
    let header = [round as u8; 24];
    let payload = vec![0x5a; len_bytes - header.len()];
    let slot_count = usize::try_from(nvram.len_bytes())?.min(AREA_BYTES) / stride_bytes;
    let first_slot = round * BATCH_COUNT;
    let start = Instant::now();
    for slot in first_slot..first_slot + BATCH_COUNT {
        let offset = (slot % slot_count * stride_bytes) as u64;
        nvram.write_durable(offset, &[&header, &payload])?;
    }
    Ok(start.elapsed() / u32::try_from(BATCH_COUNT)?)
}
