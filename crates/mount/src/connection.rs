//! A FUSE connection: from the mount through the handshake to the end of its service.

use std::os::fd::OwnedFd;
use std::path::Path;

use device::AlignedBuf;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{self, InHeader, InitIn, InitInExt, InitOut, Opcode, OutHeader, WriteIn, init};
use crate::attach::{MountHandle, attach};
use crate::namespace::hold_namespace;
use crate::options::{ENABLE_URING, IoUring, MountError, MountOptions, Source};
use crate::polled::Polled;
use crate::queues::{Rings, make_rings};
use crate::reply::{Answer, Reply};
use crate::request::Request;
use crate::workers::serve_until_unmounted;

/// Largest read or write request in bytes.
pub const MAX_TRANSFER_BYTES: usize = 1 << 20;
pub(crate) const PAGE_BYTES: usize = 4096;
/// What stands before the data of a WRITE; reading a request to this many bytes before a page
/// boundary brings its data onto the boundary.
pub(crate) const WRITE_HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Threads of each queue, at least, with atomic writes: all but one may wait for pages to be dropped.
const ATOMIC_THREAD_COUNT: usize = 4;

/// Something that answers requests, from several threads at a time.
pub trait Serve: Sync {
    /// Large writes are worth answering with [`Reply::send_early`].
    fn answers_early(&self) -> bool {
        false
    }

    /// Answers one request; the payload of an [`Answer::Done`] goes into `reply`, which is empty.
    fn serve(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer;
}

/// A mounted connection whose handshake is done.
pub struct Connection {
    device: OwnedFd,
    handle: MountHandle,
    max_thread_count: usize,
    agreed_flags: u64,
    /// Present when the kernel speaks through them.
    rings: Option<Rings>,
    /// Behind the descriptors: while they are open the kernel waits for an answer before it lets go of the mount.
    taken_back: TakenBack,
}

/// Takes the mount off when it is dropped, unless [`Connection::run`] has taken over.
struct TakenBack(Option<MountHandle>);

impl Drop for TakenBack {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take()
            && let Err(error) = handle.unmount_lazily()
        {
            tracing::warn!(%error, "the mount could not be taken back");
        }
    }
}

impl Connection {
    /// Mounts and answers the kernel's INIT: from here on file operations wait for
    /// [`Connection::run`].
    pub fn mount(
        source: &Source,
        dir: &Path,
        options: &MountOptions,
    ) -> Result<Connection, MountError> {
        if options.io_uring == IoUring::On {
            enable_io_uring()?;
        }
        if matches!(source, Source::BlockDevice(_)) {
            hold_namespace()?;
        }
        let (device, handle) = attach(source, dir, options)?;
        let least_count = if options.atomic_writes { ATOMIC_THREAD_COUNT } else { 1 };
        let max_thread_count = options.thread_count.max(least_count);
        let rings = match options.io_uring {
            IoUring::Off => None,
            IoUring::Auto | IoUring::On => make_rings(&device, max_thread_count, least_count),
        };
        let taken_back = TakenBack(Some(handle.clone()));
        let mut connection =
            Connection { device, handle, max_thread_count, agreed_flags: 0, rings, taken_back };
        let wanted = connection.wanted_flags(options);
        connection.agreed_flags = match (connection.shake_hands(wanted), source) {
            // Mounting a device that is mounted gives the old mount once more, and our
            // descriptor stays unused.
            (Err(MountError::System { errno: Errno::PERM, .. }), Source::BlockDevice(path)) => {
                return Err(MountError::DeviceBusy(path.clone()));
            }
            (result, _) => result?,
        };
        if connection.agreed_flags & init::OVER_IO_URING == 0 {
            if options.io_uring == IoUring::On {
                return Err(MountError::NoIoUring("the kernel does not offer it".into()));
            }
            connection.rings = None;
        }
        crate::read_ahead::widen(connection.handle.dir());
        Ok(connection)
    }

    /// With it any thread can unmount.
    pub fn handle(&self) -> MountHandle {
        self.handle.clone()
    }

    /// The flags of `abi::init` that both sides agreed on.
    pub fn agreed_flags(&self) -> u64 {
        self.agreed_flags
    }

    /// The descriptor once more, to tell the kernel something it did not ask for.
    pub(crate) fn device(&self) -> std::io::Result<OwnedFd> {
        self.device.try_clone()
    }

