//! The ioctls of `lsattr` and `chattr` (inode flags, the generation), and those of F2FS for atomic
//! writes.
//!
//! The kernel checks for the calls that it knows, and for extended attributes, that the mount which
//! the program sees is writable. It does not say for other ioctls which mount that is. So such an
//! ioctl changes something only through a descriptor that is open for writing, which a read-only
//! mount refuses. The label is the exception: an administrator could make the mount writable.

use ext4::{InodeNo, SetAttr};
use fuse::abi::{IoctlIn, IoctlOut};
use fuse::{CAP_FOWNER, CAP_LINUX_IMMUTABLE, CAP_SYS_ADMIN, Caller};
use host::Account;
use rustix::io::Errno;
use volume_client::{VIRTUAL_ATTRIBUTE_BYTES, VIRTUAL_ATTRIBUTE_IOCTL, VOLUME_SYNC_IOCTL};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::adapter::call::Call;
use crate::adapter::failure::Outcome;
use crate::convert::node_of;
use crate::session_options::Order;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FS_IOC_GETFSLABEL: u32 = 0x8100_9431;
const FS_IOC_SETFSLABEL: u32 = 0x4100_9432;
/// Bytes of a label in these calls (`FSLABEL_MAX`).
const LABEL_ARGUMENT_BYTES: usize = 256;
/// `_IOR('O', 0xE0, __u32)`: the data mode that holds for a file (`docs/reference/modes.md`).
const OJ_IOC_GET_MODE: u32 = 0x8004_4fe0;

const F2FS_IOC_START_ATOMIC_WRITE: u32 = 0x0000_f501;
const F2FS_IOC_COMMIT_ATOMIC_WRITE: u32 = 0x0000_f502;
const F2FS_IOC_ABORT_ATOMIC_WRITE: u32 = 0x0000_f505;
const F2FS_IOC_GET_FEATURES: u32 = 0x8004_f50c;
const F2FS_FEATURE_ATOMIC_WRITE: u32 = 0x0004;

pub(super) const FS_SYNC_FL: u32 = 0x0000_0008;
pub(super) const FS_IMMUTABLE_FL: u32 = 0x0000_0010;
pub(super) const FS_APPEND_FL: u32 = 0x0000_0020;
const FS_NODUMP_FL: u32 = 0x0000_0040;
const FS_NOATIME_FL: u32 = 0x0000_0080;

/// Flags that both interfaces know: the bit of `FS_IOC_FSGETXATTR` and that of `FS_IOC_GETFLAGS`.
const SHARED: [(u32, u32); 5] = [
    (0x08, FS_IMMUTABLE_FL),
    (0x10, FS_APPEND_FL),
    (0x20, FS_SYNC_FL),
    (0x40, FS_NOATIME_FL),
    (0x80, FS_NODUMP_FL),
];

/// `struct fsxattr`: 28 bytes.
#[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FsXattr {
    xflags: u32,
    extent_size: u32,
    extent_count: u32,
    project_id: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

const _: () = assert!(size_of::<FsXattr>() == 28);

impl Call<'_, '_> {
    pub(super) fn ioctl(&mut self) -> Outcome {
        let ioctl: IoctlIn = self.body.take()?;
        let input = self.body.take_bytes(ioctl.in_size)?;
        let ino = self.ino()?;
        match ioctl.cmd {
            FS_IOC_GETFLAGS => {
                let flags = self.volume.get_attr(ino)?.flags;
                self.push_number(&ioctl, flags)
            }
            FS_IOC_GETVERSION => {
                // Its number says `long`. `lsattr -v` has room for an `int`, as much as ext4 fills.
                let generation = self.volume.get_attr(ino)?.generation;
                self.reply.push(&IoctlOut::default())?;
                Ok(self.reply.push_bytes(&generation.to_ne_bytes())?)
            }
            FS_IOC_SETFLAGS => {
                let (flags, _) = u32::read_from_prefix(input).map_err(|_| Errno::INVAL)?;
                self.change_flags(flags, u32::MAX)
            }
            FS_IOC_FSGETXATTR => {
                let flags = self.volume.get_attr(ino)?.flags;
                let answer = FsXattr { xflags: to_xflags(flags), ..FsXattr::default() };
                self.push_result(&ioctl, answer.as_bytes())
            }
            FS_IOC_FSSETXATTR => {
                let (request, _) = FsXattr::read_from_prefix(input).map_err(|_| Errno::INVAL)?;
                let flags = from_xflags(request.xflags)?;
                if request.project_id != 0 || request.extent_size != 0 {
                    return Err(Errno::OPNOTSUPP.into());
                }
                let shared = SHARED.iter().fold(0, |all, (_, flag)| all | flag);
                self.change_flags(flags, shared)
            }
            FS_IOC_GETFSLABEL => {
                let mut answer = [0; LABEL_ARGUMENT_BYTES];
                let label = self.volume.label()?;
                answer[..label.len()].copy_from_slice(&label);
                self.push_result(&ioctl, &answer)
            }
            FS_IOC_SETFSLABEL => self.set_label(input),
            OJ_IOC_GET_MODE => {
                let mode = self.volume.data_mode_of(ino)?;
                self.push_result(&ioctl, &mode.number().to_ne_bytes())
            }
            VOLUME_SYNC_IOCTL => {
                self.volume.sync()?;
                self.push_result(&ioctl, &[])
            }
            VIRTUAL_ATTRIBUTE_IOCTL => {
                let name = input.split(|byte| *byte == 0).next().unwrap_or_default();
                self.ioctl_virtual_attribute(ino, &ioctl, name)
            }
            _ => self.ioctl_atomic(ino, &ioctl),
        }
    }

