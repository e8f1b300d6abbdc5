//! Unmounting: what else holds the volume, finding it by its image, and the next mount.

use crate::support;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onejournal_testing::{Need, has_namespaces, has_program, skip};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use support::{
    Loop, ONEJOURNAL, OTHER_USER, Scratch, TempMount, Waiting, alone, onejournal, run, spawn,
    system, text,
};

const OPERATIONAL: i32 = 8;

fn umount(path: &Path) -> support::Ran {
    onejournal(["umount", text(path)])
}

#[test]
fn a_volume_is_unmounted_by_its_image() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::mounted("") else { return };
    fs::write(scratch.path("f"), "f").unwrap();
    umount(&scratch.image()).good();
    scratch.expect_closed();
    scratch.check();
    umount(&scratch.image()).refused(OPERATIONAL, "is not mounted");
    umount(&scratch.dir()).refused(OPERATIONAL, "no OneJournal volume is mounted on it");
    umount(&scratch.root().join("none")).refused(OPERATIONAL, "No such file");
}

#[test]
fn a_volume_is_unmounted_by_its_device() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::new() else { return };
    let device = Loop::attach(&scratch.image());
    scratch.mount_target(&device.path, "");
    let other = scratch.root().join("a place, too");
    fs::create_dir(&other).unwrap();
    let _bound = TempMount::new(&["--bind", text(&scratch.dir())], &other);
    umount(&scratch.dir()).refused(OPERATIONAL, "a place, too");
    umount(&device.path).good();
    scratch.expect_closed();
    scratch.check();
}

#[test]
fn a_copy_in_another_namespace_is_named_and_taken_off() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::mounted("").filter(|_| has_namespaces()) else { return };
    let copy = Waiting::in_copy(&scratch.dir(), scratch.root());
    let place = format!(
        "mounted on {} in the mount namespace of process {} (sh)",
        scratch.dir().display(),
        copy.id()
    );
    umount(&scratch.dir()).refused(OPERATIONAL, &place);
    assert!(scratch.daemon().is_alive());
    let other = scratch.root().join("other");
    fs::create_dir(&other).unwrap();
    onejournal(["mount", text(&scratch.image()), text(&other)]).refused(OPERATIONAL, &place);
    let shown = onejournal(["stat", text(&scratch.image())]).good();
    assert!(shown.contains(&place) && shown.contains("durability"), "{shown}");
    umount(&scratch.image()).good();
    scratch.expect_closed();
    scratch.check();
    copy.end();
}

/// Every user can copy the mounts into a user namespace, where the kernel keeps them.
#[test]
fn regression_a_copy_that_no_user_may_take_off_is_named_with_what_ends_it() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::mounted("").filter(|_| has_namespaces()) else { return };
    let mut command = Command::new("unshare");
    command.args(["-Urm", "true"]);
    if !command.status().is_ok_and(|status| status.success()) {
        return skip(Need::Namespaces, "no user namespaces");
    }
    let script = "cd / && echo here && read line";
    let copy = Waiting::start(Command::new("unshare").args(["-Urm", "sh", "-c", script]));
    let (pid, daemon) = (copy.id(), scratch.daemon().id.as_raw_nonzero());
    let ran = umount(&scratch.image());
    ran.refused(OPERATIONAL, &format!("of process {pid} (sh), of user 0: the kernel lets no user"));
    ran.refused(OPERATIONAL, &format!("kill {pid}; or `kill {daemon}` closes the volume"));
    assert!(scratch.daemon().is_alive());
    scratch.daemon().signal(Signal::TERM);
    assert!(scratch.daemon().ended(), "a signal does not close the volume");
    // The kernel may keep the device until the copy is gone.
    copy.end();
    scratch.expect_closed();
    scratch.check();
}

#[test]
fn a_copy_that_is_in_use_is_left_and_named() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::mounted("").filter(|_| has_namespaces()) else { return };
    let copy = Waiting::in_copy(&scratch.dir(), &scratch.dir());
    let pid = copy.id().to_string();
    let ran = umount(&scratch.image());
    ran.refused(OPERATIONAL, &format!("of process {pid} (sh)"));
    ran.refused(OPERATIONAL, "in use by a program");
    copy.end();
    scratch.expect_closed();
    scratch.check();
}

