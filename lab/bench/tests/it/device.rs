//! The emulated disk below a loop device and the kernel's ext4. Needs root.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use onejournal_testing::{can_mount_ext4, can_mount_fuse};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_onejournal-bench");

/// A running disk. It is taken down in reverse order, also if a test fails.
struct Disk {
    dir: tempfile::TempDir,
    service: Child,
    loop_device: Option<String>,
    is_mounted: bool,
}

/// Runs a command, which must succeed. Returns its output.
#[track_caller]
fn run(program: &str, arguments: &[&str]) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(arguments).env("PATH", path).output().expect(program);
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let failed = format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{failed}");
    text
}

impl Disk {
    /// `None`, with a message, if it cannot be mounted.
    fn start(preset: &str) -> Option<Disk> {
        if !can_mount_fuse() || !can_mount_ext4() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["device", "mounted"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut service = Command::new(PROGRAM)
            .args(["device", "--preset", preset, "--size-mib", "64"])
            .arg(dir.path().join("device"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(service.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let disk = Disk { dir, service, loop_device: None, is_mounted: false };
        assert_eq!(ready, "ready\n");
        Some(disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text_path(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn control(&self, command: &str) {
        run(PROGRAM, &["control", &self.text_path("device"), command]);
    }

    fn counters(&self) -> Value {
        serde_json::from_str(&run(PROGRAM, &["control", &self.text_path("device")])).unwrap()
    }

    fn count(&self, name: &str) -> u64 {
        self.counters()[name].as_u64().unwrap_or_else(|| panic!("no {name}"))
    }

    fn attach(&mut self) -> String {
        let file = self.text_path("device/disk");
        let device = run("losetup", &["-f", "--show", "--direct-io=on", &file]);
        self.loop_device = Some(device.clone());
        device
    }

    fn mount(&mut self) {
        let device = self.loop_device.clone().unwrap();
        // Nothing is committed but by a sync.
        let options = ["-t", "ext4", "-o", "noatime,commit=300"];
        run("mount", &[&options[..], &[&device, &self.text_path("mounted")]].concat());
        self.is_mounted = true;
    }

    fn unmount(&mut self) {
        run("umount", &[&self.text_path("mounted")]);
        self.is_mounted = false;
    }

    fn detach(&mut self) {
        run("losetup", &["-d", &self.loop_device.take().unwrap()]);
    }

    /// SIGTERM, and a clean end.
    fn stop(mut self) {
        self.terminate();
        assert!(self.service.wait().unwrap().success());
        assert!(!self.path("device/disk").exists(), "still mounted");
    }

    fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.service);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").arg(self.path("mounted")).status();
        }
        if let Some(device) = &self.loop_device {
            let _ = Command::new("losetup").args(["-d", device]).status();
        }
        if let Ok(None) = self.service.try_wait() {
            self.terminate();
            let _ = self.service.wait();
        }
    }
}

#[test]
fn ext4_on_a_loop_device_is_counted_and_survives_a_crash_as_far_as_it_synced() {
    let Some(mut disk) = Disk::start("ssd311") else { return };
    let device = disk.attach();
    run("mkfs.ext4", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0", &device]);
    disk.mount();
    let path = disk.path("mounted/file");
    fs::write(&path, [7; 100_000]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    disk.control("reset");
    disk.control("trace on");
    fs::write(disk.path("mounted/other"), [8; 8192]).unwrap();
    File::open(disk.path("mounted/other")).unwrap().sync_all().unwrap();
    disk.control("trace off");
    let (flushes, written) = (disk.count("flushes"), disk.count("write_bytes"));
    assert!((1..=4).contains(&flushes), "{flushes} flushes for one fsync");
    assert!((8192 + 4096..1 << 20).contains(&written), "{written} bytes for one fsync");
    let trace = fs::read_to_string(disk.path("device/trace")).unwrap();
    assert_eq!(trace.lines().filter(|line| line.contains(" F ")).count() as u64, flushes);
    // Written to the device and not flushed; then the power goes.
    let other = format!("of={}", disk.text_path("mounted/other"));
    let flags = ["bs=8192", "count=1", "conv=notrunc", "oflag=direct"];
    run("dd", &[&["if=/dev/zero", other.as_str()], &flags[..]].concat());
    disk.control("crash 0 1");
    assert!(disk.count("lost_sectors") >= 16);
    fs::copy(disk.path("device/disk"), disk.path("after")).unwrap();
    disk.unmount();
    disk.detach();
    // What the disk held after the crash.
    run("mount", &["-o", "loop", &disk.text_path("after"), &disk.text_path("mounted")]);
    disk.is_mounted = true;
    assert_eq!(fs::read(&path).unwrap(), [7; 100_000]);
    assert_eq!(fs::read(disk.path("mounted/other")).unwrap(), [8; 8192]);
    disk.unmount();
    disk.stop();
}

#[test]
fn a_crash_loses_unflushed_blocks_and_a_discard_zeroes() {
    let Some(mut disk) = Disk::start("zero") else { return };
    disk.control("set volatile_cache=1");
    let device = disk.attach();
    let mut first = [0; 4];
    let mut look = |disk: &Disk| {
        // O_DIRECT is the loop device's: its own cache is dropped by BLKFLSBUF.
        run("blockdev", &["--flushbufs", disk.loop_device.as_ref().unwrap()]);
        File::open(&device).unwrap().read_exact(&mut first).unwrap();
        first
    };
    let mut file = File::options().write(true).open(&device).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    file.sync_all().unwrap();
    assert_eq!(disk.count("unflushed_blocks"), 0);
    run("dd", &["if=/dev/zero", &format!("of={device}"), "bs=4096", "count=1", "oflag=direct"]);
    assert_eq!(disk.count("unflushed_blocks"), 1);
    assert_eq!(look(&disk), [0; 4]);
    disk.control("crash 0 1");
    assert_eq!(look(&disk), [1; 4]);
    run("blkdiscard", &["--offset", "0", "--length", "4096", &device]);
    assert_eq!((disk.count("discards"), look(&disk)), (1, [0; 4]));
    drop(file);
    disk.detach();
    disk.stop();
}

#[test]
fn mistakes_are_named() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let message = refused(&["device", "--preset", "floppy", "/tmp"]);
    assert!(message.contains("no preset `floppy`; there are zero, emmc"), "{message}");
    let message = refused(&["device", "--set", "flush_us=soon", "/tmp"]);
    assert!(message.contains("flush_us=soon"), "{message}");
    let message = refused(&["control", "/nowhere", "reset"]);
    assert!(message.contains("/nowhere/control: No such file"), "{message}");
    let message = refused(&["control", "/nowhere", "explode"]);
    assert!(message.contains("`explode` is not: reset | set"), "{message}");
}

/// Emulated disks answer as many requests at a time as their presets have channels.
#[test]
fn requests_of_a_loop_device_are_under_way_at_a_time() {
    const WRITER_COUNT: u64 = 3;
    let Some(mut disk) = Disk::start("cloud") else { return };
    let device = disk.attach();
    disk.control("reset");
    disk.control("hold on");
    let output = format!("of={device}");
    let writers = (0..WRITER_COUNT).map(|index| {
        let seek = format!("seek={}", 64 * index);
        Command::new("dd")
            .args(["if=/dev/zero", &output, &seek, "bs=4096", "count=1", "oflag=direct"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    });
    let writers: Vec<Child> = writers.collect();
    let mut arrived_count = 0;
    for _ in 0..100 {
        arrived_count = disk.count("requests_max");
        if arrived_count >= WRITER_COUNT {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    disk.control("hold off");
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    assert!(arrived_count >= WRITER_COUNT, "{arrived_count} at a time");
    disk.detach();
    disk.stop();
}
