//! 64 databases, written by eight processes: plain and with the log on disk, in turns. The processes of both
//! sides are there all the time; those of the side whose turn it is get a line each. Beside them bare durable
//! writes, one behind the other, each counted as a commit of every process: no group commit that writes one entry
//! at a time can be faster, if everything else took no time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use device::{AlignedBuf, BlockDevice};

use crate::disk::{Asked, COLUMNS, Disk};
use crate::{Arguments, Failed, commit, load, median, open};

const PROCESSES: usize = 8;
const DATABASES: usize = 8;
/// Commits of each database in a round.
const ROUND_COMMITS: usize = 100;

/// One of the processes: it has its databases open and waits.
struct Writer {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Writer {
    fn start(arguments: &Arguments, is_ours: bool, process: usize) -> Result<Writer, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(&arguments.library).arg(&arguments.directory).args(&arguments.nvram);
        command.env("PART", format!("{} {process}", u8::from(is_ours)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let answers = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut writer = Writer { child, answers };
        writer.answer()?;
        Ok(writer)
    }

    fn ask(&mut self) -> Result<(), Failed> {
        Ok(self.child.stdin.as_mut().ok_or("no input")?.write_all(b"go\n")?)
    }

    fn answer(&mut self) -> Result<(), Failed> {
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => Err("a writer ended".into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Time of a round, in ns a commit.
fn round(writers: &mut [Writer]) -> Result<f64, Failed> {
    let begin = Instant::now();
    writers.iter_mut().try_for_each(Writer::ask)?;
    writers.iter_mut().try_for_each(Writer::answer)?;
    Ok(begin.elapsed().as_nanos() as f64 / (PROCESSES * DATABASES * ROUND_COMMITS) as f64)
}

/// Bare durable writes of what an entry of all processes takes.
struct Bare {
    file: device::Disk,
    entry: AlignedBuf,
}

impl Bare {
    const COUNT: usize = 100;

    fn new(directory: &Path) -> Result<Bare, Failed> {
        let (path, entry) = (directory.join("bare"), AlignedBuf::zeroed(4096));
        // Written, so that a durable write there changes no metadata.
        std::fs::write(&path, vec![0; Bare::COUNT * entry.len()])?;
        std::fs::File::open(&path)?.sync_all()?;
        Ok(Bare { file: device::Disk::open_shared(&path)?, entry })
    }

    /// Time of a round, in ns a commit.
    fn round(&self) -> Result<f64, Failed> {
        let begin = Instant::now();
        for index in 0..Bare::COUNT {
            self.file.write_durable((index * self.entry.len()) as u64, &self.entry)?;
        }
        Ok(begin.elapsed().as_nanos() as f64 / (Bare::COUNT * PROCESSES) as f64)
    }
}

pub fn many(arguments: &Arguments) -> Result<(), Failed> {
    let disk = Disk::of(&arguments.directory)?;
    let mut sides = Vec::new();
    for is_ours in [false, true] {
        let start = |process| Writer::start(arguments, is_ours, process);
        sides.push((0..PROCESSES).map(start).collect::<Result<Vec<_>, _>>()?);
    }
    let (mut times, mut asked) = ([Vec::new(), Vec::new()], [Asked::default(); 2]);
    let (bare, mut bare_times) = (Bare::new(&arguments.directory)?, Vec::new());
    for number in 0..arguments.rounds {
        // In another order each time: what a side leaves to the disk, the next one feels.
        for turn in 0..3 {
            let side = (number + turn) % 3;
            if side == 2 {
                bare_times.push(bare.round()?);
                continue;
            }
            let commits = (PROCESSES * DATABASES * ROUND_COMMITS) as u64;
            let time = asked[side].during(&disk, commits, || round(&mut sides[side]))?;
            times[side].push(time);
        }
    }
    let [plain, ours] = &times;
    let ratio =
        |times: &[f64]| median(plain.iter().zip(times).map(|(plain, time)| plain / time).collect());
    let columns = ["64 databases", "ns a commit", "x faster FULL"];
    println!("{:<22} {:>12} {:>14} {:>13}{COLUMNS}", columns[0], columns[1], columns[2], "");
    let sides =
        [("plain, FULL", plain, asked[0].each()), ("log on disk, FULL", ours, asked[1].each())];
    for (name, times, asked) in
        sides.into_iter().chain([("bare durable writes", &bare_times, String::new())])
    {
        let time = median(times.clone());
        println!("{name:<22} {time:>12.0} {:>14.2} {:>13}{asked}", ratio(times), "");
    }
    Ok(())
}

/// What each of the processes does.
pub fn part(arguments: &Arguments, part: &str) -> Result<(), Failed> {
    let (side, process) = part.split_once(' ').ok_or("PART=SIDE PROCESS")?;
    let is_ours = side == "1";
    let more = if is_ours { arguments.parameters() } else { String::new() };
    if is_ours {
        load(&arguments.library)?;
    }
    let path = |number| arguments.directory.join(format!("many-{side}-{process}-{number}.db"));
    let connections = (0..DATABASES)
        .map(|number| open(Path::new(&path(number)), &more, "FULL"))
        .collect::<Result<Vec<_>, _>>()?;
    println!("ready");
    for line in std::io::stdin().lines() {
        line?;
        for _ in 0..ROUND_COMMITS {
            connections.iter().try_for_each(|connection| commit(connection, 1))?;
        }
        println!("done");
    }
    Ok(())
}
