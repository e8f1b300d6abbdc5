//! A mounted system.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use super::Site;
use super::client::ClientSettings;
use crate::error::{Error, Result};
use crate::lab::{Device, DeviceCounts, EmulatedDisk, Lab, Medium, Program, Teardown, interrupt};

/// How long a device may be busy after it was unmounted.
const UNUSED_WAIT: Duration = Duration::from_secs(60);

/// The requests to its devices.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// The file system's device.
    pub device: DeviceCounts,
    /// The device of an external journal; zero if there is none, or if it is memory.
    pub journal: DeviceCounts,
}

impl Counts {
    /// Both together.
    pub fn total(&self) -> DeviceCounts {
        self.device + self.journal
    }
}

impl std::ops::Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts { device: self.device + other.device, journal: self.journal + other.journal }
    }
}

impl std::ops::Sub for Counts {
    type Output = Counts;

    fn sub(self, earlier: Counts) -> Counts {
        Counts { device: self.device - earlier.device, journal: self.journal - earlier.journal }
    }
}

/// Bytes written to a volume's device and journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WrittenParts {
    /// The journal's headers, descriptors, commits and padding, with which it finds and checks the
    /// data.
    pub metadata_bytes: u64,
    /// Everything else, wherever it was written: data in the journal, and data at home.
    pub data_bytes: u64,
    /// The part of `data_bytes` that went to the journal.
    pub journal_data_bytes: u64,
}

impl WrittenParts {
    /// OneJournal's counters, and the bytes that its device got. `None` for a journal on a disk,
    /// where changes are compressed together after they were counted.
    fn of_stat(stat: &Value, device_bytes: u64) -> Option<WrittenParts> {
        let all_bytes = stat["journal_medium"]["bytes_stored"].as_u64()?;
        let forms = stat["journal_bytes_by_form"].as_object()?;
        let logged_bytes: u64 = forms.values().filter_map(Value::as_u64).sum();
        Some(WrittenParts {
            metadata_bytes: all_bytes - logged_bytes,
            data_bytes: logged_bytes + device_bytes,
            journal_data_bytes: logged_bytes,
        })
    }
}

impl std::ops::Sub for WrittenParts {
    type Output = WrittenParts;

    fn sub(self, earlier: WrittenParts) -> WrittenParts {
        WrittenParts {
            metadata_bytes: self.metadata_bytes - earlier.metadata_bytes,
            data_bytes: self.data_bytes - earlier.data_bytes,
            journal_data_bytes: self.journal_data_bytes - earlier.journal_data_bytes,
        }
    }
}

/// What a system was asked to do while something ran.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    /// Its devices.
    pub counts: Counts,
    /// Its FUSE server, in requests; `None` of systems that do not tell.
    pub fuse_requests: Option<f64>,
}

impl std::ops::Add for Asked {
    type Output = Asked;

    fn add(self, other: Asked) -> Asked {
        let both = self.fuse_requests.zip(other.fuse_requests).map(|(one, other)| one + other);
        Asked {
            counts: self.counts + other.counts,
            fuse_requests: both.or(self.fuse_requests).or(other.fuse_requests),
        }
    }
}

/// A mounted system. Dropped, it is taken down.
pub struct Running {
    /// Its name in the report.
    pub name: String,
    /// A prefix for names of its files.
    pub label: String,
    /// Where it is mounted.
    pub dir: PathBuf,
    /// The settings for its clients.
    pub client: ClientSettings,
    medium: Medium,
    journal: Option<Medium>,
    has_stat: bool,
    mounting: Option<Mounting>,
    has_journal_regions: bool,
    teardown: Teardown,
}

/// How it is mounted and unmounted.
struct Mounting {
    mount: Program,
    unmount: Program,
}

impl Running {
    /// The medium and an empty directory; not mounted yet.
    pub fn begin(lab: &Lab, name: String, site: &Site<'_>) -> Result<Running> {
        Running::make(lab, name + &site.suffix, |label, teardown| {
            Medium::prepare(lab, site.device, label, site.size_mib, teardown)
        })
    }

