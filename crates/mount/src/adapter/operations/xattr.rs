//! Extended attributes, and those of our own that no file holds (see `crate::stat`).

use ext4::{ATOMIC_VOLUME_XATTR, ATOMIC_XATTR, Error, InodeNo, XattrFlags, parse_declared};
use fuse::Caller;
use fuse::abi::{
    GetxattrIn, GetxattrOut, SETXATTR_ACL_KILL_SGID, SetxattrIn, SetxattrInShort, init,
};
use rustix::io::Errno;
use volume_client::RANGES_XATTR;

use crate::adapter::call::Call;
use crate::adapter::failure::{Failure, Outcome};
use crate::stat::{
    ATOMIC_WRITE_BYTES_XATTR, FILE_XATTR, FILES_XATTR, MAKE_WRITABLE_XATTR, MODE_XATTR, PID_XATTR,
    RENDER_BYTES, RESTART_XATTR, RESTARTED, STAT_XATTR, SeenFile, WRITABLE, render,
};
use crate::tables::{file_json, volume_json};

const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
/// Linux's limit for a value and for a list.
const XATTR_MAX_BYTES: usize = 65_536;
/// Bytes of a report about a file, with the largest numbers.
const FILE_REPORT_BYTES_MAX: usize = 500;
/// Files in a list: all their reports fit into a value.
const FILE_LIMIT: usize = 100;
const _: () = assert!(FILE_LIMIT * FILE_REPORT_BYTES_MAX + RENDER_BYTES <= XATTR_MAX_BYTES);

impl Call<'_, '_> {
    pub(super) fn getxattr(&mut self) -> Outcome {
        let ino = self.ino()?;
        let get: GetxattrIn = self.body.take()?;
        let name = self.body.take_string()?;
        let value = match self.virtual_attribute(ino, name)? {
            Some(value) => value,
            None => self.volume.get_xattr(ino, name)?,
        };
        self.push_sized(get.size, &value)?;
        if get.size == 0 { Ok(()) } else { self.restart_if_asked(name, &value) }
    }

    /// The answer to a request for [`RESTART_XATTR`] comes after the restart.
    pub(super) fn restart_if_asked(&self, name: &[u8], value: &[u8]) -> Outcome {
        match name == RESTART_XATTR && value == RESTARTED.as_bytes() {
            true => self.restart(),
            false => Ok(()),
        }
    }

