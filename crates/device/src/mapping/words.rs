//! Words that processes share: counters and flags in one mapped file, each accessed atomically.
//!
//! If the file is made shorter, the words are *lost*: from then on they are zeros of this process
//! alone, and [`SharedWords::check`] returns an error.
//!
//! A word is not durable. Every process that maps the file may change any word at any time, so a
//! reader must check each value before it trusts it.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use host::Access;
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;

use super::memory::{LOST, Mapping, Sharing};
use crate::error::{DeviceError, Operation, Result};

const WORD_BYTES: usize = 8;

/// Words of 8 bytes, perhaps shared with other processes.
pub struct SharedWords {
    mapping: Mapping,
}

impl SharedWords {
    /// `count` zeros, private to this process.
    pub fn anonymous(count: usize) -> Result<SharedWords> {
        let mapping = Mapping::anonymous(count * WORD_BYTES).map_err(|e| failed(e.into()))?;
        Ok(SharedWords { mapping })
    }

    /// The same. A process that is forked from this one finds zeros again.
    pub fn wiped_on_fork(count: usize) -> Result<SharedWords> {
        let words = SharedWords::anonymous(count)?;
        words.mapping.wipe_on_fork().map_err(|e| failed(e.into()))?;
        Ok(words)
    }

    /// The first `count` words of an open file, which must be that long.
    pub fn of_file(fd: impl AsFd, count: usize) -> Result<SharedWords> {
        let fd = fd.as_fd();
        let len_bytes = count * WORD_BYTES;
        let stat = rustix::fs::fstat(fd).map_err(|e| failed(e.into()))?;
        if u64::try_from(stat.st_size).unwrap_or(0) < len_bytes as u64 {
            let why = format!("has {} bytes instead of {len_bytes}", stat.st_size);
            return Err(failed(io::Error::new(ErrorKind::InvalidData, why)));
        }
        let mapping = Mapping::of_file(fd, len_bytes, Access::ReadWrite, Sharing::PageCache)
            .map_err(|e| failed(e.into()))?;
        Ok(SharedWords { mapping })
    }

    /// An error if the words are lost. Call it after reading words. If it succeeds, the values that
    /// were read were those of the file.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.mapping.is_lost() {
            false => Ok(()),
            true => Err(failed(io::Error::new(ErrorKind::UnexpectedEof, LOST))),
        }
    }

    /// Number of words.
    pub fn count(&self) -> usize {
        self.mapping.len_bytes() / WORD_BYTES
    }

    /// The word at `index`. Panics if there is none.
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count(), "word {index} of {}", self.count());
        let word = self.mapping.at(index * WORD_BYTES).cast::<u64>();
        // SAFETY: the word is in the mapping, which is writable and lives as long as `self`, at a
        // multiple of 8 from its start, which is a page boundary. This process accesses it only
        // through such references. To other processes' accesses it is an atomic.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// The lower half of the word at `index`, for [`SharedWords::wait`]. Never use it together with
    /// [`SharedWords::word`] of the same index. Panics if there is none.
    #[inline]
    pub fn half(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.count(), "word {index} of {}", self.count());
        let half = self.mapping.at(index * WORD_BYTES).cast::<u32>();
        // SAFETY: as in `word`; the caller keeps the two sizes of access apart, and if it does not,
        // the accesses are atomic still.
        unsafe { AtomicU32::from_ptr(half) }
    }

    /// Sleeps while [`SharedWords::half`] `index` is `seen`, until a thread wakes it or `limit` is
    /// over. May return early.
    pub fn wait(&self, index: usize, seen: u32, limit: Duration) {
        let half = self.half(index);
        if half.load(Ordering::Acquire) != seen {
            return;
        }
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        match futex::wait(half, futex::Flags::empty(), seen, Some(&limit)) {
            Ok(()) | Err(Errno::AGAIN | Errno::TIMEDOUT | Errno::INTR) => {}
            // The file was made shorter: the next load finds the words lost.
            Err(Errno::FAULT) => {}
            Err(e) => panic!("a futex on mapped memory: {e}"),
        }
    }

    /// Wakes all threads that wait for `index`, in all processes.
    pub fn wake_all(&self, index: usize) {
        let woken = futex::wake(self.half(index), futex::Flags::empty(), i32::MAX as u32);
        debug_assert!(matches!(woken, Ok(_) | Err(Errno::FAULT)), "{woken:?}");
    }
}

fn failed(source: io::Error) -> DeviceError {
    DeviceError::new(Operation::Open, 0, 0, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_a_file_are_the_same_words() {
        let file = tempfile::tempfile().expect("file");
        assert!(SharedWords::of_file(&file, 1).is_err(), "an empty file");
        file.set_len(4096).expect("length");
        let (one, other) = (SharedWords::of_file(&file, 512), SharedWords::of_file(&file, 512));
        let (one, other) = (one.expect("first"), other.expect("second"));
        one.word(511).store(7, Ordering::Release);
        assert_eq!(other.word(511).load(Ordering::Acquire), 7);
        assert_eq!(other.half(511).load(Ordering::Acquire), 7, "the lower half");
    }

    #[test]
    fn words_of_a_file_that_is_made_shorter_are_lost() {
        let file = tempfile::tempfile().expect("file");
        file.set_len(8192).expect("length");
        let words = SharedWords::of_file(&file, 1024).expect("words");
        words.word(1).store(7, Ordering::Release);
        words.check().expect("all is there");
        file.set_len(4096).expect("shorter");
        words.check().expect("nothing that is gone was read");
        assert_eq!(words.word(1).load(Ordering::Acquire), 7);
        assert_eq!(words.word(1000).load(Ordering::Acquire), 0);
        let error = words.check().expect_err("it was").to_string();
        assert!(error.contains("made shorter"), "{error}");
        assert_eq!(words.word(1).load(Ordering::Acquire), 0, "none of them counts");
        words.word(1000).store(1, Ordering::Release);
        words.wake_all(1000);
        words.wait(1000, 1, Duration::from_millis(1));
    }

    #[test]
    fn a_waiter_is_woken_by_the_change() {
        let words = SharedWords::anonymous(8).expect("words");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while words.half(3).load(Ordering::Acquire) == 0 {
                    words.wait(3, 0, Duration::from_secs(10));
                }
            });
            words.half(3).store(1, Ordering::Release);
            words.wake_all(3);
        });
        words.wait(3, 0, Duration::from_secs(1000));
        words.wait(3, 1, Duration::from_millis(1));
    }

    #[test]
    #[should_panic(expected = "word 8 of 8")]
    fn a_word_after_the_last_panics() {
        SharedWords::anonymous(8).expect("words").word(8);
    }
}
