//! Appends records to a log, syncs once for all of them, and reads them back: `append DIR`.

use std::error::Error;
use std::path::Path;

use onejournal::{Log, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).ok_or("usage: append DIR")?;
    append_and_read(Path::new(&dir))
}

/// `dir` holds the log; it is made when there is none.
pub fn append_and_read(dir: &Path) -> Result<(), Box<dyn Error>> {
    let log = Log::open(dir, &Options::default())?;
    let stream = log.stream("events")?;

    stream.append(b"first")?;
    let lsn = stream.append(b"second")?;
    stream.sync(lsn)?; // both survive a power cut now

    let mut reader = stream.read_from(stream.head())?;
    while let Some(record) = reader.next_record()? {
        println!("{:?}: {}", record.lsn, String::from_utf8_lossy(&record.payload));
    }
    drop((reader, stream));
    log.close()?;
    Ok(())
}
