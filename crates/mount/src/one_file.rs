//! A mount with one file, whose bytes the caller provides: for a program that works on files only.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use fuse::abi::{
    AttrOut, EntryOut, FOPEN_KEEP_CACHE, FuseAttr, Opcode, OpenOut, ROOT_NODE, ReadIn, StatfsOut,
    WriteIn, WriteOut,
};
use fuse::{Answer, Connection, IoUring, MountError, MountOptions, Polled, Request, Source, Taken};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::session_options::SUBTYPE;

/// The file's name in the directory it is mounted on.
const FILE_NAME: &str = "volume";

const FILE_NODE: u64 = ROOT_NODE + 1;
/// Attributes do not change.
const VALID_SECONDS: u64 = 86_400;

/// The bytes of the file.
pub trait OneFile: Send + 'static {
    /// Size of the file in bytes; it does not change.
    fn size_bytes(&self) -> u64;
    /// Fills `buf` from `offset`; the span is in the file.
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Errno>;
    /// Takes `data` at `offset`; the span is in the file.
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno>;
}

/// A file that is served until [`MountedFile::end`].
///
/// The directory shows it for a moment only. Other processes open its [`MountedFile::path`], which
/// leads through this process. So nothing is left mounted, however the process ends.
pub struct MountedFile<F> {
    opened: File,
    server: JoinHandle<Result<F, MountError>>,
}

impl<F: OneFile> MountedFile<F> {
    /// Serves the file in a thread. `dir`: an empty directory, which is free again on return.
    pub fn mount(file: F, dir: &Path) -> Result<MountedFile<F>, MountError> {
        let options = MountOptions {
            io_uring: IoUring::Off,
            allow_other: false,
            subtype: Some(SUBTYPE.into()),
            ..MountOptions::default()
        };
        let source = Source::Plain { name: "onejournal-fsck".into() };
        let polled = Connection::mount(&source, dir, &options)?.into_polled()?;
        let handle = polled.handle();
        let system = |what| move |error| system_error(what, &error);
        let builder = std::thread::Builder::new().name("oj-file".into());
        let server = builder.spawn(move || serve(polled, file));
        let opened = File::options().read(true).write(true).open(dir.join(FILE_NAME));
        handle.unmount_lazily()?;
        Ok(MountedFile {
            server: server.map_err(system("starting a thread"))?,
            opened: opened.map_err(system("opening the view of the volume"))?,
        })
    }

    /// Where other processes can open the file.
    pub fn path(&self) -> PathBuf {
        let (pid, fd) = (std::process::id(), self.opened.as_raw_fd());
        PathBuf::from(format!("/proc/{pid}/fd/{fd}"))
    }

    /// Waits until no process has the file open, and returns it.
    pub fn end(self) -> Result<F, MountError> {
        drop(self.opened);
        self.server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn system_error(what: &'static str, error: &std::io::Error) -> MountError {
    MountError::System { what, errno: Errno::from_io_error(error).unwrap_or(Errno::IO) }
}

fn serve<F: OneFile>(mut polled: Polled, mut file: F) -> Result<F, MountError> {
    loop {
        let (unique, served) = match polled.take()? {
            Taken::Unmounted => return Ok(file),
            Taken::Nothing => {
                wait(&polled)?;
                continue;
            }
            Taken::Request(request) => (request.header.unique, answer(&mut file, &request)),
        };
        match served {
            Ok(Some(payload)) => polled.answer(unique, Answer::Done, &payload)?,
            Ok(None) => {}
            Err(errno) => polled.answer(unique, Answer::Failed(errno), &[])?,
        }
    }
}

fn wait(polled: &Polled) -> Result<(), MountError> {
    match poll(&mut [PollFd::new(polled, PollFlags::IN)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(MountError::System { what: "poll", errno }),
    }
}

/// The payload of the answer; `None`: there is none to this kind of request.
fn answer(file: &mut impl OneFile, request: &Request<'_>) -> Result<Option<Vec<u8>>, Errno> {
    let mut body = request.body;
    let node = request.header.nodeid;
    let size_bytes = file.size_bytes();
    let payload = match request.opcode {
        Some(Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt) => return Ok(None),
        Some(Opcode::Lookup) if body.take_name()? == FILE_NAME.as_bytes() => {
            entry(size_bytes).as_bytes().to_vec()
        }
        Some(Opcode::Lookup) => return Err(Errno::NOENT),
        Some(Opcode::Getattr | Opcode::Setattr) => {
            let attr = attr(node, size_bytes);
            let out = AttrOut { attr_valid: VALID_SECONDS, attr, ..AttrOut::default() };
            out.as_bytes().to_vec()
        }
        Some(Opcode::Open) => {
            OpenOut { open_flags: FOPEN_KEEP_CACHE, ..OpenOut::default() }.as_bytes().to_vec()
        }
        Some(Opcode::Read) => {
            let read: ReadIn = body.take()?;
            let left = size_bytes.saturating_sub(read.offset).min(read.size.into());
            let mut buf = vec![0; usize::try_from(left).map_err(|_| Errno::INVAL)?];
            file.read(read.offset, &mut buf)?;
            buf
        }
        Some(Opcode::Write) => {
            let write: WriteIn = body.take()?;
            let data = body.take_bytes(write.size)?;
            let end = write.offset.checked_add(write.size.into()).ok_or(Errno::FBIG)?;
            if end > size_bytes {
                return Err(Errno::FBIG);
            }
            file.write(write.offset, data)?;
            WriteOut { size: write.size, padding: 0 }.as_bytes().to_vec()
        }
        Some(Opcode::Release | Opcode::Fsync | Opcode::Destroy) => Vec::new(),
        Some(Opcode::Statfs) => {
            StatfsOut { bsize: 4096, frsize: 4096, ..StatfsOut::default() }.as_bytes().to_vec()
        }
        _ => return Err(Errno::NOSYS),
    };
    Ok(Some(payload))
}

fn entry(size_bytes: u64) -> EntryOut {
    EntryOut {
        nodeid: FILE_NODE,
        entry_valid: VALID_SECONDS,
        attr_valid: VALID_SECONDS,
        attr: attr(FILE_NODE, size_bytes),
        ..EntryOut::default()
    }
}

fn attr(node: u64, size_bytes: u64) -> FuseAttr {
    let (mode, size) = match node {
        FILE_NODE => (0o100_600, size_bytes),
        _ => (0o040_700, 0),
    };
    FuseAttr {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..FuseAttr::made_up(node, mode, size)
    }
}
