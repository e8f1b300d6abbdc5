//! The files of the streams: their names and contents.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::PrepareArgs;
use crate::clients::random_bytes;
use crate::error::{Error, Result};

const PIECE_BYTES: usize = 1 << 20;

/// The file of a stream.
pub fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("stream-{number:05}"))
}

/// The files that are there, in the order of their streams.
pub fn all(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::at(dir))? {
        let entry = entry.map_err(Error::at(dir))?;
        if entry.file_name().to_string_lossy().starts_with("stream-") {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Writes each file, and syncs it.
pub fn prepare(args: &PrepareArgs) -> Result<()> {
    let piece = random_bytes(PIECE_BYTES, 0);
    for number in 0..args.count {
        let path = path(&args.dir, number);
        let mut file = File::create(&path).map_err(Error::at(&path))?;
        let mut left = args.file_bytes;
        while left > 0 {
            let len_bytes = left.min(PIECE_BYTES as u64);
            file.write_all(&piece[..len_bytes as usize]).map_err(Error::at(&path))?;
            left -= len_bytes;
        }
        file.sync_all().map_err(Error::at(&path))?;
    }
    Ok(())
}
