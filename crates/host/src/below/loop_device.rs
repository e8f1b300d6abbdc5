//! Attaching a file to a loop device, so that it can be mounted where only a block device can.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Ioctl, IoctlOutput, NoArg, Opcode, Setter};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::loop_status::LoopInfo64;
use crate::descriptor::above_standard;
use crate::error::{OpenError, Result};
use crate::error::{errno, refused};

const LOOP_CTL_GET_FREE: Opcode = 0x4c82;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LOOP_CLR_FD: Opcode = 0x4c01;

const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Another process may take the free device before it is configured; the kernel then reports EBUSY,
/// and the caller asks for another one. More failures than this have another cause.
const ATTEMPT_COUNT_MAX: usize = 64;

/// `struct loop_config` of the kernel's interface.
#[derive(FromZeros, IntoBytes, Immutable)]
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);

/// How a file is attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoopOptions {
    /// The device refuses writes.
    pub read_only: bool,
    /// The device is detached when its last user closes it, a mount included.
    pub autoclear: bool,
    /// The device's I/O goes past the page cache of the file.
    pub direct_io: bool,
}

impl LoopOptions {
    fn flags(self) -> u32 {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        flag(self.read_only, LO_FLAGS_READ_ONLY)
            | flag(self.autoclear, LO_FLAGS_AUTOCLEAR)
            | flag(self.direct_io, LO_FLAGS_DIRECT_IO)
    }
}

/// A loop device that a file was attached to. Held open; with `autoclear` the file is
/// detached when this is dropped and nothing else uses the device.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    file: File,
}

impl LoopDevice {
    /// Attaches `backing`. It must be open for writing unless the device is to be read-only.
    pub fn attach(backing: &File, options: LoopOptions) -> Result<LoopDevice> {
        let control_path = Path::new("/dev/loop-control");
        let control = open(control_path, OFlags::RDWR)?;
        for _ in 0..ATTEMPT_COUNT_MAX {
            // SAFETY: `GetFree` describes LOOP_CTL_GET_FREE, which takes no argument.
            let number =
                unsafe { ioctl::ioctl(&control, GetFree) }.map_err(|e| errno(control_path, e))?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let mode = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
            let file = open(&path, mode)?;
            match configure(&file, backing, options) {
                Ok(()) => return Ok(LoopDevice { path, file }),
                Err(Errno::BUSY) => {}
                Err(e) => return Err(errno(&path, e)),
            }
        }
        Err(no_free_device(control_path))
    }

    /// The path of the device: `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path and the open device.
    pub fn into_parts(self) -> (PathBuf, File) {
        (self.path, self.file)
    }

    /// Detaches the file now, or when the last other user closes the device.
    pub fn detach(self) -> Result<()> {
        // SAFETY: LOOP_CLR_FD takes no argument.
        unsafe { ioctl::ioctl(&self.file, NoArg::<LOOP_CLR_FD>::new()) }
            .map_err(|e| errno(&self.path, e))
    }
}

fn open(path: &Path, mode: OFlags) -> Result<File> {
    let opened = above_standard(|| rustix::fs::open(path, mode | OFlags::CLOEXEC, Mode::empty()));
    opened.map(File::from).map_err(|e| errno(path, e))
}

fn no_free_device(control: &Path) -> OpenError {
    let why = "other programs took every free loop device";
    refused(control, io::ErrorKind::ResourceBusy, why)
}

fn configure(device: &File, backing: &File, options: LoopOptions) -> rustix::io::Result<()> {
    let mut config = LoopConfig::new_zeroed();
    config.fd = backing.as_fd().as_raw_fd().cast_unsigned();
    config.info.lo_flags = options.flags();
    // SAFETY: LOOP_CONFIGURE takes a pointer to a `struct loop_config`, which `LoopConfig` is
    // (size asserted above); the kernel only reads it, during the call.
    unsafe { ioctl::ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }
}

