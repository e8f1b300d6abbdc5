//! One user for one volume, by whatever way: path, link, loop device, partition, namespace.

use crate::support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use onejournal_testing::{Need, has_namespaces, has_program, skip};
use support::{
    LET_GO, Loop, ONEJOURNAL, Partition, Ran, Scratch, TempMount, has_nodes, onejournal, run,
    system, text, wait_until,
};

const OPERATIONAL: i32 = 8;

/// Every command that would use `target` says that it is in use; `word` is in each message.
#[track_caller]
fn everything_refuses(scratch: &Scratch, target: &Path, word: &str) {
    let (dir, target) = (scratch.root().join("other"), text(target));
    fs::create_dir_all(&dir).unwrap();
    let writers: [&[&str]; 4] = [
        &["mount", target, text(&dir)],
        &["mount", "-o", "ro", target, text(&dir)],
        &["fsck", target],
        &["mkfs", "--force", target],
    ];
    for arguments in writers {
        let ran = onejournal(arguments);
        assert!(ran.err.contains("in use"), "{arguments:?}: {ran:?}");
        ran.refused(OPERATIONAL, word);
        let before = ran.err.split(": in use").next().unwrap();
        assert_eq!(before.matches(": ").count(), 1, "the command and one path: {}", ran.err);
        for once in ["in use", "mounted on ", "process "] {
            assert!(ran.err.matches(once).count() <= 1, "said twice: {}", ran.err);
        }
    }
    let another = scratch.root().join("another");
    if !another.exists() {
        onejournal(["mkfs", "--size", "16M", "--journal-size", "4M", text(&another)]).good();
    }
    let as_journal = format!("journal={target}");
    onejournal(["mount", "-o", &as_journal, text(&another), text(&dir)])
        .refused(OPERATIONAL, "in use");
}

/// Commands that only read say it, too, when one of ours has it.
#[track_caller]
fn readers_refuse(target: &Path) {
    onejournal(["dump", text(target)]).refused(OPERATIONAL, "in use");
    onejournal(["fsck", "-n", text(target)]).refused(OPERATIONAL, "in use");
}

#[test]
fn regression_an_image_is_mounted_once_by_whatever_way() {
    let Some(mut scratch) = Scratch::new() else { return };
    let nested = scratch.root().join("names");
    fs::create_dir(&nested).unwrap();
    let image = scratch.image();
    let (link, hard, bound) = (nested.join("link"), nested.join("hard"), nested.join("bound"));
    std::os::unix::fs::symlink(&image, &link).unwrap();
    fs::hard_link(&image, &hard).unwrap();
    fs::write(&bound, "").unwrap();
    system("mount", ["--bind", text(&image), text(&bound)]).good();
    let _bound = Bound(bound.clone());
    let (first, second) = (Loop::with(&[text(&image)]), Loop::with(&[text(&image)]));
    let on_loop = Loop::with(&[text(&second.path)]);
    let ways =
        [image, link, hard, bound, first.path.clone(), second.path.clone(), on_loop.path.clone()];
    for holder in [0, 2, 3, 4, 6] {
        scratch.mount_target(&ways[holder], "");
        let (dir, pid) = (scratch.dir(), scratch.daemon().id);
        let whose = format!("mounted on {} by process {pid} (onejournal mount)", dir.display());
        for other in &ways {
            everything_refuses(&scratch, other, &whose);
            readers_refuse(other);
        }
        fs::write(scratch.path("f"), "still mine").unwrap();
        scratch.umount();
        scratch.check();
    }
    // A claim goes with its process, whatever ends that.
    scratch.mount_target(&first.path, "");
    fs::write(scratch.path("g"), "synced").unwrap();
    fs::File::open(scratch.path("g")).unwrap().sync_all().unwrap();
    scratch.kill();
    scratch.mount_target(&second.path, "");
    assert_eq!(fs::read(scratch.path("g")).unwrap(), b"synced");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"still mine");
    scratch.close_and_check();
}

