//! `onejournal top`: shows what volumes, their files and logs do, and repeats that.
//!
//! A thread of its own takes samples, so that keys work while a daemon does not answer. With `-b`
//! the same content is printed as text.

mod draw;
mod rows;
mod sample;
#[cfg(test)]
mod tests;
mod view;

use std::io::{ErrorKind, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::sample::Sample;
use self::view::View;
use crate::inventory::{Logs, Mounts};
use crate::{CliError, Result, say};

/// The interval at which keys and signals are checked.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Width of the text of `-b`, if the environment does not set `COLUMNS`.
const BATCH_WIDTH: u16 = 120;

#[derive(Args)]
pub struct TopArgs {
    /// Print text, without a terminal and without keys
    #[arg(short = 'b', long)]
    batch: bool,
    /// End after this number of samples
    #[arg(short = 'n', long, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Seconds from one sample to the next
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "2")]
    #[arg(value_parser = crate::parse_interval)]
    delay: f64,
}

pub fn run(args: &TopArgs) -> Result<u8> {
    let failed = |error: std::io::Error| CliError::new(format!("signals: {error}"));
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, ended.clone()).map_err(failed)?;
    }
    if !args.batch && !std::io::stdout().is_terminal() {
        return Err(CliError::usage("standard output is no terminal: use -b"));
    }
    let (sender, samples) = sync_channel(1);
    let delay = Duration::from_secs_f64(args.delay);
    let thread = std::thread::Builder::new().name("oj-samples".into());
    let body = move || take_samples(&sender, delay);
    thread.spawn(body).map_err(|error| CliError::new(format!("a thread: {error}")))?;
    let count = args.count.unwrap_or(u64::MAX);
    if args.batch {
        print(&samples, &ended, count)?;
    } else {
        let failed = |error: std::io::Error| CliError::new(format!("the terminal: {error}"));
        show(&samples, &ended, count).map_err(failed)?;
    }
    Ok(0)
}

/// Takes samples until the receiver is gone.
fn take_samples(sender: &SyncSender<Sample>, delay: Duration) {
    let (mut mounts, mut logs) = (Mounts::with_files(), Logs::with_counters());
    loop {
        let begin = Instant::now();
        if sender.send(Sample::take(&mut mounts, &mut logs)).is_err() {
            return;
        }
        std::thread::sleep(delay.saturating_sub(begin.elapsed()));
    }
}

/// Shows the samples on the terminal, and restores the terminal at the end.
fn show(samples: &Receiver<Sample>, ended: &AtomicBool, count: u64) -> std::io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = show_on(&mut terminal, samples, ended, count);
    ratatui::try_restore()?;
    result
}

fn show_on(
    terminal: &mut ratatui::DefaultTerminal,
    samples: &Receiver<Sample>,
    ended: &AtomicBool,
    count: u64,
) -> std::io::Result<()> {
    let mut view = View::default();
    let mut seen = 0;
    while !ended.load(Ordering::Relaxed) {
        match samples.try_recv() {
            Ok(_) if seen == count => return Ok(()),
            Ok(sample) => {
                view.take(sample);
                seen += 1;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Err(ErrorKind::BrokenPipe.into()),
        }
        terminal.draw(|frame| draw::draw(frame, &mut view))?;
        if !event::poll(KEY_WAIT)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && view.press(key)
        {
            return Ok(());
        }
    }
    Ok(())
}

/// Prints the samples as text, until `count` samples were printed or the reader is gone.
fn print(samples: &Receiver<Sample>, ended: &AtomicBool, count: u64) -> Result<()> {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let width = columns.unwrap_or(BATCH_WIDTH).clamp(20, 1000);
    let mut view = View::default();
    for index in 0..count {
        let sample = loop {
            match samples.recv_timeout(KEY_WAIT) {
                Ok(sample) => break sample,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(CliError::new("the thread that takes samples has ended"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if ended.load(Ordering::Relaxed) {
                return Ok(());
            }
        };
        view.take(sample);
        let blank = if index > 0 { "\n" } else { "" };
        say!("{blank}{}", text(&mut view, width).trim_end());
    }
    Ok(())
}

/// All parts with all their lines, as text.
fn text(view: &mut View, width: u16) -> String {
    let height = draw::whole_height(view);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is in memory");
    terminal.draw(|frame| draw::draw_whole(frame, view)).expect("it is in memory");
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(width)) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