    /// An attribute that no file holds, for a mount without extended attributes.
    fn ioctl_virtual_attribute(&mut self, ino: InodeNo, ioctl: &IoctlIn, name: &[u8]) -> Outcome {
        const CAPACITY_BYTES: usize = VIRTUAL_ATTRIBUTE_BYTES - size_of::<u32>();
        let value =
            self.short_virtual_attribute(ino, name, CAPACITY_BYTES)?.ok_or(Errno::NODATA)?;
        let mut answer = [0; VIRTUAL_ATTRIBUTE_BYTES];
        let (count, room) = answer.split_at_mut(size_of::<u32>());
        let len = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
        count.copy_from_slice(&len.to_ne_bytes());
        room.get_mut(..value.len()).ok_or(Errno::TOOBIG)?.copy_from_slice(&value);
        self.push_result(ioctl, &answer)?;
        self.restart_if_asked(name, &value)
    }

    fn set_label(&mut self, input: &[u8]) -> Outcome {
        if !self.is_from_administrator() {
            return Err(Errno::PERM.into());
        }
        let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
        self.volume.set_label(&input[..end])?;
        Ok(self.reply.push(&IoctlOut::default())?)
    }

    fn ioctl_atomic(&mut self, ino: InodeNo, ioctl: &IoctlIn) -> Outcome {
        let Some(atomic) = &self.adapter.atomic else { return Err(Errno::NOTTY.into()) };
        match ioctl.cmd {
            F2FS_IOC_GET_FEATURES => return self.push_number(ioctl, F2FS_FEATURE_ATOMIC_WRITE),
            F2FS_IOC_START_ATOMIC_WRITE => {
                atomic.start(&self.volume, ino, (ioctl.fh, Account::of(self.header.uid)))?;
            }
            F2FS_IOC_COMMIT_ATOMIC_WRITE => {
                let (counters, forgets) = (&self.adapter.counters, &self.adapter.forgets);
                atomic.commit(self.volume, ino, ioctl.fh, (counters, forgets))?;
            }
            F2FS_IOC_ABORT_ATOMIC_WRITE => atomic.abort(ino, ioctl.fh, &self.adapter.counters),
            _ => return Err(Errno::NOTTY.into()),
        }
        self.push_changed(ino)
    }

    /// The answer to an ioctl that may have changed the inode: the kernel keeps its attributes
    /// otherwise.
    fn push_changed(&mut self, ino: InodeNo) -> Outcome {
        if let Some(notifier) = &self.adapter.notifier {
            notifier.drop_attributes(node_of(ino));
        }
        Ok(self.reply.push(&IoctlOut::default())?)
    }

    /// Gives the flags in `mask` the values they have in `flags`. The volume refuses to change
    /// what users may not.
    fn change_flags(&mut self, flags: u32, mask: u32) -> Outcome {
        let ino = self.ino()?;
        let current = self.volume.get_attr(ino)?.flags;
        let flags = (current & !mask) | (flags & mask);
        if flags != current {
            let caller = Caller::of(&self.header);
            self.check_owner(ino, &caller)?;
            if flags & !current & FS_SYNC_FL != 0 && self.adapter.order() == Order::Sync {
                // The kernel would collect the writes.
                return Err(Errno::OPNOTSUPP.into());
            }
            let is_guarded = (flags ^ current) & (FS_IMMUTABLE_FL | FS_APPEND_FL) != 0;
            if is_guarded && !caller.has_capability(CAP_LINUX_IMMUTABLE) {
                return Err(Errno::PERM.into());
            }
            if flags & !current & FS_IMMUTABLE_FL != 0 {
                self.flush_held_writes(ino)?;
            }
            self.volume.set_attr(ino, &SetAttr { flags: Some(flags), ..SetAttr::default() })?;
        }
        self.push_changed(ino)
    }

