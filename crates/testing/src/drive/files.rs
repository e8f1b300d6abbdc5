//! The files of the mount: translates FUSE requests into calls of the emulator.

use std::collections::HashMap;

use device::Operation;
use fuse::abi::{
    AttrOut, Dirent, EntryOut, FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FallocateIn, FuseAttr, Opcode,
    OpenOut, ROOT_NODE, ReadIn, ReleaseIn, StatfsOut, WriteIn, WriteOut,
};
use fuse::{Answer, Request};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::drive::emulator::{Begun, Emulator};

/// Node 2 and the following.
const NAMES: [&str; 4] = ["disk", "counters", "control", "trace"];
const DISK: u64 = 2;
const COUNTERS: u64 = 3;
const CONTROL: u64 = 4;
const TRACE: u64 = 5;

const VALID_SECONDS: u64 = 86_400;
const FALLOC_FL_PUNCH_HOLE: u32 = 2;
const FALLOC_FL_ZERO_RANGE: u32 = 16;

/// How a request is answered.
pub enum Outcome {
    /// Answered at once.
    Now(Answer, Vec<u8>),
    /// Answered with `payload` at `done_ns`. Contains its number in the record, if it has one.
    At { done_ns: u64, payload: Payload, recorded: Option<u64> },
}

/// The content of a delayed answer.
#[derive(Debug)]
pub enum Payload {
    /// Bytes of the disk, as they are at that time.
    Read(std::ops::Range<u64>),
    /// The number of bytes written.
    Written(u32),
    /// Nothing.
    Flushed,
}

/// Texts of `counters` and `trace` as they were when they were opened.
#[derive(Default)]
pub struct Files {
    opened: HashMap<u64, String>,
    last_handle: u64,
}

type Served = Result<Outcome, Errno>;

fn done(payload: &(impl IntoBytes + zerocopy::Immutable)) -> Served {
    Ok(Outcome::Now(Answer::Done, payload.as_bytes().to_vec()))
}

fn done_empty() -> Served {
    Ok(Outcome::Now(Answer::Done, Vec::new()))
}

impl Files {
    /// Serves a request that arrived at `now_ns`.
    pub fn serve(
        &mut self,
        emulator: &mut Emulator,
        now_ns: u64,
        request: &Request<'_>,
    ) -> Outcome {
        let served = self.try_serve(emulator, now_ns, request);
        served.unwrap_or_else(|errno| Outcome::Now(Answer::Failed(errno), Vec::new()))
    }

