//! The handshake: what the kernel offers, what a connection asks for, what holds for both.

use std::os::fd::OwnedFd;

use device::AlignedBuf;
use zerocopy::IntoBytes;

use crate::abi::{self, InitIn, InitInExt, InitOut, Opcode, OutHeader, init};
use crate::error::MountError;
use crate::options::MountOptions;
use crate::request::Request;
use crate::transport::receive::{MAX_TRANSFER_BYTES, Read, WRITE_HEAD_BYTES, read_request};

/// Answers the kernel's INIT, and returns the flags that both sides agreed on: the flags in
/// `wanted` that the kernel offers.
pub(crate) fn shake_hands(device: &OwnedFd, wanted: u64) -> Result<u64, MountError> {
    let mut input = AlignedBuf::zeroed(WRITE_HEAD_BYTES + MAX_TRANSFER_BYTES);
    loop {
        let read = read_request(device, &mut input)
            .map_err(|errno| MountError::System { what: "reading /dev/fuse", errno })?;
        let len_bytes = match read {
            Read::Request(len_bytes) => len_bytes,
            Read::Nothing => continue,
            Read::Unmounted => return Err(MountError::Protocol("unmounted at once".into())),
        };
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
        rustix::io::write(device, &bytes)
            .map_err(|errno| MountError::System { what: "answering INIT", errno })?;
        if let Handshake::Agreed(out) = handshake {
            return Ok(u64::from(out.flags) | u64::from(out.flags2) << 32);
        }
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
            "this kernel speaks version {}.{}, and {}.{} is needed: boot Linux 5.14 or newer",
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
        // Counted in pages of the kernel, which may be larger than `PAGE_BYTES`.
        max_pages: (MAX_TRANSFER_BYTES / rustix::param::page_size()).max(1) as u16,
        ..InitOut::default()
    }))
}

/// The flags that a connection with these options asks for.
///
/// `ASYNC_DIO` is asked for only on request: the kernel drops no pages when an asynchronous direct
/// write ends, and a page that was read meanwhile would stay. Telling it to drop them is no way
/// out: a daemon that is killed while the kernel waits for such a page ends only by its guard
/// ([`crate::guard`]), which may be killed with it.
pub(crate) fn wanted_flags(options: &MountOptions) -> u64 {
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
    if options.default_permissions && options.posix_acl {
        wanted |= init::POSIX_ACL;
    }
    if options.writeback_cache {
        wanted |= init::WRITEBACK_CACHE;
    }
    if options.async_direct_io {
        wanted |= init::ASYNC_DIO;
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::InHeader;

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
        let options = MountOptions { posix_acl: false, ..Default::default() };
        let Ok(Handshake::Agreed(out)) = shake(&bytes, &options) else { panic!() };
        assert_eq!(u64::from(out.flags), init::MAX_PAGES);
        let options = MountOptions { writeback_cache: true, ..Default::default() };
        let Ok(Handshake::Agreed(out)) = shake(&bytes, &options) else { panic!() };
        assert_ne!(u64::from(out.flags) & init::WRITEBACK_CACHE, 0);
    }

    #[test]
    fn other_versions_are_asked_again_or_refused() {
        let options = MountOptions::default();
        assert!(matches!(shake(&init_request(8, 0, 0), &options), Ok(Handshake::Again(_))));
        assert!(shake(&init_request(7, 34, 0), &options).is_ok());
        for (major, minor) in [(7, 33), (7, 0), (6, 45)] {
            let Err(error) = shake(&init_request(major, minor, 0), &options) else { panic!() };
            let text = error.to_string();
            let spoken = format!("this kernel speaks version {major}.{minor}, and 7.34 is needed");
            assert!(text.contains(&spoken) && text.contains("Linux 5.14"), "{text}");
        }
    }
}
