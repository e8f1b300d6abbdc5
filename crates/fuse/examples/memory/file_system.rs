//! The file system: nodes in memory, and the operations on them.
//!
//! A node is known by its number, which is never used again. The kernel counts the lookups of each
//! node and gives them back with FORGET. A file without a name lives until then, since a program
//! may have it open. OPEN is answered `ENOSYS`, so there are no handles.
//!
//! Lock: `nodes`, for each request as a whole.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onejournal_fuse::abi::{
    AttrOut, BatchForgetIn, EntryOut, ForgetIn, ForgetOne, FuseAttr, MknodIn, Opcode, ROOT_NODE,
    ReadIn, SetattrIn, StatfsOut, WRITE_KILL_SUIDGID, WriteIn, WriteOut, fattr,
};
use onejournal_fuse::{Answer, Errno, FileSystem, Reply, Request, dirent_bytes};

/// The kernel may believe names and attributes for a day: they change through it only.
const VALID_SECONDS: u64 = 86_400;
/// Largest file, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
const BLOCK_BYTES: u32 = 4096;
const NAME_BYTES_MAX: usize = 255;

const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;
const ROOT_MODE: u32 = 0o041_777;
const SET_USER_AND_GROUP_ID: u32 = 0o6000;
const DT_DIR: u32 = 4;
const DT_REG: u32 = 8;

/// A file.
struct Node {
    content: Vec<u8>,
    mode: u32,
    uid: u32,
    gid: u32,
    /// The time of the last change of the content.
    mtime: Duration,
    /// Lookups that the kernel has not given back.
    lookup_count: u64,
    has_name: bool,
}

/// The nodes that exist, and their names.
struct Nodes {
    by_number: BTreeMap<u64, Node>,
    by_name: BTreeMap<Vec<u8>, u64>,
    next_number: u64,
}

/// A file system in memory.
pub struct Memory {
    nodes: Mutex<Nodes>,
}

/// The payload of the answer is in the reply.
type Outcome = Result<(), Errno>;

