//! The destinations of the messages of a serving process.
//!
//! In the foreground, messages go to standard error, with the time. A daemon's messages go to
//! standard error until the mount is ready, and then to syslog through `/dev/log`, which journald
//! reads as well. If syslog has no room for a message, the message is dropped: a volume must not
//! wait for a log that may be stored on it.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::error::{CliError, Result};
use crate::output::{Lines, plain, plain_path};

const SYSLOG: &str = "/dev/log";
/// syslog's facility `daemon`, where a message's priority has it.
const DAEMON: u8 = 3 << 3;

/// Sends messages of `level` and above to standard error.
pub fn to_standard_error(level: Level) {
    let builder = tracing_subscriber::fmt().with_ansi(false).with_target(false);
    builder.with_max_level(level).with_writer(|| Lines(io::stderr())).init();
}

/// Sends messages of `level` and above to standard error, and from [`Outlet::detach`] on to syslog.
/// In syslog each message begins with `dir`, to distinguish the volumes of a machine.
pub fn of_daemon(level: Level, dir: &Path) -> Result<Arc<Outlet>> {
    let outlet = Outlet::new(SYSLOG.into(), dir);
    let outlet = Arc::new(outlet.map_err(|error| CliError::new(format!("syslog: {error}")))?);
    let builder = tracing_subscriber::fmt().with_ansi(false).with_target(false);
    let builder = builder.without_time().with_level(false).with_max_level(level);
    builder.with_writer(Messages(outlet.clone())).init();
    Ok(outlet)
}

/// The places for a daemon's messages.
pub struct Outlet {
    syslog: PathBuf,
    socket: UnixDatagram,
    /// The text after the priority with which each message begins.
    tag: String,
    is_detached: AtomicBool,
}

impl Outlet {
    fn new(syslog: PathBuf, dir: &Path) -> io::Result<Outlet> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let dir = plain_path(dir);
        let tag = format!("onejournal[{}]: {dir}: ", std::process::id());
        Ok(Outlet { syslog, socket, tag, is_detached: AtomicBool::new(false) })
    }

    /// From now on messages go to syslog.
    pub fn detach(&self) {
        self.is_detached.store(true, Ordering::Release);
    }

    fn send(&self, severity: u8, text: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(text);
        let text = plain(text.strip_suffix('\n').unwrap_or(&text));
        if !self.is_detached.load(Ordering::Acquire) {
            return io::stderr().write_all(format!("onejournal: {text}\n").as_bytes());
        }
        let message = format!("<{}>{}{text}", DAEMON | severity, self.tag);
        // The path each time, so that a syslog that was restarted gets it.
        let _ = self.socket.send_to(message.as_bytes(), &self.syslog);
        Ok(())
    }
}

/// Gives each message to the outlet.
struct Messages(Arc<Outlet>);

/// One message.
struct Message<'a> {
    outlet: &'a Outlet,
    severity: u8,
}

impl<'a> MakeWriter<'a> for Messages {
    type Writer = Message<'a>;

    fn make_writer(&'a self) -> Message<'a> {
        Message { outlet: &self.0, severity: severity(Level::INFO) }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Message<'a> {
        Message { outlet: &self.0, severity: severity(*metadata.level()) }
    }
}

impl Write for Message<'_> {
    /// A message is written in one piece.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.outlet.send(self.severity, text).map(|()| text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_priority_process_and_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let syslog = UnixDatagram::bind(&path).unwrap();
        let outlet = Outlet::new(path, Path::new("/srv/\x1bdata")).unwrap();
        outlet.detach();
        // A line break would begin another message.
        outlet.send(severity(Level::ERROR), b"something\n\x1b[2Jfailed\n").unwrap();
        let mut text = [0; 200];
        let length = syslog.recv(&mut text).unwrap();
        let expected =
            format!("<27>onejournal[{}]: /srv/?data: something??[2Jfailed", std::process::id());
        assert_eq!(std::str::from_utf8(&text[..length]).unwrap(), expected);
    }

    #[test]
    fn a_syslog_that_is_full_or_away_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let syslog = UnixDatagram::bind(&path).unwrap();
        let outlet = Outlet::new(path, Path::new("/srv/data")).unwrap();
        outlet.detach();
        for _ in 0..10_000 {
            outlet.send(severity(Level::WARN), b"again\n").unwrap();
        }
        drop(syslog);
        outlet.send(severity(Level::WARN), b"once more\n").unwrap();
    }
}
