//! The log daemon as a program, and `onejournal log`.

use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use log::{Log, Lsn};
use onejournal_testing::{Need, ServiceDirectories, has_namespaces, has_program, skip};

use crate::support::Peer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_onejournal");

/// A daemon in a directory of its own, with its memory and NVRAM in another.
struct Daemon {
    directories: ServiceDirectories,
    child: Option<Child>,
}

impl Daemon {
    fn start() -> Daemon {
        let mut daemon = Daemon { directories: ServiceDirectories::new(), child: None };
        daemon.serve();
        daemon
    }

    fn serve(&mut self) {
        self.serve_with(Command::new(PROGRAM));
    }

    /// Starts the program, and waits until it says that it is ready.
    fn serve_with(&mut self, mut program: Command) {
        let notify = self.directories.root.path().join("notify");
        let _ = std::fs::remove_file(&notify);
        let told = UnixDatagram::bind(&notify).expect("socket");
        told.set_read_timeout(Some(Duration::from_secs(120))).expect("timeout");
        let child = program
            .arg("logd")
            .arg("--dir")
            .arg(self.directories.log())
            .arg("--listen")
            .arg(self.directories.socket())
            .arg("--nvram")
            .arg(self.directories.nvram())
            .args(["--durability", "process", "--pool", "1M", "--memory"])
            .arg(self.directories.memory.path())
            .env("NOTIFY_SOCKET", &notify)
            .spawn()
            .expect("start");
        self.child = Some(child);
        let mut buf = [0; 64];
        let count = told.recv(&mut buf).expect("it says that it is ready");
        assert_eq!(&buf[..count], b"READY=1");
    }

    fn signal(&mut self, signal: rustix::process::Signal) -> std::process::ExitStatus {
        let mut child = self.child.take().expect("it runs");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).expect("signal");
        child.wait().expect("wait")
    }

    fn log(&self, arguments: &[&str]) -> Output {
        let (command, rest) = arguments.split_first().expect("a command");
        let mut program = Command::new(PROGRAM);
        program.args(["log", command, "--socket"]).arg(self.directories.socket()).args(rest);
        program.output().expect("run")
    }

    fn log_directory(&self, arguments: &[&str]) -> Output {
        let (command, rest) = arguments.split_first().expect("a command");
        let mut program = Command::new(PROGRAM);
        program.args(["log", command, "--dir"]).arg(self.directories.log());
        program.arg("--memory").arg(self.directories.memory.path()).args(rest);
        program.output().expect("run")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn append(socket: &Path, name: &str, numbers: std::ops::Range<u64>) {
    let log = Log::connect(socket).expect("connect");
    let stream = log.stream(name).expect("stream");
    for number in numbers {
        let lsn = stream.append(format!("record {number}").as_bytes()).expect("append");
        stream.sync(lsn).expect("sync");
    }
}

/// The files on a process's standard numbers that can be written.
fn files_on_standard_numbers(pid: u32) -> Vec<PathBuf> {
    let found =
        (0..3).filter_map(|number| std::fs::read_link(format!("/proc/{pid}/fd/{number}")).ok());
    let is_harmless = |path: &PathBuf| path == Path::new("/") || path == Path::new("/dev/null");
    found.filter(|path| !is_harmless(path)).collect()
}

/// A command that begins without standard descriptors.
fn without_standard(program: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" <&- >&- 2>&-", "sh", program]);
    command
}

#[test]
fn a_daemon_without_standard_descriptors_uses_none_of_their_numbers() {
    let mut daemon = Daemon { directories: ServiceDirectories::new(), child: None };
    daemon.serve_with(without_standard(PROGRAM));
    let socket = daemon.directories.socket();
    append(&socket, "a", 0..50);
    let log = Log::connect(&socket).expect("connect");
    let stream = log.stream("a").expect("stream");
    assert_eq!(stream.read_from(Lsn(0)).expect("reader").count(), 50);
    let pid = daemon.child.as_ref().expect("it runs").id();
    assert_eq!(files_on_standard_numbers(pid), Vec::<PathBuf>::new());
}

#[test]
fn canary_a_file_on_a_standard_number_is_found() {
    let place = tempfile::tempdir().expect("directory");
    let file = std::fs::File::create(place.path().join("file")).expect("file");
    let child = Command::new("sleep").arg("100").stdin(Stdio::null()).stdout(file).spawn();
    let mut child = child.expect("start");
    let found = files_on_standard_numbers(child.id());
    child.kill().and_then(|()| child.wait()).expect("ours");
    assert!(found.contains(&place.path().join("file")), "{found:?}");
}

