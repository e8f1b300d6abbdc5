//! What a mount keeps of the surroundings of the command that starts it, row by row of
//! `docs/reference/surroundings.md`.

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use onejournal_testing::{Need, has_program, skip};
use rustix::process::{Pid, Signal, kill_process};
use support::{Loop, ONEJOURNAL, Ran, Scratch, run, spawn, system, text, wait_until};

const OPERATIONAL: i32 = 8;

/// A shell that runs `script`, in which `$0` is the command, `$1` the image, `$2` the directory to
/// mount it on, and `$3` an existing directory.
fn shell(scratch: &Scratch, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, ONEJOURNAL]);
    command.args([scratch.image(), scratch.dir(), scratch.root().to_owned()]);
    command
}

/// A volume that was mounted in a shell by `script`, whose last words are `"$0" mount "$1" "$2"`.
fn mounted_after(script: &str) -> Option<Scratch> {
    let mut scratch = Scratch::new()?;
    run(&mut shell(&scratch, &format!(r#"{script} "$0" mount "$1" "$2""#))).good();
    scratch.adopt();
    Some(scratch)
}

/// A file of a process in `/proc`.
fn of_process(pid: i32, name: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap()
}

fn of_daemon(scratch: &Scratch, name: &str) -> String {
    of_process(scratch.daemon().id.as_raw_nonzero().get(), name)
}

/// A line of `/proc/PID/status`.
fn status(pid: i32, name: &str) -> String {
    let status = of_process(pid, "status");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.strip_prefix(':')).expect("a line").trim().to_owned()
}

/// Whether a line of `/proc/PID/status` has this signal.
fn has_signal(pid: i32, line: &str, signal: Signal) -> bool {
    let mask = u64::from_str_radix(&status(pid, line), 16).unwrap();
    mask >> (signal.as_raw() - 1) & 1 == 1
}

/// Soft and hard limit, as `/proc/PID/limits` shows them.
fn limit(limits: &str, name: &str) -> [String; 2] {
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).expect("a limit");
    let mut words = line.split_whitespace().map(String::from);
    [words.next().unwrap(), words.next().unwrap()]
}

/// The files that a process has open.
fn files_of(pid: i32) -> Vec<PathBuf> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    files.filter_map(|file| fs::read_link(file.unwrap().path()).ok()).collect()
}

fn has_lock(pid: i32, scratch: &Scratch) -> bool {
    files_of(pid).contains(&scratch.root().join("lock"))
}

#[track_caller]
fn expect_unlocked(scratch: &Scratch) {
    let lock = scratch.root().join("lock");
    system("flock", ["--nonblock", text(&lock), "true"]).good();
}

const LOCKED: &str = r#"exec 9>"$3/lock" && flock 9 &&"#;

/// `onejournal mount -f`.
struct Foreground {
    child: Child,
    pid: i32,
}

