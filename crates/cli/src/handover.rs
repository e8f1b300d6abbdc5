//! What the program of a daemon hands over to the program that goes on with its mount.
//!
//! Both run in the same process, one after the other: its number, its control group and its limits
//! stay. The new program has one end of a socket as its standard input. In the socket there are the
//! descriptors that stay open, and first among them a file in memory with all else.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, IoSlice, IoSliceMut, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, Weak};

use device::{Disk, Held, Metered};
use ext4::{InodeNo, Pin};
use host::{Sought, Trust, link_to, own_program};
use mount::{HandedOver, Paused, Successor};
use rustix::fs::{MemfdFlags, OFlags, major, minor};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};

use crate::error::{CliError, Result};
use crate::output::plain_path;

/// The form of what is handed over. A program goes on only with what it knows.
pub const FORMAT: u32 = 1;

/// Descriptors in the socket, at most.
const DESCRIPTOR_COUNT_MAX: usize = 6;

/// All but the descriptors. Paths and requests are bytes.
#[derive(Serialize, Deserialize)]
struct State {
    format: u32,
    target: Vec<u8>,
    dir: Vec<u8>,
    number: Option<(u32, u32)>,
    agreed_flags: u64,
    requests: Vec<Vec<u8>>,
    waiting: Vec<(u64, Vec<u8>)>,
    /// Inode, how often it is pinned, whether it may get a name.
    pins: Vec<(u32, u64, bool)>,
    is_writable: bool,
    has_exclusive: bool,
    has_locked: bool,
    /// Where the disk begins in its backing file.
    behind_bytes: Option<u64>,
}

/// What the new program goes on with.
pub struct Received {
    /// The image or device of the volume.
    pub target: PathBuf,
    pub session: HandedOver,
    pub disk: Held,
}

/// The program that goes on with a mount: what is now at the path of this one.
pub struct NextProgram {
    disk: Weak<Metered<Disk>>,
    /// Number of the mounted file system.
    mounted: Option<(u32, u32)>,
    held: Mutex<Option<Held>>,
}

impl NextProgram {
    pub fn for_volume(disk: Weak<Metered<Disk>>, mounted: Option<(u32, u32)>) -> NextProgram {
        NextProgram { disk, mounted, held: Mutex::default() }
    }

    /// What was kept of the disk.
    pub fn take_held(&self) -> Option<Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// While the volume is not served, nothing can be read from it.
    fn is_on_volume(&self, path: &Path) -> bool {
        let number = fs::metadata(path).map(|found| (major(found.dev()), minor(found.dev())));
        number.is_ok_and(|number| Some(number) == self.mounted)
    }
}

impl Successor for NextProgram {
    fn check(&self) -> std::result::Result<(), String> {
        let (path, program) = program()?;
        let shown = plain_path(&path);
        for path in [&path, Path::new("/")] {
            if self.is_on_volume(path) {
                return Err(format!("{} is on this volume", plain_path(path)));
            }
        }
        let mut question = Command::new(link_to(&program));
        question.arg("resumes").arg(FORMAT.to_string());
        question.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match question.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(format!("{shown} is of another version, which cannot go on")),
            Err(error) => Err(format!("{shown}: {error}")),
        }
    }

    fn keep(&self) -> io::Result<()> {
        let disk = self.disk.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let held = disk.inner().held().map_err(|error| error.source)?;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        Ok(())
    }
}

/// The program that is at the path of this one, which is another one after an upgrade. An error,
/// in words, if a user who is not trusted may have made it.
pub fn program() -> std::result::Result<(PathBuf, OwnedFd), String> {
    let path = own_program();
    let sought = Sought::at(&path, Some(Trust::own().and_root()));
    let sought = sought.map_err(|error| error.to_string())?;
    let program = sought.found.open(OFlags::RDONLY);
    let program = program.map_err(|errno| format!("{}: {errno}", plain_path(&path)))?;
    sought.check(&program).map_err(|error| error.to_string())?;
    drop(sought);
    Ok((path, program))
}

/// Gives this process the name of its program: it was executed through a link of `/proc`.
pub fn take_name() {
    let path = own_program();
    let name = path.file_name().unwrap_or_default();
    if let Err(error) = fs::write("/proc/self/comm", name.as_bytes()) {
        tracing::debug!(%error, "the name of the process stays");
    }
}