/// The kernel may keep partitions of a file that was attached earlier. They are busy while all of
/// the device is mounted.
#[test]
fn regression_a_dead_mount_of_a_device_with_partitions_does_not_keep_the_image() {
    let Some(mut scratch) = Scratch::new().filter(|_| has_program("addpart")) else { return };
    let image = scratch.image();
    let device = Loop::attach(&image);
    let partition = Partition::add(&device.path, 1, 1, 1);
    scratch.mount_target(&device.path, "");
    scratch.daemon().signal(rustix::process::Signal::KILL);
    assert!(scratch.daemon().ended());
    let ran = onejournal(["fsck", text(&image)]);
    system("umount", [&scratch.dir()]).good();
    scratch.expect_closed();
    drop(partition);
    ran.ended(1);
}

/// A bind mount of a file.
struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        system("umount", [&self.0]);
    }
}

#[test]
fn regression_what_the_kernel_has_mounted_through_a_loop_device_is_in_use_by_every_way() {
    let Some(mut scratch) = Scratch::new() else { return };
    let image = scratch.image();
    let (first, second) = (Loop::with(&[text(&image)]), Loop::with(&[text(&image)]));
    let kernel = TempMount::new(&["-t", "ext4", text(&first.path)], &scratch.root().join("k"));
    let whose = format!("mounted on {} as ext4 ({})", kernel.dir.display(), first.path.display());
    for way in [&image, &first.path, &second.path] {
        everything_refuses(&scratch, way, &whose);
    }
    // A mount in a namespace of its own is seen by the kernel's claim alone.
    drop(kernel);
    if has_namespaces() {
        let script = format!("{LET_GO} mount -t ext4 $0 $1 && echo mounted && read line");
        let mut other = Command::new("unshare");
        other.args(["--mount", "sh", "-c", &script, text(&first.path), text(&scratch.dir())]);
        other.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut other = support::spawn(&mut other).unwrap();
        let mut line = String::new();
        let out = other.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        assert_eq!(line, "mounted\n");
        for way in [&image, &first.path, &second.path] {
            everything_refuses(&scratch, way, "exclusively");
        }
        drop(other.stdin.take());
        other.wait().unwrap();
    }
    scratch.mount_target(&second.path, "");
    scratch.close_and_check();
}

/// Swap space of the machine, until this is dropped.
struct Swap<'a>(&'a Path);

impl Swap<'_> {
    /// `None`, and the test is skipped: the kernel takes none here.
    fn on(area: &Path) -> Option<Swap<'_>> {
        system("mkswap", [area]).good();
        let ran = system("swapon", [area]);
        if ran.code != Some(0) {
            skip(Need::Kernel, format!("needs swap space: {}", ran.err.trim()));
            return None;
        }
        Some(Swap(area))
    }
}

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        system("swapoff", [self.0]);
    }
}

