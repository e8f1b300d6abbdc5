//! `-o noxattr`: no extended attributes, fewer requests, and no file whose access list is ignored.

use crate::support;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use onejournal_testing::has_program;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use support::{Scratch, onejournal, system};

/// What `tar` does with a file.
fn unpack(scratch: &Scratch, name: &str) {
    let path = scratch.path(name);
    fs::write(&path, "content").unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    chown(&path, Some(1000), Some(1000)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
}

/// Held by the test that counts requests, and by the one that runs `onejournal ls`: that asks all
/// volumes of the machine.
static REQUESTS: Mutex<()> = Mutex::new(());

/// Requests for a file of its own directory, in hundredths.
fn requests_a_file(options: &str) -> Option<u64> {
    const FILE_COUNT: u64 = 50;
    let scratch = Scratch::mounted(options)?;
    fs::create_dir(scratch.path("d")).unwrap();
    unpack(&scratch, "d/first");
    let start = scratch.counter("requests");
    let before = scratch.counter("requests");
    for number in 0..FILE_COUNT {
        unpack(&scratch, &format!("d/{number}"));
    }
    let requests = scratch.counter("requests") - before - (before - start);
    scratch.close_and_check();
    Some(requests * 100 / FILE_COUNT)
}

#[test]
fn a_new_file_is_two_requests_less() {
    let _counts = REQUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(with) = requests_a_file("") else { return };
    let without = requests_a_file("noxattr").unwrap();
    assert_eq!(with - without, 200, "{with} with attributes, {without} without");
}

#[test]
fn there_are_no_attributes() {
    let Some(mut scratch) = Scratch::mounted("") else { return };
    let path = scratch.path("file");
    fs::write(&path, "x").unwrap();
    let set = || rustix::fs::setxattr(&path, "user.a", b"1", XattrFlags::empty());
    set().unwrap();
    scratch.remount("noxattr");
    for _ in 0..2 {
        let mut room = [0; 100];
        assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut room), Err(Errno::OPNOTSUPP));
        assert_eq!(rustix::fs::listxattr(&path, &mut room), Err(Errno::OPNOTSUPP));
        assert_eq!(set(), Err(Errno::OPNOTSUPP));
        assert_eq!(rustix::fs::removexattr(&path, "user.a"), Err(Errno::OPNOTSUPP));
    }
    assert_eq!(fs::read(&path).unwrap(), b"x");
    fs::write(&path, "yy").unwrap();
    scratch.remount("");
    let mut value = [0; 2];
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value), Ok(1), "it was kept");
    scratch.close_and_check();
}

/// What the commands ask a mount for, they get in another way.
#[test]
fn the_mount_tells_of_itself() {
    let _asks = REQUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(scratch) = Scratch::mounted("noxattr,data=delta") else { return };
    fs::write(scratch.path("file"), "x").unwrap();
    assert_eq!(scratch.stat()["data_mode"], "delta");
    assert!(scratch.counter("app_writes") >= 1);
    let file = scratch.path("file");
    let of = |command: &str| onejournal([command, file.to_str().unwrap()]).good();
    assert!(of("get-mode").starts_with("delta\t"), "{}", of("get-mode"));
    assert!(of("stat").contains("app_writes"), "{}", of("stat"));
    assert!(onejournal(["ls"]).good().contains(scratch.dir().to_str().unwrap()));
    let unknown = volume_client::virtual_attribute(&file, "user.a");
    assert_eq!(unknown, Err(Errno::NODATA));
    scratch.close_and_check();
}

#[track_caller]
fn set_list(arguments: &[&str], scratch: &Scratch, name: &str) {
    let path = scratch.path(name);
    system("setfacl", arguments.iter().copied().chain([path.to_str().unwrap()])).good();
}

