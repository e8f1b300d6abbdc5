//! Plays a trace on the logs of all instances.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::PlayArgs;
use super::trace::{Trace, What};
use crate::clients::{nanos, random_bytes, sleep_until};
use crate::error::{Error, Result};
use crate::programs::latency::Latency;

/// New bytes are taken from this many random bytes, plus the size of a write.
const POOL_BYTES: usize = 1 << 20;
const PIECE_BYTES: u64 = 1 << 20;
const START_DELAY: Duration = Duration::from_millis(20);

/// The times of a replay.
#[derive(Debug, Serialize)]
pub struct Played {
    pub instances: u32,
    /// Until the last instance had ended.
    pub seconds: f64,
    pub syncs: u64,
    pub syncs_per_s: f64,
    pub written_bytes: u64,
    /// Times of a sync together with the writes since the previous one.
    pub flush: Option<Latency>,
    /// Times of whole instances.
    pub instance: Option<Latency>,
}

fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("redo-{number:04}"))
}

/// Makes the logs: of full size, written, synced.
pub fn prepare(args: &PlayArgs, trace: &Trace) -> Result<()> {
    let piece = random_bytes(PIECE_BYTES as usize, 0);
    for number in 0..args.instances {
        let path = path(&args.dir, number);
        let file = File::create(&path).map_err(Error::at(&path))?;
        let size = trace.log_bytes();
        for at in (0..size).step_by(PIECE_BYTES as usize) {
            let len_bytes = (size - at).min(PIECE_BYTES) as usize;
            file.write_all_at(&piece[..len_bytes], at).map_err(Error::at(&path))?;
        }
        file.sync_all().map_err(Error::at(&path))?;
    }
    Ok(())
}

/// Plays the trace on all logs at once.
pub fn run(args: &PlayArgs, trace: &Trace) -> Result<Played> {
    let pool = random_bytes(POOL_BYTES + trace.write_bytes_max(), 1);
    let opened = (0..args.instances)
        .map(|number| Instance::open(args, number, trace))
        .collect::<Result<Vec<_>>>()?;
    // In the future, so that all threads are there.
    let start = Instant::now() + START_DELAY;
    let outcomes = std::thread::scope(|scope| {
        let pool = &pool;
        let threads: Vec<_> = opened
            .into_iter()
            .map(|instance| scope.spawn(move || instance.play(trace, pool, start)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect::<Result<Vec<_>>>()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let (mut flushes, mut instances) = (Vec::new(), Vec::new());
    for (took, flush_times) in outcomes {
        instances.push(nanos(took));
        flushes.extend(flush_times.into_iter().map(nanos));
    }
    let syncs = flushes.len() as u64;
    Ok(Played {
        instances: args.instances,
        seconds,
        syncs,
        syncs_per_s: syncs as f64 / seconds,
        written_bytes: trace.facts().written_bytes * u64::from(args.instances),
        flush: Latency::of(flushes),
        instance: Latency::of(instances),
    })
}

/// One log while it is played on.
struct Instance {
    path: PathBuf,
    file: File,
    /// The content of the log, from which the bytes are taken that a write keeps.
    image: Vec<u8>,
    is_paced: bool,
    random: fastrand::Rng,
}

impl Instance {
    fn open(args: &PlayArgs, number: u32, trace: &Trace) -> Result<Instance> {
        let path = path(&args.dir, number);
        let file =
            OpenOptions::new().read(true).write(true).open(&path).map_err(Error::at(&path))?;
        let mut image = vec![0; trace.log_bytes() as usize];
        file.read_exact_at(&mut image, 0).map_err(Error::at(&path))?;
        let random = fastrand::Rng::with_seed(u64::from(number));
        Ok(Instance { path, file, image, is_paced: args.paced, random })
    }

    /// The time of the whole log, and of each flush.
    fn play(
        mut self,
        trace: &Trace,
        pool: &[u8],
        start: Instant,
    ) -> Result<(Duration, Vec<Duration>)> {
        let (mut flushes, mut flush, mut due) = (Vec::new(), Duration::ZERO, start);
        sleep_until(start);
        for call in &trace.calls {
            due += call.gap;
            if self.is_paced {
                sleep_until(due);
            }
            if let What::Write { offset, len_bytes, kept_bytes, zero_bytes } = call.what {
                let from = self.random.usize(0..POOL_BYTES);
                let span = offset as usize..offset as usize + len_bytes;
                let (new, zeros) = self.image[span][kept_bytes..]
                    .split_at_mut(len_bytes - kept_bytes - zero_bytes);
                new.copy_from_slice(&pool[from..from + new.len()]);
                zeros.fill(0);
            }
            let begin = Instant::now();
            self.call(&call.what).map_err(Error::at(&self.path))?;
            flush += begin.elapsed();
            if call.what == What::Sync {
                flushes.push(std::mem::take(&mut flush));
            }
        }
        Ok((start.elapsed(), flushes))
    }

    fn call(&self, what: &What) -> std::io::Result<()> {
        match *what {
            What::Sync => self.file.sync_data(),
            What::Write { offset, len_bytes, .. } => {
                let span = offset as usize..offset as usize + len_bytes;
                self.file.write_all_at(&self.image[span], offset)
            }
        }
    }
}