impl Memory {
    /// An empty one.
    pub fn new() -> Memory {
        let (by_number, by_name) = (BTreeMap::new(), BTreeMap::new());
        Memory { nodes: Mutex::new(Nodes { by_number, by_name, next_number: ROOT_NODE + 1 }) }
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileSystem for Memory {
    fn serve(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer {
        let mut nodes = self.nodes();
        let outcome = match request.opcode {
            Some(Opcode::Interrupt) => return Answer::Silent,
            Some(Opcode::Forget | Opcode::BatchForget) => {
                // A FORGET that is too short has no effect; nothing could be answered.
                let _ = nodes.forget(request);
                return Answer::Silent;
            }
            Some(Opcode::Lookup) => nodes.lookup(request, reply),
            Some(Opcode::Mknod) => nodes.make(request, reply),
            Some(Opcode::Unlink) => nodes.unlink(request),
            Some(Opcode::Readdir) => nodes.list(request, reply, false),
            Some(Opcode::Readdirplus) => nodes.list(request, reply, true),
            Some(Opcode::Getattr) => nodes.push_attr(request.header.nodeid, reply),
            Some(Opcode::Setattr) => nodes.set_attr(request, reply),
            Some(Opcode::Read) => nodes.read(request, reply),
            Some(Opcode::Write) => nodes.write(request, reply),
            Some(Opcode::Statfs) => reply.push(&StatfsOut {
                bsize: BLOCK_BYTES,
                frsize: BLOCK_BYTES,
                namelen: NAME_BYTES_MAX as u32,
                ..StatfsOut::default()
            }),
            // Nothing is more durable than memory here.
            Some(Opcode::Fsync | Opcode::Fsyncdir | Opcode::Syncfs | Opcode::Destroy) => Ok(()),
            // The kernel does without OPEN, CREATE, FLUSH, extended attributes and others, or stops
            // asking.
            _ => Err(Errno::NOSYS),
        };
        match outcome {
            Ok(()) => Answer::Done,
            Err(errno) => Answer::Failed(errno),
        }
    }
}

impl Nodes {
    fn node(&self, number: u64) -> Result<&Node, Errno> {
        match number {
            ROOT_NODE => Err(Errno::ISDIR),
            number => self.by_number.get(&number).ok_or(Errno::STALE),
        }
    }

    fn node_mut(&mut self, number: u64) -> Result<&mut Node, Errno> {
        self.node(number)?;
        Ok(self.by_number.get_mut(&number).expect("it was found"))
    }

    fn attr(&self, number: u64) -> Result<FuseAttr, Errno> {
        if number == ROOT_NODE {
            return Ok(FuseAttr { nlink: 2, ..FuseAttr::made_up(ROOT_NODE, ROOT_MODE, 0) });
        }
        let node = self.node(number)?;
        let (mtime, mtimensec) = (node.mtime.as_secs(), node.mtime.subsec_nanos());
        Ok(FuseAttr {
            uid: node.uid,
            gid: node.gid,
            nlink: u32::from(node.has_name),
            mtime,
            mtimensec,
            ctime: mtime,
            ctimensec: mtimensec,
            ..FuseAttr::made_up(number, node.mode, node.content.len() as u64)
        })
    }

    fn push_attr(&self, number: u64, reply: &mut Reply<'_>) -> Outcome {
        let attr = self.attr(number)?;
        reply.push(&AttrOut { attr_valid: VALID_SECONDS, attr, ..AttrOut::default() })
    }

    /// An answer that names a node is a lookup: the kernel gives it back with FORGET.
    fn push_entry(&mut self, number: u64, reply: &mut Reply<'_>) -> Outcome {
        self.node_mut(number)?.lookup_count += 1;
        reply.push(&EntryOut {
            nodeid: number,
            entry_valid: VALID_SECONDS,
            attr_valid: VALID_SECONDS,
            attr: self.attr(number)?,
            ..EntryOut::default()
        })
    }

    fn lookup(&mut self, request: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let mut body = request.body;
        let name = body.take_name()?;
        let number = *self.by_name.get(name).ok_or(Errno::NOENT)?;
        self.push_entry(number, reply)
    }

    /// MKNOD, which the kernel sends for a new file since CREATE is answered `ENOSYS`.
    fn make(&mut self, request: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let mut body = request.body;
        let mknod: MknodIn = body.take()?;
        let name = body.take_name()?;
        if mknod.mode & S_IFMT != S_IFREG {
            return Err(Errno::PERM);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        if self.by_name.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let number = self.next_number;
        self.next_number += 1;
        let node = Node {
            content: Vec::new(),
            mode: mknod.mode & !mknod.umask,
            uid: request.header.uid,
            gid: request.header.gid,
            mtime: now(),
            lookup_count: 0,
            has_name: true,
        };
        self.by_number.insert(number, node);
        self.by_name.insert(name.to_vec(), number);
        self.push_entry(number, reply)
    }

    fn unlink(&mut self, request: &Request<'_>) -> Outcome {
        let mut body = request.body;
        let number = self.by_name.remove(body.take_name()?).ok_or(Errno::NOENT)?;
        self.node_mut(number)?.has_name = false;
        self.give_back(number, 0);
        Ok(())
    }

    fn forget(&mut self, request: &Request<'_>) -> Outcome {
        let mut body = request.body;
        if request.opcode == Some(Opcode::Forget) {
            let forget: ForgetIn = body.take()?;
            self.give_back(request.header.nodeid, forget.nlookup);
            return Ok(());
        }
        let batch: BatchForgetIn = body.take()?;
        for _ in 0..batch.count {
            let one: ForgetOne = body.take()?;
            self.give_back(one.nodeid, one.nlookup);
        }
        Ok(())
    }

    /// Takes lookups back, and frees a file that has no name and that the kernel does not know.
    fn give_back(&mut self, number: u64, lookup_count: u64) {
        let Ok(node) = self.node_mut(number) else { return };
        node.lookup_count = node.lookup_count.saturating_sub(lookup_count);
        if node.lookup_count == 0 && !node.has_name {
            self.by_number.remove(&number);
        }
    }

    /// The cursor of a name: 1 and 2 for `.` and `..`, then the number of its node, which grows.
    fn list(&self, request: &Request<'_>, reply: &mut Reply<'_>, is_plus: bool) -> Outcome {
        let mut body = request.body;
        let read: ReadIn = body.take()?;
        let dots = [(1, ROOT_NODE, DT_DIR, &b"."[..]), (2, ROOT_NODE, DT_DIR, b"..")];
        let mut files: Vec<_> = self
            .by_name
            .iter()
            .map(|(name, number)| (*number + 1, *number, DT_REG, &name[..]))
            .collect();
        files.sort_unstable();
        let rest = dots.into_iter().chain(files).filter(|(cursor, ..)| *cursor > read.offset);
        for (cursor, number, kind, name) in rest {
            let head_bytes = if is_plus { size_of::<EntryOut>() } else { 0 };
            let record_bytes = head_bytes + dirent_bytes(name.len());
            if reply.payload().len() + record_bytes > read.size as usize {
                break;
            }
            if is_plus {
                // Without attributes: the kernel looks the name up when it needs them.
                reply.push(&EntryOut::default())?;
            }
            reply.push_dirent(number, cursor, kind, name)?;
        }
        Ok(())
    }

    fn set_attr(&mut self, request: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let mut body = request.body;
        let set: SetattrIn = body.take()?;
        let node = self.node_mut(request.header.nodeid)?;
        let has = |bit| set.valid & bit != 0;
        if has(fattr::SIZE) {
            if set.size > FILE_BYTES_MAX {
                return Err(Errno::FBIG);
            }
            node.content.resize(set.size as usize, 0);
            node.mtime = now();
        }
        if has(fattr::KILL_SUIDGID) {
            node.mode &= !SET_USER_AND_GROUP_ID;
        }
        if has(fattr::MODE) {
            node.mode = S_IFREG | set.mode & !S_IFMT;
        }
        if has(fattr::UID) {
            node.uid = set.uid;
        }
        if has(fattr::GID) {
            node.gid = set.gid;
        }
        if has(fattr::MTIME_NOW) {
            node.mtime = now();
        } else if has(fattr::MTIME) {
            node.mtime =
                Duration::from_secs(set.mtime) + Duration::from_nanos(set.mtimensec.into());
        }
        self.push_attr(request.header.nodeid, reply)
    }

    fn read(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let mut body = request.body;
        let read: ReadIn = body.take()?;
        let content = &self.node(request.header.nodeid)?.content;
        let start = usize::try_from(read.offset).unwrap_or(usize::MAX).min(content.len());
        let end = start.saturating_add(read.size as usize).min(content.len());
        // Less than was asked for means the end of the file.
        reply.push_bytes(&content[start..end])
    }

    fn write(&mut self, request: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let mut body = request.body;
        let write: WriteIn = body.take()?;
        let data = body.take_bytes(write.size)?;
        let node = self.node_mut(request.header.nodeid)?;
        let end = write.offset.checked_add(u64::from(write.size)).ok_or(Errno::FBIG)?;
        if end > FILE_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        if node.content.len() < end as usize {
            node.content.resize(end as usize, 0);
        }
        node.content[write.offset as usize..end as usize].copy_from_slice(data);
        node.mtime = now();
        if write.write_flags & WRITE_KILL_SUIDGID != 0 {
            node.mode &= !SET_USER_AND_GROUP_ID;
        }
        reply.push(&WriteOut { size: write.size, padding: 0 })
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
