//! `onejournal ls`: volumes and logs, as they are and as they fail.

use crate::support;

use std::path::Path;
use std::process::Command;

use log::{Log, Options};
use onejournal_testing::{has_namespaces, has_program, is_root};
use rustix::process::Signal;
use serde_json::Value;
use support::{
    Logd, ONEJOURNAL, OTHER_USER, Peer, Scratch, Waiting, alone, onejournal, run, scratch_dir,
    system, text,
};

fn listed() -> Value {
    serde_json::from_str(&onejournal(["ls", "--json"]).good()).unwrap()
}

/// The entries of `kind` whose `dir` is this one.
fn entries(kind: &str, dir: &Path) -> impl Iterator<Item = Value> {
    let listed = listed()[kind].as_array().unwrap().clone();
    listed.into_iter().filter(move |entry| entry["dir"] == text(dir))
}

/// The one in this mount namespace. Any program of the machine may have a copy of a mount in
/// another one, which is listed when the mount here is gone.
fn entry(kind: &str, dir: &Path) -> Option<Value> {
    entries(kind, dir).find(|entry| entry["namespace_pid"].is_null())
}

/// A mount namespace with a copy of the mount; `None` where there are no namespaces.
fn copy_of_mount(scratch: &Scratch) -> Option<Waiting> {
    has_namespaces().then(|| Waiting::in_copy(&scratch.dir(), scratch.root()))
}

/// Returns when the processes that asked a volume have ended: they have had their answer.
fn wait_until_no_process_asks(dir: &Path) {
    let asks = |process: std::fs::DirEntry| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.contains("\0ask\0") && line.contains(text(dir))
    };
    let begun = std::time::Instant::now();
    while std::fs::read_dir("/proc").unwrap().flatten().any(asks) {
        assert!(begun.elapsed().as_secs() < 120, "a process asks for ever");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn volumes_are_listed_with_their_state() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::mounted("data=journal") else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    let copy = copy_of_mount(&scratch);
    let mount = entry("mounts", &dir).unwrap();
    assert_eq!(mount["target"], text(&image));
    assert_eq!((&mount["state"], &mount["data_mode"]), (&"read-write".into(), &"journal".into()));
    assert_eq!(mount["durability"], "power");
    let pid = i64::from(scratch.daemon().id.as_raw_nonzero().get());
    assert_eq!(mount["pid"].as_i64(), Some(pid));
    assert!(mount["space_bytes"].as_u64() > mount["available_bytes"].as_u64(), "{mount}");
    let shown = onejournal(["ls"]).good();
    let line = shown.lines().find(|line| line.contains(text(&dir))).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        words[..6],
        [text(&image), text(&dir), "read-write", "journal", "power", &pid.to_string()]
    );
    // One that does not answer is told apart, and waited for no longer than that.
    scratch.daemon().stop();
    let silent = entry("mounts", &dir);
    let file = scratch.path("f");
    let asked: [&[&str]; 7] = [
        &["stat", text(&dir)],
        &["stat", text(&file)],
        &["stat", "--watch", text(&dir)],
        &["get-mode", text(&file), text(&dir)],
        &["set-mode", "auto", text(&dir)],
        &["sync", text(&dir)],
        &["mount", "-o", "remount,ro", text(&image), text(&dir)],
    ];
    let unanswered = asked.map(|words| onejournal(words));
    scratch.daemon().signal(Signal::CONT);
    assert_eq!(silent.unwrap()["state"], "silent");
    unanswered.iter().for_each(|ran| ran.refused(8, "has not answered for 2 s"));
    wait_until_no_process_asks(&dir);
    if is_root() {
        // Without the helper, so that only the kernel knows.
        system("mount", ["-i", "-o", "remount,ro", text(&dir)]).good();
        assert_eq!(entry("mounts", &dir).unwrap()["state"], "read-only");
        let shown = onejournal(["stat", text(&dir)]).good();
        assert!(shown.contains(" ago, read-only\n"), "{shown}");
        system("mount", ["-i", "-o", "remount,rw", text(&dir)]).good();
        assert_eq!(entry("mounts", &dir).unwrap()["state"], "read-write");
    }
    // By its image, which takes the copies off, too.
    onejournal(["umount", text(&image)]).good();
    scratch.expect_closed();
    scratch.check();
    copy.into_iter().for_each(Waiting::end);
    scratch.mount("ro");
    assert_eq!(entry("mounts", &dir).unwrap()["state"], "read-only");
    let copy = copy_of_mount(&scratch);
    scratch.daemon().signal(Signal::KILL);
    assert!(scratch.daemon().ended());
    let dead = entry("mounts", &dir).unwrap();
    assert_eq!((&dead["state"], &dead["pid"]), (&"dead".into(), &Value::Null));
    assert!(entry("mounts", scratch.root()).is_none());
    onejournal(["umount", text(&dir)]).good();
    scratch.expect_ended();
    assert!(entry("mounts", &dir).is_none());
    if let Some(copy) = copy {
        let listed = entries("mounts", &dir).next().expect("the copy is listed");
        assert_eq!(listed["state"], "dead");
        copy.end();
    }
}