#[test]
fn a_daemon_whose_memory_was_removed_ends_and_the_next_one_has_all_records() {
    let mut daemon = Daemon::start();
    let log = Log::connect(daemon.directories.socket()).expect("connect");
    let stream = log.stream("a").expect("stream");
    let append = |number: u64| {
        let lsn = stream.append(format!("record {number}").as_bytes())?;
        stream.sync(lsn).map(|()| number)
    };
    let mut appended: Vec<u64> = (0..50).map(|number| append(number).expect("append")).collect();
    daemon.directories.reboot();
    // It goes on appending until it is told to stop.
    let rest = (50..).map_while(|number| append(number).ok());
    appended.extend(rest);
    let status = daemon.child.take().expect("it runs").wait().expect("wait");
    assert_eq!(status.code(), Some(8));
    daemon.serve();
    // The lease has ended, and can be taken again.
    stream.release();
    appended.push(append(1_000_000).expect("append"));
    let mut found = stream.read_from(Lsn(0)).expect("reader").map(|record| record.expect("record"));
    // In their order; a record whose append failed may be there, too.
    for number in appended {
        let payload = format!("record {number}").into_bytes();
        assert!(found.any(|record| record.payload == payload), "record {number}");
    }
}

#[test]
fn streams_are_listed_printed_followed_and_removed() {
    let mut daemon = Daemon::start();
    append(&daemon.directories.socket(), "one", 0..20);
    append(&daemon.directories.socket(), "two", 0..3);
    assert_eq!(text(&daemon.log(&["ls"])), "one\ntwo\n");
    assert!(text(&daemon.log(&["ls", "--json"])).contains("\"record_count\":20"));
    let all: String = (0..20).map(|number| format!("record {number}\n")).collect();
    assert_eq!(text(&daemon.log(&["cat", "one"])), all);
    assert_eq!(text(&daemon.log(&["tail", "-n", "2", "one"])), "record 18\nrecord 19\n");
    let json = text(&daemon.log(&["cat", "--json", "two"]));
    assert!(json.starts_with("{\"lsn\":0,\"usn\":"), "{json}");
    assert!(json.contains("\"text\":\"record 2\""), "{json}");
    assert!(text(&daemon.log(&["stat"])).contains("durability          process"));
    assert!(text(&daemon.log(&["stat", "--json", "two"])).contains("\"name\":\"two\""));
    let mut follower = Command::new(PROGRAM)
        .args(["log", "tail", "-f", "-n", "1", "--socket"])
        .arg(daemon.directories.socket())
        .arg("two")
        .stdout(Stdio::piped())
        .spawn()
        .expect("start");
    let mut out = follower.stdout.take().expect("asked for");
    let mut expect = |line: &[u8]| {
        let mut seen = vec![0; line.len()];
        out.read_exact(&mut seen).expect("it follows");
        assert_eq!(seen, line);
    };
    expect(b"record 2\n");
    append(&daemon.directories.socket(), "two", 3..5);
    expect(b"record 3\nrecord 4\n");
    follower.kill().and_then(|()| follower.wait()).expect("end it");
    text(&daemon.log(&["rm", "two"]));
    assert_eq!(text(&daemon.log(&["ls"])), "one\n");
    assert_eq!(daemon.log(&["cat", "two"]).status.code(), Some(8));
    let refused = daemon.log_directory(&["ls"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("/socket"), "{error}");
    assert!(daemon.signal(rustix::process::Signal::TERM).success());
    assert!(!daemon.directories.socket().exists());
    assert_eq!(text(&daemon.log_directory(&["cat", "one"])), all);
    let left = std::fs::read_dir(daemon.directories.memory.path()).expect("memory");
    let left: Vec<_> = left.map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(left, ["nvram"], "the command has closed the log");
}

#[test]
fn a_stream_is_given_to_a_group_while_no_daemon_serves_it() {
    let mut daemon = Daemon::start();
    append(&daemon.directories.socket(), "shared", 0..2);
    let directory = daemon.directories.log();
    let permit = |arguments: &[&str]| {
        let mut program = Command::new(PROGRAM);
        program.args(["log", "permit", "--dir"]).arg(&directory).args(arguments);
        program.output().expect("run")
    };
    let refused = |arguments: &[&str], why: &str| {
        let output = permit(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(why), "{arguments:?}: {error}");
    };
    refused(&["--group", "60000", "shared"], "To change this stream, stop it");
    assert!(daemon.signal(rustix::process::Signal::TERM).success());
    let known = || -> (u64, u64) {
        let text = std::fs::read(directory.join("streams/shared/stream.json")).expect("read");
        let meta: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        (meta["gid"].as_u64().expect("gid"), meta["mode"].as_u64().expect("mode"))
    };
    text(&permit(&["--group", "60000", "shared"]));
    assert_eq!(known(), (60_000, 0o660));
    text(&permit(&["--group", "root", "--mode", "640", "shared"]));
    assert_eq!(known(), (0, 0o640));
    refused(&["--group", "no-such-group", "shared"], "to make it: groupadd no-such-group");
    refused(
        &["--group", "root", "none"],
        "there is no stream none; to see what there is: onejournal log ls",
    );
    refused(&["--group", "root", "--mode", "9", "shared"], "in octal");
    daemon.serve();
    append(&daemon.directories.socket(), "shared", 2..3);
    assert_eq!(text(&daemon.log(&["cat", "shared"])), "record 0\nrecord 1\nrecord 2\n");
}

#[test]
fn damage_is_shown_and_given_up() {
    let mut daemon = Daemon::start();
    append(&daemon.directories.socket(), "d", 0..20);
    assert!(daemon.signal(rustix::process::Signal::TERM).success());
    let segment = daemon.directories.log().join("streams/d/0000000000000000.seg");
    let mut bytes = std::fs::read(&segment).expect("log file");
    bytes[64 + 5 * 32 + 26] ^= 1;
    std::fs::write(&segment, bytes).expect("damage");
    for entry in std::fs::read_dir(daemon.directories.memory.path()).expect("memory") {
        let path = entry.expect("entry").path();
        if !path.ends_with("nvram") {
            std::fs::remove_dir_all(path).expect("remove");
        }
    }
    daemon.serve();
    let output = daemon.log(&["cat", "d"]);
    let before: String = (0..5).map(|number| format!("record {number}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&output.stdout), before);
    assert_eq!(output.status.code(), Some(4));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("damaged at LSN 160"), "{error}");
    assert_eq!(text(&daemon.log(&["discard-damaged", "d"])), "d ends at LSN 160\n");
    append(&daemon.directories.socket(), "d", 5..6);
    assert_eq!(text(&daemon.log(&["cat", "d"])), format!("{before}record 5\n"));
    let log = Log::connect(daemon.directories.socket()).expect("connect");
    assert_eq!(log.stream("d").expect("stream").head(), Lsn(0));
}

#[test]
fn log_commands_that_cannot_work_are_refused() {
    let daemon = Daemon::start();
    let nowhere = daemon.directories.root.path().join("nowhere");
    let output = Command::new(PROGRAM).args(["log", "ls", "--dir"]).arg(&nowhere).output();
    let output = output.expect("run");
    assert!(String::from_utf8_lossy(&output.stderr).contains("give the directory of the log"));
    assert!(!nowhere.exists());
    assert_eq!(daemon.log(&["cat", "a/b"]).status.code(), Some(16));
    let output =
        Command::new(PROGRAM).args(["logd", "--dir"]).arg(daemon.directories.log()).output();
    let error = String::from_utf8_lossy(&output.expect("run").stderr).into_owned();
    assert!(error.contains("a daemon serves"), "{error}");
}

#[test]
fn records_that_a_killed_daemon_left_in_memory_are_brought_home() {
    let mut daemon = Daemon::start();
    append(&daemon.directories.socket(), "one", 0..3);
    let gc = |more: &[&str]| {
        let mut program = Command::new(PROGRAM);
        program.args(["log", "gc", "--memory"]).arg(daemon.directories.memory.path()).args(more);
        text(&program.output().expect("run"))
    };
    let used = gc(&[]);
    let path = used.strip_prefix("in use ").expect("in use").trim_end().to_owned();
    // A log that was moved cannot say that it is used; its processes can.
    let moved = daemon.directories.log().with_extension("moved");
    std::fs::rename(daemon.directories.log(), &moved).expect("moved");
    let kept = gc(&[]);
    assert!(kept.contains(&format!("--force {path}")), "{kept}");
    assert_eq!(gc(&["--force", &path]), used);
    std::fs::rename(&moved, daemon.directories.log()).expect("moved back");
    daemon.signal(rustix::process::Signal::KILL);
    let removed = {
        let mut program = Command::new(PROGRAM);
        program.args(["log", "gc", "--memory"]).arg(daemon.directories.memory.path());
        text(&program.output().expect("run"))
    };
    let expected = format!(
        "removed {path}: its records are in the log {}\n",
        daemon.directories.log().display()
    );
    assert_eq!((removed, Path::new(&path).exists()), (expected, false));
    assert_eq!(text(&daemon.log_directory(&["cat", "one"])).lines().count(), 3);
}

#[test]
fn a_daemon_says_what_it_serves() {
    let place = tempfile::tempdir().expect("directory");
    let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
    let dir = place.path().join("log");
    let start = |more: &[&str]| {
        let mut program = Command::new(PROGRAM);
        program.arg("logd").arg("--dir").arg(&dir).arg("--memory").arg(memory.path()).args(more);
        program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start")
    };
    let refused = start(&["--durability", "process"]).wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("--nvram DIR"), "{said}");
    assert!(!dir.exists(), "no log is made");
    let mut daemon = start(&[]);
    let mut line = String::new();
    let out = daemon.stdout.take().expect("asked for");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a line");
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signal");
    assert!(daemon.wait().expect("it ends").success());
    let shown = dir.display();
    assert!(line.starts_with(&format!("serving {shown} on {shown}/socket, durability ")), "{line}");
}

/// A connection to the daemon that sends something else than a request, and is closed.
fn send_garbage(socket: &Path) {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};
    let kind = SocketType::SEQPACKET;
    let client = rustix::net::socket(AddressFamily::UNIX, kind, None).expect("socket");
    let address = SocketAddrUnix::new(socket).expect("address");
    rustix::net::connect(&client, &address).expect("connect");
    rustix::net::send(&client, b"no request", SendFlags::NOSIGNAL).expect("send");
    let (_, count) = rustix::net::recv(&client, &mut [0; 8], RecvFlags::empty()).expect("the end");
    assert_eq!(count, 0, "it is closed");
}

