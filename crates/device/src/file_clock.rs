//! The clock from which the kernel takes the times of files.
//!
//! It is coarse, and makes a step every few milliseconds. Since Linux 6.13 a file that changes
//! twice in a step gets a finer time if a program has looked at it in between, and no file gets an
//! earlier time after that. `clock_gettime` does not show such times. So a file in memory is
//! touched, and its time is read.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{MemfdFlags, Timestamps, UTIME_NOW, UTIME_OMIT, fstat, futimens, memfd_create};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Tells times since 1970, and 0 before.
pub struct FileClock {
    /// In memory, and empty. `None`: the kernel refuses it.
    file: Option<OwnedFd>,
}

impl Default for FileClock {
    fn default() -> FileClock {
        FileClock { file: memfd_create("onejournal-clock", MemfdFlags::CLOEXEC).ok() }
    }
}

impl FileClock {
    /// The time of a file that changes now. It is not before that of a change that any file of this
    /// machine had earlier, unless the machine's clock was set back.
    pub fn now(&self) -> Duration {
        self.time_of_file().unwrap_or_else(|| self.about_now())
    }

    /// The same or a few milliseconds less. Costs no system call.
    pub fn about_now(&self) -> Duration {
        let time = clock_gettime(ClockId::RealtimeCoarse);
        since_1970(time.tv_sec, time.tv_nsec)
    }

    fn time_of_file(&self) -> Option<Duration> {
        let file = self.file.as_ref()?;
        let when = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
        let touch =
            Timestamps { last_access: when(UTIME_OMIT), last_modification: when(UTIME_NOW) };
        futimens(file, &touch).ok()?;
        let stat = fstat(file).ok()?;
        Some(since_1970(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).ok()?))
    }
}

fn since_1970(seconds: i64, nanoseconds: i64) -> Duration {
    match (u64::try_from(seconds), u32::try_from(nanoseconds)) {
        (Ok(seconds), Ok(nanoseconds)) => Duration::new(seconds, nanoseconds),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn time_of(file: &File) -> Duration {
        let meta = file.metadata().unwrap();
        since_1970(meta.mtime(), meta.mtime_nsec())
    }

    /// To look at the file between its changes makes its times finer than the coarse clock.
    #[test]
    fn times_follow_those_of_other_file_systems() {
        let clock = FileClock::default();
        assert!(clock.time_of_file().is_some());
        let file = File::from(memfd_create("other", MemfdFlags::CLOEXEC).unwrap());
        let mut last = clock.now();
        for _ in 0..10_000 {
            rustix::io::pwrite(&file, b"x", 0).unwrap();
            for time in [time_of(&file), clock.now()] {
                assert!(last <= time, "{last:?}, then {time:?}");
                last = time;
            }
        }
    }

    #[test]
    fn without_the_file_the_coarse_clock_goes_on() {
        let clock = FileClock { file: None };
        let before = clock.about_now();
        assert!(before <= clock.now());
        assert!(FileClock::default().now() >= before);
    }

    #[test]
    fn before_1970_it_is_1970() {
        assert_eq!(since_1970(-1, 999_999_999), Duration::ZERO);
        assert_eq!(since_1970(1, 999_999_999), Duration::new(1, 999_999_999));
    }
}
