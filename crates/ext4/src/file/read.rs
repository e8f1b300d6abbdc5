//! Reading a file.

use journal::{BLOCK_BYTES, HomeBlock, JournalError};

use super::content::{BLOCK, FILE_BYTES_MAX, block_of, place_in_block, regular_file};
use crate::extent::{self, Target};
use crate::inode::Inode;
use crate::memory::Mounted;
use crate::{InodeNo, Result};

impl Mounted {
    /// [`Volume::read_noting`](crate::Volume::read_noting).
    pub(crate) fn read_noting(
        &self,
        ino: InodeNo,
        offset: u64,
        out: &mut [u8],
        notes_access: bool,
    ) -> Result<usize> {
        let in_core = self.in_core(ino);
        let content = in_core.content.read();
        if in_core.is_content_lost() {
            let reason = self.journal.abort_reason().unwrap_or_default();
            return Err(JournalError::Aborted(reason).into());
        }
        let inode = regular_file(self, ino)?;
        let end = inode.size().min(FILE_BYTES_MAX);
        let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len_bytes = out.len().min(left);
        // All of the block in which the file ends, where there is room: its part alone would be a
        // read of its own, for which a disk has to come round once more.
        let filled_bytes = match end_of_last_block(offset, len_bytes) {
            end if end <= out.len() => end,
            _ => len_bytes,
        };
        self.read_mapped(&inode, offset, &mut out[..filled_bytes])?;
        drop(content);
        out[len_bytes..filled_bytes].fill(0);
        if len_bytes > 0 && notes_access {
            // The data were read, so an access time that cannot be noted does not make the read
            // fail. Writes and syncs report an aborted journal.
            let _ = self.note_access(&inode);
        }
        Ok(len_bytes)
    }

    /// Fills `out` from an inode's blocks, without regard to its size.
    fn read_mapped(&self, inode: &Inode, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let skip = place_in_block(at);
            let wanted = (skip + out.len() - done).div_ceil(BLOCK_BYTES);
            let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
            let mapping = extent::map(self, inode, block_of(at), wanted)?;
            let mapped = mapping.count as usize * BLOCK_BYTES - skip;
            let piece_end = (done + mapped).min(out.len());
            let piece = &mut out[done..piece_end];
            match mapping.target {
                Target::Written(block) => self.read_run(block, skip, piece)?,
                Target::Hole | Target::Unwritten(_) => piece.fill(0),
            }
            done = piece_end;
        }
        Ok(())
    }

    /// Fills `out` from a run of blocks, beginning `skip` bytes after its start. Whole blocks are
    /// read directly, the edges through a copy.
    fn read_run(&self, start: HomeBlock, skip: usize, out: &mut [u8]) -> Result<()> {
        let head_len = if skip == 0 { 0 } else { out.len().min(BLOCK_BYTES - skip) };
        let (head, rest) = out.split_at_mut(head_len);
        let mut next = start;
        if head_len > 0 {
            head.copy_from_slice(&self.read_one(next)?[skip..skip + head_len]);
            next.0 += 1;
        }
        let (whole, tail) = rest.split_at_mut(rest.len() - rest.len() % BLOCK_BYTES);
        if !whole.is_empty() {
            self.journal.read_data(next, whole)?;
            next.0 += whole.len() as u64 / BLOCK;
        }
        if !tail.is_empty() {
            tail.copy_from_slice(&self.read_one(next)?[..tail.len()]);
        }
        Ok(())
    }

    fn read_one(&self, block: HomeBlock) -> Result<[u8; BLOCK_BYTES]> {
        let mut bytes = [0; BLOCK_BYTES];
        self.journal.read_data(block, &mut bytes)?;
        Ok(bytes)
    }
}

/// The end of a read at `offset`, if it takes all of its last block.
fn end_of_last_block(offset: u64, len_bytes: usize) -> usize {
    let skip = place_in_block(offset);
    if len_bytes == 0 { 0 } else { (skip + len_bytes).next_multiple_of(BLOCK_BYTES) - skip }
}