#[test]
fn logs_are_listed_while_they_are_used() {
    let mut logd = Logd::start(&[]);
    let dir = logd.dir();
    let listed = entry("logs", &dir).unwrap();
    assert_eq!(listed["daemon_pid"].as_u64(), Some(u64::from(logd.pid())));
    assert_eq!(listed["socket"], text(&dir.join("socket")));
    assert_eq!((&listed["client_count"], &listed["stream_count"]), (&0.into(), &0.into()));
    assert_eq!((&listed["durability"], &listed["error"]), (&"power".into(), &Value::Null));
    let log = Log::connect(dir.join("socket")).unwrap();
    let stream = log.stream("one").unwrap();
    let lsn = stream.append(b"record").unwrap();
    stream.sync(lsn).unwrap();
    let listed = entry("logs", &dir).unwrap();
    assert!(listed["client_count"].as_u64() >= Some(1), "{listed}");
    assert_eq!(listed["stream_count"], 1);
    let shown = onejournal(["ls"]).good();
    let line = shown.lines().find(|line| line.starts_with(text(&dir))).unwrap();
    assert!(line.contains(" daemon ") && line.contains(" power "), "{line}");
    let mut top = Command::new(ONEJOURNAL);
    let shown = run(top.args(["top", "-b", "-n", "1"]).env("COLUMNS", "200")).good();
    let line = shown.lines().find(|line| line.starts_with(text(&dir.join("one")))).unwrap();
    assert!(line.contains(" 6 B ") && line.ends_with("ok"), "{line}");
    drop((stream, log));
    logd.end();
    assert!(entry("logs", &dir).is_none(), "nobody has it open");
    // The same directory, opened by this process.
    let options = Options { memory: logd.memory().into(), ..Options::default() };
    let log = Log::open(&dir, &options).unwrap();
    let listed = entry("logs", &dir).unwrap();
    assert_eq!(listed["client_pids"], serde_json::json!([std::process::id()]));
    assert!(listed["daemon_pid"].is_null() && listed["client_count"] == 1, "{listed}");
    log.close().unwrap();
    assert!(entry("logs", &dir).is_none());
}

#[test]
fn a_log_that_another_user_can_change_is_not_believed() {
    use std::os::unix::fs::PermissionsExt;
    let mut logd = Logd::start(&[]);
    let dir = logd.dir();
    let is_open_to_all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&dir, is_open_to_all).unwrap();
    let listed = entry("logs", &dir).unwrap();
    assert!(listed["durability"].is_null() && listed["socket"].is_null(), "{listed}");
    let error = listed["error"].as_str().unwrap();
    assert!(error.contains(text(&dir)), "{error}");
    let ran = onejournal(["ls"]);
    assert!(ran.err.contains(text(&dir)), "{ran:?}");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o711)).unwrap();
    logd.end();
}

