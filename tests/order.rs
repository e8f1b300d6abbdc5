//! `-o order=sync`: the kernel collects writes, and a file that gets a name which a crash must not
//! find empty has its data first. What is still in the kernel is lost when the daemon is killed, so
//! a killed daemon shows what was fetched.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;
use support::{Scratch, onejournal};

const LEN_BYTES: usize = 300_000;

fn content(number: usize) -> Vec<u8> {
    (0..LEN_BYTES + number).map(|place| (place * 31 + number * 7) as u8).collect()
}

/// Written, but neither synced nor closed: the kernel has the data.
fn written(path: &Path, number: usize) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(&content(number)).unwrap();
    file
}

fn synced(path: &Path, number: usize) {
    written(path, number).sync_all().unwrap();
}

/// Commits all operations so far, but none of the data that the kernel has.
fn commit(scratch: &Scratch) {
    synced(&scratch.path("other"), 0);
}

#[test]
fn a_file_that_replaces_another_one_has_its_data() {
    for options in ["order=sync", "order=sync,threads=1", "order=sync,data=ordered"] {
        let Some(mut scratch) = Scratch::mounted(&format!("commit=300,{options}")) else { return };
        synced(&scratch.path("renamed"), 1);
        synced(&scratch.path("exchanged"), 2);
        let open = [written(&scratch.path("new"), 3), written(&scratch.path("other one"), 4)];
        let unnamed = OpenOptions::new()
            .write(true)
            .custom_flags(OFlags::TMPFILE.bits().cast_signed())
            .open(scratch.dir());
        let mut unnamed = unnamed.unwrap();
        unnamed.write_all(&content(5)).unwrap();

        fs::rename(scratch.path("new"), scratch.path("renamed")).unwrap();
        let (from, to) = (scratch.path("other one"), scratch.path("exchanged"));
        renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE).unwrap();
        linkat(&unnamed, "", CWD, scratch.path("linked"), AtFlags::EMPTY_PATH).unwrap();
        commit(&scratch);
        scratch.kill();
        drop((open, unnamed));
        scratch.mount("");
        let found = |name: &str| fs::read(scratch.path(name)).unwrap();
        assert!(found("renamed") == content(3), "{options}");
        assert!(found("exchanged") == content(4), "{options}");
        assert!(found("other one") == content(2), "{options}");
        assert!(found("linked") == content(5), "{options}");
        scratch.close_and_check();
    }
}

/// Data of a mapping are in the kernel, too, also after the file was closed.
#[test]
fn stores_through_a_mapping_are_fetched() {
    let Some(mut scratch) = Scratch::mounted("commit=300,order=sync") else { return };
    let Some(mut peer) = support::Peer::new(&scratch.dir()) else { return };
    synced(&scratch.path("old"), 1);
    peer.good(
        "
fd = os.open('new', os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 100000)
view = mmap.mmap(fd, 100000)
os.close(fd)
view[:] = b'm' * 100000
os.rename('new', 'old')
",
    );
    commit(&scratch);
    scratch.kill();
    drop(peer);
    scratch.mount("");
    assert!(fs::read(scratch.path("old")).unwrap() == vec![b'm'; 100_000]);
    scratch.close_and_check();
}

/// Each holds a thread until another one has answered the kernel's writes.
#[test]
fn many_files_are_replaced_side_by_side() {
    for options in ["order=sync,threads=1", "order=sync,threads=2", "order=sync"] {
        let Some(scratch) = Scratch::mounted(options) else { return };
        std::thread::scope(|scope| {
            for writer in 0..40 {
                let dir = scratch.path(&format!("d{writer}"));
                scope.spawn(move || {
                    fs::create_dir(&dir).unwrap();
                    synced(&dir.join("f"), 0);
                    for round in 1..6 {
                        let open = written(&dir.join("new"), round);
                        fs::rename(dir.join("new"), dir.join("f")).unwrap();
                        drop(open);
                    }
                });
            }
        });
        for writer in 0..40 {
            let found = fs::read(scratch.path(&format!("d{writer}/f"))).unwrap();
            assert!(found == content(5), "{options} {writer}");
        }
        scratch.close_and_check();
    }
}

/// The kernel accepted the data without asking for blocks.
#[test]
fn a_full_volume_is_reported_before_a_file_is_replaced() {
    let Some(scratch) = Scratch::mounted("order=sync") else { return };
    synced(&scratch.path("old"), 1);
    let mut filler = File::create(scratch.path("filler")).unwrap();
    let piece = vec![7; 1 << 20];
    let failed = loop {
        match filler.write_all(&piece).and_then(|()| filler.sync_all()) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(Errno::from_io_error(&failed), Some(Errno::NOSPC));
    // The last blocks, one by one.
    let mut number = 0;
    loop {
        number += 1;
        let mut file = File::create(scratch.path(&format!("small{number}"))).unwrap();
        if file.write_all(&[7; 4096]).and_then(|()| file.sync_all()).is_err() {
            break;
        }
    }
    let open = written(&scratch.path("new"), 2);
    let renamed = rustix::fs::rename(scratch.path("new"), scratch.path("old"));
    assert_eq!(renamed, Err(Errno::NOSPC));
    assert_eq!(open.sync_all().err().and_then(|e| Errno::from_io_error(&e)), Some(Errno::NOSPC));
    assert!(fs::read(scratch.path("old")).unwrap() == content(1));
    drop((open, filler));
    fs::remove_file(scratch.path("new")).unwrap();
    scratch.close_and_check();
}

/// close(2) reports what write(2) could not know.
#[test]
fn a_full_volume_is_reported_when_the_file_is_closed() {
    let Some(scratch) = Scratch::mounted("order=sync") else { return };
    let Some(mut peer) = support::Peer::new(&scratch.dir()) else { return };
    peer.good("fd = os.open('f', os.O_WRONLY | os.O_CREAT); size = os.statvfs('.').f_bfree * 4096");
    let told = peer.run(
        "
for _ in range(size // 100000 + 2): os.write(fd, b'x' * 100000)
os.close(fd)
",
    );
    assert_eq!(told.err(), Some(Errno::NOSPC.raw_os_error()));
    drop(peer);
    fs::remove_file(scratch.path("f")).unwrap();
    scratch.close_and_check();
}

#[test]
fn the_order_is_shown_and_the_old_name_is_explained() {
    let Some(mut scratch) = Scratch::mounted("order=sync") else { return };
    assert_eq!(scratch.stat()["order"], "sync");
    scratch.remount("");
    assert_eq!(scratch.stat()["order"], "history");
    scratch.umount();
    let (image, dir) = (scratch.image(), scratch.dir());
    let words = |options: &str| {
        let words = ["mount", "-o", options, support::text(&image), support::text(&dir)];
        onejournal(words)
    };
    words("writeback_cache").refused(16, "order=sync");
    words("atomic_writes,order=sync").refused(16, "order=sync");
}