#[test]
fn a_file_with_an_access_list_is_refused() {
    let Some(mut scratch) = Scratch::mounted("").filter(|_| has_program("setfacl")) else { return };
    for dir in ["plain", "listed", "inheriting"] {
        fs::create_dir(scratch.path(dir)).unwrap();
        fs::write(scratch.path(&format!("{dir}/below")), "below").unwrap();
    }
    for name in ["file", "denied", "once"] {
        fs::write(scratch.path(name), name).unwrap();
    }
    rustix::fs::setxattr(scratch.path("file"), "user.a", b"1", XattrFlags::empty()).unwrap();
    set_list(&["-m", "u:1000:-"], &scratch, "denied");
    set_list(&["-m", "u:1000:rwx"], &scratch, "listed");
    set_list(&["-d", "-m", "u:1000:rwx"], &scratch, "inheriting");
    set_list(&["-m", "u:1000:rwx"], &scratch, "once");
    set_list(&["-b"], &scratch, "once");
    scratch.remount("noxattr");
    let names = fs::read_dir(scratch.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.filter(|name| name != "lost+found").count(), 6);
    let refused = |result: std::io::Result<()>| {
        let code = result.expect_err("it is refused").raw_os_error();
        assert_eq!(code, Some(Errno::OPNOTSUPP.raw_os_error()));
    };
    for name in ["denied", "listed", "inheriting", "listed/below", "inheriting/below"] {
        refused(fs::metadata(scratch.path(name)).map(drop));
    }
    refused(fs::read(scratch.path("denied")).map(drop));
    refused(fs::write(scratch.path("inheriting/new"), ""));
    refused(fs::write(scratch.path("denied"), ""));
    refused(fs::remove_file(scratch.path("denied")));
    refused(fs::rename(scratch.path("file"), scratch.path("denied")));
    for name in ["file", "once", "plain/below"] {
        assert!(name.ends_with(&fs::read_to_string(scratch.path(name)).unwrap()));
    }
    scratch.remount("");
    let lists = system("getfacl", ["-pn", scratch.path("denied").to_str().unwrap()]).good();
    assert!(lists.contains("user:1000:---"), "{lists}");
    assert_eq!(fs::read(scratch.path("denied")).unwrap(), b"denied");
    scratch.close_and_check();
}

#[test]
fn a_volume_whose_root_has_an_access_list_is_refused() {
    let Some(mut scratch) = Scratch::mounted("").filter(|_| has_program("setfacl")) else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    let mount = ["mount", "-o", "noxattr", image.to_str().unwrap(), dir.to_str().unwrap()];
    for arguments in [["-m", "u:1000:-"], ["-dm", "u:1000:-"]] {
        set_list(&arguments, &scratch, "");
        scratch.umount();
        onejournal(mount).refused(8, "access list");
        scratch.check();
        scratch.mount("");
        set_list(&["-b"], &scratch, "");
    }
    scratch.remount("noxattr");
    scratch.close_and_check();
}

/// The kernel, which asks for none, leaves it to the volume.
#[test]
fn file_capabilities_are_taken_off_by_what_takes_them_off_elsewhere() {
    let Some(mut scratch) = Scratch::mounted("").filter(|_| has_program("setcap")) else { return };
    let names = ["written", "cut", "given", "renamed"];
    for name in names {
        fs::write(scratch.path(name), name).unwrap();
        system("setcap", ["cap_net_raw+ep", scratch.path(name).to_str().unwrap()]).good();
    }
    scratch.remount("noxattr");
    let open = |name| File::options().write(true).open(scratch.path(name)).unwrap();
    std::io::Write::write_all(&mut open("written"), b"W").unwrap();
    open("cut").set_len(1).unwrap();
    chown(scratch.path("given"), Some(1000), None).unwrap();
    fs::rename(scratch.path("renamed"), scratch.path("kept")).unwrap();
    scratch.remount("");
    for (name, has_one) in [("written", false), ("cut", false), ("given", false), ("kept", true)] {
        let found =
            rustix::fs::getxattr(scratch.path(name), "security.capability", &mut [0; 64]).is_ok();
        assert_eq!(found, has_one, "{name}");
    }
    scratch.close_and_check();
}
