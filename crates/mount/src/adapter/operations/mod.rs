//! The operations: each makes one kind of request a call of the volume.

mod atomic_state;
mod attributes;
mod data;
mod directory;
mod held_writes;
mod ioctl;
mod names;
mod open;
mod ranges;
mod restart;
mod xattr;

use fuse::abi::Opcode;
use rustix::io::Errno;

use crate::adapter::call::Call;
use crate::adapter::failure::Outcome;

impl Call<'_, '_> {
    /// Runs the operation of the request.
    pub(in crate::adapter) fn dispatch(&mut self, opcode: Opcode) -> Outcome {
        match opcode {
            // The kernel stops asking, and its callers get EOPNOTSUPP.
            Opcode::Setxattr | Opcode::Getxattr | Opcode::Listxattr | Opcode::Removexattr
                if !self.adapter.offers_xattrs =>
            {
                Err(Errno::NOSYS.into())
            }
            Opcode::Lookup => self.lookup(),
            Opcode::Readlink => self.readlink(),
            Opcode::Symlink => self.symlink(),
            Opcode::Mknod => self.mknod(),
            Opcode::Mkdir => self.mkdir(),
            Opcode::Unlink => self.unlink(),
            Opcode::Rmdir => self.rmdir(),
            Opcode::Rename => self.rename(),
            Opcode::Rename2 => self.rename2(),
            Opcode::Link => self.link(),
            Opcode::Readdir => self.readdir(),
            Opcode::Readdirplus => self.readdirplus(),
            Opcode::Getattr => self.getattr(),
            Opcode::Setattr => self.setattr(),
            Opcode::Statx => self.statx(),
            Opcode::Statfs => self.statfs(),
            Opcode::Read => self.read(),
            Opcode::Write => self.write(),
            Opcode::Fsync | Opcode::Fsyncdir => self.fsync(),
            Opcode::Syncfs => self.syncfs(),
            Opcode::Fallocate => self.fallocate(),
            Opcode::Lseek => self.lseek(),
            Opcode::Setxattr => self.setxattr(),
            Opcode::Getxattr => self.getxattr(),
            Opcode::Listxattr => self.listxattr(),
            Opcode::Removexattr => self.removexattr(),
            Opcode::Ioctl => self.ioctl(),
            Opcode::Open => self.open(),
            Opcode::Create => self.create(),
            Opcode::Tmpfile => self.tmpfile(),
            Opcode::Flush => self.flush(),
            Opcode::Release => self.release(),
            Opcode::Releasedir => Ok(()),
            // ENOSYS makes the kernel stop asking: no state per open file, no locks of our own,
            // its own permission checks, its own fallback for the rest.
            Opcode::Opendir
            | Opcode::Access
            | Opcode::Getlk
            | Opcode::Setlk
            | Opcode::Setlkw
            | Opcode::Bmap
            | Opcode::Poll
            | Opcode::CopyFileRange
            | Opcode::Setupmapping
            | Opcode::Removemapping
            | Opcode::NotifyReply => Err(Errno::NOSYS.into()),
            // A second handshake, and what `serve` has answered before.
            Opcode::Init
            | Opcode::Forget
            | Opcode::BatchForget
            | Opcode::Interrupt
            | Opcode::Destroy => Err(Errno::IO.into()),
        }
    }
}
