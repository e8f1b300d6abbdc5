//! A volume as mount(8), fstab, umount(8) and fsck(8) see it: by helpers, which are links to the
//! command.
//!
//! mount(8) looks for helpers in `/sbin` alone. So these tests run it in a mount namespace of their
//! own, with the links laid over that directory.

use crate::support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use onejournal_testing::{has_namespaces, has_program};
use support::{Loop, ONEJOURNAL, Ran, Scratch, alone, onejournal, run, text};

const COMMANDS: [&str; 2] = ["mount", "fsck"];
const TYPES: [&str; 3] = ["onejournal", "fuse.onejournal", "fuseblk.onejournal"];

/// For a shell of [`World`]: the user of `as_user` has an image and a directory in `own`, a
/// `program` that all may run, and helpers in `links`. All may open /dev/fuse, as where udev runs.
const PREPARE_USER: &str = "
        chmod 755 .
        cp $helpers/mount.onejournal program
        mkdir links own
        for name in $helpers/*; do ln -s $root/program links/${name##*/}; done
        mount -t overlay -o lowerdir=$root/links:/usr/sbin overlay /usr/sbin
        mount -t tmpfs -o mode=755 node /mnt
        mknod -m 666 /mnt/fuse c 10 229
        mount --bind /mnt/fuse /dev/fuse
        mkdir own/mnt
        cp --sparse=always $image own/image
        chown -R 65534:65534 own
        as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }
";

/// A volume with a label that no other has, and the helpers.
struct World {
    label: String,
    scratch: Scratch,
    helpers: PathBuf,
}

impl World {
    fn new() -> Option<World> {
        let scratch = Scratch::empty().filter(|_| has_namespaces() && has_program("findfs"))?;
        let helpers = scratch.root().join("helpers");
        fs::create_dir(&helpers).unwrap();
        for command in COMMANDS {
            for kind in TYPES {
                symlink(ONEJOURNAL, helpers.join(format!("{command}.{kind}"))).unwrap();
            }
        }
        let image = scratch.image();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let label = format!("ojt{}-{number}", std::process::id());
        onejournal(["mkfs", "--size", "64M", "-L", &label, text(&image)]).good();
        Some(World { label, scratch, helpers })
    }

    /// The same, for a script that begins with [`PREPARE_USER`].
    fn of_users() -> Option<World> {
        World::new().filter(|_| has_program("setpriv") && has_program("fusermount3"))
    }

    fn helper(&self, name: &str) -> Command {
        Command::new(self.helpers.join(name))
    }

    /// Runs the shell script with the helpers in `/sbin`; `$image`, `$mnt` and `$root` are the
    /// scratch volume's.
    fn shell(&self, script: &str) -> Ran {
        // A copy of other tests' mounts would keep them.
        let head = format!(
            "{} set -e; mount -t overlay -o lowerdir=\"$helpers\":/usr/sbin overlay /usr/sbin; \
             cd \"$root\"\n",
            support::LET_GO
        );
        let mut command = Command::new("unshare");
        command.args([
            "-m",
            "--propagation",
            "private",
            "sh",
            "-c",
            &(head + script),
            "sh",
            "none",
        ]);
        command.env("helpers", &self.helpers).env("root", self.scratch.root());
        command.env("image", self.scratch.image()).env("mnt", self.scratch.dir());
        // libblkid remembers for minutes what was on a loop device.
        run(command.env("BLKID_FILE", "/dev/null"))
    }

    fn write_fstab(&self, what: &str, kind: &str, options: &str) {
        let line = format!("{what} {} {kind} {options} 0 2\n", self.scratch.dir().display());
        fs::write(self.scratch.root().join("fstab"), line).unwrap();
    }
}

/// mount(8) finds the helper by the type; umount(8), which needs none, returns when the volume is
/// closed.
#[test]
fn mount_takes_either_type_and_umount_closes_the_volume() {
    let _alone = alone();
    let Some(world) = World::new() else { return };
    for kind in ["onejournal", "fuse.onejournal"] {
        let script = format!(
            "mount -t {kind} -o noatime,nodev $image $mnt
             grep \" $mnt .*nodev,noatime.* fuseblk.onejournal \" /proc/self/mountinfo
             echo {kind} >$mnt/{kind}; cat $mnt/{kind}
             umount $mnt
             e2fsck -fn $image"
        );
        let out = world.shell(&script).good();
        assert!(out.contains(kind), "{out}");
        world.scratch.check();
    }
}

