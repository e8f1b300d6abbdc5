//! Large directories: growth through all forms of the index, reading while they change, names
//! with equal hashes, cursors.

use crate::support;

use std::collections::{BTreeSet, HashMap};

use onejournal_ext4::{Error, InodeNo, NewNode, RootVolume};
use support::{Image, list, lookup, make, read_some};

const ROOT: InodeNo = InodeNo::ROOT;

fn directory(volume: &RootVolume, name: &[u8]) -> InodeNo {
    make(volume, ROOT, name, NewNode::Directory).expect("a directory").ino
}

/// Hard links to one file: many entries without many inodes.
struct Links<'a> {
    volume: &'a RootVolume,
    dir: InodeNo,
    file: InodeNo,
}

impl<'a> Links<'a> {
    fn new(volume: &'a RootVolume) -> Links<'a> {
        let dir = directory(volume, b"many");
        let file = make(volume, ROOT, b"file", NewNode::Regular).expect("a file").ino;
        Links { volume, dir, file }
    }

    fn add(&self, name: &[u8]) {
        self.try_add(name).expect("room for a name");
    }

    fn try_add(&self, name: &[u8]) -> Result<(), Error> {
        self.volume.link(self.file, self.dir, name)?;
        self.volume.forget(self.file, 1);
        Ok(())
    }

    fn names(&self) -> BTreeSet<Vec<u8>> {
        let entries = list(self.volume, self.dir);
        let count = entries.len();
        let names: BTreeSet<_> = entries.into_iter().map(|entry| entry.0).collect();
        assert_eq!(names.len(), count, "every name once");
        names
    }
}

#[test]
fn twenty_thousand_entries_read_while_they_are_made_and_removed() {
    let image = Image::new(128, &["-N", "32768"]);
    let volume = image.open();
    let dir = directory(&volume, b"many");
    let name = |n: usize| format!("entry-{n:06}").into_bytes();
    let mut inos = HashMap::new();
    let (mut seen, mut cursor) = (Vec::new(), 0);
    for n in 0..20_000 {
        let ino = make(&volume, dir, &name(n), NewNode::Regular).expect("a file").ino;
        inos.insert(name(n), ino);
        if n >= 1000 && n % 10 == 0 {
            // A reader that goes along: eleven entries for ten new ones, until its end.
            let (entries, next) = read_some(&volume, dir, cursor, 11);
            seen.extend(entries.into_iter().map(|entry| entry.0));
            cursor = next;
        }
    }
    let (rest, _) = read_some(&volume, dir, cursor, usize::MAX);
    seen.extend(rest.into_iter().map(|entry| entry.0));
    let unique: BTreeSet<_> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "no entry comes twice");
    assert!((0..1001).all(|n| unique.contains(&name(n))), "what was there first is seen");
    for (name, ino) in &inos {
        assert_eq!(lookup(&volume, dir, name).expect("a file").ino, *ino);
    }
    assert!(matches!(lookup(&volume, dir, b"entry-020000"), Err(Error::NotFound)));
    for n in (0..20_000).filter(|n| n % 2 == 0) {
        volume.unlink(dir, &name(n)).expect("a file");
    }
    let left: BTreeSet<_> = list(&volume, dir).into_iter().map(|entry| entry.0).collect();
    assert_eq!(left, (0..20_000).filter(|n| n % 2 == 1).map(name).collect());
    volume.close().expect("a clean end");
    image.check("twenty thousand");
    assert_eq!(
        image.debugfs("ls -l /many").lines().filter(|l| l.contains("entry-")).count(),
        10_000
    );
    assert!(image.debugfs("htree_dump /many").contains("Indirect levels: 0"));
}

#[test]
fn an_index_of_two_levels() {
    // Names of 255 bytes: 15 to a leaf, so some 5000 names are enough for more than 507 leaves.
    let image = Image::new(64, &[]);
    let volume = image.open();
    let links = Links::new(&volume);
    let name = |n: usize| format!("{n:05}{}", "n".repeat(250)).into_bytes();
    let count = 9000;
    (0..count).for_each(|n| links.add(&name(n)));
    assert_eq!(links.names(), (0..count).map(name).collect());
    for n in 0..count {
        lookup(&volume, links.dir, &name(n)).expect("a file");
    }
    volume.close().expect("a clean end");
    image.check("two levels");
    assert!(image.debugfs("htree_dump /many").contains("Indirect levels: 1"));
    let volume = image.open();
    let many = lookup(&volume, ROOT, b"many").expect("the directory").ino;
    for n in 0..count {
        volume.unlink(many, &name(n)).expect("a file");
    }
    volume.rmdir(ROOT, b"many").expect("an empty directory");
    volume.close().expect("a clean end");
    image.check("two levels, removed");
}

