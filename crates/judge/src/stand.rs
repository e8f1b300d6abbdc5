//! The place where crash images are recovered and checked.
//!
//! Files in `/dev/shm` hold one image after the other: for e2fsck, for the kernel's ext4, through
//! which a recovered volume is read, and for the command under test. Each use gets its own loop
//! device. The page cache of a loop device exists until its last user has closed it, perhaps after
//! a program has ended, and would show the previous image.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use device::BlockDevice;
use ext4::{OpenOptions, Volume as InProcess};
use host::{LoopDevice, LoopOptions, link_to};
use journal::Medium;
use onejournal_testing::Image;
use onejournal_testing::drive::Recorder;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use sim::recover::no_panic;
use tempfile::TempDir;

use crate::case::How;
use crate::command::{outcome, tool, without_children};
use crate::crash::Trace;
use crate::found::Read;
use crate::history::Survivor;
use crate::host::{Host, Programs};
use crate::memory::RamNvram;
use crate::ram::RamDisk;
use crate::rig::{Drive, Loop, Volume};
use crate::scenario::Scenario;

/// Sector sizes with which images are recovered.
pub const SECTOR_BYTES: [u32; 2] = [512, 4096];

/// A file that holds an image.
struct Shelf {
    path: PathBuf,
    file: File,
    held: Image,
}

/// The place. Each thread has one.
pub struct Stand {
    programs: Programs,
    scenario: &'static Scenario,
    shelves: Vec<Shelf>,
    dir: PathBuf,
    root: TempDir,
    drive_count: usize,
}

impl Shelf {
    fn new(root: &Path, number: usize, image: &Image) -> Result<Shelf, String> {
        let path = root.join(format!("image{number}"));
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|e| e.to_string())?;
        image.write_to(&file).map_err(|e| e.to_string())?;
        Ok(Shelf { path, file, held: image.clone() })
    }

    fn load(&mut self, image: &Image) -> Result<(), String> {
        image.write_differences_to(&self.file, &self.held).map_err(|e| e.to_string())?;
        self.held = image.clone();
        Ok(())
    }

    /// Reads the file again after other programs wrote to it.
    fn reload(&mut self) -> Result<(), String> {
        let bytes = fs::read(&self.path).map_err(|e| e.to_string())?;
        self.held = Image::from_bytes(&bytes);
        Ok(())
    }
}

impl Stand {
    /// A place for images like those of `bases`.
    pub fn new(
        programs: &Programs,
        scenario: &'static Scenario,
        bases: &[Image],
    ) -> Result<Stand, String> {
        let root = tempfile::Builder::new().prefix("onejournal-judge-").tempdir_in("/dev/shm");
        let root = root.map_err(|e| e.to_string())?;
        let shelves =
            bases.iter().enumerate().map(|(number, image)| Shelf::new(root.path(), number, image));
        let shelves = shelves.collect::<Result<_, _>>()?;
        let dir = root.path().join("mnt");
        fs::create_dir(&dir).map_err(|e| e.to_string())?;
        Ok(Stand { programs: programs.clone(), scenario, shelves, dir, root, drive_count: 0 })
    }

    /// Recovers in this process: opens the volume and closes it. Returns the content of the disks
    /// after that, and their requests.
    pub fn recover_here(
        images: &[Image],
        sector_bytes: u32,
        has_nvram: bool,
    ) -> Result<(Vec<Image>, Trace), String> {
        let recorder = Recorder::default();
        let disk = |(image, number): (&Image, u8)| {
            let sector_bytes = usize::try_from(sector_bytes).expect("a small number");
            Arc::new(RamDisk::new(image.clone(), sector_bytes, recorder.clone(), number))
        };
        let memory = has_nvram.then(|| RamNvram::new(images[1].clone(), recorder.clone()));
        let memory = memory.map(Arc::new);
        let disk_count = images.len() - usize::from(has_nvram);
        let disks: Vec<Arc<RamDisk>> = images[..disk_count].iter().zip(0..).map(disk).collect();
        let block = disks.get(1).map(|disk| Medium::Block(disk.clone() as Arc<dyn BlockDevice>));
        let journal = memory.clone().map(|memory| Medium::Nvram(memory)).or(block);
        let options = OpenOptions {
            background: false,
            commit_interval: None,
            journal: journal.into(),
            ..OpenOptions::default()
        };
        no_panic("recovery", || {
            let volume = InProcess::open(disks[0].clone(), options);
            let volume = volume.map_err(|e| format!("does not open: {e}"))?;
            volume.close().map_err(|e| format!("does not close: {e}"))
        })?;
        let recovered = disks.iter().map(|disk| disk.image());
        let recovered = recovered.chain(memory.map(|memory| memory.image())).collect();
        let trace = Trace {
            bases: images.to_vec(),
            events: recorder.take(),
            has_nvram,
            has_kernel_ext4: false,
        };
        Ok((recovered, trace))
    }