/// The kernel refuses writes to a swap file with an error that does not name it, and through a loop
/// device only when they are made.
#[test]
fn regression_swap_space_is_in_use_by_every_way() {
    let Some(scratch) = Scratch::empty() else { return };
    let file = scratch.root().join("swap file");
    fs::write(&file, vec![0; 32 << 20]).unwrap();
    std::os::unix::fs::chown(&file, Some(0), Some(0)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let (first, second) = (Loop::attach(&file), Loop::attach(&file));
    for area in [&file, &first.path] {
        let Some(_swap) = Swap::on(area) else { return };
        let area = area.display();
        let words = format!("as swap space ({area}); to end that: swapoff {area}");
        for way in [&file, &first.path, &second.path] {
            everything_refuses(&scratch, way, &words);
            onejournal(["mkfs", text(way)]).refused(OPERATIONAL, &words);
        }
        let probe = ["probe", "--destroy", text(&second.path)];
        onejournal(probe).refused(OPERATIONAL, &words);
    }
    onejournal(["mkfs", "--force", text(&second.path)]).good();
}

/// An image of a disk with two partitions of 64 MiB, from 1 MiB and from 65 MiB, in an MBR.
fn partitioned(scratch: &Scratch) -> PathBuf {
    const MIB_SECTORS: u32 = 2048;
    let mut table = [0u8; 512];
    for (entry, start_mib) in [(446, 1), (462, 65)] {
        table[entry + 4] = 0x83; // Linux
        table[entry + 8..entry + 12].copy_from_slice(&(start_mib * MIB_SECTORS).to_le_bytes());
        table[entry + 12..entry + 16].copy_from_slice(&(64 * MIB_SECTORS).to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xAA]);
    let image = scratch.root().join("disk");
    fs::write(&image, table).unwrap();
    fs::File::options().write(true).open(&image).unwrap().set_len(130 << 20).unwrap();
    image
}

/// The partitions of a disk, told to the kernel by partx: not every kernel reads tables itself.
struct Partitions(PathBuf);

impl Partitions {
    #[track_caller]
    fn of(disk: &Path) -> Partitions {
        // The kernel keeps those of a file that was attached here before.
        system("partx", ["--delete", "--nr", "1:2", text(disk)]);
        system("partx", ["--add", text(disk)]).good();
        Partitions(disk.to_owned())
    }
}

impl Drop for Partitions {
    /// A loop device on a partition is detached when its last user closes it, and another test may
    /// just be looking what is after it.
    fn drop(&mut self) {
        wait_until(&format!("the partitions of {} stay", self.0.display()), || {
            system("partx", ["--delete", "--nr", "1:2", text(&self.0)]).code == Some(0)
        });
    }
}

#[test]
fn partitions_and_spans_exclude_each_other_only_where_they_overlap() {
    let Some(mut scratch) = Scratch::new() else { return };
    if !has_program("partx") {
        return;
    }
    let image = partitioned(&scratch);
    let disk = Loop::with(&[text(&image)]);
    let _partitions = Partitions::of(&disk.path);
    let partition = |number: u32| PathBuf::from(format!("{}p{number}", disk.path.display()));
    let (first, second) = (partition(1), partition(2));
    if !has_nodes([&first, &second]) {
        return;
    }
    let span = |start: &str| Loop::with(&["--offset", start, "--sizelimit", "64M", text(&image)]);
    let (first_span, second_span) = (span("1M"), span("65M"));
    let (on_first, on_second) = (Loop::with(&[text(&first)]), Loop::with(&[text(&second)]));
    let same = [
        [first.clone(), first_span.path.clone(), on_first.path.clone()],
        [second.clone(), second_span.path.clone(), on_second.path.clone()],
    ];
    onejournal(["mkfs", text(&first)]).good();
    onejournal(["mkfs", text(&second_span.path)]).good();
    let Some(mut another) = Scratch::empty() else { return };
    for (mine, others) in [(0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (2, 0)] {
        // Neighbours go together.
        scratch.mount_target(&same[0][mine], "");
        another.mount_target(&same[1][others], "");
        onejournal(["fsck", "-n", text(&scratch.image())]).good();
        for (way, dir) in same[0].iter().map(|way| (way, scratch.dir())) {
            everything_refuses(&scratch, way, &format!("mounted on {}", dir.display()));
        }
        for way in &same[1] {
            everything_refuses(&scratch, way, &format!("mounted on {}", another.dir().display()));
        }
        // The whole has both in it.
        for whole in [&image, &disk.path] {
            everything_refuses(&scratch, whole, "mounted on ");
        }
        scratch.umount();
        another.umount();
    }
    for way in same.iter().flatten() {
        onejournal(["fsck", text(way)]).good();
    }
}

#[test]
fn the_file_of_a_loop_device_is_known_without_its_name() {
    let Some(mut scratch) = Scratch::new() else { return };
    let (image, hard, moved) =
        (scratch.image(), scratch.root().join("hard"), scratch.root().join("moved"));
    fs::hard_link(&image, &hard).unwrap();
    let (first, second) = (Loop::with(&[text(&image)]), Loop::with(&[text(&hard)]));
    fs::rename(&image, &moved).unwrap();
    fs::remove_file(&moved).unwrap();
    let file = fs::read_to_string(format!("/sys/block/{}/loop/backing_file", name(&first.path)));
    assert!(file.unwrap().contains("(deleted)"));
    for (holder, others) in [
        (&first.path, [&hard, &second.path]),
        (&hard, [&first.path, &second.path]),
        (&second.path, [&first.path, &hard]),
    ] {
        scratch.mount_target(holder, "");
        for other in others {
            everything_refuses(&scratch, other, "in use");
        }
        scratch.umount();
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Runs a command in mount, network and process namespaces of its own, where the directory of the
/// image is hidden.
fn elsewhere(scratch: &Scratch, hide: bool, arguments: &[&str]) -> Ran {
    let script = format!(
        "{LET_GO} mount -t proc proc /proc && if [ $0 = hide ]; then mount -t tmpfs none $1; fi && \
         mkdir -p /tmp && shift && exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "sh", "-c", &script]);
    command.arg(if hide { "hide" } else { "show" }).arg(scratch.root()).arg(ONEJOURNAL);
    run(command.args(arguments))
}

#[test]
fn a_claim_holds_across_namespaces() {
    let Some(mut scratch) = Scratch::new() else { return };
    if !has_namespaces() {
        return;
    }
    let image = scratch.image();
    let device = Loop::with(&[text(&image)]);
    for holder in [&image, &device.path] {
        scratch.mount_target(holder, "");
        for (hide, way) in [(false, &image), (false, &device.path), (true, &device.path)] {
            let ran = elsewhere(&scratch, hide, &["fsck", text(way)]);
            ran.refused(OPERATIONAL, "in use");
        }
        scratch.umount();
    }
    elsewhere(&scratch, true, &["fsck", text(&device.path)]).good();
}

/// The claim is kept while e2fsprogs are at work, not only before.
#[test]
fn regression_a_volume_cannot_be_mounted_while_it_is_checked_or_made() {
    let Some(scratch) = Scratch::new() else { return };
    if !has_namespaces() {
        return;
    }
    let (image, root) = (scratch.image(), scratch.root());
    let device = Loop::with(&[text(&image)]);
    for (tool, command) in [("e2fsck", &["fsck"][..]), ("mke2fs", &["mkfs", "--force"])] {
        let real = system("sh", ["-c", &format!("PATH=$PATH:/usr/sbin command -v {tool}")]).good();
        let real = Path::new(real.trim());
        fs::copy(real, root.join("real")).unwrap();
        let script = format!(
            "#!/bin/sh\nfor way in {} {}; do\n\
             if {ONEJOURNAL} mount $way {}; then exit 99; fi\ndone\n\
             exec -a {tool} {} \"$@\"\n",
            image.display(),
            device.path.display(),
            scratch.dir().display(),
            root.join("real").display()
        );
        let script = script.replace("#!/bin/sh", "#!/bin/bash");
        let fake = root.join("fake");
        fs::write(&fake, script).unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
        for target in [&image, &device.path] {
            let (fake, real) = (fake.display(), real.display());
            let bind = format!("{LET_GO} mount --bind {fake} {real} && exec \"$@\"");
            let mut inside = Command::new("unshare");
            inside.args(["--mount", "sh", "-c", &bind, "sh", ONEJOURNAL]);
            let ran = run(inside.args(command).arg(target));
            assert_eq!(ran.code, Some(0), "{tool} {target:?}: {ran:?}");
            assert_eq!(
                format!("{}{}", ran.out, ran.err).matches("in use").count(),
                2,
                "{tool} {target:?}: {ran:?}"
            );
        }
    }
    scratch.check();
}

/// What a daemon that was killed leaves is no user: its mount may stay for long, because programs
/// have files open on it, also in a namespace that cannot be seen.
#[test]
fn a_dead_mount_does_not_keep_a_volume() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    fs::write(scratch.path("f"), "synced").unwrap();
    let open = fs::File::open(scratch.path("f")).unwrap();
    open.sync_all().unwrap();
    scratch.kill();
    scratch.mount("");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"synced");
    drop(open);
    scratch.close_and_check();
}

/// Whether a bind mount can replace the id of this machine; says why not.
fn may_name_machine() -> bool {
    let why = if !Path::new("/etc/machine-id").exists() {
        "needs /etc/machine-id"
    } else if Path::new("/proc/device-tree/serial-number").exists() {
        "needs a machine without a serial number in its device tree"
    } else {
        return true;
    };
    skip(Need::MachineId, why);
    false
}

/// What another machine would leave if its power were cut while the volume is mounted there: a copy
/// of the image from that moment. `machine` and `boot` replace what the kernel says of this one.
fn left_by(scratch: &Scratch, machine: &str, boot: &str, copy: &str) -> PathBuf {
    let (root, copy) = (scratch.root(), scratch.root().join(copy));
    fs::write(root.join("machine"), machine).unwrap();
    fs::write(root.join("boot"), boot).unwrap();
    let script = LET_GO.to_owned()
        + r#"
set -e
if [ -s machine ]; then
    mount --bind machine /etc/machine-id
    if [ -d /var/lib/dbus ]; then mount -t tmpfs none /var/lib/dbus; fi
fi
if [ -s boot ]; then mount --bind boot /proc/sys/kernel/random/boot_id; fi
hostname otherhost
"$1" mount image mnt
echo synced > mnt/f
sync mnt/f
cp --sparse=always image "$2"
"$1" umount mnt
"#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--uts", "sh", "-c", &script, "sh", ONEJOURNAL]).arg(&copy);
    run(command.current_dir(root)).good();
    copy
}

const OTHER_MACHINE: &str = "00112233445566778899aabbccddeeff\n";
const OTHER_BOOT: &str = "01234567-89ab-cdef-0123-456789abcdef\n";

#[test]
fn a_volume_of_another_machine_is_refused_until_it_is_taken_over() {
    let Some(mut scratch) = Scratch::new() else { return };
    if !has_namespaces() || !may_name_machine() {
        return;
    }
    let copy = left_by(&scratch, OTHER_MACHINE, OTHER_BOOT, "foreign");
    let before = fs::read(&copy).unwrap();
    let (target, dir) = (text(&copy), scratch.dir());
    for arguments in [
        &["mount", target, text(&dir)][..],
        &["mount", "-o", "ro", target, text(&dir)],
        &["fsck", target],
        &["fsck", "-y", "--discard-damaged", target],
        &["fsck", "-y", "--journal-lost", target],
    ] {
        let ran = onejournal(arguments);
        ran.refused(OPERATIONAL, "of machine otherhost (");
        let retry = match arguments[0] {
            "mount" => format!("onejournal mount -o takeover {target} {}", dir.display()),
            _ => format!("onejournal fsck --takeover {target}"),
        };
        assert!(ran.err.contains(&retry), "{ran:?}");
    }
    assert!(onejournal(["dump", target]).good().contains("of machine otherhost"));
    onejournal(["fsck", "-n", target]).ended(4);
    assert!(fs::read(&copy).unwrap() == before, "somebody has written");
    // Taken over, it is this machine's.
    scratch.mount_target(&copy, "takeover");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"synced\n");
    scratch.kill();
    scratch.mount_target(&copy, "");
    scratch.umount();
    support::check_clean(&copy);
    fs::write(&copy, before).unwrap();
    onejournal(["fsck", "--takeover", target]).ended(1);
    support::check_clean(&copy);
}

