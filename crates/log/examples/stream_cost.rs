//! What a short-lived stream costs: `stream_cost DIR [NVRAM]`. Makes a stream, appends, removes it,
//! as a database does that rotates its logs; interleaved with the same done with a file. Prints
//! medians in µs.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use device::Durability;
use onejournal::{Log, Options};

const RECORD_BYTES: usize = 1000;

/// Times of one kind of step, in µs.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn take<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let value = step();
        self.0.push(begin.elapsed().as_secs_f64() * 1e6);
        value
    }

    fn median(&mut self) -> f64 {
        self.0.sort_by(f64::total_cmp);
        self.0[self.0.len() / 2]
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let path: PathBuf = arguments.next().ok_or("usage: stream_cost DIR [NVRAM]")?.into();
    let nvram: Option<PathBuf> = arguments.next().map(PathBuf::from);
    let durability = nvram.is_some().then_some(Durability::Process);
    let options = Options { nvram, durability, ..Options::default() };
    fs::create_dir_all(&path)?;
    let directory = File::open(&path)?;
    let log = Log::open(path.join("log"), &options)?;
    println!(
        "{:>10} {:>8} {:>8} {:>8}  against a file, made and removed durably",
        "bytes", "make", "remove", "disk"
    );
    for len_bytes in [1000, 100_000, 2_000_000, 4_000_000] {
        let [mut make, mut remove, mut plain_make, mut plain_remove] = <[Times; 4]>::default();
        let drained = log.stat().drain_bytes;
        let rounds = 21;
        for round in 0..rounds {
            let name = format!("{round}.log");
            let stream = make.take(|| log.stream(&name))?;
            let mut last = stream.append(&[1; RECORD_BYTES])?;
            for _ in 1..len_bytes / RECORD_BYTES {
                last = stream.append(&[1; RECORD_BYTES])?;
            }
            stream.sync(last)?;
            stream.release();
            remove.take(|| log.remove_stream(&name))?;

            let file = path.join(&name);
            let mut plain = plain_make.take(|| {
                let file = File::create(&file)?;
                directory.sync_all().map(|()| file)
            })?;
            plain.write_all(&vec![1; len_bytes])?;
            plain.sync_data()?;
            plain_remove.take(|| fs::remove_file(&file).and_then(|()| directory.sync_all()))?;
        }
        let drained = (log.stat().drain_bytes - drained) as f64 / f64::from(rounds);
        let (make, remove) = (make.median(), remove.median());
        println!(
            "{len_bytes:>10} {make:>8.0} {remove:>8.0} {:>7.0}%  make {:.2} remove {:.2}",
            100.0 * drained / len_bytes as f64,
            make / plain_make.median(),
            remove / plain_remove.median(),
        );
    }
    Ok(())
}