#[test]
fn regression_bad_connections_do_not_fill_the_messages_of_the_daemon() {
    const COUNT: usize = 300;
    let mut daemon = Daemon { directories: ServiceDirectories::new(), child: None };
    let messages = daemon.directories.root.path().join("messages");
    let mut program = Command::new(PROGRAM);
    program.stderr(std::fs::File::create(&messages).expect("file"));
    daemon.serve_with(program);
    (0..COUNT).for_each(|_| send_garbage(&daemon.directories.socket()));
    assert!(daemon.signal(rustix::process::Signal::TERM).success());
    let messages = std::fs::read_to_string(messages).expect("its messages");
    let lines = messages.lines().filter(|line| line.contains("the connection is closed"));
    // All in one line, unless that took more than a minute.
    let left_out = messages.lines().filter_map(|line| {
        let (before, _) = line.split_once(" more warnings about connections were left out")?;
        before.rsplit(' ').next()?.parse::<usize>().ok()
    });
    let (written, left_out) = (lines.count(), left_out.sum::<usize>());
    assert!(written < COUNT, "{written} lines: {messages}");
    assert_eq!(written + left_out, COUNT, "{messages}");
}

/// A shell's command that runs a program with another file of subordinate user numbers.
const WITH_SUBUID: &str =
    r#"mount --bind "$1" /etc/subuid && shift && exec "$@" --user-connections 2"#;