/// The reason why `ls` does not believe the log in `dir`.
fn refusal(dir: &Path) -> String {
    let listed = entry("logs", dir).unwrap();
    listed["error"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned()
}

#[test]
fn regression_files_that_were_planted_in_a_log_are_not_read() {
    let mut logd = Logd::start(&[]);
    let dir = logd.dir();
    let settings = std::fs::File::options().write(true).open(dir.join("service.json")).unwrap();
    let len_bytes = settings.metadata().unwrap().len();
    settings.set_len(1 << 40).unwrap();
    assert!(refusal(&dir).contains("service.json: has more than 65536 bytes"));
    settings.set_len(len_bytes).unwrap();
    assert!(entry("logs", &dir).unwrap()["error"].is_null());
    logd.end();
    // A process that is no daemon has locked a pipe.
    let Some(mut peer) = Peer::new(&dir) else { return };
    std::fs::remove_file(dir.join("daemon")).unwrap();
    system("mkfifo", ["-m", "600", text(&dir.join("daemon"))]).good();
    peer.good("fd = os.open('daemon', os.O_RDWR); fcntl.flock(fd, fcntl.LOCK_EX)");
    assert!(refusal(&dir).contains("daemon: is no regular file"));
}

#[test]
fn regression_a_socket_of_another_user_is_not_connected_to() {
    if !is_root() {
        return;
    }
    let mut logd = Logd::start(&[]);
    let (dir, place) = (logd.dir(), scratch_dir());
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(place.path(), open).unwrap();
    let Some(mut peer) = Peer::as_user(place.path(), OTHER_USER, OTHER_USER) else { return };
    peer.good(
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind('socket'); s.listen(); \
         s.settimeout(0)",
    );
    let socket = place.path().join("socket");
    std::fs::write(dir.join("daemon"), text(&socket)).unwrap();
    let top = || onejournal(["top", "-b", "-n", "1"]).good();
    assert!(top().contains(text(&dir)));
    assert_eq!(entry("logs", &dir).unwrap()["socket"], text(&socket));
    peer.fails(rustix::io::Errno::AGAIN, "s.accept()");
    // The name now belongs to the user of the log, the process that listens does not.
    std::os::unix::fs::chown(&socket, Some(0), None).unwrap();
    assert!(top().contains(text(&dir)));
    // It was closed before anything was sent.
    assert_eq!(peer.good("r = len(s.accept()[0].recv(100))"), 0);
    logd.end();
}

#[test]
fn another_user_sees_the_own_logs_only() {
    if !is_root() || !has_program("setpriv") {
        return;
    }
    let logd = Logd::start(&[]);
    let copy = scratch_dir();
    let program = copy.path().join("onejournal");
    std::fs::copy(ONEJOURNAL, &program).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(copy.path(), open).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    let shown = run(command.args(["ls", "--json"])).good();
    assert!(!shown.contains(text(&logd.dir())), "{shown}");
}

#[test]
fn regression_a_user_with_many_logs_does_not_fill_the_list() {
    const COUNT: usize = 300;
    const KEPT_COUNT: usize = 256;
    if !is_root() {
        return;
    }
    let place = scratch_dir();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(place.path(), open).unwrap();
    let Some(mut peer) = Peer::as_user(place.path(), OTHER_USER, OTHER_USER) else { return };
    peer.good("kept = []");
    for number in 0..COUNT {
        peer.good(&format!("os.mkdir('{number}'); open('{number}/service.json', 'w').close()"));
        peer.good(&format!("kept.append(os.open('{number}/daemon', os.O_CREAT | os.O_RDWR))"));
        peer.good("fcntl.flock(kept[-1], fcntl.LOCK_EX)");
    }
    let listed = listed();
    let is_there = |log: &&Value| log["dir"].as_str().unwrap().starts_with(text(place.path()));
    let kept_count = listed["logs"].as_array().unwrap().iter().filter(is_there).count();
    assert_eq!(kept_count, KEPT_COUNT);
    assert!(listed["more_logs"].as_u64().unwrap() >= (COUNT - KEPT_COUNT) as u64);
    for words in [&["ls"][..], &["top", "-b", "-n", "1"]] {
        let shown = onejournal(words).good();
        assert!(shown.contains(" more logs"), "{shown}");
    }
}
