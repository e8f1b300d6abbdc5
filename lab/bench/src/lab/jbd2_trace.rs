//! The kernel's trace of jbd2's explicit checkpoints: those for which a commit waits, because the
//! journal has too little room.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use super::{Lab, Program, Teardown};
use crate::error::{Error, Result};

const EVENT: &str = "events/jbd2/jbd2_checkpoint/enable";

/// An instance of the trace, with this event only.
pub struct Jbd2Trace {
    instance: PathBuf,
    _teardown: Teardown,
}

impl Jbd2Trace {
    /// Begins. Fails if the kernel has no such trace.
    pub fn start(lab: &Lab) -> Result<Jbd2Trace> {
        let mut teardown = Teardown::default();
        let root = lab.scratch().join("tracing");
        fs::create_dir(&root).map_err(Error::at(&root))?;
        let removed = root.clone();
        teardown.push("removing the folder of the trace", move || {
            fs::remove_dir(&removed).map_err(Error::at(&removed))
        });
        Program::new("mount").args(["-t", "tracefs", "onejournal-bench"]).arg(&root).run()?;
        let mounted = root.clone();
        teardown.push("unmounting the trace", move || {
            Program::new("umount").arg(&mounted).uninterrupted().run().map(drop)
        });
        let instance = root.join(format!("instances/onejournal-bench-{}", std::process::id()));
        fs::create_dir(&instance).map_err(Error::at(&instance))?;
        let removed = instance.clone();
        teardown.push("ending the trace", move || {
            fs::remove_dir(&removed).map_err(Error::at(&removed))
        });
        let event = instance.join(EVENT);
        fs::write(&event, "1").map_err(Error::at(&event))?;
        Ok(Jbd2Trace { instance, _teardown: teardown })
    }

    /// Runs `work`, and counts the explicit checkpoints of the journal of the file system on this
    /// device meanwhile.
    pub fn during<T>(&self, device: &Path, work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
        let path = self.instance.join("trace");
        // This forgets all earlier events.
        fs::write(&path, "").map_err(Error::at(&path))?;
        let done = work()?;
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        if !is_complete(&text) {
            return Err(Error::other("the trace of jbd2 has lost events"));
        }
        let number = fs::metadata(device).map_err(Error::at(device))?.rdev();
        Ok((done, count(&text, major(number), minor(number))))
    }
}

/// Whether the trace still has all of its events, by its line
/// `# entries-in-buffer/entries-written: 5/5   #P:2`.
fn is_complete(trace: &str) -> bool {
    let counts = trace.lines().find_map(|line| line.split_once("entries-written:"));
    let words = counts.and_then(|(_, counts)| counts.split_whitespace().next());
    words.and_then(|counts| counts.split_once('/')).is_some_and(|(kept, all)| kept == all)
}

/// Lines such as `... jbd2_checkpoint: dev 7,3 result 0` of this device.
fn count(trace: &str, major: u32, minor: u32) -> u64 {
    let event = format!("jbd2_checkpoint: dev {major},{minor} ");
    trace.lines().filter(|line| line.contains(&event)).count() as u64
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_device_has_the_checkpoints_of_its_own_journal() {
        let trace = "# tracer: nop\n\
            fio-7 [001] ..... 5.1: jbd2_checkpoint: dev 7,3 result 0\n\
            fio-7 [001] ..... 5.2: jbd2_checkpoint: dev 7,31 result 0\n\
            fio-7 [001] ..... 5.3: jbd2_checkpoint: dev 7,3 result 1\n";
        assert_eq!((super::count(trace, 7, 3), super::count(trace, 7, 1)), (2, 0));
    }

    #[test]
    fn a_trace_that_lost_events_is_not_complete() {
        let trace = |counts| format!("# tracer: nop\n#\n# {counts}   #P:2\n");
        for (counts, is_complete) in [
            ("entries-in-buffer/entries-written: 0/0", true),
            ("entries-in-buffer/entries-written: 57/57", true),
            ("entries-in-buffer/entries-written: 57/60", false),
            ("", false),
        ] {
            assert_eq!(super::is_complete(&trace(counts)), is_complete, "{counts}");
        }
    }
}