    /// A directory in the file system of the scratch folder. Nothing is made, mounted or slowed
    /// down. Requests of other programs to that disk count, too.
    pub fn in_scratch_folder(lab: &Lab, name: String, site: &Site<'_>) -> Result<Running> {
        let mut running =
            Running::make(lab, name + &site.suffix, |_, _| Medium::below(lab.scratch()))?;
        running.dir.push("files");
        let dir = running.dir.clone();
        std::fs::create_dir(&dir).map_err(Error::at(&dir))?;
        // No unmount takes what clients leave.
        running.undo("removing the files", move || {
            std::fs::remove_dir_all(&dir).map_err(Error::at(&dir))
        });
        Ok(running)
    }

    fn make(
        lab: &Lab,
        name: String,
        medium: impl FnOnce(&str, &mut Teardown) -> Result<Medium>,
    ) -> Result<Running> {
        let mut teardown = Teardown::default();
        let label = label(&name);
        let dir = lab.scratch().join(&label);
        std::fs::create_dir(&dir).map_err(Error::at(&dir))?;
        let removed = dir.clone();
        teardown.push(format!("removing {}", dir.display()), move || {
            std::fs::remove_dir(&removed).map_err(Error::at(&removed))
        });
        let medium = medium(&label, &mut teardown)?;
        let (client, journal) = (ClientSettings::default(), None);
        Ok(Running {
            name,
            label,
            dir,
            client,
            medium,
            journal,
            has_stat: false,
            mounting: None,
            has_journal_regions: false,
            teardown,
        })
    }

    /// The path to make a file system on.
    pub fn block(&self) -> PathBuf {
        self.medium.block.clone()
    }

    /// Another device, for a journal. Returns its path.
    pub fn add_journal(&mut self, lab: &Lab, device: &Device, size_mib: u32) -> Result<PathBuf> {
        let label = format!("{}-journal", self.label);
        let medium = Medium::prepare(lab, device, &label, size_mib, &mut self.teardown)?;
        let path = medium.block.clone();
        self.journal = Some(medium);
        Ok(path)
    }

    /// Adds a step of taking down.
    pub fn undo(&mut self, what: &str, step: impl FnOnce() -> Result<()> + 'static) {
        self.teardown.push(format!("{what} of {}", self.name), step);
    }

    /// Records that this program has mounted it. `unmount` ends the mount, with the directory as
    /// its last argument.
    pub fn mount(&mut self, mount: Program, unmount: Program) -> Result<()> {
        mount.copy().run()?;
        let unmount = unmount.arg(&self.dir).uninterrupted();
        self.mounting = Some(Mounting { mount, unmount: unmount.copy() });
        self.undo("unmounting", move || unmount.run().map(drop));
        Ok(())
    }

    /// Brings everything home and drops all caches: unmounts it, mounts it again without latency,
    /// and then gives the devices their latency.
    pub fn remount(&self) -> Result<()> {
        self.speed_up()?;
        self.unmount()?;
        self.mount_again()?;
        self.slow_down()
    }

    /// Records that it answers `onejournal stat`.
    pub fn has_stat(&mut self) {
        self.has_stat = true;
    }

    /// The requests to its devices so far.
    pub fn counts(&self) -> Result<Counts> {
        let journal = self.journal.as_ref().map(Medium::counts).transpose()?;
        Ok(Counts { device: self.medium.counts()?, journal: journal.unwrap_or_default() })
    }

    /// Bytes written to disks that are neither emulated nor memory.
    pub fn disk_write_bytes(&self) -> Result<u64> {
        let media = [Some(&self.medium), self.journal.as_ref()].into_iter().flatten();
        let counts = media.filter(|medium| medium.is_on_disk()).map(Medium::counts);
        counts.map(|counts| Ok(counts?.write_bytes)).sum()
    }

    /// The counters of OneJournal; `None` for other systems.
    pub fn stat(&self) -> Result<Option<Value>> {
        if !self.has_stat {
            return Ok(None);
        }
        let what = format!("{}: counters", self.name);
        let read = volume_client::virtual_attribute(&self.dir, "user.onejournal.stat");
        let text = read.map_err(|errno| Error::Io { what: what.clone(), source: errno.into() })?;
        serde_json::from_slice(&text).map(Some).map_err(Error::json(what))
    }

    /// Mounts it anew, runs `work` and unmounts it: the requests to its devices until everything
    /// is home.
    pub fn until_home(&self, work: impl FnOnce() -> Result<()>) -> Result<DeviceCounts> {
        let before = self.mounted_anew()?;
        work()?;
        self.all_home(before)
    }

