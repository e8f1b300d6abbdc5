//! The streams: a thread each, which writes its records durably.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde::Serialize;

use super::{Destination, SyncCall, WriteArgs, files};
use crate::clients::pace::Pace;
use crate::clients::{nanos, random_bytes, sleep_until};
use crate::error::{Error, Result};
use crate::programs::latency::Latency;
use crate::values::{ValueKind, Values};

/// Records are taken from this many bytes, plus the size of one record.
const POOL_BYTES: usize = 1 << 20;
/// Stack size of a thread, which makes only a few nested calls.
const STACK_BYTES: usize = 128 << 10;
const START_DELAY: Duration = Duration::from_millis(20);
const START_DELAY_PER_STREAM: Duration = Duration::from_micros(100);

/// What was written.
#[derive(Debug, Serialize)]
pub struct Written {
    pub streams: u32,
    pub record_bytes: u32,
    /// Records that were due in the time, or all records that were asked for.
    pub due_records: Option<u64>,
    pub records: u64,
    pub seconds: f64,
    pub records_per_s: f64,
    pub bytes_per_s: f64,
    /// Latencies of the call, or of both calls.
    pub latency: Option<Latency>,
    /// Latencies from when the record was due; empty without an interval.
    pub since_due: Option<Latency>,
}

/// The result of one stream.
#[derive(Default)]
struct Outcome {
    due_records: Option<u64>,
    call_ns: Vec<u64>,
    since_due_ns: Vec<u64>,
}

/// Runs all streams.
pub fn run(args: &WriteArgs) -> Result<Written> {
    let pool_bytes = POOL_BYTES + args.record_bytes as usize;
    let pool = match args.text {
        true => Values::new(ValueKind::Text, args.seed).next(pool_bytes).into_bytes(),
        false => random_bytes(pool_bytes, args.seed),
    };
    let opened = (0..args.count).map(|number| open(args, number)).collect::<Result<Vec<_>>>()?;
    // In the future, so that all threads are there.
    let start = Instant::now() + START_DELAY + START_DELAY_PER_STREAM * args.count;
    let outcomes = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, file) in (0..).zip(opened) {
            let stream = Stream::new(args, number, file, &pool, start);
            let thread = std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || stream.run())
                .map_err(Error::io(format!("thread {number}")))?;
            threads.push(thread);
        }
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect::<Result<Vec<_>>>()
    })?;
    Ok(written(args, &outcomes, start.elapsed().as_secs_f64()))
}

fn written(args: &WriteArgs, outcomes: &[Outcome], seconds: f64) -> Written {
    let all = |of: fn(&Outcome) -> &Vec<u64>| outcomes.iter().flat_map(of).copied().collect();
    let latencies: Vec<u64> = all(|outcome| &outcome.call_ns);
    let records = latencies.len() as u64;
    let records_per_s = records as f64 / seconds;
    Written {
        streams: args.count,
        record_bytes: args.record_bytes,
        due_records: outcomes.iter().map(|outcome| outcome.due_records).sum(),
        records,
        seconds,
        records_per_s,
        bytes_per_s: records_per_s * f64::from(args.record_bytes),
        latency: Latency::of(latencies),
        since_due: Latency::of(all(|outcome| &outcome.since_due_ns)),
    }
}

fn open(args: &WriteArgs, number: u32) -> Result<(PathBuf, File)> {
    let path = files::path(&args.dir, number);
    let flags = match args.sync {
        SyncCall::Dsync => OFlags::DSYNC,
        SyncCall::Sync => OFlags::SYNC,
        SyncCall::Fdatasync | SyncCall::Fsync | SyncCall::None => OFlags::empty(),
    };
    let file = OpenOptions::new()
        .write(true)
        .create(args.place == Destination::Append)
        .custom_flags(flags.bits().cast_signed())
        .open(&path)
        .map_err(Error::at(&path))?;
    Ok((path, file))
}

/// Runs one stream.
struct Stream<'a> {
    args: &'a WriteArgs,
    path: PathBuf,
    file: File,
    pool: &'a [u8],
    start: Instant,
    pace: Pace,
    random: fastrand::Rng,
}

impl<'a> Stream<'a> {
    fn new(
        args: &'a WriteArgs,
        number: u32,
        (path, file): (PathBuf, File),
        pool: &'a [u8],
        start: Instant,
    ) -> Stream<'a> {
        let interval = Duration::from_millis(args.interval_ms);
        let pace = Pace::new(start, interval, number, args.count);
        let random = fastrand::Rng::with_seed(args.seed ^ u64::from(number) << 32);
        Stream { args, path, file, pool, start, pace, random }
    }

    fn run(mut self) -> Result<Outcome> {
        let end = self.start + Duration::from_secs_f64(self.args.seconds);
        let limit = self.args.records.unwrap_or(u64::MAX);
        let due_records = self.pace.due_before(end).or(self.args.records);
        let mut outcome =
            Outcome { due_records: due_records.map(|due| due.min(limit)), ..Outcome::default() };
        let size = self.file.metadata().map_err(Error::at(&self.path))?.len();
        sleep_until(self.start);
        for index in 0..limit {
            let due = self.pace.due(index);
            if due.is_some_and(|due| due >= end) {
                break;
            }
            due.into_iter().for_each(sleep_until);
            let begin = Instant::now();
            if begin >= end {
                break;
            }
            let at = self.place(size, index)?;
            self.write(at)?;
            outcome.call_ns.push(nanos(begin.elapsed()));
            outcome.since_due_ns.extend(due.map(|due| nanos(due.elapsed())));
        }
        Ok(outcome)
    }

    /// The place of record `index` in a file that had this size at the start.
    fn place(&mut self, size: u64, index: u64) -> Result<u64> {
        let len_bytes = u64::from(self.args.record_bytes);
        match self.args.place {
            Destination::Append => Ok(size + index * len_bytes),
            Destination::Random if size >= len_bytes => Ok(self.random.u64(0..=size - len_bytes)),
            Destination::Random => {
                let path = self.path.display();
                Err(Error::other(format!("{path} is smaller than a record: prepare the files")))
            }
        }
    }

    fn write(&mut self, at: u64) -> Result<()> {
        let from = self.random.usize(0..POOL_BYTES);
        let record = &self.pool[from..from + self.args.record_bytes as usize];
        let done = self.file.write_all_at(record, at).and_then(|()| match self.args.sync {
            SyncCall::Fdatasync => self.file.sync_data(),
            SyncCall::Fsync => self.file.sync_all(),
            SyncCall::Dsync | SyncCall::Sync | SyncCall::None => Ok(()),
        });
        done.map_err(Error::at(&self.path))
    }
}
