//! What a loop device shows, as the kernel reports it.

use std::os::fd::OwnedFd;

use rustix::ioctl::{self, Getter, Opcode};
use zerocopy::{FromZeros, Immutable, IntoBytes};

const LOOP_GET_STATUS64: Opcode = 0x4c05;

/// `struct loop_info64` of the kernel's interface.
#[derive(FromZeros, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct LoopInfo64 {
    pub(crate) lo_device: u64,
    pub(crate) lo_inode: u64,
    pub(crate) lo_rdevice: u64,
    pub(crate) lo_offset: u64,
    pub(crate) lo_sizelimit: u64,
    pub(crate) lo_number: u32,
    pub(crate) lo_encrypt_type: u32,
    pub(crate) lo_encrypt_key_size: u32,
    pub(crate) lo_flags: u32,
    pub(crate) lo_file_name: [u8; 64],
    pub(crate) lo_crypt_name: [u8; 64],
    pub(crate) lo_encrypt_key: [u8; 32],
    pub(crate) lo_init: [u64; 2],
}

const _: () = assert!(size_of::<LoopInfo64>() == 232);

/// The file that an attached loop device shows, and which span of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoopStatus {
    /// Number of the file system of its file.
    pub(crate) device: u64,
    /// Number of its file's inode.
    pub(crate) inode: u64,
    /// Number of the block device that its file is; 0 for an ordinary file.
    pub(crate) block_device: u64,
    pub(crate) offset_bytes: u64,
    /// 0: up to the end of the file.
    pub(crate) limit_bytes: u64,
}

/// Asks the kernel about the open loop device.
pub(crate) fn loop_status(device: OwnedFd) -> rustix::io::Result<LoopStatus> {
    // SAFETY: LOOP_GET_STATUS64 stores a `struct loop_info64` through its argument, which
    // `LoopInfo64` is (size asserted above); all its fields take any bytes.
    let info = unsafe { ioctl::ioctl(device, Getter::<LOOP_GET_STATUS64, LoopInfo64>::new()) }?;
    Ok(LoopStatus {
        device: info.lo_device,
        inode: info.lo_inode,
        block_device: info.lo_rdevice,
        offset_bytes: info.lo_offset,
        limit_bytes: info.lo_sizelimit,
    })
}