#[test]
fn an_fstab_entry_is_mounted_once_by_its_label() {
    let _alone = alone();
    let Some(world) = World::new() else { return };
    let device = Loop::attach(&world.scratch.image());
    let what = format!("LABEL={}", world.label);
    let options = "defaults,nofail,user,_netdev,x-systemd.automount,comment=mine,errors=remount-ro";
    world.write_fstab(&what, "onejournal", options);
    let script = "mount -T fstab -a; mount -T fstab -a -v; \
                  grep -c \" $mnt \" /proc/self/mountinfo; umount $mnt";
    let out = world.shell(script).good();
    assert!(out.contains("already mounted") && out.ends_with("\n1\n"), "{out}");
    // fsck(8) finds the type in fstab; its own options and those of systemd-fsck.
    let device = text(&device.path);
    let check = format!("FSTAB_FILE=fstab fsck -V -a -T -l -M {device}");
    let out = world.shell(&check).good();
    assert!(out.contains("fsck.onejournal") && out.contains("clean"), "{out}");
    world.scratch.check();
}

/// mount(8) runs the helper as the user, who needs the image and the directory, and may take the
/// volume off again.
#[test]
fn mount_takes_the_dead_mount_of_an_fstab_entry_off() {
    let _alone = alone();
    let Some(world) = World::new() else { return };
    world.write_fstab(text(&world.scratch.image()), "onejournal", "defaults,nofail");
    let script = "mount -T fstab $mnt; echo kept >$mnt/f; sync $mnt/f
        pid=$(getfattr --only-values -n user.onejournal.pid $mnt); kill -KILL $pid
        while kill -0 $pid 2>/dev/null; do sleep 0.1; done
        mount -T fstab -a; ! cat $mnt/f 2>/dev/null
        mount -T fstab $mnt; cat $mnt/f; grep -c \" $mnt \" /proc/self/mountinfo; umount $mnt";
    let out = world.shell(script).good();
    assert!(out.ends_with("kept\n1\n"), "{out}");
    world.scratch.check();
}

#[test]
fn a_user_mounts_and_unmounts_what_fstab_permits() {
    let _alone = alone();
    let Some(world) = World::of_users() else { return };
    let script = "
        for option in user users owner; do
            echo \"$root/own/image $root/own/mnt onejournal noauto,$option 0 0\" >fstab
            mount --bind fstab /etc/fstab
            as_user mount $root/own/mnt
            grep \" $root/own/mnt .* fuse.onejournal .*user_id=65534\" /proc/self/mountinfo
            as_user ./program stat own/mnt | grep 'this kernel .*sync, syncfs .*do not reach'
            as_user sh -c 'echo a >own/mnt/a; umount own/mnt'
            ! grep \" $root/own/mnt \" /proc/self/mountinfo || exit 9
            # umount(8) does not wait for a user's volume to be closed; this does.
            as_user ./program fsck -n own/image
            umount /etc/fstab
        done
        e2fsck -fn own/image
        # An image of somebody else is refused, and the message says what the user needs.
        echo \"$image $root/own/mnt onejournal noauto,user 0 0\" >fstab
        mount --bind fstab /etc/fstab
        ! as_user mount $root/own/mnt 2>err || exit 9
        cat err";
    let out = world.shell(&format!("{PREPARE_USER}{script}")).good();
    assert!(out.contains("allowed to read and write it"), "{out}");
}