    /// An ioctl needs no more than an open file, and kernels before 5.14 check nothing for those
    /// they know either.
    pub(super) fn check_owner(&self, ino: InodeNo, caller: &Caller) -> Outcome {
        let is_owner = self.volume.get_attr(ino)?.uid == self.header.uid;
        if is_owner || caller.has_capability(CAP_FOWNER) { Ok(()) } else { Err(Errno::PERM.into()) }
    }

    /// Root of a container often lacks the capability.
    pub(super) fn is_from_administrator(&self) -> bool {
        Caller::of(&self.header).has_capability(CAP_SYS_ADMIN)
    }

    /// An `int` or `long`, as wide as the caller's buffer.
    fn push_number(&mut self, ioctl: &IoctlIn, value: u32) -> Outcome {
        match ioctl.out_size {
            4 => self.push_result(ioctl, &value.to_ne_bytes()),
            8 => self.push_result(ioctl, &u64::from(value).to_ne_bytes()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn push_result(&mut self, ioctl: &IoctlIn, value: &[u8]) -> Outcome {
        if u64::from(ioctl.out_size) != value.len() as u64 {
            return Err(Errno::INVAL.into());
        }
        self.reply.push(&IoctlOut::default())?;
        Ok(self.reply.push_bytes(value)?)
    }
}

fn to_xflags(flags: u32) -> u32 {
    SHARED.iter().filter(|(_, flag)| flags & flag != 0).fold(0, |all, (xflag, _)| all | xflag)
}

fn from_xflags(xflags: u32) -> Result<u32, Errno> {
    let known = SHARED.iter().fold(0, |all, (xflag, _)| all | xflag);
    if xflags & !known != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let chosen = SHARED.iter().filter(|(xflag, _)| xflags & xflag != 0);
    Ok(chosen.fold(0, |all, (_, flag)| all | flag))
}

#[cfg(test)]
mod tests {
    use ext4::{DataMode, Owner};
    use fuse::Answer;
    use fuse::abi::IoctlIn;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::adapter::harness::{adapter, make, serve_for};

    #[test]
    fn flags_are_the_same_through_both_interfaces() {
        let flags = FS_IMMUTABLE_FL | FS_NODUMP_FL;
        assert_eq!(to_xflags(flags | 0x0008_4000), 0x88);
        assert_eq!(from_xflags(0x88), Ok(flags));
        assert_eq!(from_xflags(0x8000_0000), Err(Errno::OPNOTSUPP));
    }

    /// An ioctl needs no more than a descriptor.
    #[test]
    fn regression_ioctls_change_only_ones_own_files() {
        let adapter = adapter(DataMode::Auto);
        let owner = Owner { uid: 1000, gid: 1000 };
        let file = make(adapter.volume.read().as_ref().unwrap(), b"file", owner);
        let request = |cmd, value: u32| {
            let ioctl = IoctlIn { cmd, in_size: 4, ..Default::default() };
            [ioctl.as_bytes(), &value.to_ne_bytes()].concat()
        };
        const SET_FLAGS: u32 = 0x4008_6602;
        const SET_FLAGS_32: u32 = 0x4004_6602;
        let refused = Answer::Failed(rustix::io::Errno::PERM);
        let flags = adapter.volume.read().as_ref().unwrap().get_attr(file).unwrap().flags;
        for (uid, cmd, value, expected) in [
            (1001, SET_FLAGS, flags | 0x40, refused),
            (1000, SET_FLAGS, flags | 0x40, Answer::Done),
            (1000, SET_FLAGS, flags | 0x50, refused),
            (0, SET_FLAGS, flags | 0x50, Answer::Done),
            (1001, SET_FLAGS_32, flags, Answer::Failed(rustix::io::Errno::NOTTY)),
        ] {
            let answer = serve_for(uid, &adapter, 39, file, &request(cmd, value));
            assert_eq!(answer, expected, "{uid} {cmd:x} {value:x}");
        }
        adapter.close().unwrap();
    }
}
