//! Measures the transport alone: one file whose content goes nowhere, and a client that writes
//! 4 KiB and syncs, again and again.
//!
//! `bare serve DIR THREADS [DEVICE]` mounts on DIR until it is unmounted (with a block device as
//! `fuseblk`; the device is not touched); `bare client FILE COUNT` prints the microseconds of one
//! write and fdatasync (two round trips); `bare stream FILE` (as root) prints the seconds of
//! writing 1 GiB in pieces of 1 MiB, and of reading it with the caches dropped. Run both under
//! `taskset` to see what crossing CPUs costs.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use onejournal_fuse::abi::{AttrOut, EntryOut, FuseAttr, Opcode, ReadIn, WriteIn, WriteOut};
use onejournal_fuse::{Answer, Connection, FileSystem, MountOptions, Reply, Request, Source};
use rustix::io::Errno;

const FILE_NODE: u64 = 2;
const VALID_SECONDS: u64 = 86_400;
const FILE_BYTES: u64 = 1 << 30;
const PIECE_BYTES: usize = 1 << 20;

struct Nothing;

impl Nothing {
    fn attr(node: u64) -> FuseAttr {
        let mode = if node == FILE_NODE { 0o100_666 } else { 0o040_777 };
        FuseAttr {
            ino: node,
            size: FILE_BYTES,
            mode,
            nlink: 1,
            blksize: 4096,
            ..FuseAttr::default()
        }
    }

    fn try_serve(request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let mut body = request.body;
        match request.opcode {
            Some(Opcode::Lookup) if body.take_name()? == b"file" => reply.push(&EntryOut {
                nodeid: FILE_NODE,
                entry_valid: VALID_SECONDS,
                attr_valid: VALID_SECONDS,
                attr: Self::attr(FILE_NODE),
                ..EntryOut::default()
            }),
            Some(Opcode::Lookup) => Err(Errno::NOENT),
            Some(Opcode::Getattr | Opcode::Setattr) => reply.push(&AttrOut {
                attr_valid: VALID_SECONDS,
                attr: Self::attr(request.header.nodeid),
                ..AttrOut::default()
            }),
            Some(Opcode::Write) => {
                let write: WriteIn = body.take()?;
                reply.push(&WriteOut { size: write.size, padding: 0 })
            }
            Some(Opcode::Read) => {
                let read: ReadIn = body.take()?;
                reply.spare(read.size as usize)?;
                reply.advance(read.size as usize);
                Ok(())
            }
            Some(Opcode::Fsync | Opcode::Destroy) => Ok(()),
            _ => Err(Errno::NOSYS),
        }
    }
}

impl FileSystem for Nothing {
    fn serve(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        match request.opcode {
            Some(Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt) => Answer::Silent,
            _ => match Self::try_serve(request, reply) {
                Ok(()) => Answer::Done,
                Err(errno) => Answer::Failed(errno),
            },
        }
    }
}

fn serve(dir: &str, threads: &str, source: &Source) {
    let thread_count = threads.parse().expect("a number of threads");
    let options = MountOptions { thread_count, ..MountOptions::default() };
    let connection = match Connection::mount(source, Path::new(dir), &options) {
        Ok(connection) => connection,
        Err(error) => return eprintln!("{error}"),
    };
    println!("ready");
    connection.run(&Nothing).expect("runs until unmounted");
}

fn client(path: &str, pair_count: u32) {
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("opens");
    // New bytes that do not compress: a file system might find out that nothing has changed.
    let (mut rng, mut data) = (fastrand::Rng::with_seed(1), [0; 4096]);
    let start = Instant::now();
    for index in 0..pair_count {
        rng.fill(&mut data);
        file.write_all_at(&data, u64::from(index % 256) * 4096).expect("writes");
        file.sync_data().expect("syncs");
    }
    println!("{:.1}", start.elapsed().as_secs_f64() * 1e6 / f64::from(pair_count));
}

/// Seconds for writing the whole file in large pieces, and for reading it so.
fn stream(path: &str) {
    let open = || std::fs::OpenOptions::new().read(true).write(true).open(path).expect("opens");
    std::fs::write("/proc/sys/vm/drop_caches", "3").expect("as root");
    let mut piece = vec![0; PIECE_BYTES];
    fastrand::Rng::with_seed(1).fill(&mut piece);
    let (file, start) = (open(), Instant::now());
    for offset in (0..FILE_BYTES).step_by(PIECE_BYTES) {
        file.write_all_at(&piece, offset).expect("writes");
    }
    file.sync_all().expect("syncs");
    let write_seconds = start.elapsed().as_secs_f64();
    std::fs::write("/proc/sys/vm/drop_caches", "3").expect("as root");
    let (file, start) = (open(), Instant::now());
    for offset in (0..FILE_BYTES).step_by(PIECE_BYTES) {
        file.read_exact_at(&mut piece, offset).expect("reads");
    }
    println!("{write_seconds:.3} {:.3}", start.elapsed().as_secs_f64());
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", dir, threads] => serve(dir, threads, &Source::Plain { name: "bare".into() }),
        ["serve", dir, threads, device] => {
            serve(dir, threads, &Source::BlockDevice(device.into()));
        }
        ["stream", file] => stream(file),
        ["client", file, count] => client(file, count.parse().expect("a number of writes")),
        _ => eprintln!(
            "usage: bare serve DIR THREADS [DEVICE] | bare client FILE COUNT | bare stream FILE"
        ),
    }
}