/// Ends of names of 248 bytes whose legacy hash is 0x80000000 when they follow 240 times `x`.
const COLLIDING: [&str; 48] = [
    "9t9sq009", "ov66b10s", "w2af0204", "xgupb20I", "kinat20M", "pa38g30I", "sj7on308", "fpmpv30M",
    "3ihmo40j", "8f9uv40H", "a2llu50L", "xztou50W", "dircx501", "djnko60r", "z2bto70Y", "3we2s70Z",
    "7vlf1805", "34cno80f", "x5hau80i", "4430090E", "82tbn90z", "up065a0f", "8hep9a02", "omnlya0t",
    "qi4w6b0Q", "59f8ob0y", "4pxafc0X", "f0n7hc03", "9aoahc0d", "w8f4kc0p", "bm0poc0P", "zl8gvc07",
    "507gwc08", "hy012e07", "2f806g0K", "f92hwg02", "q0jmxg0G", "c20pfh0B", "vqqahh0Z", "e9mhzh0d",
    "iakgoi0B", "iyeyqi0z", "3rqmsi0M", "8jktzi0S", "uftitj0M", "x5ngik0f", "1szejk0u", "221fuk08",
];

/// The same with the hash 0x80000002.
const NEXT_COLLIDING: [&str; 16] = [
    "aasmfnpk", "adgopsl5", "admzap82", "ad0bigja", "af21fuzz", "aixyi1e6", "aiyivxlk", "akamvfr3",
    "akuohpml", "ak5aywft", "ak5aywtf", "ale0ccwx", "aloez82w", "alsyxff2", "alsyxf2f", "amebv146",
];

fn long_names(ends: &[&str]) -> Vec<Vec<u8>> {
    ends.iter().map(|end| format!("{}{end}", "x".repeat(240)).into_bytes()).collect()
}

/// Reads a directory entry by entry. `between` gets each entry before the next one is read.
/// Returns the names but for `.` and `..`, and the cursor after each.
fn read_singly(
    volume: &RootVolume,
    dir: InodeNo,
    mut between: impl FnMut(&[u8]),
) -> Vec<(Vec<u8>, u64)> {
    let (mut seen, mut cursor) = (Vec::new(), 0);
    loop {
        let (mut entries, next) = read_some(volume, dir, cursor, 1);
        let Some((name, ..)) = entries.pop() else { return seen };
        assert!(next < 1 << 31, "a program of 32 bits refuses the cursor {next:#x}");
        cursor = next;
        if !matches!(&name[..], b"." | b"..") {
            between(&name);
            seen.push((name, next));
        }
    }
}

/// Legacy hashes, of which most share their upper bits with others.
fn make_colliding_names(links: &Links<'_>) -> BTreeSet<Vec<u8>> {
    let others = (0..300).map(|n| format!("{n}{}", "y".repeat(200)).into_bytes());
    let names = [long_names(&COLLIDING), long_names(&NEXT_COLLIDING), others.collect()].concat();
    names.iter().for_each(|name| links.add(name));
    names.into_iter().collect()
}

#[test]
fn every_cursor_has_31_bits_and_is_the_place_after_its_name() {
    let image = Image::tuned(32, &[], &["-E", "hash_alg=legacy"]);
    let volume = image.open();
    let links = Links::new(&volume);
    let expected = make_colliding_names(&links);
    volume.pin(links.dir);
    let seen = read_singly(&volume, links.dir, |_| {});
    let names: Vec<_> = seen.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names.len(), expected.len());
    assert_eq!(names.iter().cloned().collect::<BTreeSet<_>>(), expected);
    for (at, (_, cursor)) in seen.iter().enumerate() {
        let (rest, _) = read_some(&volume, links.dir, *cursor, usize::MAX);
        assert!(rest.iter().map(|entry| &entry.0).eq(&names[at + 1..]), "after {cursor:#x}");
    }
}

#[test]
fn an_entry_that_stays_is_read_once_among_equal_hashes_that_change() {
    let image = Image::tuned(32, &[], &["-E", "hash_alg=legacy"]);
    let volume = image.open();
    let links = Links::new(&volume);
    let expected = make_colliding_names(&links);
    volume.pin(links.dir);
    // What `rm -r` does: each name is removed as soon as it was read. And others come.
    let mut others = long_names(&COLLIDING).into_iter();
    let seen = read_singly(&volume, links.dir, |name| {
        volume.unlink(links.dir, name).expect("the name that was read");
        if let Some(mut other) = others.next() {
            other[0] = b'z';
            links.add(&other);
        }
    });
    let old: Vec<_> = seen.iter().map(|(name, _)| name).filter(|n| expected.contains(*n)).collect();
    assert_eq!(old.len(), expected.len());
    assert_eq!(old.into_iter().cloned().collect::<BTreeSet<_>>(), expected);
}