    /// Mounts it anew: the requests to its devices so far.
    pub fn mounted_anew(&self) -> Result<Counts> {
        self.remount()?;
        self.counts()
    }

    /// Brings everything home, without latency: the requests to its devices since `before`.
    pub fn all_home(&self, before: Counts) -> Result<DeviceCounts> {
        self.speed_up()?;
        self.unmount()?;
        let after = self.counts()?;
        self.mount_again()?;
        self.slow_down()?;
        Ok((after - before).total())
    }

    /// Runs `work`, and tells what it asked the system to do.
    pub fn during<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Asked)> {
        let (counts, requests) = (self.counts()?, self.fuse_requests()?);
        let done = work()?;
        // The second look is a request, too.
        let both = self.fuse_requests()?.zip(requests);
        let fuse_requests = both.map(|(after, before)| after - before - 1.0);
        Ok((done, Asked { counts: self.counts()? - counts, fuse_requests }))
    }

    /// Requests that its FUSE server has answered, this look included; `None` of systems that do
    /// not tell.
    fn fuse_requests(&self) -> Result<Option<f64>> {
        Ok(self.stat()?.and_then(|stat| stat["requests"].as_f64()))
    }

    /// The daemon's process, for OneJournal.
    pub fn daemon(&self) -> Result<Option<i32>> {
        if !self.has_stat {
            return Ok(None);
        }
        let read = volume_client::virtual_attribute(&self.dir, "user.onejournal.pid");
        let what = format!("{}: the daemon's number", self.name);
        let text = read.map_err(|errno| Error::Io { what, source: errno.into() })?;
        Ok(std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()))
    }

    /// Bytes written to the journal, wherever it is; `None` if they cannot be distinguished from
    /// other writes.
    pub fn journal_bytes(&self) -> Result<Option<u64>> {
        if let Some(stat) = self.stat()? {
            return Ok(stat["journal_bytes"].as_u64());
        }
        match (&self.journal, self.medium.disk()) {
            (Some(journal), _) => Ok(Some(journal.counts()?.write_bytes)),
            (None, Some(disk)) if self.has_journal_regions => Ok(Some(disk.regions()?.write_bytes)),
            _ => Ok(None),
        }
    }

    /// Bytes written so far in two parts; `None` where they cannot be told apart.
    pub fn written_parts(&self) -> Result<Option<WrittenParts>> {
        let device_bytes = self.counts()?.total().write_bytes;
        if let Some(stat) = self.stat()? {
            return Ok(WrittenParts::of_stat(&stat, device_bytes));
        }
        let medium = self.journal.as_ref().unwrap_or(&self.medium);
        let Some(disk) = medium.disk().filter(|_| self.has_journal_regions) else {
            return Ok(None);
        };
        let journal = disk.regions()?;
        Ok(Some(WrittenParts {
            metadata_bytes: journal.jbd2_bytes,
            data_bytes: device_bytes - journal.jbd2_bytes,
            journal_data_bytes: journal.write_bytes - journal.jbd2_bytes,
        }))
    }

    /// Lets an emulated disk count writes to these bytes, which are a journal.
    pub fn count_journal(&mut self, extents: &[std::ops::Range<u64>]) -> Result<()> {
        let medium = self.journal.as_ref().unwrap_or(&self.medium);
        let Some(disk) = medium.disk() else { return Ok(()) };
        for (index, extent) in extents.iter().enumerate() {
            disk.command(&format!("region journal{index} {} {}", extent.start, extent.end))?;
        }
        self.has_journal_regions = true;
        Ok(())
    }

    /// Writes everything to the devices.
    pub fn sync(&self) -> Result<()> {
        Program::new("sync").arg("-f").arg(&self.dir).run().map(drop)
    }

    /// Gives emulated devices their latency.
    pub fn slow_down(&self) -> Result<()> {
        self.disks().try_for_each(|disk| disk.slow_down())
    }

    /// Removes the latency of emulated devices, for example for filling, until
    /// [`Running::slow_down`].
    pub fn speed_up(&self) -> Result<()> {
        self.disks().try_for_each(|disk| disk.speed_up())
    }

    /// Cuts the power of its emulated devices: each unflushed sector survives with this
    /// probability. Then unmounts it. The devices are on again, without latency.
    pub fn cut_power(&self, survival: f64, seed: u64) -> Result<()> {
        self.tell_disks("power off")?;
        self.tell_disks(&format!("crash {survival} {seed}"))?;
        if self.has_stat {
            self.kill_daemon()?;
        }
        // A file system without a device, and a mount without a daemon, have nothing to write any
        // more.
        Program::new("umount").arg("--lazy").arg(&self.dir).run()?;
        self.wait_until_unused()?;
        self.tell_disks("power on")?;
        self.speed_up()
    }

    fn kill_daemon(&self) -> Result<()> {
        let what = || format!("{}: its daemon", self.name);
        let pid = self.daemon()?.and_then(Pid::from_raw).ok_or_else(|| Error::other(what()))?;
        let daemon = pidfd_open(pid, PidfdFlags::empty());
        let daemon = daemon.map_err(|errno| Error::Io { what: what(), source: errno.into() })?;
        let killed = pidfd_send_signal(&daemon, Signal::KILL).and_then(|()| {
            let end = Timespec { tv_sec: 10, tv_nsec: 0 };
            poll(&mut [PollFd::new(&daemon, PollFlags::IN)], Some(&end))
        });
        match killed {
            Ok(1) => Ok(()),
            Ok(_) => Err(Error::other(format!("{} does not end", what()))),
            Err(errno) => Err(Error::Io { what: what(), source: errno.into() }),
        }
    }

    /// Checks that no process has its devices: they can be opened exclusively.
    fn wait_until_unused(&self) -> Result<()> {
        let blocks = [Some(&self.medium), self.journal.as_ref()].into_iter().flatten();
        for block in blocks.map(|medium| &medium.block) {
            let deadline = Instant::now() + UNUSED_WAIT;
            let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
            while let Err(errno) = rustix::fs::open(block, flags, Mode::empty()) {
                if Instant::now() > deadline {
                    return Err(Error::Io {
                        what: block.display().to_string(),
                        source: errno.into(),
                    });
                }
                interrupt::check()?;
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// Saves the content of its emulated devices for [`Running::restore`]. Not while it is mounted.
    pub fn save(&self) -> Result<()> {
        self.tell_disks("save")
    }

    /// Restores the saved content of the devices. Not while it is mounted.
    pub fn restore(&self) -> Result<()> {
        self.tell_disks("restore")?;
        let media = [Some(&self.medium), self.journal.as_ref()].into_iter().flatten();
        for medium in media {
            Program::new("blockdev").arg("--flushbufs").arg(&medium.block).run()?;
        }
        Ok(())
    }

    /// Mounts it again after [`Running::unmount`] or [`Running::cut_power`].
    pub fn mount_again(&self) -> Result<()> {
        self.mounting.as_ref().expect("it was mounted").mount.copy().run().map(drop)
    }

    /// Unmounts it until [`Running::mount_again`].
    pub fn unmount(&self) -> Result<()> {
        self.mounting.as_ref().expect("it is mounted").unmount.copy().run().map(drop)
    }

    fn tell_disks(&self, command: &str) -> Result<()> {
        self.disks().try_for_each(|disk| disk.command(command))
    }

    fn disks(&self) -> impl Iterator<Item = &EmulatedDisk> {
        [Some(&self.medium), self.journal.as_ref()].into_iter().flatten().filter_map(Medium::disk)
    }

    /// Unmounts it and removes everything that was made for it.
    pub fn tear_down(mut self) -> Result<()> {
        // Without latency it is over sooner; if that fails, it takes longer.
        let _ = self.speed_up();
        self.teardown.run()
    }
}

/// A name that a file can have.
fn label(name: &str) -> String {
    let mut label = String::new();
    for letter in name.chars() {
        match letter {
            'a'..='z' | '0'..='9' => label.push(letter),
            'A'..='Z' => label.push(letter.to_ascii_lowercase()),
            '+' => label.push('p'),
            _ if !label.ends_with('-') => label.push('-'),
            _ => {}
        }
    }
    label.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn labels_tell_systems_apart() {
        assert_eq!(super::label("ext4 journal+async"), "ext4-journalpasync");
        assert_eq!(super::label("OneJournal, NVRAM (40 ns)"), "onejournal-nvram-40-ns");
    }
}