/// LOOP_CTL_GET_FREE: its answer is what the call returns.
struct GetFree;

// SAFETY: the call takes no argument (null), mutates nothing of ours, and its output is made
// from the returned number alone.
unsafe impl Ioctl for GetFree {
    type Output = IoctlOutput;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        number: IoctlOutput,
        _: *mut c_void,
    ) -> rustix::io::Result<IoctlOutput> {
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Seek, Write};

    use onejournal_testing::has_loop_devices;

    use super::*;
    use crate::access::Access;
    use crate::claim::take::claim;

    /// A file of 1 MiB that starts with "contents". `None`, with a message, if loop devices cannot
    /// be used.
    fn backing() -> Option<File> {
        if !has_loop_devices() {
            return None;
        }
        let mut file = tempfile::tempfile().expect("temporary file");
        file.write_all(b"contents").expect("write");
        file.set_len(1 << 20).expect("size");
        Some(file)
    }

    fn attribute(path: &Path, name: &str) -> Option<String> {
        let device = path.file_name().expect("a name").to_string_lossy().into_owned();
        fs::read_to_string(format!("/sys/block/{device}/{name}")).ok()
    }

    #[test]
    fn an_attached_file_is_read_and_written_through_the_device() {
        let Some(mut file) = backing() else { return };
        let options = LoopOptions { autoclear: true, ..LoopOptions::default() };
        let (path, mut device) = LoopDevice::attach(&file, options).expect("attach").into_parts();
        assert_eq!(attribute(&path, "size").expect("size").trim(), "2048");
        let mut found = [0; 8];
        device.read_exact(&mut found).expect("read");
        assert_eq!(&found, b"contents");
        device.rewind().expect("seek");
        device.write_all(b"replaced").expect("write");
        device.sync_all().expect("sync");
        file.rewind().expect("seek");
        file.read_exact(&mut found).expect("read");
        assert_eq!(&found, b"replaced");
    }

    #[test]
    fn a_read_only_device_refuses_writes() {
        let Some(file) = backing() else { return };
        let options = LoopOptions { autoclear: true, read_only: true, ..LoopOptions::default() };
        let device = LoopDevice::attach(&file, options).expect("attach");
        assert_eq!(attribute(device.path(), "ro").expect("ro").trim(), "1");
        let mut written = open(device.path(), OFlags::RDWR).expect("only writing is refused");
        written.write_all(&[1; 4096]).and_then(|()| written.sync_all()).expect_err("read-only");
        drop(written);
        let refused = claim(device.path(), Access::ReadWrite, None);
        assert!(refused.err().expect("must be refused").to_string().contains("read-only"));
        claim(device.path(), Access::ReadOnly, None).expect("reading is fine");
    }

    #[test]
    fn a_device_stays_attached_until_detached_unless_it_clears_itself() {
        let Some(file) = backing() else { return };
        let device = LoopDevice::attach(&file, LoopOptions::default()).expect("attach");
        let autoclear = attribute(device.path(), "loop/autoclear");
        let path = device.path().to_owned();
        let again = open(&path, OFlags::RDONLY);
        device.detach().expect("detach");
        assert_eq!(autoclear.expect("attached").trim(), "0");
        drop(again);
        let options = LoopOptions { autoclear: true, ..LoopOptions::default() };
        let device = LoopDevice::attach(&file, options).expect("attach");
        assert_eq!(attribute(device.path(), "loop/autoclear").expect("attached").trim(), "1");
    }

    #[test]
    fn two_files_get_two_devices() {
        let (Some(one), Some(two)) = (backing(), backing()) else { return };
        let options = LoopOptions { autoclear: true, ..LoopOptions::default() };
        let one = LoopDevice::attach(&one, options).expect("attach");
        let two = LoopDevice::attach(&two, options).expect("attach");
        assert_ne!(one.path(), two.path());
    }
}