/// Then cursors among names of one hash mean less: names may come again, but none is missed.
#[test]
fn a_reader_with_a_forgotten_cursor_misses_nothing() {
    let image = Image::tuned(32, &[], &["-E", "hash_alg=legacy"]);
    let volume = image.open();
    let expected = make_colliding_names(&Links::new(&volume));
    let many = lookup(&volume, ROOT, b"many").expect("the directory").ino;
    let seen = read_singly(&volume, many, |_| {});
    volume.close().expect("a clean end");
    let volume = image.open();
    for (at, (_, cursor)) in seen.iter().enumerate() {
        let (rest, _) = read_some(&volume, many, *cursor, usize::MAX);
        let known = seen[..=at].iter().map(|(name, _)| name.clone());
        let all: BTreeSet<_> = known.chain(rest.into_iter().map(|entry| entry.0)).collect();
        assert_eq!(all, expected);
    }
}

#[test]
fn a_leaf_that_begins_among_names_of_one_cursor() {
    let image = Image::tuned(32, &[], &["-E", "hash_alg=legacy"]);
    let volume = image.open();
    let links = Links::new(&volume);
    // Fifteen names fill the only block, and the next one splits it after the eighth.
    let names = [&long_names(&COLLIDING)[..8], &long_names(&NEXT_COLLIDING)[..8]].concat();
    names.iter().for_each(|name| links.add(name));
    volume.pin(links.dir);
    let seen: BTreeSet<_> =
        read_singly(&volume, links.dir, |_| {}).into_iter().map(|(name, _)| name).collect();
    assert_eq!(seen, names.into_iter().collect());
    volume.close().expect("a clean end");
    image.check("one cursor");
    let dump = image.debugfs("htree_dump /many");
    assert!(dump.contains("0x80000002"), "a leaf that begins there:\n{dump}");
}

#[test]
fn names_of_one_hash_over_several_leaves() {
    let image = Image::tuned(32, &[], &["-E", "hash_alg=legacy"]);
    let volume = image.open();
    let links = Links::new(&volume);
    let colliding = long_names(&COLLIDING);
    let other = |n: usize| format!("{n}{}", "y".repeat(200)).into_bytes();
    let mut expected = BTreeSet::new();
    for (n, name) in colliding.iter().enumerate() {
        for name in [name, &other(n), &other(n + 100)] {
            links.add(name);
            expected.insert(name.clone());
        }
        assert!(matches!(links.try_add(name), Err(Error::Exists)));
        assert_eq!(links.names(), expected);
    }
    // Small steps over the collisions lose and repeat nothing.
    let (mut cursor, mut stepped) = (0, Vec::new());
    loop {
        let (entries, next) = read_some(&volume, links.dir, cursor, 3);
        if entries.is_empty() {
            break;
        }
        stepped.extend(entries.into_iter().map(|entry| entry.0));
        cursor = next;
    }
    assert_eq!(stepped.len(), expected.len() + 2);
    for name in &colliding {
        lookup(&volume, links.dir, name).expect("a name among its like");
    }
    for name in colliding.iter().step_by(2) {
        volume.unlink(links.dir, name).expect("a name among its like");
        assert!(expected.remove(name));
    }
    assert_eq!(links.names(), expected);
    volume.close().expect("a clean end");
    image.check("one hash");
    let dump = image.debugfs("htree_dump /many");
    assert!(dump.contains("0x80000001"), "a leaf that continues another:\n{dump}");
}

#[test]
fn every_hash_function_makes_an_index_that_e2fsck_accepts() {
    for algorithm in ["legacy", "half_md4", "tea"] {
        let image = Image::tuned(32, &[], &["-E", &format!("hash_alg={algorithm}")]);
        let volume = image.open();
        let links = Links::new(&volume);
        let name = |n: usize| format!("naïve-{n}-ÿ").into_bytes();
        (0..3000).for_each(|n| links.add(&name(n)));
        assert_eq!(links.names(), (0..3000).map(name).collect());
        volume.close().expect("a clean end");
        image.check(algorithm);
    }
}

#[test]
fn many_subdirectories_stop_being_counted() {
    let image = Image::new(640, &["-N", "81920"]);
    let volume = image.open();
    let dir = directory(&volume, b"many");
    for n in 0..65_100 {
        let made = make(&volume, dir, format!("{n}").as_bytes(), NewNode::Directory);
        made.unwrap_or_else(|error| panic!("directory {n}: {error}"));
    }
    assert_eq!(volume.get_attr(dir).unwrap().link_count, 1);
    for n in 0..200 {
        volume.rmdir(dir, format!("{n}").as_bytes()).expect("an empty directory");
    }
    assert_eq!(volume.get_attr(dir).unwrap().link_count, 1);
    volume.close().expect("a clean end");
    image.check("many subdirectories");
}

#[test]
fn a_full_volume_leaves_no_half_operation() {
    let image = Image::new(12, &["-N", "4096"]);
    let volume = image.open();
    let dir = directory(&volume, b"many");
    let mut count = 0;
    let error = loop {
        let name = format!("{count}{}", "f".repeat(240)).into_bytes();
        match make(&volume, dir, &name, NewNode::Symlink(&[b't'; 200])) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace), "{error}");
    assert_eq!(list(&volume, dir).len(), count);
    volume.close().expect("a clean end");
    image.check("full");
}
