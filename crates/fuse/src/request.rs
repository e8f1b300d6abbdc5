//! A request as it came from the kernel, and the checked reading of its body.
//!
//! No request makes the reader panic: every read from a body is bounded, and a body that is too
//! short is `EIO`.

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::abi::{InHeader, Opcode};

/// One request: its header and its body, which borrows the buffer of the transport.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The header; `len` has been checked.
    pub header: InHeader,
    /// The operation; `None` for one that is not known here.
    pub opcode: Option<Opcode>,
    /// What follows the header.
    pub body: Body<'a>,
}

impl<'a> Request<'a> {
    /// Takes apart the bytes that one `read` of `/dev/fuse` returned. `EIO`: they are too short, or
    /// the length in the header is not theirs.
    pub fn parse(bytes: &'a [u8]) -> Result<Request<'a>, Errno> {
        let (header, rest) = InHeader::read_from_prefix(bytes).map_err(|_| Errno::IO)?;
        if u64::from(header.len) != bytes.len() as u64 {
            return Err(Errno::IO);
        }
        // Extensions (security context, supplementary groups) stand at the end; none is asked for.
        let extension_bytes = usize::from(header.total_extlen) * 8;
        let body_bytes = rest.len().checked_sub(extension_bytes).ok_or(Errno::IO)?;
        let opcode = Opcode::from_wire(header.opcode);
        Ok(Request { header, opcode, body: Body::whole(&rest[..body_bytes]) })
    }
}

/// Bytes of a request that have not been read yet. Read the structure of the operation first
/// ([`Body::take`]), then names or data. A copy of a body is read from the same place.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a> {
    /// The first structure where it comes apart from the rest, as through a ring.
    head: Option<&'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    /// A body in one piece.
    #[inline]
    pub fn whole(bytes: &'a [u8]) -> Body<'a> {
        Body { head: None, rest: bytes }
    }

    /// A body whose first structure, if the operation has one, is stored in `head`.
    #[inline]
    pub fn split(head: &'a [u8], rest: &'a [u8]) -> Body<'a> {
        Body { head: Some(head), rest }
    }

    /// Reads one structure of [`crate::abi`]. `EIO`: the body is too short.
    pub fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Errno> {
        if let Some(head) = self.head.take() {
            let (value, _) = T::read_from_prefix(head).map_err(|_| Errno::IO)?;
            return Ok(value);
        }
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Errno::IO)?;
        self.rest = rest;
        Ok(value)
    }

    /// Reads `len_bytes` bytes. `EIO`: the body is too short.
    #[inline]
    pub fn take_bytes(&mut self, len_bytes: u32) -> Result<&'a [u8], Errno> {
        let len_bytes = usize::try_from(len_bytes).map_err(|_| Errno::IO)?;
        let (value, rest) = self.rest.split_at_checked(len_bytes).ok_or(Errno::IO)?;
        self.rest = rest;
        Ok(value)
    }

    /// Reads bytes up to a NUL, without it (the target of a symbolic link, the name of an
    /// attribute). `EIO`: there is no NUL.
    #[inline]
    pub fn take_string(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(Errno::IO)?;
        let value = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(value)
    }

    /// Reads the name of a directory entry. `EINVAL`: it is empty, or has a slash.
    #[inline]
    pub fn take_name(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.take_string()?;
        if name.is_empty() || name.contains(&b'/') {
            return Err(Errno::INVAL);
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use onejournal_testing::{test_name, tier};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::abi::MkdirIn;

    fn request(body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(40 + body.len()).unwrap();
        let header = InHeader { len, opcode: 9, unique: 1, nodeid: 1, ..InHeader::default() };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn a_body_is_read_piece_by_piece() {
        let mkdir = MkdirIn { mode: 0o755, umask: 0o22 };
        let bytes = request(&[mkdir.as_bytes(), b"name\0rest"].concat());
        let mut request = Request::parse(&bytes).unwrap();
        assert_eq!(request.opcode, Some(Opcode::Mkdir));
        assert_eq!(request.body.take::<MkdirIn>().unwrap().mode, 0o755);
        assert_eq!(request.body.take_name().unwrap(), b"name");
        assert_eq!(request.body.take_bytes(4).unwrap(), b"rest");
        assert!(request.body.take_bytes(1).is_err());
    }

    #[test]
    fn the_first_structure_may_lie_apart() {
        let mkdir = MkdirIn { mode: 0o755, umask: 0o22 };
        let head = [mkdir.as_bytes(), &[0; 120]].concat();
        let mut body = Body::split(&head, b"name\0rest");
        assert_eq!(body.take::<MkdirIn>().unwrap().mode, 0o755);
        assert_eq!(body.take_name().unwrap(), b"name");
        assert_eq!(body.take_bytes(4).unwrap(), b"rest");
        // An operation without such a structure never looks at it.
        assert_eq!(Body::split(&head, b"name\0").take_name().unwrap(), b"name");
        assert!(Body::split(&[0; 7], b"long enough").take::<MkdirIn>().is_err());
    }

    #[test]
    fn a_short_request_or_one_with_a_wrong_length_is_refused() {
        assert!(Request::parse(&[0; 39]).is_err());
        let mut bytes = request(b"x");
        bytes.push(0);
        assert!(Request::parse(&bytes).is_err());
        let bytes = request(b"no end");
        assert!(Request::parse(&bytes).unwrap().body.take_string().is_err());
        let mut bytes = request(b"");
        bytes[36] = 1; // an extension of 8 bytes that is not there
        assert!(Request::parse(&bytes).is_err());
    }

    #[test]
    fn random_bytes_are_parsed_or_refused_but_never_panic() {
        let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
        let mut parsed_count = 0;
        for _ in 0..tier::count(100_000) {
            let mut bytes = vec![0; random.usize(0..200)];
            random.fill(&mut bytes);
            // Half of them with an honest length, or nothing would come through.
            if random.bool() && bytes.len() >= 40 {
                let len = u32::try_from(bytes.len()).unwrap();
                bytes[0..4].copy_from_slice(&len.to_ne_bytes());
                bytes[37] = 0;
            }
            let Ok(mut request) = Request::parse(&bytes) else { continue };
            parsed_count += 1;
            let _ = request.body.take::<MkdirIn>();
            let _ = request.body.take_name();
            let _ = request.body.take_bytes(random.u32(..));
            let _ = request.body.take_string();
        }
        assert!(parsed_count > tier::count(1000), "only {parsed_count} were parsed at all");
    }

    #[test]
    fn names_are_checked() {
        for bad in [&b"\0"[..], b"a/b\0"] {
            assert_eq!(Body::whole(bad).take_name(), Err(Errno::INVAL));
        }
    }
}