#[test]
fn a_volume_that_this_machine_left_is_recovered_without_a_question() {
    let Some(mut scratch) = Scratch::new() else { return };
    if !has_namespaces() || !may_name_machine() {
        return;
    }
    // An earlier boot; this boot, whose process is gone; this boot in a container with a machine id
    // of its own.
    for (machine, boot) in [("", OTHER_BOOT), ("", ""), (OTHER_MACHINE, "")] {
        let copy = left_by(&scratch, machine, boot, "own");
        scratch.mount_target(&copy, "");
        assert_eq!(fs::read(scratch.path("f")).unwrap(), b"synced\n");
        scratch.umount();
        support::check_clean(&copy);
    }
}

/// Another boot of a machine without an id is taken for an earlier one of a machine without an id.
#[test]
fn machines_without_an_id_recover_their_own() {
    let Some(mut scratch) = Scratch::new() else { return };
    if !has_namespaces() || !may_name_machine() {
        return;
    }
    let copy = left_by(&scratch, "uninitialized\n", OTHER_BOOT, "nameless");
    onejournal(["fsck", text(&copy)]).refused(OPERATIONAL, "of machine otherhost (00000000)");
    let script = format!(
        "{LET_GO} mount --bind machine /etc/machine-id && \
         if [ -d /var/lib/dbus ]; then mount -t tmpfs none /var/lib/dbus; fi && exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", ONEJOURNAL, "fsck"]).arg(&copy);
    run(command.current_dir(scratch.root())).ended(1);
    scratch.mount_target(&copy, "");
    scratch.umount();
}