/// The line of `onejournal ls` for a volume that is served and mounted nowhere.
fn detached_line(image: &Path) -> Option<String> {
    let shown = onejournal(["ls"]).good();
    let lines = shown.lines().skip_while(|line| !line.starts_with("DETACHED VOLUME"));
    lines
        .take_while(|line| !line.is_empty())
        .find(|line| line.starts_with(text(image)))
        .map(String::from)
}

#[test]
fn a_daemon_without_a_mount_is_shown_and_can_be_ended() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::mounted("").filter(|_| has_namespaces()) else { return };
    let image = scratch.image();
    let file = File::create(scratch.path("f")).unwrap();
    fs::write(scratch.path("g"), "g").unwrap();
    assert_eq!(detached_line(&image), None, "it is mounted");
    system("umount", ["-l", text(&scratch.dir())]).good();
    scratch.expect_mounted_nowhere();
    let nowhere = "mounted nowhere that is visible from here";
    onejournal(["stat", text(&image)]).refused(OPERATIONAL, nowhere);
    let pid = scratch.daemon().id.as_raw_nonzero().to_string();
    let test = std::process::id();
    let line = detached_line(&image).expect("it is listed");
    assert!(line.contains(&format!(" {pid} ")) && line.contains(&format!("({test})")), "{line}");
    let listed: serde_json::Value =
        serde_json::from_str(&onejournal(["ls", "--json"]).good()).unwrap();
    let volumes = listed["detached"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["target"] == text(&image)).unwrap();
    assert_eq!(volume["pid"].to_string(), pid);
    assert_eq!(volume["user_pids"], serde_json::json!([test]));
    let ran = umount(&image);
    ran.refused(OPERATIONAL, nowhere);
    ran.refused(OPERATIONAL, "`kill ");
    scratch.daemon().signal(Signal::TERM);
    scratch.expect_ended();
    assert_eq!(detached_line(&image), None);
    file.sync_all().unwrap_err();
    scratch.check();
    scratch.mount("");
    assert_eq!(fs::read(scratch.path("g")).unwrap(), b"g");
    scratch.close_and_check();
}

/// A process that looks like a daemon which closes the volume: `onejournal mount IMAGE`. It runs
/// `first` with the image as descriptor 9.
fn like_a_daemon(scratch: &Scratch, user: u32, first: &str) -> Waiting {
    let script = scratch.root().join("mount");
    let body = format!(
        "exec 9<\"$1\" && {first} && echo oj-closing >/proc/$$/comm && echo here && read line"
    );
    fs::write(&script, body).unwrap();
    // By another program: no child of this one has it open to write.
    let program = scratch.root().join("onejournal");
    system("cp", ["/bin/sh", text(&program)]).good();
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}")]).arg("--clear-groups");
    command.arg(&program).current_dir(scratch.root()).args(["mount", text(&scratch.image())]);
    Waiting::start(&mut command)
}

#[test]
fn a_mount_waits_for_a_daemon_that_is_closing() {
    let _alone = alone();
    let has_programs = |_: &Scratch| has_program("flock") && has_program("setpriv");
    let Some(mut scratch) = Scratch::new().filter(has_programs) else { return };
    let closing = like_a_daemon(&scratch, 0, "flock 9");
    let mut command = Command::new(ONEJOURNAL);
    command.args([Path::new("mount"), Path::new("-f"), &scratch.image(), &scratch.dir()]);
    let mut mount = spawn(&mut command).unwrap();
    while !waits_for(mount.id(), closing.id()) {
        assert!(mount.try_wait().unwrap().is_none(), "it did not wait");
        std::thread::yield_now();
    }
    closing.end();
    while rustix::fs::getxattr(scratch.dir(), "user.onejournal.pid", &mut [0; 32]).is_err() {
        assert!(mount.try_wait().unwrap().is_none(), "it did not mount");
        std::thread::yield_now();
    }
    scratch.adopt();
    scratch.umount();
    assert!(mount.wait().unwrap().success());
    scratch.check();
}

