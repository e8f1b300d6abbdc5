//! Syncs of a whole volume: what the kernel still holds reaches the volume, and is durable. What is
//! not is lost when the daemon is killed. sync(1) itself is tried in virtual machines
//! (`scripts/kernel-matrix`): here it would wait for the disks of other tests.

use crate::support;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use onejournal_testing::{Need, skip};
use rustix::process::{Pid, Signal, kill_process};
use support::{
    EmulatedDisk, HeldDevice, ONEJOURNAL, Scratch, are_syncs_told, check_clean, onejournal, spawn,
    text, wait_until,
};

const CONTENT: &[u8] = &[7; 1 << 20];

/// A file that the kernel holds: written, neither synced nor closed.
fn held(scratch: &Scratch) -> File {
    let mut file = File::create(scratch.path("held")).unwrap();
    file.write_all(CONTENT).unwrap();
    file
}

/// After `sync` the file is there, also if the daemon dies.
fn is_durable_after(options: &str, sync: impl FnOnce(&Scratch)) {
    let Some(mut scratch) = Scratch::mounted(options) else { return };
    let file = held(&scratch);
    sync(&scratch);
    scratch.kill();
    drop(file);
    scratch.mount("");
    assert!(fs::read(scratch.path("held")).unwrap() == CONTENT, "{options}");
    scratch.close_and_check();
}

const ORDERS: [&str; 3] =
    ["commit=300", "commit=300,order=sync", "commit=300,order=sync,threads=1"];

#[test]
fn onejournal_sync_makes_all_durable() {
    for options in ORDERS {
        is_durable_after(options, |scratch| {
            onejournal(["sync", text(&scratch.dir())]).good();
        });
    }
}

/// What the daemon starts when a sync of the whole volume arrives.
#[test]
fn the_kernel_writes_back_what_it_holds() {
    if !must_be_told() {
        return;
    }
    for options in ORDERS {
        is_durable_after(options, |scratch| {
            let device = HeldDevice::below(&scratch.dir()).unwrap();
            let mut command = Command::new(ONEJOURNAL);
            command.args(["write-pages", device.number()]).stdin(Stdio::piped());
            let mut writer = spawn(&mut command).unwrap();
            writer.stdin.take().unwrap().write_all(b"\n").unwrap();
            assert!(writer.wait().unwrap().success());
        });
    }
}

/// The same, with a word about it if not.
fn must_be_told() -> bool {
    if !are_syncs_told() {
        skip(Need::Kernel, "Linux 6.18 is the first that tells a volume of syncs");
    }
    are_syncs_told()
}

#[test]
fn a_mount_knows_whether_it_hears_of_syncs() {
    let Some(scratch) = Scratch::mounted("") else { return };
    assert_eq!(scratch.counter("syncfs") > 0, are_syncs_told(), "asked for once, at the mount");
    let summary = onejournal(["stat", text(&scratch.dir())]).good();
    assert_eq!(summary.contains("do not reach the volume"), !are_syncs_told(), "{summary}");
    scratch.close_and_check();
}

#[test]
fn a_directory_elsewhere_is_no_volume() {
    let elsewhere = onejournal(["sync", "/proc"]);
    elsewhere.refused(8, "is not on a mounted OneJournal volume");
}

/// A sync that waits for a stopped process, and a remount that waits for the sync.
struct Stuck {
    scratch: Scratch,
    disk: EmulatedDisk,
    writer: Pid,
    sync: Child,
    remount: Child,
}

impl Stuck {
    fn new() -> Option<Stuck> {
        let mut scratch = Scratch::empty()?;
        let disk = EmulatedDisk::new(scratch.root().join("slow"));
        scratch.mount_target(&disk.path(), "commit=300");
        drop(held(&scratch));
        let device = HeldDevice::below(&scratch.dir()).unwrap();
        disk.hold();
        // As sync(2) does, of this volume alone: it has another number than syncfs(2).
        let sync = start(&["blockdev", "--flushbufs", text(device.path())]);
        // In its own call it waits for the disk.
        let mut writer = None;
        wait_until("no process writes pages", || {
            writer = writer_of(&device).filter(|pid| calls(*pid, &[libc::SYS_syncfs]));
            writer.is_some()
        });
        let writer = writer.unwrap();
        kill_process(writer, Signal::STOP).unwrap();
        disk.release();
        wait_until("the process goes on", || state(writer) == Some('T'));
        let remount = start(&["mount", "-i", "-o", "remount,ro", text(&scratch.dir())]);
        let pid = Pid::from_child(&remount);
        wait_until("the remount does not wait", || {
            calls(pid, &[libc::SYS_mount, libc::SYS_fsconfig]) && state(pid) == Some('D')
        });
        Some(Stuck { scratch, disk, writer, sync, remount })
    }

    /// What waited has ended.
    fn expect_ended(&mut self) {
        let children = [(&mut self.sync, "the sync waits on"), (&mut self.remount, "the remount")];
        for (child, otherwise) in children {
            wait_until(otherwise, || child.try_wait().unwrap().is_some());
        }
    }