    /// So many threads may wait for what another one has to read.
    pub(crate) fn waiter_limit(&self) -> usize {
        match self.rings {
            // A thread of its own reads what does not come through them.
            Some(_) => usize::MAX,
            None => self.max_thread_count - 1,
        }
    }

    /// So many requests can be answered at a time, wherever they come from.
    pub(crate) fn least_thread_count(&self) -> usize {
        self.rings.as_ref().map_or(self.max_thread_count, Rings::threads_per_queue)
    }

    /// Serves until the file system is unmounted.
    pub fn run(mut self, server: &impl Serve) -> Result<(), MountError> {
        self.taken_back.0 = None;
        let served = self.serve(server);
        self.handle.end();
        served
    }

    fn serve(&mut self, server: &impl Serve) -> Result<(), MountError> {
        let reading = |errno| MountError::System { what: "reading /dev/fuse", errno };
        let Some(rings) = self.rings.take() else {
            return serve_until_unmounted(&self.device, server, self.max_thread_count)
                .map_err(reading);
        };
        std::thread::scope(|scope| {
            crate::queues::start(rings, scope, server);
            serve_until_unmounted(&self.device, server, 1).map_err(reading)
        })
    }

    /// Requests one by one instead of [`Connection::run`]; not for a connection through io_uring.
    pub fn into_polled(mut self) -> Result<Polled, MountError> {
        assert!(self.rings.is_none(), "requests of a ring come to its threads");
        let device = self
            .device
            .try_clone()
            .map_err(|_| MountError::System { what: "dup of /dev/fuse", errno: Errno::MFILE })?;
        let polled = Polled::new(device, self.handle.clone())?;
        self.taken_back.0 = None;
        Ok(polled)
    }

    fn wanted_flags(&self, options: &MountOptions) -> u64 {
        wanted_flags(options) | if self.rings.is_some() { init::OVER_IO_URING } else { 0 }
    }

    fn shake_hands(&self, wanted: u64) -> Result<u64, MountError> {
        let mut input = AlignedBuf::zeroed(WRITE_HEAD_BYTES + MAX_TRANSFER_BYTES);
        loop {
            let len_bytes = read_request(&self.device, &mut input)
                .map_err(|errno| MountError::System { what: "reading /dev/fuse", errno })?
                .ok_or_else(|| MountError::Protocol("unmounted at once".into()))?;
            let request = Request::parse(&input[..len_bytes])
                .map_err(|_| MountError::Protocol("a garbled first request".into()))?;
            if request.opcode != Some(Opcode::Init) {
                return Err(MountError::Protocol("the first request was not INIT".into()));
            }
            let handshake = negotiate(&request, wanted)?;
            let answer = match &handshake {
                Handshake::Again(out) | Handshake::Agreed(out) => out,
            };
            let len = (size_of::<OutHeader>() + size_of::<InitOut>()) as u32;
            let header = OutHeader { len, error: 0, unique: request.header.unique };
            let bytes = [header.as_bytes(), answer.as_bytes()].concat();
            rustix::io::write(&self.device, &bytes)
                .map_err(|errno| MountError::System { what: "answering INIT", errno })?;
            if let Handshake::Agreed(out) = handshake {
                return Ok(u64::from(out.flags) | u64::from(out.flags2) << 32);
            }
        }
    }
}

fn enable_io_uring() -> Result<(), MountError> {
    match std::fs::read_to_string(ENABLE_URING) {
        Ok(value) if value.trim() == "Y" => Ok(()),
        _ => std::fs::write(ENABLE_URING, "Y")
            .map_err(|error| MountError::NoIoUring(format!("{ENABLE_URING}: {error}"))),
    }
}

enum Handshake {
    /// The kernel speaks a newer major version; it will ask again with ours.
    Again(InitOut),
    Agreed(InitOut),
}