/// Every user can start a process that looks like a daemon, of an image that may be read.
#[test]
fn regression_a_process_of_another_user_is_no_daemon() {
    let _alone = alone();
    let has_programs = |_: &Scratch| has_program("flock") && has_program("setpriv");
    let Some(mut scratch) = Scratch::new().filter(has_programs) else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    fs::set_permissions(scratch.root(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&image, Permissions::from_mode(0o644)).unwrap();
    let limited =
        |arguments: &[&str]| run(Command::new("timeout").args(["60", ONEJOURNAL]).args(arguments));
    // It is older than the daemon, so it is seen first.
    let other = like_a_daemon(&scratch, OTHER_USER, "true");
    scratch.mount("");
    limited(&["umount", text(&dir)]).good();
    scratch.expect_closed();
    other.end();
    let other = like_a_daemon(&scratch, OTHER_USER, "flock 9");
    let named = format!("process {}", other.id());
    for arguments in [
        &["mount", text(&image), text(&dir)][..],
        &["fsck", text(&image)],
        &["mkfs", "--force", text(&image)],
        &["dump", text(&image)],
    ] {
        let ran = limited(arguments);
        ran.refused(OPERATIONAL, "in use");
        ran.refused(OPERATIONAL, &named);
    }
    other.end();
    scratch.check();
}

/// Whether one of its descriptors stands for the process.
fn waits_for(waiting: u32, pid: u32) -> bool {
    let infos = fs::read_dir(format!("/proc/{waiting}/fdinfo")).into_iter().flatten().flatten();
    let line = format!("Pid:\t{pid}\n");
    infos.filter_map(|info| fs::read_to_string(info.path()).ok()).any(|info| info.contains(&line))
}

/// A namespace that is being made has copies of all mounts, which keep a volume open for a moment
/// after umount(8).
#[test]
fn a_mount_waits_for_a_copy_of_the_last_one() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::mounted("").filter(|_| has_namespaces()) else { return };
    fs::write(scratch.path("f"), "f").unwrap();
    let copy = Waiting::in_copy(&scratch.dir(), scratch.root());
    system("umount", [scratch.dir()]).good();
    let daemon = u32::try_from(scratch.daemon().id.as_raw_nonzero().get()).unwrap();
    let mut command = Command::new(ONEJOURNAL);
    command.args([Path::new("mount"), &scratch.image(), &scratch.dir()]);
    let mut mount = spawn(&mut command).unwrap();
    while !server_of(&mount).is_some_and(|server| waits_for(server, daemon)) {
        assert!(mount.try_wait().unwrap().is_none(), "it did not wait");
        std::thread::yield_now();
    }
    copy.end();
    assert!(mount.wait().unwrap().success());
    scratch.expect_ended();
    scratch.adopt();
    assert_eq!(fs::read_to_string(scratch.path("f")).unwrap(), "f");
    scratch.close_and_check();
}

/// As long as a namespace that is being made keeps the kernel's mount after everybody has left.
#[test]
fn a_device_that_the_kernel_is_about_to_close_is_waited_for() {
    let _alone = alone();
    let Some(scratch) = Scratch::new() else { return };
    let device = Loop::attach(&scratch.image());
    for target in [&device.path, &scratch.image()] {
        let held = exclusively(&device.path);
        let mut command = Command::new(ONEJOURNAL);
        let mut fsck = spawn(command.arg("fsck").arg(target).stdout(Stdio::null())).unwrap();
        while !sleeps(&fsck) {
            assert_eq!(fsck.try_wait().unwrap(), None, "it did not wait for {target:?}");
            std::thread::yield_now();
        }
        drop(held);
        assert!(fsck.wait().unwrap().success(), "{target:?}");
        let _held = exclusively(&device.path);
        let begun = Instant::now();
        onejournal(["fsck", text(target)])
            .refused(OPERATIONAL, "no process that is visible from here has a lock on it");
        assert!(begun.elapsed() >= Duration::from_secs(2), "{target:?}");
    }
}

/// Has the device as a mount of the kernel has it, without a lock.
fn exclusively(device: &Path) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(device, flags, Mode::empty()).unwrap()
}

/// Whether the process waits for time to pass.
fn sleeps(process: &Child) -> bool {
    let place = fs::read_to_string(format!("/proc/{}/wchan", process.id()));
    place.is_ok_and(|place| place.contains("nanosleep"))
}

/// The process that a `mount` command has started to serve.
fn server_of(mount: &Child) -> Option<u32> {
    let id = mount.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

#[test]
fn the_next_mount_can_begin_after_a_plain_umount() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::new() else { return };
    for round in 0..20 {
        scratch.mount("");
        fs::write(scratch.path(&format!("f{round}")), vec![1; 100_000]).unwrap();
        system("umount", [scratch.dir()]).good();
        // At once: the process of the last mount may be ending still.
        let (image, dir) = (scratch.image(), scratch.dir());
        onejournal(["mount", text(&image), text(&dir)]).good();
        scratch.expect_ended();
        scratch.adopt();
        scratch.umount();
    }
    scratch.check();
}