    /// A mount recovers what the daemon, which is killed, has left.
    fn recover(mut self) {
        self.scratch.mount_target(&self.disk.path(), "");
        self.scratch.umount();
        check_clean(&self.disk.path());
    }
}

/// Starts a program that the kernel will keep. [`spawn`] returns when the child was stopped once,
/// so the program begins after that.
fn start(words: &[&str]) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "read -r line && exec \"$@\"", "sh"]).args(words).stdin(Stdio::piped());
    let mut child = spawn(&mut command).unwrap();
    writeln!(child.stdin.take().unwrap()).unwrap();
    child
}

/// The process that writes the pages of a mount.
fn writer_of(device: &HeldDevice) -> Option<Pid> {
    let wanted = format!("write-pages\0{}\0", device.number());
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_it = |dir: &Path| {
        fs::read_to_string(dir.join("cmdline")).is_ok_and(|line| line.ends_with(&wanted))
    };
    let found = processes.map(|process| process.path()).find(|dir| is_it(dir))?;
    Pid::from_raw(found.file_name()?.to_str()?.parse().ok()?)
}

/// Whether a process sleeps in one of these system calls.
fn calls(pid: Pid, numbers: &[libc::c_long]) -> bool {
    let call = fs::read_to_string(format!("/proc/{}/syscall", pid.as_raw_nonzero()));
    let number = call.unwrap_or_default().split(' ').next().and_then(|number| number.parse().ok());
    number.is_some_and(|number| numbers.contains(&number))
}

/// Whether the kernel has the mount read-only. The volume does not know of it.
fn is_read_only(scratch: &Scratch) -> bool {
    let found = rustix::fs::statvfs(scratch.dir()).unwrap();
    found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)
}

/// The letter of its state; `None`: it has ended.
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// A remount waits for the sync, and syncfs(2) of another process for the remount: only the limit
/// ends that.
#[test]
fn a_sync_whose_helper_hangs_fails_after_a_limit() {
    if !must_be_told() {
        return;
    }
    let Some(mut stuck) = Stuck::new() else { return };
    stuck.expect_ended();
    let stat = stuck.scratch.stat();
    let error = stat["last_error"].as_str().unwrap_or_default();
    assert!(error.contains("the kernel did not send the pages"), "{stat}");
    assert!(is_read_only(&stuck.scratch), "{stat}");
    let writer = stuck.writer;
    wait_until("the helper stays", || state(writer).is_none());
    stuck.scratch.kill();
    stuck.recover();
}

#[test]
fn a_killed_daemon_ends_what_waits_for_a_hanging_sync() {
    if !must_be_told() {
        return;
    }
    let Some(mut stuck) = Stuck::new() else { return };
    stuck.scratch.kill();
    stuck.expect_ended();
    assert_eq!(state(stuck.writer), Some('T'), "it is ended by a signal, too");
    let writer = stuck.writer;
    kill_process(writer, Signal::KILL).unwrap();
    wait_until("the helper stays", || state(writer).is_none());
    stuck.recover();
}

/// `mount -i -o remount,ro` of a program whose system calls are those of i386: it has waited for
/// the pages, and holds the lock that another process would wait for.
#[test]
#[cfg(target_arch = "x86_64")]
fn regression_a_remount_by_a_32_bit_program_is_no_sync() {
    const REMOUNT: &str = r#"
import ctypes, mmap, struct, sys
MAP_32BIT, MS_REMOUNT, MS_RDONLY = 0x40, 32, 1
# push rbx; mov eax, edi; mov r8, rsi; mov ebx, [r8]; mov ecx, [r8+4]; mov edx, [r8+8]
# mov esi, [r8+12]; mov edi, [r8+16]; int 0x80; cdqe; pop rbx; ret
CODE = '53 89f8 4989f0 418b18 418b4804 418b5008 418b700c 418b7810 cd80 4898 5b c3'
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_32BIT
page = mmap.mmap(-1, 4096, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
page[0:42] = bytes.fromhex(CODE).ljust(42, bytes([0x90]))
dir = sys.argv[1].encode() + bytes(1)
page[1024:1024 + len(dir)] = dir
page[512:532] = struct.pack('<5I', 0, at + 1024, 0, MS_REMOUNT | MS_RDONLY, 0)
call = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_int, ctypes.c_void_p)(at)
if sys.argv[2:] == ['try']:
    sys.exit(call(20, at + 512) <= 0)   # getpid
sys.exit(-call(21, at + 512))           # mount
"#;
    let python = |words: &[&str]| {
        let mut command = Command::new(support::python());
        support::run(command.args(["-I", "-c", REMOUNT]).args(words))
    };
    if !must_be_told() || !onejournal_testing::has_program("python3") {
        return;
    }
    if python(&["/", "try"]).code != Some(0) {
        skip(Need::Kernel, "it runs no 32-bit programs");
        return;
    }
    let Some(scratch) = Scratch::mounted("") else { return };
    fs::write(scratch.path("f"), CONTENT).unwrap();
    python(&[text(&scratch.dir())]).good();
    let stat = scratch.stat();
    assert!(is_read_only(&scratch), "{stat}");
    assert!(stat["last_error"].is_null(), "{stat}");
    scratch.close_and_check();
}
