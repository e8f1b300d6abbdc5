//! What it costs to wake another CPU. Each request through FUSE wakes the daemon and then the
//! program, so where this is expensive, as on some virtual machines, requests are.

use std::io::{self, Read, Write};
use std::thread;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_setaffinity};

/// How many round trips are timed.
const ROUND_TRIPS: usize = 2_000;

/// The median time in microseconds in which a byte goes through a pipe to a thread on another CPU,
/// and comes back through a second pipe; nothing where there is one CPU or where threads cannot be
/// bound.
pub fn round_trip_us() -> Option<f64> {
    thread::scope(|scope| scope.spawn(timed).join().ok()?.ok())
}

/// Runs in a thread of its own, because it binds the thread to a CPU.
fn timed() -> io::Result<f64> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let (Some(here), Some(there)) = (cpus.next(), cpus.next()) else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let (mut from_here, mut to_there) = io::pipe()?;
    let (mut from_there, mut to_here) = io::pipe()?;
    let echo = thread::spawn(move || -> io::Result<()> {
        bind(there)?;
        let mut byte = [0];
        while from_here.read(&mut byte)? == 1 {
            to_here.write_all(&byte)?;
        }
        Ok(())
    });
    bind(here)?;
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        to_there.write_all(&[1])?;
        from_there.read_exact(&mut [0])?;
        times.push(start.elapsed());
    }
    drop(to_there);
    echo.join().map_err(|_| io::ErrorKind::Other)??;
    times.sort_unstable();
    let median_us = times[ROUND_TRIPS / 2].as_secs_f64() * 1e6;
    Ok((median_us * 10.0).round() / 10.0)
}

fn bind(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_takes_time_and_leaves_the_caller_unbound() {
        let before = rustix::thread::sched_getaffinity(None).unwrap();
        let is_alone = thread::available_parallelism().unwrap().get() == 1;
        match round_trip_us() {
            Some(us) => assert!(us > 0.0),
            None => assert!(is_alone, "two CPUs, and no byte came back"),
        }
        assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), before);
    }
}
