//! Messages with descriptors over a Unix socket, and who is at its other end.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use host::{above_standard, moved_above_standard, occupy_standard};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::wire::protocol::FILES_MAX;

/// A new socket that keeps messages apart.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(above_standard(|| rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None))?)
}

/// A connection to the socket at `path`. Nothing on it, nor this call, waits longer than `patience`
/// for the other end.
pub(crate) fn connect(path: &Path, patience: Duration) -> io::Result<OwnedFd> {
    let socket = socket()?;
    wait_at_most(&socket, patience)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Bounds each wait for the other end of a connection from now on.
pub(crate) fn wait_at_most(socket: &OwnedFd, patience: Duration) -> io::Result<()> {
    for side in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(socket, side, Some(patience))?;
    }
    Ok(())
}

/// Sends a message.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(files.len() <= FILES_MAX, "{} descriptors", files.len());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(files));
        assert!(fits, "there is space for {FILES_MAX}");
    }
    let sent = rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
    })?;
    match sent == bytes.len() {
        true => Ok(()),
        false => Err(io::Error::other("a message was sent in part")),
    }
}

/// Receives a message into `buf`. Returns its length and its descriptors. Length 0: the other end
/// is closed.
pub(crate) fn receive(socket: &OwnedFd, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    occupy_standard();
    let received = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(buf)];
        rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    let files = files.into_iter().map(moved_above_standard).collect::<rustix::io::Result<_>>()?;
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is too long"));
    }
    Ok((received.bytes, files))
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The other groups of its process.
    pub(crate) groups: Vec<u32>,
}

impl Peer {
    pub(crate) fn of(socket: impl AsFd) -> io::Result<Peer> {
        let found = rustix::net::sockopt::socket_peercred(socket)?;
        let (uid, gid) = (found.uid.as_raw(), found.gid.as_raw());
        let status = format!("/proc/{}/status", found.pid.as_raw_nonzero());
        let groups = fs::read_to_string(status).map(|text| groups_of(&text, uid));
        Ok(Peer { uid, gid, groups: groups.unwrap_or_default() })
    }
}

/// The groups in the text of a process's `status`, if only user `uid` uses that process. The
/// process that connected may have ended, and another process may have its number.
fn groups_of(status: &str, uid: u32) -> Vec<u32> {
    let numbers = |name: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
    };
    let uids = numbers("Uid:");
    match uids.len() == 4 && uids.iter().all(|found| *found == uid) {
        true => numbers("Groups:"),
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).expect("sockets")
    }

    #[test]
    fn messages_and_files_arrive() {
        let (one, other) = pair();
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), b"in the file").expect("write");
        send(&one, b"hello", &[file.as_file().as_fd()]).expect("send");
        send(&one, b"again", &[]).expect("send");
        let mut buf = [0; 16];
        let (count, mut files) = receive(&other, &mut buf).expect("receive");
        assert_eq!((&buf[..count], files.len()), (&b"hello"[..], 1));
        let text = std::io::read_to_string(std::fs::File::from(files.remove(0))).expect("read");
        assert_eq!(text, "in the file");
        let mut short = [0; 3];
        assert!(receive(&other, &mut short).is_err(), "cut");
        drop(one);
        assert_eq!(receive(&other, &mut buf).expect("closed").0, 0);
    }

    #[test]
    fn groups_are_those_of_a_process_of_that_user() {
        let status = "Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t4 24 27 \n";
        assert_eq!(groups_of(status, 7), [4, 24, 27]);
        assert!(groups_of(status, 8).is_empty(), "another user's by now");
        assert!(groups_of("Uid:\t7\t0\t7\t7\nGroups:\t4\n", 7).is_empty());
        assert!(groups_of("", 7).is_empty());
    }

    #[test]
    fn a_peer_is_known() {
        let (one, _other) = pair();
        assert_eq!(Peer::of(&one).expect("peer").uid, rustix::process::geteuid().as_raw());
    }
}
