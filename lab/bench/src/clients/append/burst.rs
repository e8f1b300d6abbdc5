//! Bursts of appends that begin at a given time, so that two processes work at the same time. A
//! process that learns of the time too late prints `late` and does nothing.

use std::io::{BufRead, Write};
use std::time::{Duration, UNIX_EPOCH};

use super::BurstArgs;
use super::target::Target;
use crate::clients::random_bytes;
use crate::error::{Error, Result};

/// Appends between two readings of the clock.
const AT_A_TIME: u64 = 50;

/// Answers the lines of standard input.
pub fn run(args: &BurstArgs) -> Result<()> {
    let mut target = Target::open(&args.target)?;
    let payload = random_bytes(args.record_bytes as usize, 1);
    target.append(&payload)?;
    let mut output = std::io::stdout();
    let mut say = |text: &str| {
        writeln!(output, "{text}").and_then(|()| output.flush()).map_err(Error::io("output"))
    };
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(Error::io("input"))?;
        let begin = line.split_once(' ').and_then(|(_, begin)| begin.parse().ok());
        let count = match (line.split_whitespace().next(), begin) {
            (Some("append"), Some(begin)) => {
                count_from(begin, args.burst_us, || target.append(&payload))?
            }
            (Some("checksum"), Some(begin)) => count_from(begin, args.burst_us, || {
                std::hint::black_box(crc32c::crc32c(std::hint::black_box(&payload)));
                Ok(())
            })?,
            _ => return Err(Error::other(format!("`{line}` is not append NS or checksum NS"))),
        };
        say(&count.map_or("late".to_owned(), |count: u64| count.to_string()))?;
    }
    target.flush()
}

/// The number of appends in a burst that begins at this time; `None` if the time is over already.
fn count_from(
    begin_ns: u64,
    burst_us: u64,
    mut work: impl FnMut() -> Result<()>,
) -> Result<Option<u64>> {
    if now_ns() > begin_ns {
        return Ok(None);
    }
    while now_ns() < begin_ns {
        std::hint::spin_loop();
    }
    let end_ns = begin_ns + burst_us * 1000;
    let mut count = 0;
    loop {
        for _ in 0..AT_A_TIME {
            work()?;
        }
        count += AT_A_TIME;
        if now_ns() >= end_ns {
            return Ok(Some(count));
        }
    }
}

/// Time of a clock that all processes share.
fn now_ns() -> u64 {
    let since: Duration = UNIX_EPOCH.elapsed().expect("after 1970");
    u64::try_from(since.as_nanos()).expect("before 2554")
}