impl Foreground {
    /// Started in a shell by `script`.
    fn start(scratch: &mut Scratch, script: &str) -> Foreground {
        let command = shell(scratch, &format!(r#"{script} exec "$0" mount -f "$1" "$2""#));
        Foreground::of(command, scratch)
    }

    fn of(mut command: Command, scratch: &mut Scratch) -> Foreground {
        let mut child = spawn(command.stdout(Stdio::piped())).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted "), "{line}");
        scratch.adopt();
        let pid = Pid::from_child(&child).as_raw_nonzero().get();
        Foreground { child, pid }
    }

    #[track_caller]
    fn end(mut self, scratch: &mut Scratch) {
        scratch.umount();
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn the_daemon_keeps_no_file_of_its_caller() {
    let Some(scratch) = mounted_after(LOCKED) else { return };
    expect_unlocked(&scratch);
    let is_his = |file: &PathBuf| file.starts_with(scratch.root());
    let daemon = scratch.daemon().id.as_raw_nonzero().get();
    let his: Vec<_> = files_of(daemon).into_iter().filter(is_his).collect();
    assert!(his.iter().all(|file| *file == scratch.image()), "{his:?}");
    scratch.close_and_check();
}

#[test]
fn a_target_that_is_an_open_file_of_the_caller_is_mounted() {
    let Some(mut scratch) = Scratch::new() else { return };
    let script = r#"exec 9<>"$1" && "$0" mount /dev/fd/9 "$2""#;
    run(&mut shell(&scratch, script)).good();
    scratch.adopt();
    scratch.close_and_check();
}

/// The process in the foreground has been given its files by its supervisor, its guard has not.
#[test]
fn a_guard_has_no_file_of_the_caller() {
    let Some(mut scratch) = Scratch::new() else { return };
    let mount = Foreground::start(&mut scratch, LOCKED);
    assert!(has_lock(mount.pid, &scratch));
    scratch.write_synced("file");
    system("chattr", ["+i", text(&scratch.path("file"))]).good();
    let guards = of_children(mount.pid);
    assert!(!guards.is_empty(), "chattr +i starts one");
    assert!(guards.iter().all(|guard| !has_lock(*guard, &scratch)));
    mount.end(&mut scratch);
    scratch.check();
}

/// The children of all threads.
fn of_children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let children =
        threads.filter_map(|it| fs::read_to_string(it.unwrap().path().join("children")).ok());
    let words = children.collect::<Vec<_>>().join(" ");
    words.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// The process that waits for the daemon's answer stays behind, and cannot be ended.
#[test]
fn a_question_to_a_stopped_daemon_keeps_no_file_of_its_caller() {
    let Some(scratch) = Scratch::mounted("") else { return };
    scratch.daemon().stop();
    let ran = run(&mut shell(&scratch, &format!(r#"{LOCKED} "$0" stat "$2""#)));
    let is_free = system("flock", ["--nonblock", text(&scratch.root().join("lock")), "true"]);
    scratch.daemon().signal(Signal::CONT);
    ran.refused(OPERATIONAL, "has not answered");
    is_free.good();
    wait_until("the question is answered", || asks_about(&scratch.dir()) == 0);
    scratch.close_and_check();
}

/// Processes that ask a mount.
fn asks_about(dir: &Path) -> usize {
    let asks = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&b"ask".as_slice()) && words.contains(&text(dir).as_bytes())
    };
    host::processes().iter().filter(|pid| asks(pid)).count()
}

const LIMITS: &str = "ulimit $1 -f 2000 && ulimit $1 -t 3600 && ulimit $1 -v 9000000 && \
                      ulimit $1 -d 8000000 && ulimit $1 -s 1024 && ulimit $1 -n 64 && \
                      ulimit $1 -p 5000";

/// Whether root has the privilege to lift limits, which containers often take away.
fn has_sys_resource() -> bool {
    const SYS_RESOURCE: u32 = 24;
    let own = u64::from_str_radix(&status(std::process::id().cast_signed(), "CapEff"), 16);
    own.unwrap() >> SYS_RESOURCE & 1 == 1
}

/// The same. If root lacks it, the test is skipped.
#[track_caller]
fn can_lift_limits() -> bool {
    let can = has_sys_resource();
    if !can {
        skip(Need::Resources, "needs CAP_SYS_RESOURCE");
    }
    can
}

fn expect_lifted(scratch: &Scratch) {
    let limits = of_daemon(scratch, "limits");
    for name in ["Max file size", "Max cpu time", "Max address space", "Max data size"] {
        assert_eq!(limit(&limits, name), ["unlimited", "unlimited"].map(String::from), "{name}");
    }
    assert_eq!(limit(&limits, "Max stack size")[0], (8 << 20).to_string());
    for (name, of_caller) in [("Max open files", 64), ("Max processes", 5000)] {
        let [soft, hard] =
            limit(&limits, name).map(|text| text.parse().unwrap_or(u64::MAX /* unlimited */));
        assert!(soft == hard && soft > of_caller, "{name}: {soft} of {hard}");
    }
    // Whether there are core dumps is the caller's to say.
    assert_eq!(limit(&limits, "Max core file size")[0], (10 * 512).to_string());
    assert_eq!(limit(&limits, "Max locked memory")[0], (32 << 10).to_string());
    fs::write(scratch.path("file"), vec![7; 8 << 20]).unwrap();
    fs::File::open(scratch.path("file")).unwrap().sync_all().unwrap();
}

#[test]
fn soft_limits_of_the_caller_do_not_end_the_daemon() {
    let script = LIMITS.replace("$1", "-S");
    let Some(scratch) = mounted_after(&format!("{script} && ulimit -c 10 && ulimit -S -l 32 &&"))
    else {
        return;
    };
    expect_lifted(&scratch);
    scratch.close_and_check();
}

#[test]
fn hard_limits_of_the_caller_do_not_end_the_daemon_of_root() {
    if !can_lift_limits() {
        return;
    }
    let script = LIMITS.replace("$1", "");
    let Some(scratch) = mounted_after(&format!("{script} && ulimit -c 10 && ulimit -S -l 32 &&"))
    else {
        return;
    };
    expect_lifted(&scratch);
    scratch.close_and_check();
}

/// Runs `script` without the privilege to lift limits.
fn unprivileged(scratch: &Scratch, script: &str) -> Ran {
    let script = script.replace("MOUNT", r#"setpriv --bounding-set=-sys_resource "$0" mount"#);
    run(&mut shell(scratch, &script))
}

#[test]
fn a_limit_that_cannot_be_lifted_is_told() {
    let Some(mut scratch) = Scratch::new() else { return };
    if !has_program("setpriv") {
        return;
    }
    let script = r#"ulimit -f 2000 && MOUNT "$1" "$2""#;
    unprivileged(&scratch, script).refused(OPERATIONAL, "raise that limit (ulimit -f)");
    let script = r#"ulimit -f 2000 && MOUNT -f "$1" "$2""#;
    unprivileged(&scratch, script).refused(OPERATIONAL, "raise that limit (ulimit -f)");
    let script = r#"ulimit -S -f 2000 && ulimit -t 3600 && MOUNT "$1" "$2""#;
    let ran = unprivileged(&scratch, script);
    ran.ended(0);
    assert!(ran.err.contains("(ulimit -t: 3600) may end the daemon"), "{ran:?}");
    scratch.adopt();
    assert_eq!(limit(&of_daemon(&scratch, "limits"), "Max file size")[0], "unlimited");
    scratch.close_and_check();
}

#[test]
fn a_block_device_has_no_limit_of_file_sizes() {
    let Some(mut scratch) = Scratch::new() else { return };
    let device = Loop::attach(&scratch.image());
    let mut command = shell(&scratch, r#"ulimit -f 2000 && exec "$0" mount -f "$4" "$2""#);
    let mut child = spawn(command.arg(&device.path).stdout(Stdio::piped())).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("mounted "), "{line}");
    scratch.adopt();
    fs::write(scratch.path("file"), vec![7; 8 << 20]).unwrap();
    fs::File::open(scratch.path("file")).unwrap().sync_all().unwrap();
    scratch.umount();
    assert!(child.wait().unwrap().success());
    drop(device);
    scratch.check();
}

/// Ignores the ends of children, blocks every signal, and becomes its arguments.
const DEAF: &str = "import os, signal, sys\n\
                    signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
                    signal.signal(signal.SIGHUP, signal.SIG_IGN)\n\
                    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n\
                    os.execv(sys.argv[1], sys.argv[1:])\n";

fn deaf(arguments: &[&str]) -> Ran {
    run(Command::new("python3").args(["-c", DEAF, ONEJOURNAL]).args(arguments))
}

#[test]
fn a_caller_that_is_deaf_to_signals_makes_no_deaf_daemon() {
    let Some(mut scratch) = Scratch::empty() else { return };
    if !has_program("python3") {
        return;
    }
    let (image, dir) = (scratch.image(), scratch.dir());
    // They wait for e2fsprogs.
    deaf(&["mkfs", "--size", "64M", text(&image)]).good();
    deaf(&["fsck", text(&image)]).good();
    deaf(&["mount", text(&image), text(&dir)]).good();
    scratch.adopt();
    let daemon = scratch.daemon().id.as_raw_nonzero().get();
    assert_eq!(status(daemon, "SigBlk"), "0".repeat(16));
    assert!(!has_signal(daemon, "SigIgn", Signal::CHILD));
    assert!(has_signal(daemon, "SigIgn", Signal::XFSZ));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        assert!(has_signal(daemon, "SigCgt", signal), "{signal:?}");
    }
    scratch.daemon().signal(Signal::TERM);
    scratch.expect_closed();
    scratch.check();
}

#[test]
fn a_caller_that_is_deaf_to_signals_makes_no_deaf_foreground() {
    let Some(mut scratch) = Scratch::new().filter(|_| has_program("python3")) else { return };
    let mut command = Command::new("python3");
    command.args(["-c", DEAF, ONEJOURNAL, "mount", "-f"]).args([scratch.image(), scratch.dir()]);
    let mount = Foreground::of(command, &mut scratch);
    assert_eq!(status(mount.pid, "SigBlk"), "0".repeat(16));
    assert!(!has_signal(mount.pid, "SigIgn", Signal::CHILD));
    assert!(has_signal(mount.pid, "SigIgn", Signal::XFSZ));
    for signal in [Signal::TERM, Signal::INT] {
        assert!(has_signal(mount.pid, "SigCgt", signal), "{signal:?}");
    }
    mount.end(&mut scratch);
    scratch.check();
}

#[test]
fn nohup_counts_in_the_foreground() {
    let Some(mut scratch) = Scratch::new() else { return };
    let mount = Foreground::start(&mut scratch, "trap '' HUP &&");
    assert!(has_signal(mount.pid, "SigIgn", Signal::HUP));
    assert!(has_signal(mount.pid, "SigCgt", Signal::TERM));
    mount.end(&mut scratch);
    let mount = Foreground::start(&mut scratch, "");
    kill_process(Pid::from_raw(mount.pid).unwrap(), Signal::HUP).unwrap();
    scratch.expect_closed();
    let mut child = mount.child;
    assert!(child.wait().unwrap().success());
    scratch.check();
}

#[test]
fn the_umask_keeps_no_user_from_a_log() {
    let (place, memory) = (support::scratch_dir(), support::tmpfs_dir());
    let mut command = Command::new("sh");
    command.args(["-c", r#"umask 0777 && exec "$0" logd --dir "$1" --memory "$2""#, ONEJOURNAL]);
    command.arg(place.path().join("log")).arg(memory.path()).stdout(Stdio::piped());
    let mut child = spawn(&mut command).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let found = fs::metadata(place.path().join("log"));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(found.unwrap().permissions().mode() & 0o777, 0o711, "{line}");
}

/// The field of `/proc/PID/stat` with this number, which proc_pid_stat(5) has.
fn stat_field(pid: i32, number: usize) -> String {
    let stat = of_process(pid, "stat");
    // The second one ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split_whitespace().nth(number - 3).unwrap().to_owned()
}

const NICE: usize = 19;
const POLICY: usize = 41;

#[test]
fn a_caller_that_may_wait_makes_no_slow_daemon() {
    let last = "echo 700 >/proc/self/oom_score_adj && exec nice -n 15 ionice -c 3";
    // A control group of version 1 without a share of real time refuses the last one.
    let may_be_real_time = system("chrt", ["--rr", "5", "true"]).code == Some(0);
    let classes = ["--idle 0", "--batch 0", "--rr 5"];
    for class in classes.into_iter().take(if may_be_real_time { 3 } else { 2 }) {
        let script = format!(r#"run() {{ {last} chrt {class} "$@"; }}; run"#);
        let Some(scratch) = mounted_after(&script) else { return };
        let daemon = scratch.daemon().id.as_raw_nonzero().get();
        let found = [NICE, POLICY].map(|field| stat_field(daemon, field));
        assert_eq!(found, ["0", "0"].map(String::from), "{class}");
        let score = if has_sys_resource() { "-900" } else { "0" };
        assert_eq!(of_process(daemon, "oom_score_adj").trim(), score);
        let threads = fs::read_dir(format!("/proc/{daemon}/task")).unwrap();
        for thread in threads {
            let thread = thread.unwrap().file_name().into_string().unwrap();
            let class = system("ionice", ["-p", &thread]).good();
            assert!(class.starts_with("none"), "{class}");
        }
        scratch.close_and_check();
    }
}

/// A better place than others was given on purpose.
#[test]
fn a_good_place_of_the_caller_is_kept() {
    let Some(scratch) = mounted_after(r#"renice -n -5 -p $$ && exec"#) else { return };
    let daemon = scratch.daemon().id.as_raw_nonzero().get();
    assert_eq!(stat_field(daemon, NICE), "-5");
    scratch.close_and_check();
}

#[test]
fn variables_of_the_caller_do_not_reach_the_daemon() {
    let script = "LD_LIBRARY_PATH=/nowhere RUST_MIN_STACK=1 MIMALLOC_SHOW_STATS=1 LANG=de_DE";
    let Some(scratch) = mounted_after(script) else { return };
    let path = std::env::var("PATH").unwrap();
    assert_eq!(of_daemon(&scratch, "environ"), format!("PATH={path}\0"));
    scratch.close_and_check();
}

const SESSION: usize = 6;

#[test]
fn the_daemon_has_left_terminal_and_directory_when_the_command_returns() {
    let Some(scratch) = mounted_after(r#"cd "$3" &&"#) else { return };
    let daemon = scratch.daemon().id.as_raw_nonzero().get();
    assert_eq!(stat_field(daemon, SESSION), daemon.to_string());
    let link = |name: &str| fs::read_link(format!("/proc/{daemon}/{name}")).unwrap();
    assert_eq!(link("cwd"), Path::new("/"));
    for descriptor in ["fd/0", "fd/1", "fd/2"] {
        if descriptor != "fd/1" {
            assert_eq!(link(descriptor), Path::new("/dev/null"), "{descriptor}");
        }
    }
    wait_until("standard output is closed", || link("fd/1") == Path::new("/dev/null"));
    scratch.close_and_check();
}

#[test]
fn bonds_of_the_caller_are_kept() {
    let script = "umask 027 && exec setpriv --bounding-set=-sys_time --no-new-privs taskset -c 0";
    let Some(scratch) = mounted_after(script) else { return };
    let daemon = scratch.daemon().id.as_raw_nonzero().get();
    assert_eq!(status(daemon, "Cpus_allowed_list"), "0");
    assert_eq!(status(daemon, "NoNewPrivs"), "1");
    assert_eq!(status(daemon, "Umask"), "0027");
    let own = std::process::id().cast_signed();
    assert_ne!(status(daemon, "CapBnd"), status(own, "CapBnd"));
    assert_eq!(of_process(daemon, "cgroup"), of_process(own, "cgroup"));
    for name in ["ns/mnt", "ns/pid", "ns/user", "root"] {
        let link = |pid: i32| fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
        assert_eq!(link(daemon), link(own), "{name}");
    }
    // Permissions of new files follow the umask of the program that makes them.
    fs::write(scratch.path("file"), "").unwrap();
    let made = fs::metadata(scratch.path("file")).unwrap();
    let beside = scratch.root().join("beside");
    fs::write(&beside, "").unwrap();
    assert_eq!(made.permissions(), fs::metadata(beside).unwrap().permissions());
    scratch.close_and_check();
}

/// Hard and soft limits, which differ where a limit has both.
const CHOSEN_LIMITS: &str = "ulimit -f 400000 && ulimit -S -f 2000 && \
                             ulimit -n 1000 && ulimit -S -n 64 && \
                             ulimit -t 3600 && ulimit -S -t 1800 && \
                             ulimit -v 9000000 && ulimit -S -v 8000000 && \
                             ulimit -d 8000000 && ulimit -S -d 7000000 && \
                             ulimit -s 2048 && ulimit -S -s 1024 && \
                             ulimit -p 5000 && ulimit -S -p 4000 && \
                             ulimit -l 64 && ulimit -S -l 32 && ulimit -c 10";

const CHOSEN_PLACE: &str = r#"renice -n 5 -p $$ >/dev/null && chrt --batch -p 0 $$ &&
    ionice -c 3 -p $$ && taskset -c -p 0 $$ >/dev/null && umask 027 && cd "$3" &&
    export LANG=de_DE LD_LIBRARY_PATH=/nowhere &&
    cat /proc/$$/limits >limits && env -0 >environ"#;

/// The names of all limits, with soft and hard one.
fn limits_by_name(limits: &str) -> BTreeMap<&str, [String; 2]> {
    let names = limits.lines().skip(1).map(|line| line.split("  ").next().unwrap());
    names.map(|name| (name, limit(limits, name))).collect()
}

/// The variables, without the one in which a shell has the program that it starts.
fn variables(environ: &str) -> BTreeSet<&str> {
    environ.split_terminator('\0').filter(|variable| !variable.starts_with("_=")).collect()
}

#[test]
fn the_foreground_keeps_what_its_caller_chose() {
    let Some(mut scratch) = Scratch::new().filter(|_| has_program("setpriv")) else { return };
    let script = format!(
        r#"{CHOSEN_LIMITS} && {CHOSEN_PLACE} &&
           exec setpriv --bounding-set=-sys_time --no-new-privs "$0" mount -f "$1" "$2""#
    );
    let command = shell(&scratch, &script);
    let mount = Foreground::of(command, &mut scratch);
    let of_caller = |name: &str| fs::read_to_string(scratch.root().join(name)).unwrap();

    let (limits, found) = (of_caller("limits"), of_process(mount.pid, "limits"));
    let mut expected = limits_by_name(&limits);
    for raised in ["Max file size", "Max open files"] {
        let [soft, hard] = &mut *expected.get_mut(raised).unwrap();
        assert_ne!(soft, hard);
        soft.clone_from(hard);
    }
    assert_eq!(limits_by_name(&found), expected);
    let (environ, found) = (of_caller("environ"), of_process(mount.pid, "environ"));
    assert!(variables(&environ).contains("LANG=de_DE"));
    assert_eq!(variables(&found), variables(&environ));

    assert_eq!([NICE, POLICY].map(|field| stat_field(mount.pid, field)), ["5", "3"]);
    assert_eq!(system("ionice", ["-p", &mount.pid.to_string()]).good().trim(), "idle");
    for (name, value) in [("Cpus_allowed_list", "0"), ("Umask", "0027"), ("NoNewPrivs", "1")] {
        assert_eq!(status(mount.pid, name), value, "{name}");
    }
    let own = std::process::id().cast_signed();
    assert_ne!(status(mount.pid, "CapBnd"), status(own, "CapBnd"));
    assert_eq!(stat_field(mount.pid, SESSION), stat_field(own, SESSION));
    assert_eq!(of_process(mount.pid, "cgroup"), of_process(own, "cgroup"));
    let link = |pid: i32, name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
    assert_eq!(link(mount.pid, "cwd"), scratch.root());
    for name in ["ns/mnt", "ns/pid", "ns/user", "root"] {
        assert_eq!(link(mount.pid, name), link(own, name), "{name}");
    }
    // Beyond the caller's soft limit of file sizes.
    fs::write(scratch.path("file"), vec![7; 8 << 20]).unwrap();
    File::open(scratch.path("file")).unwrap().sync_all().unwrap();
    mount.end(&mut scratch);
    scratch.check();
}
