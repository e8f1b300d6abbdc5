//! Performs the steps of an actor, as system calls on the mounted directory.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use device::RingPool;
use onejournal_testing::drive::Recorder;
use rustix::fs::OFlags;
use sim::calls::Calls;
use sim::op::Op;

use crate::command::{spawn, without_children};
use crate::database::{Client, DatabasePlace};
use crate::engine::{Place, Session};
use crate::mark::{Mark, Moment};
use crate::paths::{database_dir, record_file, tree_dir};
use crate::replaced::{self, Replacer};
use crate::scenario::{Actor, Scenario};
use crate::script::{Step, places};
use crate::slots::{Places, SlotOp};
use crate::worker::Hand;

/// Makes the initial files of the actors, and syncs them.
pub fn prepare(root: &Path, scenario: &Scenario) -> io::Result<()> {
    for (actor, kind) in scenario.actors.iter().enumerate() {
        if kind.has_tree() {
            let dir = tree_dir(root, actor);
            std::fs::DirBuilder::new().create(&dir)?;
            File::open(dir)?.sync_all()?;
            continue;
        }
        if let Actor::Replacer = kind {
            Replacer::make(&replaced::dir(root, actor))?;
            continue;
        }
        if let Actor::Session = kind {
            continue; // The disk is made with its tables.
        }
        if let Actor::Database(how) = kind {
            let dir = database_dir(root, actor);
            std::fs::DirBuilder::new().create(&dir)?;
            Client::make(DatabasePlace::of(&dir), how).map_err(io::Error::other)?;
            File::open(&dir)?.sync_all()?;
            continue;
        }
        let path = record_file(root, scenario, actor);
        if !path.exists() {
            let mut file = File::create(path)?;
            file.write_all(&vec![0; places(scenario, actor).file_bytes()])?;
            file.sync_all()?;
        }
    }
    Ok(())
}

/// How an actor accesses its records.
pub enum Records {
    File(File),
    Ring(File, RingPool),
    Mapped(Mapping),
}

/// How an actor performs its steps.
pub enum Hands {
    Tree(Calls),
    Slots(Records, Places),
    Database(Client),
    Session(Box<dyn Session>),
    Replacer(Replacer),
    /// In another process.
    Hired(Hand),
}

/// Performs all steps, with marks in the trace. If the mount disappears, ends early and reports
/// success.
pub fn work(
    mut hands: Hands,
    scenario: &Scenario,
    actor: usize,
    steps: &[Step],
    recorder: &Recorder,
) -> Result<(), String> {
    for (step, what) in steps.iter().enumerate() {
        let mark = |moment| recorder.mark(Mark { actor, step, moment }.number());
        mark(Moment::Begin);
        match hands.step(what) {
            Ok(()) => mark(Moment::Done),
            Err(error) if is_gone(&error) && scenario.is_killed => return Ok(()),
            // An inode has room for so many attributes only.
            Err(error) if is_full(&error) && is_attribute(what) => mark(Moment::NoRoom),
            // Which these are the model knows; the medium does not fail here.
            Err(error) if is_refusal(&error) => mark(Moment::Refused),
            Err(error) => return Err(format!("actor {actor}, step {step} ({what}): {error}")),
        };
    }
    Ok(())
}

/// Whether the error shows that the daemon was killed.
fn is_gone(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED, Errno::INTR, Errno::IO];
    gone.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOSPC.raw_os_error())
}

fn is_attribute(step: &Step) -> bool {
    matches!(step, Step::Tree(Op::SetXattr { .. }))
}

fn is_refusal(error: &io::Error) -> bool {
    if error.kind() == io::ErrorKind::Other {
        return false;
    }
    use rustix::io::Errno;
    let bad =
        [Errno::IO, Errno::NOSPC, Errno::ROFS, Errno::NOTCONN, Errno::CONNABORTED, Errno::INTR];
    !bad.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Opens what an actor of a mounted volume uses. `place` is where a database engine has its files.
pub fn open(root: &Path, scenario: &Scenario, actor: usize, place: &Place) -> io::Result<Hands> {
    let path = record_file(root, scenario, actor);
    let places = places(scenario, actor);
    let open = |flags: OFlags| {
        let flags = flags.bits().cast_signed();
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path)
    };
    let records = match scenario.actors[actor] {
        Actor::Tree | Actor::Mover => return Ok(Hands::Tree(Calls::new(&tree_dir(root, actor)))),
        Actor::Replacer => {
            return Ok(Hands::Replacer(Replacer::new(replaced::dir(root, actor))));
        }
        Actor::Plain => Records::File(open(OFlags::empty())?),
        Actor::Dsync => Records::File(open(OFlags::DSYNC)?),
        Actor::Sync => Records::File(open(OFlags::SYNC)?),
        Actor::Uring => Records::Ring(open(OFlags::empty())?, RingPool::new()?),
        Actor::Mapped => Records::Mapped(Mapping::start(&path)?),
        Actor::Database(how) => {
            let dir = database_dir(root, actor);
            let client = Client::open(DatabasePlace::of(&dir), how);
            return Ok(Hands::Database(client.map_err(io::Error::other)?));
        }
        Actor::Session => {
            let engine = scenario.engine.expect("sessions are for these");
            return Ok(Hands::Session(engine.open(place, actor)?));
        }
        Actor::Together(_) | Actor::Stream | Actor::Store(_) => unreachable!("these are hired"),
    };
    Ok(Hands::Slots(records, places))
}