/// Returns a socket to receive everything from.
pub fn send(target: &Path, session: HandedOver, disk: Held) -> io::Result<OwnedFd> {
    let HandedOver { connection, pins, is_writable, waiting } = session;
    let Paused { device, dir, number, agreed_flags, requests } = connection;
    let Held { fd, exclusive, locked, behind } = disk;
    let (behind, behind_bytes) = behind.unzip();
    let state = State {
        format: FORMAT,
        target: target.as_os_str().as_bytes().to_vec(),
        dir: dir.into_os_string().into_vec(),
        number,
        agreed_flags,
        requests,
        waiting,
        pins: pins.iter().map(|pin| (pin.ino.0, pin.count, pin.is_linkable)).collect(),
        is_writable,
        has_exclusive: exclusive.is_some(),
        has_locked: locked.is_some(),
        behind_bytes,
    };
    let memory = rustix::fs::memfd_create("onejournal", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    let mut writer = BufWriter::new(&file);
    serde_json::to_writer(&mut writer, &state)?;
    writer.flush()?;
    drop(writer);
    file.rewind()?;
    let memory = OwnedFd::from(file);
    let all = [Some(&memory), Some(&device), Some(&fd), exclusive.as_ref(), locked.as_ref()];
    let all = all.into_iter().chain([behind.as_ref()]).flatten().map(AsFd::as_fd);
    send_descriptors(&all.collect::<Vec<_>>())
}

/// They stay in the socket when its other end is closed.
fn send_descriptors(all: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_COUNT_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(all)), "there is room for all");
    sendmsg(&ours, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(theirs)
}

/// Receives everything from standard input, which is closed then.
pub fn receive() -> Result<Received> {
    let failed = |error: io::Error| CliError::new(format!("mount --resume: {error}"));
    let received = receive_from(io::stdin().as_fd()).map_err(failed)?;
    let null = File::open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdin(&null).map_err(|errno| failed(errno.into()))?;
    Ok(received)
}

fn receive_from(socket: BorrowedFd<'_>) -> io::Result<Received> {
    let mut descriptors = receive_descriptors(socket)?;
    let mut next = || {
        let missing = || io::Error::new(io::ErrorKind::InvalidData, "a descriptor is missing");
        descriptors.pop_front().ok_or_else(missing)
    };
    let state: State = serde_json::from_reader(BufReader::new(File::from(next()?)))?;
    if state.format != FORMAT {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it has another form"));
    }
    let connection = Paused {
        device: next()?,
        dir: PathBuf::from(OsString::from_vec(state.dir)),
        number: state.number,
        agreed_flags: state.agreed_flags,
        requests: state.requests,
    };
    let disk = Held {
        fd: next()?,
        exclusive: state.has_exclusive.then(&mut next).transpose()?,
        locked: state.has_locked.then(&mut next).transpose()?,
        behind: state.behind_bytes.map(|start| Ok::<_, io::Error>((next()?, start))).transpose()?,
    };
    let pin = |(ino, count, is_linkable)| Pin { ino: InodeNo(ino), count, is_linkable };
    let pins = state.pins.into_iter().map(pin).collect();
    let (is_writable, waiting) = (state.is_writable, state.waiting);
    let session = HandedOver { connection, pins, is_writable, waiting };
    Ok(Received { target: PathBuf::from(OsString::from_vec(state.target)), session, disk })
}

fn receive_descriptors(socket: BorrowedFd<'_>) -> io::Result<VecDeque<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_COUNT_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = VecDeque::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok(descriptors)
}

/// `onejournal resumes`: success if this program goes on with what is handed over in that form.
pub fn run_resumes(format: u32) -> u8 {
    u8::from(format != FORMAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_arrives_as_it_was_sent() {
        let open = || OwnedFd::from(tempfile::tempfile().unwrap());
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        for (has_exclusive, behind_bytes) in [(false, None), (true, Some(1 << 40))] {
            let connection = Paused {
                device: open(),
                dir: "/srv/\u{fffd}".into(),
                number: Some((7, 3)),
                agreed_flags: 1 << 41,
                requests: vec![vec![1, 2, 3]],
            };
            let disk = Held {
                fd: open(),
                exclusive: has_exclusive.then(open),
                locked: None,
                behind: behind_bytes.map(|start| (open(), start)),
            };
            let pins = vec![Pin { ino: InodeNo(12), count: 70_000, is_linkable: true }];
            let inodes = [inode(&connection.device), inode(&disk.fd)];
            let exclusive = disk.exclusive.as_ref().map(inode);
            let behind = disk.behind.as_ref().map(|(fd, start)| (inode(fd), *start));
            let waiting = vec![(8, b"restarted".to_vec())];
            let session = HandedOver { connection, pins: pins.clone(), is_writable: true, waiting };
            let socket = send(Path::new("/dev/\u{1b}"), session, disk).unwrap();
            let received = receive_from(socket.as_fd()).unwrap();
            let Received { target, session, disk } = received;
            assert_eq!((target, session.pins), (PathBuf::from("/dev/\u{1b}"), pins));
            assert!(session.is_writable);
            assert_eq!(session.waiting, [(8, b"restarted".to_vec())]);
            assert_eq!(inodes, [inode(&session.connection.device), inode(&disk.fd)]);
            assert_eq!(session.connection.requests, [[1, 2, 3]]);
            assert_eq!(session.connection.agreed_flags, 1 << 41);
            assert_eq!(disk.exclusive.as_ref().map(inode), exclusive);
            assert_eq!(disk.behind.as_ref().map(|(fd, start)| (inode(fd), *start)), behind);
            assert!(disk.locked.is_none());
        }
    }

    #[test]
    fn a_socket_without_descriptors_is_an_error() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(ours);
        assert!(receive_from(theirs.as_fd()).is_err());
    }
}
