//! 64 databases, written by eight processes: plain and with the log on disk, in turns. The processes of both
//! sides are there all the time; those of the side whose turn it is get a line each.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

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

pub fn many(arguments: &Arguments) -> Result<(), Failed> {
    let disk = Disk::of(&arguments.directory)?;
    let mut sides = Vec::new();
    for is_ours in [false, true] {
        let start = |process| Writer::start(arguments, is_ours, process);
        sides.push((0..PROCESSES).map(start).collect::<Result<Vec<_>, _>>()?);
    }
    let (mut times, mut asked) = ([Vec::new(), Vec::new()], [Asked::default(); 2]);
    for _ in 0..arguments.rounds {
        for ((writers, times), asked) in sides.iter_mut().zip(&mut times).zip(&mut asked) {
            let commits = (PROCESSES * DATABASES * ROUND_COMMITS) as u64;
            times.push(asked.during(&disk, commits, || round(writers))?);
        }
    }
    let ratio = {
        let [plain, ours] = &times;
        median(plain.iter().zip(ours).map(|(plain, ours)| plain / ours).collect())
    };
    let columns = ["64 databases", "ns a commit", "x faster FULL"];
    println!("{:<22} {:>12} {:>14} {:>13}{COLUMNS}", columns[0], columns[1], columns[2], "");
    let ratios = [String::from("1.00"), format!("{ratio:.2}")];
    for (((name, times), ratio), asked) in
        ["plain, FULL", "log on disk, FULL"].iter().zip(times).zip(ratios).zip(&asked)
    {
        println!("{name:<22} {:>12.0} {ratio:>14} {:>13}{}", median(times), "", asked.each());
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
