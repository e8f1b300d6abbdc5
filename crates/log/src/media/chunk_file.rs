//! A chunk that a client maps, as the serving process reads it: through its file.
//!
//! A client may make the file shorter. Reads after the end return zeros; a load from a mapping
//! would end the process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use device::{DeviceError, Durability, Nvram, Operation, Result};

/// A chunk's file.
pub(crate) struct ChunkFile {
    /// Opened by this process. A descriptor from the client would share its open file description,
    /// whose flags the client can change.
    file: File,
    len_bytes: u64,
    durability: Durability,
}

impl ChunkFile {
    pub(crate) fn new(file: File, len_bytes: u64, durability: Durability) -> ChunkFile {
        ChunkFile { file, len_bytes, durability }
    }
}

fn failed(
    operation: Operation,
    offset: u64,
    len_bytes: usize,
) -> impl Fn(io::Error) -> DeviceError {
    move |e| DeviceError::new(operation, offset, len_bytes, e)
}

impl Nvram for ChunkFile {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.file.read_at(&mut buf[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(Operation::Read, offset, buf.len())(e)),
            }
        }
        buf[filled..].fill(0);
        Ok(())
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(data, offset);
        written.map_err(failed(Operation::Write, offset, data.len()))
    }

    fn persist(&self) -> Result<()> {
        match self.durability {
            Durability::Process => Ok(()),
            _ => self.file.sync_data().map_err(failed(Operation::Flush, 0, 0)),
        }
    }

    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let mut at = offset;
        for piece in pieces {
            self.store(at, piece)?;
            at += piece.len() as u64;
        }
        self.persist()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_cut_is_zeros_and_no_end_of_the_process() {
        let file = tempfile::NamedTempFile::new().expect("file");
        file.as_file().set_len(8192).expect("length");
        let chunk = ChunkFile::new(file.reopen().expect("open"), 8192, Durability::Process);
        chunk.write_durable(4090, &[b"ab", b"cd"]).expect("write");
        let mut found = [0; 6];
        chunk.read(4089, &mut found).expect("read");
        assert_eq!(&found, b"\0abcd\0");
        file.as_file().set_len(4092).expect("cut");
        chunk.read(4089, &mut found).expect("read");
        assert_eq!(&found, b"\0ab\0\0\0");
    }
}