/// What tests/inherited.rs looks for after a mount by root.
#[test]
fn a_user_s_daemon_has_what_the_page_says_of_its_caller_s_surroundings() {
    let _alone = alone();
    let Some(world) = World::of_users() else { return };
    let script = "
        cat >caller <<'END'
            echo 300 >/proc/self/oom_score_adj
            renice -n 5 -p $$ >own/err
            umask 027
            ulimit -S -f 2000
            exec 9>own/lock
            flock 9
            LANG=de_DE exec ./program mount \"$@\" own/image own/mnt
END
        look() {
            until pid=$(as_user ./program stat own/mnt | sed -n 's/.*process \\([0-9]*\\),.*/\\1/p')
                test \"$pid\"; do sleep 0.1; done
            echo \"$1: score $(cat /proc/$pid/oom_score_adj),\" \
                \"nice $(ps -o ni= -p $pid | tr -d ' '),\" \
                $(grep Umask /proc/$pid/status) \
                \"files $(grep 'Max file size' /proc/$pid/limits | awk '{ print $4, $5 }'),\" \
                \"lock $(ls -l /proc/$pid/fd | grep -c own/lock),\" \
                \"LANG $(tr '\\0' '\\n' </proc/$pid/environ | grep -c LANG)\"
        }
        as_user sh caller </dev/null
        look daemon
        as_user ./program umount own/mnt
        as_user sh caller -f >own/out </dev/null &
        look foreground
        as_user ./program umount own/mnt
        wait";
    let out = world.shell(&format!("{PREPARE_USER}{script}")).good();
    let looks: Vec<&str> = out.lines().filter(|line| line.contains(": score ")).collect();
    // Without privilege no process gets a better nice value.
    assert_eq!(
        looks,
        [
            "daemon: score 0, nice 5, Umask: 0027 files unlimited unlimited, lock 0, LANG 0",
            "foreground: score 300, nice 5, Umask: 0027 files unlimited unlimited, lock 1, LANG 1",
        ],
        "{out}"
    );
}

/// The image has a program of root with set-user-ID and a device for all, which a user cannot make.
/// The user passes options that root did not write in fstab, to mount(8) and to the helper, which
/// may refuse them.
#[test]
fn a_user_gets_no_rights_by_options_or_by_the_image() {
    let _alone = alone();
    let Some(world) = World::of_users() else { return };
    let script = "
        printf '%s\\n' 'write /usr/bin/id id' 'sif id uid 0' 'sif id mode 0104755' \
            'mknod null c 1 3' 'sif null mode 020666' | debugfs -w -f - own/image
        echo \"$root/own/image $root/own/mnt onejournal noauto,user 0 0\" >fstab
        mount --bind fstab /etc/fstab
        for options in defaults suid dev suid,dev,exec takeover,suid; do
            for way in \"mount $root/own/mnt\" \"links/mount.onejournal own/image own/mnt\"; do
                as_user $way -o $options || { echo $? $options; continue; }
                line=$(grep \" $root/own/mnt .*fuse.onejournal\" /proc/self/mountinfo)
                echo \"$line\" | grep ' rw,nosuid,nodev.*user_id=65534'
                case $line in
                    *,noexec*) ! as_user own/mnt/id || exit 9 ;;
                    *) test $(as_user own/mnt/id -u) = 65534; echo ran the program ;;
                esac
                ! as_user head -c 1 own/mnt/null || exit 9
                as_user umount own/mnt
                as_user ./program fsck -n own/image
            done
        done";
    let ran = world.shell(&format!("{PREPARE_USER}{script}"));
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    let out = ran.good();
    assert!(out.contains("ran the program"), "{out}");
}

/// The user's volume holds a log that belongs to root, as the volume says. Root is led to it.
#[test]
fn regression_a_log_of_root_that_a_user_serves_is_refused() {
    let _alone = alone();
    let Some(world) = World::of_users() else { return };
    let script = "
        mkdir /mnt/memory
        mkfifo said
        ./program mount own/image own/mnt
        ./program logd --dir own/mnt/log --memory /mnt/memory 2>&1 >said &
        read -r serving <said
        kill $!
        wait $!
        ./program log ls --dir own/mnt/log
        ./program umount own/mnt
        echo user_allow_other >fuse.conf
        mount --bind fuse.conf /etc/fuse.conf
        as_user ./program mount own/image own/mnt -o allow_other
        test $(stat -c %u own/mnt/log own/mnt/log/group.log | uniq) = 0
        ! ./program log ls --dir own/mnt/log 2>err || exit 9
        as_user umount own/mnt
        as_user ./program fsck -n own/image
        cat err";
    let out = world.shell(&format!("{PREPARE_USER}{script}")).good();
    assert!(out.contains("user 65534 serves (fuse.onejournal on"), "{out}");
}