#[test]
fn regression_all_numbers_of_a_user_share_one_limit() {
    use std::os::unix::fs::PermissionsExt;
    if !has_namespaces() || !has_program("setpriv") {
        return;
    }
    if !Path::new("/etc/subuid").exists() {
        return skip(Need::OptionalProgram, "needs /etc/subuid");
    }
    let mut daemon = Daemon { directories: ServiceDirectories::new(), child: None };
    let place = daemon.directories.root.path().to_owned();
    let ranges = place.join("subuid");
    std::fs::write(&ranges, "1000:100000:65536\n").expect("written");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&place, open).expect("permissions");
    let program = place.join("onejournal");
    std::fs::copy(PROGRAM, &program).expect("copied");
    let mut inside = Command::new("unshare");
    let script = format!("{} {WITH_SUBUID}", crate::support::LET_GO);
    inside.args(["-m", "--propagation", "private", "sh", "-c", &script, "sh"]);
    inside.arg(&ranges).arg(PROGRAM);
    daemon.serve_with(inside);
    let socket = daemon.directories.socket();
    let Some(mut greedy) = Peer::as_user(&place, 100_000, 100_000) else { return };
    let socket_text = socket.to_str().expect("text");
    greedy.good(&format!(
        "all = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]; \
         [one.connect('{socket_text}') for one in all]"
    ));
    let can_connect = |uid: u32| {
        let mut asked = Command::new("setpriv");
        asked.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into()]);
        let asked = asked.arg(&program).args(["log", "ls", "--socket"]).arg(&socket).output();
        asked.expect("run").status.success()
    };
    // Another number of the same user, the user, and two other users.
    assert_eq!([100_001, 1000, 1001, 200_000].map(can_connect), [false, false, true, true]);
}
