//! `onejournal mount -f`, what it says to the terminal and to the service manager; and what a
//! daemon says to syslog.

use crate::support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Read};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use onejournal_testing::has_namespaces;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use support::{ONEJOURNAL, Ran, Scratch, TempMount, alone, onejournal, run, spawn, text};

/// `onejournal mount -f` of a scratch volume.
struct Foreground {
    child: Child,
    dir: PathBuf,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Foreground {
    fn start(scratch: &Scratch, manager: Option<&Path>) -> Foreground {
        let mut command = Command::new(ONEJOURNAL);
        command.args(["mount", "-f"]).arg(scratch.image()).arg(scratch.dir());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(manager) = manager {
            command.env("NOTIFY_SOCKET", manager);
        }
        let mut child = spawn(&mut command).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Foreground { child, dir: scratch.dir(), lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("one more line").unwrap()
    }

    fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    #[track_caller]
    fn end(mut self) {
        assert_eq!(self.line(), "unmounted, and closed");
        let mut complaints = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        assert_eq!((self.child.wait().unwrap().code(), complaints.as_str()), (Some(0), ""));
    }
}

#[test]
fn the_foreground_says_what_it_does_and_waits_for() {
    let Some(scratch) = Scratch::new() else { return };
    let mut mount = Foreground::start(&scratch, None);
    let (image, dir) = (scratch.image(), scratch.dir());
    assert_eq!(mount.line(), format!("mounted {} on {}", image.display(), dir.display()));
    assert_eq!(mount.line(), "Ctrl-C unmounts");
    let program = Sleeping(spawn(Command::new("sleep").arg("1000").current_dir(&dir)).unwrap());
    let pid = program.0.id();
    let open = File::create(scratch.path("open")).unwrap();
    mount.interrupt();
    let line = mount.line();
    assert!(line.starts_with("waiting for programs that still use it: "), "{line}");
    assert!(line.contains(&format!("sleep ({pid})")), "{line}");
    assert!(line.contains(&format!("({})", std::process::id())), "{line}");
    drop(open);
    drop(program);
    mount.end();
    scratch.check();
}

#[test]
fn the_service_manager_learns_when_it_is_ready_and_when_it_stops() {
    let Some(scratch) = Scratch::new() else { return };
    let path = scratch.root().join("manager");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let state = || {
        let mut bytes = [0; 1000];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let mut mount = Foreground::start(&scratch, Some(&path));
    let ready = state();
    assert!(ready.starts_with("READY=1\nSTATUS=mounted "), "{ready}");
    // It is true when it is said.
    let open = File::create(scratch.path("open")).unwrap();
    assert!(mount.line().starts_with("mounted ") && mount.line() == "Ctrl-C unmounts");
    mount.interrupt();
    assert!(state().starts_with("STOPPING=1\n"));
    let waiting = state();
    assert!(waiting.starts_with("STATUS=waiting for programs that still use it: "), "{waiting}");
    mount.line();
    drop(open);
    mount.end();
}

impl Drop for Foreground {
    fn drop(&mut self) {
        // The process still runs only if the test failed.
        if let Ok(None) = self.child.try_wait() {
            let _ = unmount(&self.dir, UnmountFlags::DETACH);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A program with the volume as its directory, ended with the value.
struct Sleeping(Child);

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a daemon with these options sends to syslog, from mount to umount; in between the shell
/// command `then` runs.
fn syslog(scratch: &Scratch, image: &Path, options: &str, then: &str) -> (Ran, Vec<String>) {
    // A file in /dev is the machine's, and another run of this test may have one there, too. So the
    // namespace has a layer of its own over /dev.
    for name in ["upper", "work"] {
        fs::create_dir_all(scratch.root().join(name)).unwrap();
    }
    let path = scratch.root().join("syslog");
    let _ = fs::remove_file(&path);
    let syslog = UnixDatagram::bind(&path).unwrap();
    syslog.set_nonblocking(true).unwrap();
    let script = format!(
        "{} layer=lowerdir=/dev,upperdir=${{2%/*}}/upper,workdir=${{2%/*}}/work
         mount -t overlay -o $layer none /dev && >>/dev/log || exit
         mount --bind \"$2\" /dev/log && \"$3\" mount -o {options} \"$4\" \"$5\" || exit
         {then}
         exec \"$3\" umount \"$5\"",
        support::LET_GO
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &script, "sh", "none"]);
    command.arg(&path).arg(ONEJOURNAL).arg(image).arg(scratch.dir());
    let ran = run(&mut command);
    let mut bytes = [0; 4096];
    let mut lines = Vec::new();
    while let Ok(length) = syslog.recv(&mut bytes) {
        lines.push(String::from_utf8(bytes[..length].to_vec()).unwrap());
    }
    (ran, lines)
}

#[test]
fn a_daemons_messages_go_to_syslog_by_level() {
    let _alone = alone();
    let Some(scratch) = Scratch::new().filter(|_| has_namespaces()) else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    let (ran, lines) = syslog(&scratch, &image, "log_level=info", "");
    ran.good();
    let [mounted, unmounted] = lines.as_slice() else { panic!("{lines:?}") };
    // Facility daemon, severity informational.
    assert!(mounted.starts_with("<30>onejournal["), "{mounted}");
    assert!(
        mounted.ends_with(&format!("]: {}: mounted {}", text(&dir), text(&image))),
        "{mounted}"
    );
    assert!(unmounted.ends_with(": unmounted, and closed"), "{unmounted}");
    assert_eq!(syslog(&scratch, &image, "log_level=warn", "").1, [""; 0]);
}

#[test]
fn an_error_of_a_daemon_is_in_syslog() {
    let _alone = alone();
    let Some(scratch) = Scratch::empty().filter(|_| has_namespaces()) else { return };
    let ram =
        TempMount::new(&["-t", "tmpfs", "-o", "size=24M", "none"], &scratch.root().join("ram"));
    let image = ram.dir.join("image");
    onejournal(["mkfs", "--size", "128M", "--journal-size", "8M", text(&image)]).good();
    let fill = "head -c 60M /dev/zero >\"$5/f\"; sync \"$5/f\"";
    let (ran, lines) = syslog(&scratch, &image, "durability=process,log_level=error", fill);
    ran.refused(8, "not closed");
    // Severity: an error.
    let is_told = |line: &String| {
        line.starts_with("<27>")
            && line.contains("No space left")
            && line.contains("the file system that holds the image is full, not the volume")
    };
    assert!(lines.iter().any(is_told), "{lines:?}");
}
