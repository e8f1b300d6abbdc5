//! A server that is no daemon of a volume and says that it is one: what it answers does not reach a
//! terminal as it is, and where it does not answer, no command waits for ever.

use crate::support;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use fuse::abi::{
    AttrOut, EntryOut, FOPEN_DIRECT_IO, FuseAttr, GetxattrIn, GetxattrOut, Opcode, OpenIn, OpenOut,
};
use fuse::{
    Answer, Connection, FileSystem, IoUring, MountError, MountHandle, MountOptions, Reply, Request,
    Source,
};
use onejournal_testing::{can_mount_fuse, has_program, is_root};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::{
    ClaimedMount, Loop, ONEJOURNAL, OTHER_USER, Ran, Scratch, onejournal, python, run, scratch_dir,
    spawn, system, text, tmpfs_dir, wait_until,
};

/// Characters that a terminal acts on: sequences of 7 and of 8 bits, a line break, and a letter
/// that turns the order around.
const ACTIVE: &str = "/x\x1b]0;title\x07\u{9b}2J\u{7f}\n\u{202e}y";

/// Which requests are not answered until the test ends.
type Holds = fn(Opcode) -> bool;

/// How many requests are held, and whether they are not any more.
#[derive(Default)]
struct Held {
    count: usize,
    is_over: bool,
}

/// The node and the name of its file.
const FILE: u64 = 2;
const FILE_NAME: &[u8] = b"file";

/// A root directory with attributes, and a file. Opened with `O_SYNC`, it is not cached.
struct Forged {
    holds: Holds,
    held: Mutex<Held>,
    changed: Condvar,
}

impl Forged {
    /// The value of an attribute of the directory.
    fn value(name: &[u8]) -> Option<String> {
        match name {
            b"user.onejournal.stat" => Some(stat().to_string()),
            b"user.onejournal.mode" => Some(ACTIVE.into()),
            b"user.onejournal.atomic" => Some(ACTIVE.into()),
            b"user.onejournal.pid" => Some("1".into()),
            _ => None,
        }
    }

