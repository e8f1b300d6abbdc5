//! Names changed and read by several threads at once.

use crate::support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use onejournal_ext4::{Error, InodeNo, NewNode, Owner, RenameHow, RootVolume};
use support::{Image, list, lookup, make};

const ROOT: InodeNo = InodeNo::ROOT;

fn churn(volume: &RootVolume, dir: InodeNo, thread: usize) {
    for round in 0..3 {
        for n in 0..400 {
            let name = format!("{thread}-{n}");
            make(volume, dir, name.as_bytes(), NewNode::Regular).expect("a file");
            let new = format!("{thread}-{n}-moved");
            volume
                .rename(dir, name.as_bytes(), dir, new.as_bytes(), RenameHow::NoReplace)
                .expect("a move");
        }
        for n in 0..400 {
            if round < 2 || n % 2 == 0 {
                volume.unlink(dir, format!("{thread}-{n}-moved").as_bytes()).expect("a file");
            }
        }
    }
}

#[test]
fn readers_see_what_stays_while_writers_change_the_rest() {
    let image = Image::new(64, &[]);
    let volume = image.open();
    let dir = make(&volume, ROOT, b"dir", NewNode::Directory).unwrap().ino;
    let stays = |n: usize| format!("stays {n}").into_bytes();
    for n in 0..300 {
        make(&volume, dir, &stays(n), NewNode::Regular).unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn({
                    let volume = &volume;
                    move || churn(volume, dir, thread)
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let names: Vec<_> = list(&volume, dir).into_iter().map(|entry| entry.0).collect();
                let unique: BTreeSet<_> = names.iter().collect();
                assert_eq!(unique.len(), names.len(), "an entry twice");
                for n in 0..300 {
                    assert!(unique.contains(&stays(n)), "{n} is gone");
                    lookup(&volume, dir, &stays(n)).expect("a file that stays");
                }
            }
        });
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::Release);
        reader.join().expect("the reader found everything");
        results.into_iter().for_each(|result| result.expect("the writer met no error"));
    });
    assert_eq!(list(&volume, dir).len(), 300 + 3 * 200);
    volume.close().unwrap();
    image.check("threads");
}

#[test]
fn an_inode_that_is_in_use_outlives_its_name() {
    let image = Image::new(16, &[]);
    let volume = image.open();
    let free = volume.stat_fs().unwrap().free_inode_count;
    let file =
        volume.make(ROOT, b"file", NewNode::Regular, 0o644, 0, Owner::default()).unwrap().ino;
    let dir =
        volume.make(ROOT, b"dir", NewNode::Directory, 0o755, 0, Owner::default()).unwrap().ino;
    volume.unlink(ROOT, b"file").unwrap();
    volume.rmdir(ROOT, b"dir").unwrap();
    assert_eq!(volume.get_attr(file).unwrap().link_count, 0);
    assert!(matches!(make(&volume, dir, b"x", NewNode::Regular), Err(Error::NotFound)));
    assert!(matches!(volume.link(file, ROOT, b"again"), Err(Error::NotFound)));
    assert_eq!(volume.stat_fs().unwrap().free_inode_count, free - 2);
    volume.forget(file, 1);
    volume.forget(dir, 1);
    assert!(matches!(volume.get_attr(file), Err(Error::NotFound)));
    assert_eq!(volume.stat_fs().unwrap().free_inode_count, free);
    volume.close().unwrap();
    image.check("unlinked while in use");
}