/// A copy of a mounted volume has the claim of a process that lives, also in another namespace.
#[test]
fn a_living_process_keeps_even_a_copy() {
    let Some(mut scratch) = Scratch::mounted("commit=300") else { return };
    let copy = scratch.root().join("copy");
    fs::copy(scratch.image(), &copy).unwrap();
    let pid = scratch.daemon().id;
    let word = format!("process {pid} of this machine has it open");
    onejournal(["fsck", text(&copy)]).refused(OPERATIONAL, &word);
    if has_namespaces() {
        elsewhere(&scratch, false, &["fsck", text(&copy)]).refused(OPERATIONAL, &word);
    }
    onejournal(["fsck", "--takeover", text(&copy)]).ended(1);
    fs::copy(scratch.image(), &copy).unwrap();
    scratch.umount();
    assert_eq!(onejournal(["fsck", text(&copy)]).code, Some(1), "it has ended");
}

/// The daemon writes to an idle volume only with `heartbeat`.
#[test]
fn an_idle_volume_writes_nothing_unless_its_heart_beats() {
    let Some(mut scratch) = Scratch::mounted("commit=1") else { return };
    fs::write(scratch.path("f"), "x").unwrap();
    fs::File::open(scratch.path("f")).unwrap().sync_all().unwrap();
    let counters =
        |scratch: &Scratch| ["device_writes", "device_flushes"].map(|name| scratch.counter(name));
    let before = counters(&scratch);
    std::thread::sleep(std::time::Duration::from_millis(2500)); // more than two commit intervals
    assert_eq!(counters(&scratch), before);
    scratch.remount("commit=300,heartbeat=1");
    let [writes, flushes] = counters(&scratch);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while scratch.counter("device_writes") < writes + 2 {
        assert!(std::time::Instant::now() < deadline, "the heart does not beat");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(scratch.counter("device_flushes"), flushes, "a beat is no flush");
    // A copy of it is watched, until it is clear that it is dead.
    let copy = scratch.root().join("copy");
    fs::copy(scratch.image(), &copy).unwrap();
    onejournal(["fsck", "--takeover", text(&copy)]).ended(1);
    scratch.close_and_check();
}