    fn try_serve(request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let mut body = request.body;
        let file =
            FuseAttr { ino: FILE, mode: 0o100_644, nlink: 1, size: 4096, ..FuseAttr::default() };
        match request.opcode {
            Some(Opcode::Lookup) => match body.take_string()? {
                FILE_NAME => {
                    reply.push(&EntryOut { nodeid: FILE, attr: file, ..EntryOut::default() })
                }
                _ => Err(Errno::NOENT),
            },
            Some(Opcode::Open) => {
                let OpenIn { flags, .. } = body.take()?;
                let is_direct = flags & OFlags::SYNC.bits() == OFlags::SYNC.bits();
                let open_flags = if is_direct { FOPEN_DIRECT_IO } else { 0 };
                reply.push(&OpenOut { open_flags, ..OpenOut::default() })
            }
            Some(Opcode::Getattr) if request.header.nodeid == FILE => {
                reply.push(&AttrOut { attr: file, ..AttrOut::default() })
            }
            Some(Opcode::Getattr) => {
                let attr = FuseAttr { ino: 1, mode: 0o040_755, nlink: 2, ..FuseAttr::default() };
                // The kernel has to ask again each time.
                reply.push(&AttrOut { attr, ..AttrOut::default() })
            }
            Some(Opcode::Getxattr) => {
                let GetxattrIn { size, .. } = body.take()?;
                let value = Forged::value(body.take_string()?).ok_or(Errno::NODATA)?;
                match size {
                    0 => reply.push(&GetxattrOut { size: value.len() as u32, padding: 0 }),
                    _ => reply.push_bytes(value.as_bytes()),
                }
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn hold(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.count += 1;
        while !held.is_over {
            held = self.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl FileSystem for Forged {
    fn serve(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer {
        if request.opcode.is_some_and(self.holds) {
            self.hold();
        }
        match request.opcode {
            Some(Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt) => Answer::Silent,
            _ => match Forged::try_serve(request, reply) {
                Ok(()) => Answer::Done,
                Err(errno) => Answer::Failed(errno),
            },
        }
    }
}

/// The counters of a volume as the server tells them.
fn stat() -> Value {
    json!({
        "version": ACTIVE, "target": ACTIVE, "last_error": ACTIVE, "durability": ACTIVE,
        "data_mode": ACTIVE, "order": ACTIVE, "journal_target": ACTIVE, ACTIVE: ACTIVE,
        "requests": u64::MAX, "device_flushes": u64::MAX, "space_bytes": u64::MAX,
        "journal_medium": { "kind": ACTIVE, "fences": u64::MAX, ACTIVE: u64::MAX },
        "commit_latency_ns": { "count": 2, "buckets": [[1, u64::MAX], [1, u64::MAX]] },
    })
}

/// The mounted server, in a thread of the test.
struct Mounted {
    dir: tempfile::TempDir,
    server: Arc<Forged>,
    handle: MountHandle,
    thread: Option<JoinHandle<Result<(), MountError>>>,
}

impl Mounted {
    fn new(holds: Holds) -> Option<Mounted> {
        if !can_mount_fuse() {
            return None;
        }
        Some(Mounted::on(scratch_dir(), holds))
    }

    fn on(dir: tempfile::TempDir, holds: Holds) -> Mounted {
        let source = Source::Plain { name: "forged".into() };
        let subtype = Some("onejournal".into());
        let options = MountOptions { subtype, io_uring: IoUring::Off, ..MountOptions::default() };
        let connection = Connection::mount(&source, dir.path(), &options).unwrap();
        let server =
            Arc::new(Forged { holds, held: Mutex::default(), changed: Condvar::default() });
        let (handle, serving) = (connection.handle(), server.clone());
        let thread = Some(std::thread::spawn(move || connection.run(&*serving).map(drop)));
        Mounted { dir, server, handle, thread }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Answers everything from now on.
    fn release(&self) {
        self.server.held.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.server.changed.notify_all();
    }

    fn held_count(&self) -> usize {
        self.server.held.lock().unwrap_or_else(PoisonError::into_inner).count
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.release();
        let _ = self.handle.unmount_lazily();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Whether a terminal acts on nothing in it but line breaks and tabs.
fn is_harmless(text: &str) -> bool {
    let acts = |letter: char| letter.is_control() && !"\n\t".contains(letter);
    !text.chars().any(|letter| acts(letter) || letter == '\u{202e}')
}

#[test]
fn regression_answers_of_a_forged_mount_do_not_reach_a_terminal() {
    let Some(mounted) = Mounted::new(|_| false) else { return };
    let dir = text(mounted.path());
    let shown = "/x?]0;title??2J???y";
    for arguments in [
        &["stat", dir][..],
        &["stat", "--all", dir],
        &["get-mode", dir],
        &["ls"],
        &["top", "-b", "-n", "1"],
    ] {
        let mut command = Command::new(ONEJOURNAL);
        let out = run(command.args(arguments).env("COLUMNS", "900")).good();
        assert!(is_harmless(&out), "{arguments:?}: {out:?}");
        assert!(out.contains(shown), "{arguments:?}: {out:?}");
        let is_line = |line: &str| line.trim_start().starts_with('y');
        assert!(!out.lines().any(is_line), "{arguments:?}: it has begun a line: {out:?}");
    }
    let out = onejournal(["stat", "--json", dir]).good();
    assert!(is_harmless(&out), "{out:?}");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), stat());
    let out = onejournal(["ls", "--json"]).good();
    assert!(is_harmless(&out), "{out:?}");
    let listed: Value = serde_json::from_str(&out).unwrap();
    let mounts = listed["mounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["dir"] == dir).unwrap();
    assert_eq!((&mount["target"], &mount["last_error"]), (&ACTIVE.into(), &ACTIVE.into()));
    let mut watch = Command::new(ONEJOURNAL);
    watch.args(["stat", "--watch=0.1", "--json", dir]);
    watch.stdout(support::unread_pipe());
    assert_eq!(spawn(&mut watch).unwrap().wait().unwrap().code(), Some(0));
}

/// `onejournal get-mode *` in a directory where another user makes files.
#[test]
fn regression_an_argument_that_is_refused_does_not_reach_a_terminal() {
    let option = "--\u{9b}2J\nforged";
    for arguments in [["get-mode", option], ["mount", option], [option, "."]] {
        let ran = onejournal(arguments);
        ran.ended(16);
        assert!(ran.err.contains("--?2J?forged") && is_harmless(&ran.err), "{ran:?}");
        let is_line = |line: &str| line.trim_start().starts_with("forged");
        assert!(!ran.err.lines().any(is_line), "{ran:?}");
    }
}

/// A directory of another user may hold files with such names.
#[test]
fn regression_the_name_of_a_file_does_not_reach_a_terminal() {
    const NAME: &str = "a\x1b]0;title\x07\u{9b}2J\nforged\u{202e}";
    const SHOWN: &str = "a?]0;title??2J?forged?";
    if !has_program("mke2fs") || !has_program("debugfs") {
        return;
    }
    let place = scratch_dir();
    let named = |extra: &str| text(&place.path().join(format!("{extra}{NAME}"))).to_owned();
    let (image, journal, none) = (named(""), named("journal"), named("none"));
    std::fs::create_dir(named("dir")).unwrap();
    let dir = named("dir");
    let option = format!("journal={none}");
    let log = format!("{dir}/log");
    for arguments in [
        &["mkfs", &image][..],
        &["mkfs", "--size", "16M", &image],
        &["mkfs", "--size", "16M", &image],
        &["mkfs", "--force", "--size", "20G", &image],
        &["mkfs", "--force", "--size", "16M", &image],
        &["mkfs", &dir],
        &["fsck", &image],
        &["fsck", "-n", &image],
        &["fsck", "-p", &image],
        &["fsck", "-y", "--journal-lost", &image],
        &["fsck", &none],
        &["fsck", &dir],
        &["fsck", "--journal", &none, &image],
        &["set-journal", &image, &none],
        &["set-journal", "--journal-size", "4M", &image, &journal],
        &["set-journal", &image, &image],
        &["fsck", &image],
        &["dump", &image],
        &["set-journal", "--internal", &image],
        &["dump", "--json", &image],
        &["dump", &none],
        &["mkfs", "--size", "16M", "--journal", &none, &image],
        &["mount", &image, &none],
        &["mount", "-o", &option, &image, &dir],
        &["mount", &none, &dir],
        &["umount", &dir],
        &["umount", &image],
        &["stat", &dir],
        &["stat", &none],
        &["get-mode", &dir],
        &["set-mode", "auto", &none],
        &["sync", &none],
        &["probe", &none],
        &["log", "ls", "--dir", &none],
        &["log", "ls", "--socket", &none],
        &["log", "cat", "--dir", &log, &none],
        &["log", "permit", "--dir", &none, "--group", "0", "s"],
        &["log", "gc", "--memory", &none],
        &["logd", "--dir", &log, "--nvram", &none],
        &["logd", "--dir", &none, "--listen", &image],
    ] {
        let ran = onejournal(arguments);
        for out in [&ran.out, &ran.err] {
            assert!(is_harmless(out), "{arguments:?}: {out:?}");
            let is_line = |line: &str| line.trim_start().starts_with("forged");
            assert!(!out.lines().any(is_line), "{arguments:?}: it has begun a line: {out:?}");
        }
        let is_shown = [&ran.out, &ran.err].iter().any(|out| out.contains(SHOWN));
        assert!(is_shown || arguments[0] == "dump" || arguments[1] == "gc", "{ran:?}");
    }
}

#[test]
fn regression_no_command_waits_for_a_mount_that_does_not_answer() {
    let Some(mounted) = Mounted::new(|opcode| opcode == Opcode::Getxattr) else { return };
    let dir = text(mounted.path());
    for arguments in [
        &["get-mode", dir][..],
        &["set-mode", "auto", dir],
        &["set-mode", "--atomic", dir],
        &["sync", dir],
        &["stat", dir],
        &["stat", "--watch", dir],
        &["mount", "none", dir],
    ] {
        onejournal(arguments).refused(8, "has not answered for 2 s");
    }
}

/// It answers a question, and then not what the command does.
#[test]
fn regression_a_command_that_changes_a_mount_can_be_ended() {
    let Some(mounted) = Mounted::new(|opcode| opcode == Opcode::Setxattr) else { return };
    let mut command = Command::new(ONEJOURNAL);
    let mut child = spawn(command.args(["set-mode", "auto", text(mounted.path())])).unwrap();
    wait_until("it sends no request", || mounted.held_count() > 0);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(status_of(&mut child).signal(), Some(Signal::TERM.as_raw()));
}

/// How the process ends, which a mount might keep from that until the test is over.
fn status_of(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("it cannot be ended", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// A process that looks like a daemon has a directory open that does not answer.
#[test]
fn regression_the_files_of_other_processes_are_not_asked() {
    static IS_SILENT: AtomicBool = AtomicBool::new(false);
    let holds: Holds = |opcode| opcode == Opcode::Getattr && IS_SILENT.load(Ordering::SeqCst);
    let Some(mounted) = Mounted::new(holds) else { return };
    let place = scratch_dir();
    // By another program: no child of this one has it open to write.
    let program = place.path().join("onejournal");
    system("cp", ["/bin/sh", text(&program)]).good();
    std::fs::write(place.path().join("mount"), "exec 9<\"$1\" && echo here && read x").unwrap();
    let mut command = Command::new(&program);
    command.current_dir(place.path()).args(["mount", text(mounted.path())]);
    let mut other = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "here\n");
    IS_SILENT.store(true, Ordering::SeqCst);
    let mut command = Command::new(ONEJOURNAL);
    let mut child = spawn(command.arg("stat").arg(place.path().join("mount"))).unwrap();
    let status = status_of(&mut child);
    drop(other.stdin.take());
    other.wait().unwrap();
    assert_eq!(status.code(), Some(8));
    assert_eq!(mounted.held_count(), 0);
}

/// The directory of a log that is in use becomes one that does not answer.
#[test]
fn regression_the_list_ends_while_the_directory_of_a_log_does_not_answer() {
    if !can_mount_fuse() {
        return;
    }
    let dir = scratch_dir();
    let file = std::fs::File::create(dir.path().join("daemon")).unwrap();
    rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
    let mounted = Mounted::on(dir, |opcode| opcode == Opcode::Lookup);
    for arguments in [&["ls"][..], &["top", "-b", "-n", "1"]] {
        let mut command = Command::new(ONEJOURNAL);
        let mut child = spawn(command.args(arguments).stdout(Stdio::null())).unwrap();
        assert_eq!(status_of(&mut child).code(), Some(0), "{arguments:?}");
    }
    assert!(mounted.held_count() > 0, "the log was asked");
}

/// A process closes a file when it runs another program, and the server does not answer to that.
/// Until it does, a process waits that looks at its open files.
struct Stuck {
    mounted: Mounted,
    child: Child,
}

impl Stuck {
    fn start() -> Option<Stuck> {
        if !is_root() || !has_program("perl") {
            return None;
        }
        let mounted = Mounted::new(|opcode| opcode == Opcode::Flush)?;
        // It gets stuck when it is told to, because `spawn` stops it before.
        let script = "open(my $file, '<', '/proc/self/fd/0/file') or die $!; \
                      open(my $go, '<&=', 1) or die $!; sysread($go, $_, 1); exec 'true'";
        let mut command = Command::new("perl");
        // The way to the directory may be closed to that user.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(mounted.path(), flags, Mode::empty()).unwrap();
        let (mut go, told) = UnixStream::pair().unwrap();
        command.args(["-e", script]).stdin(dir).stdout(OwnedFd::from(told));
        let child = spawn(command.uid(OTHER_USER).gid(OTHER_USER)).unwrap();
        go.write_all(b"!").unwrap();
        let stuck = Stuck { mounted, child };
        wait_until("it is not stuck", || stuck.mounted.held_count() > 0);
        Some(stuck)
    }

    fn end(self) {
        let Stuck { mounted, mut child } = self;
        drop(mounted);
        child.wait().unwrap();
    }
}

#[test]
fn regression_a_process_that_runs_a_program_without_end_keeps_no_list_waiting() {
    let Some(stuck) = Stuck::start() else { return };
    for arguments in [&["ls"][..], &["top", "-b", "-n", "1"]] {
        let mut command = Command::new(ONEJOURNAL);
        let mut child = spawn(command.args(arguments).stdout(Stdio::null())).unwrap();
        assert_eq!(status_of(&mut child).code(), Some(0), "{arguments:?}");
    }
    stuck.end();
}

#[test]
fn regression_a_process_that_runs_a_program_without_end_keeps_no_daemon_from_its_signal() {
    let Some(stuck) = Stuck::start() else { return };
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let file = std::fs::File::create(scratch.path("f")).unwrap();
    let is_mounted = || {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
        table.contains(text(&scratch.dir()))
    };
    scratch.daemon().signal(Signal::TERM);
    wait_until("it stays mounted", || !is_mounted());
    drop(file);
    scratch.expect_ended();
    stuck.end();
    scratch.check();
}

#[test]
fn regression_a_process_that_runs_a_program_without_end_keeps_no_refusal_waiting() {
    let Some(stuck) = Stuck::start() else { return };
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let image = scratch.image();
    for arguments in [&["mkfs", "--force", text(&image)][..], &["fsck", text(&image)]] {
        let mut command = Command::new(ONEJOURNAL);
        let mut child = spawn(command.args(arguments).stderr(Stdio::null())).unwrap();
        assert_eq!(status_of(&mut child).code(), Some(8), "{arguments:?}");
    }
    scratch.umount();
    // Without a mount here, those of other namespaces are looked for.
    let held = device::Disk::open(&image, host::Access::ReadWrite).unwrap();
    for arguments in [&["mkfs", "--force", text(&image)][..], &["fsck", text(&image)]] {
        ends(arguments).refused(8, "in use by process");
    }
    drop(held);
    stuck.end();
    scratch.check();
}

/// Every user can mount a server that names any target, also one below a mount that never answers.
#[test]
fn regression_a_target_that_another_user_names_is_not_followed() {
    if !can_mount_fuse() || !is_root() {
        return;
    }
    let scratch = scratch_dir();
    let silent = ClaimedMount::silent(&scratch.path().join("silent"));
    let target = silent.dir.join("image");
    let claimed = ClaimedMount::new(&target, &scratch.path().join("claimed"));
    let mut command = Command::new(ONEJOURNAL);
    let mut child = spawn(command.args(["umount", text(&claimed.dir)])).unwrap();
    assert_eq!(status_of(&mut child).code(), Some(0));
}

/// Runs the command, which a mount might keep from ending until the test is over.
fn ends(arguments: &[&str]) -> Ran {
    let mut command = Command::new(ONEJOURNAL);
    let command = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = spawn(command).unwrap();
    let code = status_of(&mut child).code();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    Ran { code, out: String::new(), err }
}

/// The owner of an image mounts a server that names a source below a server that never answers.
#[test]
fn regression_a_source_that_the_owner_of_an_image_names_keeps_no_command_waiting() {
    let Some(mut scratch) = Scratch::new().filter(|_| is_root()) else { return };
    let (image, other) = (scratch.image(), scratch.root().join("other"));
    std::fs::create_dir(&other).unwrap();
    std::os::unix::fs::chown(&image, Some(OTHER_USER), None).unwrap();
    let silent = ClaimedMount::silent(&scratch.root().join("silent"));
    let source = silent.dir.join("image");
    let claimed = ClaimedMount::new(&source, &scratch.root().join("claimed"));
    let ran = ends(&["umount", text(&image)]);
    ran.refused(8, "is not mounted, as far as could be seen");
    ran.refused(8, text(&claimed.dir));
    ran.refused(8, "that user 65534 serves");
    scratch.mount("");
    for arguments in [
        &["mkfs", "--force", text(&image)][..],
        &["fsck", text(&image)],
        &["mount", text(&image), text(&other)],
    ] {
        let place = format!("in use: mounted on {}", scratch.dir().display());
        ends(arguments).refused(8, &place);
    }
    for arguments in [["stat", text(&image)], ["umount", text(&image)]] {
        let ran = ends(&arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}: {ran:?}");
    }
    scratch.expect_closed();
    // e2fsck and mke2fs follow the sources of all mounts that they see. One of them is covered by
    // a server that never answers.
    let outer = scratch.root().join("outer");
    let inner = ClaimedMount::new(&source, &outer.join("inner"));
    let cover = ClaimedMount::silent(&outer);
    for arguments in [&["fsck", text(&image)][..], &["mkfs", "--force", text(&image)]] {
        ends(arguments).ended(0);
    }
    // Also while it sees a view of the volume, which is a mount of the command.
    system("debugfs", ["-w", "-R", "clri lost+found", text(&image)]).good();
    ends(&["fsck", "-y", text(&image)]).ended(1);
    for mounted in [&claimed, &silent, &inner, &cover] {
        assert!(host::own_mounts().unwrap().iter().any(|entry| entry.dir == mounted.dir));
    }
    // The covered one is reached again first.
    drop(cover);
    drop((inner, claimed, silent));
    scratch.check();
}

/// Another user's server, which never answers, is at the path of a log, of a journal, or of the
/// file behind a loop device.
#[test]
fn regression_a_path_that_leads_to_a_server_that_never_answers_keeps_no_command_waiting() {
    let Some(scratch) = Scratch::new().filter(|_| is_root()) else { return };
    let silent = ClaimedMount::silent(&scratch.root().join("silent"));
    let (image, dir) = (scratch.image(), scratch.dir());
    // Also if the server is that of the image's owner.
    std::os::unix::fs::chown(&image, Some(OTHER_USER), None).unwrap();
    for path in [silent.dir.clone(), silent.dir.join("below")] {
        let journal = format!("journal={},journal_size=8M", path.display());
        for arguments in [
            &["log", "ls", "--dir", text(&path)][..],
            &["logd", "--dir", text(&path)],
            &["mount", "-o", &journal, text(&image), text(&dir)],
            &["set-journal", "--journal-size", "8M", text(&image), text(&path)],
            &["mkfs", "--force", "--journal", text(&path), text(&image)],
            &["fsck", "--journal", text(&path), text(&image)],
            &["dump", "--journal", text(&path), text(&image)],
            &["log", "ls", "--socket", text(&path.join("socket"))],
            &["log", "gc", "--memory", text(&path)],
            &["logd", "--dir", "/var/tmp/none/log", "--memory", text(&path)],
        ] {
            let ran = ends(arguments);
            assert_ne!(ran.code, Some(0), "{arguments:?}: {ran:?}");
            assert!(ran.err.contains("that user 65534 serves"), "{arguments:?}: {ran:?}");
        }
    }
    // The directory of the file behind a loop device.
    let theirs = scratch.root().join("theirs");
    std::fs::create_dir(&theirs).unwrap();
    let behind = theirs.join("image");
    std::fs::copy(&image, &behind).unwrap();
    let device = Loop::attach(&behind);
    let silent_above = ClaimedMount::silent(&theirs);
    for arguments in [&["fsck", "-n"][..], &["fsck"], &["mkfs", "--force"]] {
        ends(&[arguments, &[text(&device.path)]].concat()).ended(0);
    }
    drop((silent_above, device));
    scratch.check();
}

/// It is mounted on a log, or on the log's shared memory, while the log is open.
#[test]
fn regression_a_server_on_an_open_log_is_not_asked() {
    if !can_mount_fuse() || !is_root() {
        return;
    }
    let scratch = tmpfs_dir();
    let (dir, memory) = (scratch.path().join("log"), scratch.path().join("memory"));
    let options = log::Options { memory: memory.clone(), ..log::Options::default() };
    for (place, is_inside) in [(&dir, false), (&memory, true)] {
        let log = Arc::new(log::Log::open(&dir, &options).unwrap());
        assert!(log.is_current());
        let inside = || std::fs::read_dir(place).unwrap().next().unwrap().unwrap().path();
        let silent = ClaimedMount::silent(&if is_inside { inside() } else { place.clone() });
        let (sender, answer) = std::sync::mpsc::channel();
        let asked = log.clone();
        let thread = std::thread::spawn(move || sender.send(asked.is_current()));
        let answer = answer.recv_timeout(std::time::Duration::from_secs(30));
        drop(silent);
        assert_eq!(answer, Ok(false), "{}", place.display());
        thread.join().unwrap().unwrap();
        Arc::into_inner(log).unwrap().close().unwrap();
    }
}

/// A directory below a server of another user that never answers.
#[test]
fn regression_a_directory_below_a_server_that_never_answers_keeps_no_command_waiting() {
    let Some(scratch) = Scratch::new().filter(|_| is_root()) else { return };
    let silent = ClaimedMount::silent(&scratch.root().join("silent"));
    let (image, below) = (scratch.image(), silent.dir.join("below"));
    for dir in [&silent.dir, &below] {
        ends(&["mount", text(&image), text(dir)]).refused(8, "has not answered for 2 s");
    }
    for arguments in [
        &["umount", text(&below)][..],
        &["mount", "-o", "remount,ro", text(&image), text(&below)],
        &["stat", text(&below)],
    ] {
        let ran = ends(arguments);
        assert_eq!(ran.code, Some(8), "{arguments:?}: {ran:?}");
    }
    ends(&["umount", text(&below)]).refused(8, "that user 65534 serves");
    ends(&["umount", text(&silent.dir)]).refused(8, "no OneJournal volume is mounted on it");
}

/// A process of another user that keeps its memory locked: it waits for a page of a file, to map
/// the file.
struct Locked {
    mounted: Mounted,
    child: Child,
}

impl Locked {
    /// It also holds a lock on the image, and has the name of a daemon.
    fn start(image: &Path) -> Option<Locked> {
        if !is_root() || !has_program("python3") {
            return None;
        }
        let mounted = Mounted::new(|opcode| opcode == Opcode::Read)?;
        let script = r#"
import fcntl, mmap, os, threading
open("/proc/self/comm", "w").write("onejournal")
fcntl.lockf(1, fcntl.LOCK_EX)
name = "/proc/self/fd/9/file"
cached = os.open(name, os.O_RDONLY)
threading.Thread(target=os.read, args=(cached, 1)).start()
direct = os.open(name, os.O_RDONLY | os.O_SYNC)
while True:
    mmap.mmap(direct, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ).close()
"#;
        // The ways to both may be closed to that user.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(mounted.path(), flags, Mode::empty()).unwrap();
        let image = std::fs::File::options().read(true).write(true).open(image).unwrap();
        // Python takes no directory as its standard input.
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec 9<&0 "$@" </dev/null"#, "sh", python(), "-I", "-c", script]);
        command.stdin(dir).stdout(image);
        let child = spawn(command.uid(OTHER_USER).gid(OTHER_USER)).unwrap();
        let locked = Locked { mounted, child };
        let stat = format!("/proc/{}/stat", locked.child.id());
        wait_until("its memory is not locked", || {
            locked.mounted.held_count() > 0
                && std::fs::read_to_string(&stat).unwrap().contains(") D ")
        });
        Some(locked)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.mounted.release();
        let _ = self.child.wait();
    }
}

#[test]
fn regression_a_process_that_keeps_its_memory_locked_keeps_no_refusal_waiting() {
    let Some(scratch) = Scratch::new().filter(|_| is_root()) else { return };
    let image = scratch.image();
    std::os::unix::fs::chown(&image, Some(OTHER_USER), None).unwrap();
    let Some(locked) = Locked::start(&image) else { return };
    for arguments in [&["mkfs", "--force", text(&image)][..], &["fsck", text(&image)]] {
        let process = format!("in use by process {}", locked.child.id());
        ends(arguments).refused(8, &process);
    }
    drop(locked);
    scratch.check();
}