    /// The value of an attribute that no file holds, or whose value the volume knows; `None`: it is
    /// none of ours.
    pub(super) fn virtual_attribute(
        &self,
        ino: InodeNo,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>, Failure> {
        Ok(Some(match name {
            STAT_XATTR => render(&volume_json(&self.adapter.seen(&self.volume))),
            FILE_XATTR => self.file_report(ino)?,
            FILES_XATTR => self.files_report(FILE_LIMIT),
            PID_XATTR => std::process::id().to_string().into_bytes(),
            MODE_XATTR => self.volume.data_mode_of(ino)?.name().into(),
            MAKE_WRITABLE_XATTR => self.make_writable()?.into_bytes(),
            RESTART_XATTR => self.may_restart()?.into_bytes(),
            ATOMIC_WRITE_BYTES_XATTR => {
                let bytes = or_no_data(self.volume.atomic_write_bytes_of(ino))?;
                bytes.to_string().into_bytes()
            }
            _ if name == ATOMIC_XATTR.as_bytes() => {
                let bytes = self.volume.declared_bytes_of(ino)?.ok_or(Errno::NODATA)?;
                bytes.to_string().into_bytes()
            }
            _ if name == ATOMIC_VOLUME_XATTR.as_bytes() => {
                let bytes = Some(self.volume.declared_bytes()).filter(|bytes| *bytes > 0);
                bytes.ok_or(Errno::NODATA)?.to_string().into_bytes()
            }
            _ if name == RANGES_XATTR.as_bytes() => {
                let bytes = self.ranges_bytes_max().ok_or(Errno::NODATA)?;
                bytes.to_string().into_bytes()
            }
            _ => return Ok(None),
        }))
    }

    /// The same, made to fit into `capacity_bytes` by leaving things out.
    pub(super) fn short_virtual_attribute(
        &self,
        ino: InodeNo,
        name: &[u8],
        capacity_bytes: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let value = self.virtual_attribute(ino, name)?;
        if value.as_ref().is_none_or(|value| value.len() <= capacity_bytes) {
            return Ok(value);
        }
        Ok(match name {
            STAT_XATTR => {
                let seen = self.adapter.seen(&self.volume).without_buckets();
                Some(render(&volume_json(&seen)))
            }
            FILES_XATTR => {
                let reports_bytes = capacity_bytes.saturating_sub(RENDER_BYTES);
                Some(self.files_report(reports_bytes / FILE_REPORT_BYTES_MAX))
            }
            _ => None,
        })
    }

    /// The operation holds the volume, which another one takes its place of. So it fails, and is
    /// repeated after that.
    fn make_writable(&self) -> Result<String, Failure> {
        self.check_from_server()?;
        if !self.volume.is_read_only() {
            return Ok(WRITABLE.into());
        }
        self.adapter.writing.refusal.lock().take().ok_or(Failure::NotWritable)
    }

    /// Only root and the user of the daemon may ask.
    pub(super) fn check_from_server(&self) -> Outcome {
        let server = rustix::process::geteuid();
        let is_from_server = !server.is_root() && self.header.uid == server.as_raw();
        if is_from_server || self.is_from_administrator() {
            return Ok(());
        }
        Err(Errno::PERM.into())
    }

    fn file_report(&self, ino: InodeNo) -> Result<Vec<u8>, Failure> {
        let stat = or_no_data(self.volume.file_stat(ino))?;
        let write_bytes = or_no_data(self.volume.atomic_write_bytes_of(ino))?;
        let declared_bytes = self.volume.declared_bytes_of(ino)?.unwrap_or(0);
        let atomic = Some([write_bytes, declared_bytes]);
        Ok(render(&file_json(&SeenFile { ino, stat, atomic })))
    }

    /// The files for which most was written, the first one most of all.
    fn files_report(&self, file_limit: usize) -> Vec<u8> {
        let files = self.volume.most_written_files(file_limit).into_iter();
        let report = |(ino, stat)| file_json(&SeenFile { ino, stat, atomic: None });
        render(&files.map(report).collect())
    }

    pub(super) fn listxattr(&mut self) -> Outcome {
        let ino = self.ino()?;
        let get: GetxattrIn = self.body.take()?;
        let names = self.volume.list_xattr(ino)?;
        let is_trusted = |name: &Vec<u8>| name.starts_with(b"trusted.");
        // As on other file systems, `trusted.*` is for the eyes of an administrator.
        let shows_trusted = names.iter().any(is_trusted) && self.is_from_administrator();
        let mut list = Vec::new();
        for name in names.iter().filter(|name| shows_trusted || !is_trusted(name)) {
            list.extend_from_slice(name);
            list.push(0);
        }
        self.push_sized(get.size, &list)
    }

    /// The value when the caller has room for it; its size when the caller asked with 0.
    fn push_sized(&mut self, room_bytes: u32, value: &[u8]) -> Outcome {
        let size = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
        if value.len() > XATTR_MAX_BYTES {
            return Err(Errno::TOOBIG.into());
        }
        match room_bytes {
            0 => Ok(self.reply.push(&GetxattrOut { size, padding: 0 })?),
            room_bytes if room_bytes < size => Err(Errno::RANGE.into()),
            _ => Ok(self.reply.push_bytes(value)?),
        }
    }

    pub(super) fn setxattr(&mut self) -> Outcome {
        let ino = self.ino()?;
        let set = if self.adapter.agreed(init::SETXATTR_EXT) {
            self.body.take::<SetxattrIn>()?
        } else {
            let SetxattrInShort { size, flags } = self.body.take()?;
            SetxattrIn { size, flags, ..SetxattrIn::default() }
        };
        let name = self.body.take_string()?;
        let value = self.body.take_bytes(set.size)?;
        if name == RANGES_XATTR.as_bytes() {
            return self.write_ranges(ino, value);
        }
        let flags = match set.flags {
            0 => XattrFlags::Any,
            XATTR_CREATE => XattrFlags::Create,
            XATTR_REPLACE => XattrFlags::Replace,
            _ => return Err(Errno::INVAL.into()),
        };
        refuse_our_own(name)?;
        if name == ATOMIC_XATTR.as_bytes() {
            self.check_declarer(value)?;
        }
        let is_access = name == b"system.posix_acl_access";
        if is_access && set.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 {
            self.volume.set_acl_as_stranger(ino, name, value, flags)?;
        } else {
            self.volume.set_xattr(ino, name, value, flags)?;
        }
        self.adapter.privileges.changed(ino);
        Ok(())
    }

    /// The volume remembers the largest size that was declared, and mounts that do not give it are
    /// refused. So only the owner of the volume can make it remember more.
    fn check_declarer(&self, value: &[u8]) -> Outcome {
        match parse_declared(value) {
            Some(bytes) if bytes > self.volume.declared_bytes() => {
                self.check_owner(InodeNo::ROOT, &Caller::of(&self.header))
            }
            // The volume refuses a value that is no size.
            _ => Ok(()),
        }
    }

    pub(super) fn removexattr(&mut self) -> Outcome {
        let name = self.body.take_string()?;
        refuse_our_own(name)?;
        if name == ATOMIC_VOLUME_XATTR.as_bytes() {
            // It is the volume's, whatever file was named.
            self.check_owner(InodeNo::ROOT, &Caller::of(&self.header))?;
            return Ok(self.volume.forget_declared()?);
        }
        Ok(self.volume.remove_xattr(self.ino()?, name)?)
    }
}

fn refuse_our_own(name: &[u8]) -> Result<(), Errno> {
    let ours = [
        STAT_XATTR,
        FILE_XATTR,
        FILES_XATTR,
        PID_XATTR,
        MODE_XATTR,
        ATOMIC_WRITE_BYTES_XATTR,
        MAKE_WRITABLE_XATTR,
        RESTART_XATTR,
    ];
    if ours.contains(&name) { Err(Errno::PERM) } else { Ok(()) }
}

/// What is asked of a kind of inode that has none is no data.
fn or_no_data<T>(result: ext4::Result<T>) -> Result<T, Failure> {
    match result {
        Err(Error::IsDirectory | Error::InvalidArgument) => Err(Errno::NODATA.into()),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use ext4::DataMode;
    use fuse::abi::InHeader;
    use fuse::{Body, Reply};

    use super::*;
    use crate::adapter::harness::adapter;

    #[test]
    fn a_report_that_is_too_long_leaves_things_out() {
        let adapter = adapter(DataMode::Auto);
        let volume = adapter.volume.read();
        let volume = volume.as_ref().unwrap().as_root();
        volume
            .set_attr(InodeNo::ROOT, &ext4::SetAttr { mode: Some(0o755), ..Default::default() })
            .unwrap();
        volume.sync().unwrap();
        let mut room = [0; 256];
        let (body, reply) = (Body::whole(&[]), &mut Reply::new(&mut room));
        let header = InHeader { nodeid: 1, ..InHeader::default() };
        let call = Call { adapter: &adapter, volume, header, body, reply };
        let stat = |capacity_bytes| {
            let json = call.short_virtual_attribute(InodeNo::ROOT, STAT_XATTR, capacity_bytes);
            let Ok(Some(json)) = json else { panic!() };
            serde_json::from_slice::<serde_json::Value>(&json).unwrap()
        };
        let bucket_count = |stat: serde_json::Value| {
            stat["commit_latency_ns"]["buckets"].as_array().unwrap().len()
        };
        assert_eq!((bucket_count(stat(65_536)), bucket_count(stat(100))), (1, 0));
        assert!(matches!(call.short_virtual_attribute(InodeNo::ROOT, b"user.a", 9), Ok(None)));
    }
}