#[test]
fn a_mount_whose_daemon_died_is_taken_off() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let file = scratch.path("f");
    fs::write(&file, "f").unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    scratch.daemon().signal(Signal::KILL);
    assert!(scratch.daemon().ended());
    umount(&scratch.dir()).refused(OPERATIONAL, "the next mount recovers it");
    scratch.expect_ended();
    scratch.mount("");
    assert_eq!(fs::read(&file).unwrap(), b"f");
    scratch.close_and_check();
}

/// A dead mount keeps its device from being opened, and its image not.
#[test]
fn a_dead_mount_is_taken_off_while_programs_use_it() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::new() else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    let dead = || onejournal(["umount", "--dead", text(&dir)]).good();
    let device = Loop::attach(&image);
    scratch.mount_target(&device.path, "");
    let open = File::create(scratch.path("f")).unwrap();
    dead();
    fs::metadata(scratch.path("f")).unwrap();
    scratch.daemon().signal(Signal::KILL);
    assert!(scratch.daemon().ended());
    dead();
    assert!(!scratch.path("f").exists());
    dead();
    let own = format!("({})", std::process::id());
    let again = onejournal(["mount", text(&device.path), text(&dir)]);
    again.refused(OPERATIONAL, "end them: ");
    assert!(again.err.contains(&own), "{again:?}");
    drop(open);
    scratch.expect_closed();
    onejournal(["fsck", text(&device.path)]).ended(1);
    drop(device);
    scratch.mount("");
    let open = File::create(scratch.path("f")).unwrap();
    scratch.daemon().signal(Signal::KILL);
    scratch.expect_ended();
    scratch.mount("");
    assert!(open.sync_all().is_err());
    drop(open);
    scratch.close_and_check();
}

/// As on a busy machine: each program starts later than an answer is waited for.
#[test]
fn regression_a_dead_mount_is_taken_off_although_programs_start_late() {
    let _alone = alone();
    if !has_program("strace") {
        return;
    }
    let Some(mut scratch) = Scratch::mounted("") else { return };
    scratch.daemon().signal(Signal::KILL);
    assert!(scratch.daemon().ended());
    let dir = scratch.dir();
    let late = ["-f", "-qq", "-o", "/dev/null", "-e", "inject=execve:delay_exit=2500000"];
    let dead = [ONEJOURNAL, "umount", "--dead", text(&dir)];
    run(Command::new("strace").args(late).args(dead)).good();
    scratch.expect_ended();
    umount(&dir).refused(OPERATIONAL, "no OneJournal volume is mounted on it");
    scratch.mount("");
    scratch.close_and_check();
}

#[test]
fn a_copy_of_a_dead_mount_is_named_and_taken_off() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::new().filter(|_| has_namespaces()) else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    let device = Loop::attach(&image);
    scratch.mount_target(&device.path, "");
    let copy = Waiting::in_copy(&scratch.dir(), &scratch.dir());
    scratch.daemon().signal(Signal::KILL);
    assert!(scratch.daemon().ended());
    let mount = || onejournal(["mount", text(&device.path), text(&dir)]);
    let place = format!("in the mount namespace of process {} (sh)", copy.id());
    mount().refused(OPERATIONAL, &place);
    // The shell there has the mount as its directory.
    umount(&device.path).refused(OPERATIONAL, "the next mount recovers it");
    mount().refused(OPERATIONAL, &format!("sh ({})", copy.id()));
    copy.end();
    scratch.expect_closed();
    mount().good();
    scratch.adopt();
    scratch.umount();
    drop(device);
    scratch.check();
}

/// The attributes that tell of the daemon cannot be read then, as when the root directory is
/// damaged.
#[test]
fn a_root_directory_that_denies_everything_is_unmounted() {
    let _alone = alone();
    let Some(mut scratch) = Scratch::mounted("").filter(|_| has_program("setpriv")) else { return };
    fs::set_permissions(scratch.dir(), Permissions::from_mode(0o0)).unwrap();
    let as_weak_root = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.arg("--bounding-set=-dac_override,-dac_read_search").arg(ONEJOURNAL);
        run(command.args(arguments))
    };
    let dir = scratch.dir();
    as_weak_root(&["stat", text(&dir)]).refused(OPERATIONAL, "ermission denied");
    as_weak_root(&["umount", text(&dir)]).good();
    scratch.expect_closed();
    scratch.check();
}