fn negotiate(request: &Request<'_>, wanted: u64) -> Result<Handshake, MountError> {
    let mut body = request.body;
    let short = |_| MountError::Protocol("a short INIT".into());
    let offer: InitIn = body.take().map_err(short)?;
    if offer.major > abi::MAJOR {
        let out = InitOut { major: abi::MAJOR, minor: abi::MINOR, ..InitOut::default() };
        return Ok(Handshake::Again(out));
    }
    if offer.major < abi::MAJOR || offer.minor < abi::OLDEST_MINOR {
        return Err(MountError::Protocol(format!(
            "the kernel speaks {}.{}, at least {}.{} is needed (Linux 5.4)",
            offer.major,
            offer.minor,
            abi::MAJOR,
            abi::OLDEST_MINOR
        )));
    }
    let mut offered = u64::from(offer.flags);
    if offered & init::INIT_EXT != 0 {
        offered |= u64::from(body.take::<InitInExt>().map_err(short)?.flags2) << 32;
    }
    let agreed = offered & wanted;
    tracing::debug!(major = offer.major, minor = offer.minor, offered, agreed, "INIT");
    Ok(Handshake::Agreed(InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR.min(offer.minor),
        max_readahead: 2 * MAX_TRANSFER_BYTES as u32,
        flags: (agreed & 0xffff_ffff) as u32,
        flags2: (agreed >> 32) as u32,
        max_background: 64,
        congestion_threshold: 48,
        max_write: MAX_TRANSFER_BYTES as u32,
        time_gran: 1,
        // Of the kernel's pages, which need not be ours.
        max_pages: (MAX_TRANSFER_BYTES / rustix::param::page_size()).max(1) as u16,
        ..InitOut::default()
    }))
}

/// Without `ASYNC_DIO`: the kernel drops no pages when an asynchronous direct write ends, and a page that was
/// read meanwhile would stay. Telling it to drop them is no way out: a daemon that is killed while the kernel
/// waits for such a page ends only by its guard ([`crate::guard`]), which may be killed with it.
fn wanted_flags(options: &MountOptions) -> u64 {
    let mut wanted = init::ASYNC_READ
        | init::EXPORT_SUPPORT
        | init::BIG_WRITES
        | init::DONT_MASK
        | init::HAS_IOCTL_DIR
        | init::DO_READDIRPLUS
        | init::READDIRPLUS_AUTO
        | init::NO_OPEN_SUPPORT
        | init::PARALLEL_DIROPS
        | init::MAX_PAGES
        | init::CACHE_SYMLINKS
        | init::NO_OPENDIR_SUPPORT
        | init::HANDLE_KILLPRIV_V2
        | init::SETXATTR_EXT
        | init::INIT_EXT;
    if options.default_permissions {
        wanted |= init::POSIX_ACL;
    }
    if options.writeback_cache {
        wanted |= init::WRITEBACK_CACHE;
    }
    wanted
}

/// Waits for a request; `None` when the file system was unmounted.
pub(crate) fn read_request(device: &OwnedFd, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(len_bytes) => return Ok(Some(len_bytes)),
            // ENOENT: the request was interrupted before it was read.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::NODEV) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init_request(major: u32, minor: u32, flags: u32) -> Vec<u8> {
        let offer = InitIn { major, minor, max_readahead: 131_072, flags };
        let body = [offer.as_bytes(), InitInExt::default().as_bytes()].concat();
        let len = u32::try_from(40 + body.len()).unwrap();
        let header = InHeader { len, opcode: 26, unique: 2, ..InHeader::default() };
        [header.as_bytes(), &body].concat()
    }

    fn shake(bytes: &[u8], options: &MountOptions) -> Result<Handshake, MountError> {
        negotiate(&Request::parse(bytes).unwrap(), wanted_flags(options))
    }

    #[test]
    fn only_what_both_sides_know_is_agreed_on() {
        let offered = (init::MAX_PAGES | init::WRITEBACK_CACHE | init::POSIX_ACL | 2) as u32;
        let bytes = init_request(7, 45, offered);
        let Ok(Handshake::Agreed(out)) = shake(&bytes, &MountOptions::default()) else { panic!() };
        assert_eq!((out.major, out.minor), (7, 42));
        assert_eq!(u64::from(out.flags), init::MAX_PAGES | init::POSIX_ACL);
        assert_eq!((out.max_pages, out.max_write), (256, 1 << 20));
        let options = MountOptions { writeback_cache: true, ..Default::default() };
        let Ok(Handshake::Agreed(out)) = shake(&bytes, &options) else { panic!() };
        assert_ne!(u64::from(out.flags) & init::WRITEBACK_CACHE, 0);
    }

    #[test]
    fn other_versions_are_asked_again_or_refused() {
        let options = MountOptions::default();
        assert!(matches!(shake(&init_request(8, 0, 0), &options), Ok(Handshake::Again(_))));
        assert!(shake(&init_request(7, 30, 0), &options).is_err());
        assert!(shake(&init_request(6, 45, 0), &options).is_err());
    }
}