/// The user cannot mount on a directory of another user either, or in another namespace.
#[test]
fn the_mount_of_a_user_is_closed_to_another_one() {
    let _alone = alone();
    let Some(world) = World::of_users() else { return };
    let script = "
        as_other() { setpriv --reuid=65533 --regid=65533 --clear-groups \"$@\"; }
        mkdir theirs
        ! as_user ./program mount own/image theirs || exit 9
        ! as_user links/mount.onejournal own/image own/mnt -N /proc/$$/ns/mnt || exit 9
        ! grep \" $root/[a-z/]* .* fuse.onejournal \" /proc/self/mountinfo || exit 9
        as_user ./program mount own/image own/mnt
        ! as_other umount $root/own/mnt || exit 9
        ! as_other fusermount3 -u $root/own/mnt || exit 9
        for what in mnt image; do
            ! as_other ./program umount $root/own/$what || exit 9
        done
        ! as_other ls own/mnt || exit 9
        ! as_other ./program mount own/image own/mnt || exit 9
        as_user ls own/mnt
        as_user umount own/mnt
        as_user ./program fsck -n own/image";
    let ran = world.shell(&format!("{PREPARE_USER}{script}"));
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    let out = ran.good();
    assert!(out.contains("lost+found"), "{out}");
}

/// The command takes the names of fstab itself, and says which one nothing has.
#[test]
fn a_device_is_found_by_its_label_or_uuid() {
    let Some(mut world) = World::new() else { return };
    let device = Loop::attach(&world.scratch.image());
    let uuid = support::system("blkid", ["-p", "-s", "UUID", "-o", "value", text(&device.path)]);
    let uuid = uuid.good().trim().to_owned();
    for what in [format!("LABEL={}", world.label), format!("UUID={uuid}")] {
        world.scratch.mount_target(Path::new(&what), "");
        world.scratch.umount();
        onejournal(["fsck", &what]).ended(0);
    }
    let dir = world.scratch.dir();
    onejournal(["mount", "LABEL=no such", text(&dir)])
        .refused(8, "LABEL=no such: no device has it");
}

#[test]
fn remount_changes_what_the_kernel_decides_and_names_the_rest() {
    let _alone = alone();
    let Some(world) = World::new() else { return };
    let script = "
        mount -t onejournal -o data=ordered $image $mnt
        echo a >$mnt/a
        mount -o remount,ro,nosuid $mnt
        grep -q \" $mnt ro,nosuid\" /proc/self/mountinfo
        ! touch $mnt/b 2>/dev/null
        mount -o remount,rw $mnt
        touch $mnt/b
        mount -o remount,data=ordered $mnt
        for change in data=delta commit=9 noatime; do
            ! mount -o remount,$change $mnt 2>err || exit 9
            grep \"$change cannot be changed by remount\" err
        done
        exec 3>>$mnt/a
        ! mount -o remount,ro $mnt 2>err || exit 9
        grep 'in use by a program' err
        exec 3>&-
        umount $mnt";
    world.shell(script).good();
    world.scratch.check();
}

/// Also what is open stays: a file that is deleted afterwards is still there for its reader.
#[test]
fn a_volume_that_was_mounted_read_only_becomes_writable() {
    let _alone = alone();
    let Some(world) = World::new() else { return };
    let script = "
        mount -t onejournal $image $mnt
        mkdir $mnt/d; echo a >$mnt/d/a; echo b >$mnt/b
        umount $mnt
        for options in ro ro,noxattr ro,order=sync; do
            mount -t onejournal -o $options $image $mnt
            exec 3<$mnt/d/a
            ! touch $mnt/d/c 2>/dev/null || exit 9
            mount -o remount,rw $mnt
            grep -q \" $mnt rw\" /proc/self/mountinfo
            rm $mnt/d/a
            for n in 1 2 3; do echo $n >$mnt/d/$n; done
            cp $mnt/b $mnt/d/a; sync $mnt/d/a
            test \"$(cat <&3)\" = a
            exec 3<&-
            mount -o remount,ro $mnt; ! touch $mnt/d/c 2>/dev/null || exit 9
            mount -o remount,rw $mnt; echo a >$mnt/d/a
            umount $mnt
            e2fsck -fn $image
        done";
    world.shell(script).good();
    world.scratch.check();
    let device = Loop::with(&["--read-only", text(&world.scratch.image())]);
    let script = "
        mount -t onejournal -o ro $loop $mnt
        ! mount -o remount,rw $mnt 2>err || exit 9
        grep 'cannot be made writable: its device was opened for reading only' err
        test \"$(cat $mnt/d/a)\" = a
        umount $mnt";
    world.shell(&script.replace("$loop", text(&device.path))).good();
}

#[test]
fn helpers_end_with_the_codes_of_mount() {
    let Some(world) = World::new() else { return };
    let (image, dir) = (world.scratch.image(), world.scratch.dir());
    let mount = |arguments: &[&str]| {
        run(world.helper("mount.onejournal").arg(&image).arg(&dir).args(arguments))
    };
    mount(&["-o", "sync"]).refused(1, "option sync: ");
    mount(&["-o", "frobnicate"]).refused(1, "unknown option frobnicate");
    mount(&["-Q"]).refused(1, "-Q");
    run(world.helper("mount.onejournal").args([text(&image), "/none"])).refused(32, "/none: ");
    // What it does all but: nothing is mounted.
    mount(&["-f", "-v", "-o", "rw"]).good();
    mount(&["-f", "-o", "frobnicate"]).refused(1, "frobnicate");
    mount(&["-s", "-n", "-t", "onejournal", "-o", "rw,frobnicate"]).good();
    onejournal(["umount", text(&dir)]).good();
    world.scratch.check();
}

/// In the namespace that mount(8) names.
#[test]
fn a_helper_mounts_in_another_namespace() {
    let _alone = alone();
    let Some(world) = World::new() else { return };
    let script = "
        unshare -m --propagation private sleep 1000 & other=$!
        until [ \"$(cat /proc/$other/comm)\" = sleep ]; do sleep 0.1; done
        trap 'kill $other' EXIT
        $helpers/mount.onejournal $image $mnt -N /proc/$other/ns/mnt
        ! grep \" $mnt \" /proc/self/mountinfo
        grep \" $mnt \" /proc/$other/mountinfo
        nsenter -m -t $other umount $mnt";
    world.shell(script).good();
    world.scratch.check();
}

/// What a boot does: -a recovers, and does not read all of a volume that nothing is known against.
#[test]
fn fsck_at_boot_recovers_and_checks_what_is_marked() {
    let Some(mut world) = World::new() else { return };
    let image = world.scratch.image();
    let fsck = |world: &World, arguments: &[&str]| {
        run(world.helper("fsck.onejournal").args(arguments).arg(&image))
    };
    world.scratch.mount("");
    fs::write(world.scratch.path("kept"), "kept").unwrap();
    fs::File::open(world.scratch.path("kept")).unwrap().sync_all().unwrap();
    world.scratch.kill();
    let looked = fsck(&world, &["-n"]);
    looked.ended(4);
    let recovered = fsck(&world, &["-T", "-l", "-M", "-a", "-C", "6"]);
    assert!(recovered.code == Some(1) && recovered.out.contains("recovered"), "{recovered:?}");
    let clean = fsck(&world, &["-p", "-C0"]);
    assert!(clean.code == Some(0) && !clean.out.contains("Pass 1"), "{clean:?}");
    let forced = fsck(&world, &["-fp"]);
    assert!(forced.code == Some(0) && forced.out.contains("Pass 1"), "{forced:?}");
    fsck(&world, &["-y", "-f", "-v"]).ended(0);
    // A block that is in use but not marked so, which only a volume marked as damaged is searched
    // for.
    support::system("debugfs", ["-w", "-R", "freeb 1000 20", text(&image)]).good();
    fsck(&world, &["-a"]).ended(0);
    support::system("debugfs", ["-w", "-R", "ssv state 2", text(&image)]).good();
    let repaired = fsck(&world, &["-a"]);
    repaired.ended(1);
    world.scratch.check();
    fsck(&world, &["-a", "-y"]).ended(16);
    fsck(&world, &["-Z"]).ended(16);
}