    /// Checks recovered volumes with `e2fsck -fn`, and reads them through the kernel's ext4 if
    /// `is_read`.
    pub fn look(&mut self, images: &[Image], is_read: bool) -> Result<Vec<Survivor>, String> {
        self.load(images)?;
        self.check()?;
        if is_read { self.read() } else { Ok(Vec::new()) }
    }

    fn load(&mut self, images: &[Image]) -> Result<(), String> {
        self.shelves.iter_mut().zip(images).try_for_each(|(shelf, image)| shelf.load(image))
    }

    fn check(&self) -> Result<(), String> {
        let (code, text) = outcome(tool("e2fsck").arg("-fn").arg(&self.shelves[0].path))?;
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("Pass ")).collect();
        if code == 0 {
            Ok(())
        } else {
            Err(format!("e2fsck -fn ends with {code}:\n  {}", lines.join("\n  ")))
        }
    }

    /// Reads through a mount that is in no namespace, so that no other process can see, copy or
    /// keep it.
    fn read(&self) -> Result<Vec<Survivor>, String> {
        let options = LoopOptions { read_only: true, autoclear: true, ..LoopOptions::default() };
        let device = LoopDevice::attach(&self.shelves[0].file, options);
        let device = device.map_err(|e| e.to_string())?;
        let read = without_children(|| {
            let mounted = mount_by_kernel(device.path(), true);
            let mounted =
                mounted.map_err(|errno| format!("the kernel does not mount it: {errno}"))?;
            Read::take(&link_to(&mounted), self.scenario)
        });
        read?.found(self.scenario)
    }

    /// Recovers with `onejournal fsck` on loop devices with sectors of `sector_bytes` bytes, then
    /// checks and reads.
    pub fn fsck(
        &mut self,
        images: &[Image],
        sector_bytes: u32,
        is_read: bool,
    ) -> Result<Vec<Survivor>, String> {
        self.load(images)?;
        let loops = self.attach(sector_bytes)?;
        let ran = outcome(&mut self.fsck_command(&loops));
        drop(loops);
        self.shelves.iter_mut().try_for_each(Shelf::reload)?;
        let (code, text) = ran?;
        if code > 1 {
            return Err(format!("onejournal fsck ends with {code}: {text}"));
        }
        self.check()?;
        if is_read { self.read() } else { Ok(Vec::new()) }
    }

    fn fsck_command(&self, loops: &[Loop]) -> Command {
        let mut fsck = Command::new(&self.programs.onejournal);
        fsck.arg("fsck");
        if let Some(journal) = self.journal(loops) {
            fsck.arg("--journal").arg(journal);
        }
        fsck.arg(&loops[0].path);
        fsck
    }

    /// Recovers with `onejournal mount`, reads, unmounts, and checks.
    pub fn mount(
        &mut self,
        images: &[Image],
        sector_bytes: u32,
        is_read: bool,
    ) -> Result<Vec<Survivor>, String> {
        self.load(images)?;
        let found = self.mount_and_read(sector_bytes, is_read);
        self.shelves.iter_mut().try_for_each(Shelf::reload)?;
        let found = found?;
        self.check()?;
        Ok(found)
    }

    fn mount_and_read(&self, sector_bytes: u32, is_read: bool) -> Result<Vec<Survivor>, String> {
        let loops = self.attach(sector_bytes)?;
        // The stand is in memory.
        let mut options = vec!["noatime,durability=process".to_owned()];
        options.extend(self.journal(&loops).map(|path| format!("journal={}", path.display())));
        let volume = Volume::mount(
            &self.programs.onejournal,
            &loops[0].path,
            &self.dir,
            &options.join(","),
            false,
        )?;
        let read = is_read.then(|| Read::take(&self.dir, self.scenario));
        volume.umount()?;
        read.map_or(Ok(Vec::new()), |read| read?.found(self.scenario))
    }

    /// An external journal: a loop device, or the file in `/dev/shm` itself, which the commands map
    /// as NVRAM.
    fn journal<'p>(&'p self, loops: &'p [Loop]) -> Option<&'p Path> {
        let file = self.scenario.has_nvram().then(|| self.shelves[1].path.as_path());
        file.or_else(|| loops.get(1).map(|journal| journal.path.as_path()))
    }

    fn attach(&self, sector_bytes: u32) -> Result<Vec<Loop>, String> {
        let attach = |shelf: &Shelf| Loop::attach(&shelf.path, sector_bytes, false);
        let disk_count = self.shelves.len() - usize::from(self.scenario.has_nvram());
        self.shelves[..disk_count].iter().map(attach).collect()
    }

    /// Lets the kernel's ext4 recover its own disk, then checks and reads.
    pub fn mount_by_kernel(
        &mut self,
        images: &[Image],
        sector_bytes: u32,
        is_read: bool,
    ) -> Result<Vec<Survivor>, String> {
        self.load(images)?;
        let loops = self.attach(sector_bytes)?;
        let mounted = without_children(|| mount_by_kernel(&loops[0].path, false).map(drop));
        drop(loops);
        self.shelves.iter_mut().try_for_each(Shelf::reload)?;
        mounted.map_err(|errno| format!("the kernel does not mount it: {errno}"))?;
        self.check()?;
        if is_read { self.read() } else { Ok(Vec::new()) }
    }

    /// Mounts a disk of the kernel's ext4 as after a restart of the machine. Returns what its
    /// programs find.
    pub fn open(
        &mut self,
        images: &[Image],
        sector_bytes: u32,
        how: How,
        is_read: bool,
    ) -> Result<Vec<Survivor>, String> {
        self.load(images)?;
        let loops = self.attach(sector_bytes)?;
        let found = self.open_on(&loops[0], how, is_read);
        drop(loops);
        self.shelves.iter_mut().try_for_each(Shelf::reload)?;
        let found = found?;
        self.check()?;
        Ok(found)
    }

    fn open_on(&self, disk: &Loop, how: How, is_read: bool) -> Result<Vec<Survivor>, String> {
        let is_served = how == How::Served;
        let host = Host::start(&disk.path, &self.programs, self.scenario, is_served)?;
        let found = if is_read { host.check(self.scenario, how)? } else { Vec::new() };
        host.stop()?;
        Ok(found)
    }

    /// The same on a recorded disk.
    pub fn record_open(
        &mut self,
        images: &[Image],
        sector_bytes: u32,
        how: How,
        is_read: bool,
    ) -> Result<Trace, String> {
        let (recorder, drives, loops) = self.recorded(images, sector_bytes)?;
        self.open_on(&loops[0], how, is_read)?;
        drop(loops);
        drop(drives);
        let (bases, events) = (images.to_vec(), recorder.take());
        Ok(Trace { bases, events, has_nvram: false, has_kernel_ext4: true })
    }

    /// Makes recorded disks with the content of these images.
    fn recorded(
        &mut self,
        images: &[Image],
        sector_bytes: u32,
    ) -> Result<(Recorder, Vec<Drive>, Vec<Loop>), String> {
        let recorder = Recorder::default();
        let (mut drives, mut loops) = (Vec::new(), Vec::new());
        for (image, number) in images.iter().zip(0..) {
            self.drive_count += 1;
            let dir = self.root.path().join(format!("drive{}", self.drive_count));
            let drive = Drive::start(dir, image, "spin_us=0", 0, (recorder.clone(), number))?;
            loops.push(Loop::attach(&drive.file(), sector_bytes, true)?);
            drives.push(drive);
        }
        Ok((recorder, drives, loops))
    }

    /// Runs `onejournal fsck` on recorded disks. The record includes the writes of e2fsck.
    pub fn record_fsck(&mut self, images: &[Image], sector_bytes: u32) -> Result<Trace, String> {
        let (recorder, drives, loops) = self.recorded(images, sector_bytes)?;
        let (code, text) = outcome(&mut self.fsck_command(&loops))?;
        drop(loops);
        drop(drives);
        if code > 1 {
            return Err(format!("onejournal fsck ends with {code}: {text}"));
        }
        Ok(Trace {
            bases: images.to_vec(),
            events: recorder.take(),
            has_nvram: false,
            has_kernel_ext4: false,
        })
    }
}

/// Mounts with the kernel's ext4. The mount ends with the descriptor.
fn mount_by_kernel(device: &Path, is_read_only: bool) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", device)?;
    if is_read_only {
        fsconfig_set_flag(&context, "ro")?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOATIME)
}