impl Hands {
    fn step(&mut self, step: &Step) -> io::Result<()> {
        match (self, step) {
            (Hands::Tree(calls), Step::Tree(op)) => calls.apply(op),
            (Hands::Database(client), Step::Commit(count)) => {
                // A child that closes its copy of the database's descriptor ends an atomic write.
                without_children(|| client.commit(*count)).map_err(io::Error::other)
            }
            (Hands::Session(session), Step::Commit(count)) => session.commit(*count),
            (Hands::Replacer(replacer), Step::Commit(count)) => replacer.replace(*count),
            (Hands::Hired(hand), Step::Commit(count)) => {
                hand.commit(*count).map_err(io::Error::other)
            }
            (Hands::Slots(records, places), Step::Slot(op)) => records.step(*places, *op),
            _ => unreachable!("an actor does steps of its own kind"),
        }
    }
}

impl Records {
    fn step(&mut self, places: Places, op: SlotOp) -> io::Result<()> {
        match (self, op) {
            (Records::File(file), SlotOp::Write { place, tag }) => {
                let record = places.record(place, tag);
                whole(file.write_at(&record, places.offset(place))?, record.len())
            }
            (Records::Ring(file, ring), SlotOp::Write { place, tag }) => {
                use std::os::fd::AsFd;
                let record = places.record(place, tag);
                let written = ring.write_dsync(file.as_fd(), places.offset(place), &record);
                let written = written.ok_or_else(|| io::Error::other("no ring took the write"))?;
                whole(written?, record.len())
            }
            (Records::File(file) | Records::Ring(file, _), SlotOp::Sync { data_only }) => {
                if data_only {
                    file.sync_data()
                } else {
                    file.sync_all()
                }
            }
            (Records::Mapped(mapping), SlotOp::Write { place, tag }) => {
                mapping.store(places.offset(place), &places.record(place, tag))
            }
            (Records::Mapped(mapping), SlotOp::Sync { .. }) => mapping.sync(),
        }
    }
}

fn whole(written: usize, wanted: usize) -> io::Result<()> {
    if written == wanted {
        Ok(())
    } else {
        Err(io::Error::other(format!("{written} of {wanted} bytes")))
    }
}

const MAPPING: &str = r#"
import mmap, sys
file = open(sys.argv[1], "r+b")
memory = mmap.mmap(file.fileno(), 0)
print("ok", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "store":
        at, data = int(words[1]), bytes.fromhex(words[2])
        memory[at:at + len(data)] = data
    else:
        memory.flush()
    print("ok", flush=True)
"#;

/// A shared mapping of a file, in a Python process: safe Rust cannot map memory.
pub struct Mapping {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Mapping {
    fn start(path: &Path) -> io::Result<Mapping> {
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-I", "-c", MAPPING]).arg(path);
        let mut child = spawn(python.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut mapping = Mapping { child, input, output };
        mapping.answer()?;
        Ok(mapping)
    }

    fn store(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        use std::fmt::Write as _;
        let mut hex = String::with_capacity(data.len() * 2);
        data.iter().for_each(|byte| write!(hex, "{byte:02x}").expect("memory"));
        self.say(&format!("store {offset} {hex}"))
    }

    /// `msync(MS_SYNC)` of all of it.
    fn sync(&mut self) -> io::Result<()> {
        self.say("sync")
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.input.as_mut().expect("it is open until the end"), "{line}")?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line == "ok\n" {
            Ok(())
        } else {
            Err(io::Error::other(format!("the mapping says {line:?}")))
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.input.take()); // The end of its input ends it.
        let _ = self.child.wait();
    }
}