    fn try_serve(&mut self, emulator: &mut Emulator, now_ns: u64, request: &Request<'_>) -> Served {
        let mut body = request.body;
        let node = request.header.nodeid;
        match request.opcode {
            Some(Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt) => {
                Ok(Outcome::Now(Answer::Silent, Vec::new()))
            }
            Some(Opcode::Lookup) => lookup(emulator, body.take_name()?),
            // A size that is set (by O_TRUNC) is ignored.
            Some(Opcode::Getattr | Opcode::Setattr) => done(&AttrOut {
                attr_valid: VALID_SECONDS,
                attr: attr(emulator, node),
                ..AttrOut::default()
            }),
            Some(Opcode::Open) => self.open(emulator, node),
            Some(Opcode::Release) => {
                self.opened.remove(&body.take::<ReleaseIn>()?.fh);
                done_empty()
            }
            Some(opcode) if node == DISK && fails(emulator, opcode) => Err(Errno::IO),
            Some(Opcode::Read) => self.read(emulator, now_ns, node, &body.take()?),
            Some(Opcode::Write) => {
                let write: WriteIn = body.take()?;
                let data = body.take_bytes(write.size)?;
                self::write(emulator, now_ns, node, &write, data)
            }
            Some(Opcode::Fsync) if node == DISK => {
                let Begun { done_ns, recorded } = emulator.flush(now_ns);
                Ok(Outcome::At { done_ns, payload: Payload::Flushed, recorded })
            }
            Some(Opcode::Fsync | Opcode::Destroy) => done_empty(),
            Some(Opcode::Fallocate) if node == DISK => discard(emulator, now_ns, &body.take()?),
            Some(Opcode::Readdirplus) => read_dir(&body.take()?),
            Some(Opcode::Statfs) => {
                done(&StatfsOut { bsize: 4096, frsize: 4096, ..StatfsOut::default() })
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn open(&mut self, emulator: &Emulator, node: u64) -> Served {
        let text = match node {
            COUNTERS => emulator.report(),
            TRACE => emulator.trace_text(),
            DISK => return done(&OpenOut { open_flags: FOPEN_KEEP_CACHE, ..OpenOut::default() }),
            _ => String::new(),
        };
        self.last_handle += 1;
        self.opened.insert(self.last_handle, text);
        let (fh, open_flags) = (self.last_handle, FOPEN_DIRECT_IO);
        done(&OpenOut { fh, open_flags, ..OpenOut::default() })
    }

    fn read(&self, emulator: &mut Emulator, now_ns: u64, node: u64, read: &ReadIn) -> Served {
        if node == DISK {
            let size_bytes = emulator.size_bytes();
            let start = read.offset.min(size_bytes);
            let span = start..(start + u64::from(read.size)).min(size_bytes);
            let done_ns = emulator.read(now_ns, span.clone());
            let payload = Payload::Read(span);
            return Ok(Outcome::At { done_ns, payload, recorded: None });
        }
        let text = self.opened.get(&read.fh).map_or(&[][..], |text| text.as_bytes());
        let start = usize::try_from(read.offset).unwrap_or(usize::MAX).min(text.len());
        let end = start.saturating_add(read.size as usize).min(text.len());
        Ok(Outcome::Now(Answer::Done, text[start..end].to_vec()))
    }
}

/// Whether a request to the disk fails.
fn fails(emulator: &Emulator, opcode: Opcode) -> bool {
    match opcode {
        Opcode::Read => emulator.fails(Operation::Read),
        Opcode::Write | Opcode::Fallocate => emulator.fails(Operation::Write),
        Opcode::Fsync => emulator.fails(Operation::Flush),
        _ => false,
    }
}

fn attr(emulator: &Emulator, node: u64) -> FuseAttr {
    let size = if node == DISK { emulator.size_bytes() } else { 0 };
    let mode = if node == ROOT_NODE { 0o040_755 } else { 0o100_600 };
    let uid = if node == DISK { emulator.owner() } else { 0 };
    FuseAttr { uid, ..FuseAttr::made_up(node, mode, size) }
}

fn lookup(emulator: &Emulator, name: &[u8]) -> Served {
    let index = NAMES.iter().position(|known| known.as_bytes() == name).ok_or(Errno::NOENT)?;
    let nodeid = DISK + index as u64;
    done(&EntryOut {
        nodeid,
        entry_valid: VALID_SECONDS,
        attr_valid: VALID_SECONDS,
        attr: attr(emulator, nodeid),
        ..EntryOut::default()
    })
}

fn write(emulator: &mut Emulator, now_ns: u64, node: u64, write: &WriteIn, data: &[u8]) -> Served {
    match node {
        DISK => {
            let begun = emulator.write(now_ns, write.offset, data).ok_or(Errno::NOSPC)?;
            let Begun { done_ns, recorded } = begun;
            Ok(Outcome::At { done_ns, payload: Payload::Written(write.size), recorded })
        }
        CONTROL => {
            let text = std::str::from_utf8(data).map_err(|_| Errno::INVAL)?;
            emulator.obey(text).ok_or(Errno::INVAL)?;
            done(&WriteOut { size: write.size, padding: 0 })
        }
        _ => Err(Errno::ACCESS),
    }
}

fn discard(emulator: &mut Emulator, now_ns: u64, fallocate: &FallocateIn) -> Served {
    if fallocate.mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) == 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let end = fallocate.offset.checked_add(fallocate.length).ok_or(Errno::FBIG)?;
    emulator.discard(now_ns, fallocate.offset..end).ok_or(Errno::NOSPC)?;
    done_empty()
}

/// Returns all names at once. The kernel asks for attributes when it needs them.
fn read_dir(read: &ReadIn) -> Served {
    let mut payload = Vec::new();
    let all = [".", ".."].into_iter().chain(NAMES).enumerate();
    for (index, name) in all.skip(usize::try_from(read.offset).unwrap_or(usize::MAX)) {
        let node = (index as u64).max(ROOT_NODE);
        let kind = if index < 2 { 4 } else { 8 }; // DT_DIR, DT_REG
        let (off, namelen) = (index as u64 + 1, name.len() as u32);
        payload.extend_from_slice(EntryOut::default().as_bytes());
        payload.extend_from_slice(Dirent { ino: node, off, namelen, kind }.as_bytes());
        payload.extend_from_slice(name.as_bytes());
        payload.resize(payload.len().next_multiple_of(8), 0);
    }
    if payload.len() > read.size as usize {
        Err(Errno::INVAL)
    } else {
        Ok(Outcome::Now(Answer::Done, payload))
    }
}
