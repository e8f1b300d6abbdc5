//! The same names and attributes under Linux's own ext4: Linux reads what OneJournal wrote, and
//! OneJournal reads and changes what Linux wrote. Without root and loop devices, the tests
//! are skipped.

use crate::support;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::common::Mounted;
use onejournal_ext4::{InodeNo, NewNode, Owner, RootVolume, SetAttr, XattrFlags};
use onejournal_testing::{can_mount_ext4, test_name, tier};
use rustix::fs::{XattrFlags as KernelFlags, getxattr, setxattr};
use support::{Image, list, lookup, make};

const ROOT: InodeNo = InodeNo::ROOT;
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// `None`, with a message, if the kernel can mount no ext4 here.
fn mount(image: &Image) -> Option<Mounted> {
    if !can_mount_ext4() {
        return None;
    }
    let mounted = Mounted::new(&image.save(), "acl,user_xattr");
    Some(mounted.unwrap_or_else(|reason| panic!("Linux refuses the volume: {reason}")))
}

fn kernel_xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 65536];
    let len = getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

fn our_xattr(volume: &RootVolume, ino: InodeNo, name: &str) -> Option<Vec<u8>> {
    volume.get_xattr(ino, name.as_bytes()).ok()
}

fn ino(path: &Path) -> InodeNo {
    let ino = path.symlink_metadata().expect("a file").ino();
    InodeNo(u32::try_from(ino).expect("inode numbers of ext4 have 32 bits"))
}

const ATTRIBUTES: [(&str, usize); 3] =
    [("user.small", 5), ("user.large", 2500), ("trusted.more", 900)];

#[test]
fn linux_reads_what_we_wrote() {
    let image = Image::new(64, &[]);
    let volume = image.open();
    let dir = make(&volume, ROOT, b"dir", NewNode::Directory).unwrap().ino;
    let names: BTreeSet<String> = (0..5000).map(|n| format!("entry {n}")).collect();
    let file = make(&volume, ROOT, b"file", NewNode::Regular).unwrap().ino;
    for name in &names {
        volume.link(file, dir, name.as_bytes()).unwrap();
        volume.forget(file, 1);
    }
    let (fast, slow) = ("f".repeat(59), "s".repeat(4000));
    make(&volume, ROOT, b"fast", NewNode::Symlink(fast.as_bytes())).unwrap();
    make(&volume, ROOT, b"slow", NewNode::Symlink(slow.as_bytes())).unwrap();
    let device = NewNode::Special(onejournal_ext4::FileKind::BlockDevice, 0x0123_4567);
    make(&volume, ROOT, b"device", device).unwrap();
    for (name, len) in ATTRIBUTES {
        volume.set_xattr(file, name.as_bytes(), &vec![9; len], XattrFlags::Any).unwrap();
    }
    volume.close().unwrap();
    let Some(mounted) = mount(&image) else { return };
    let entries = std::fs::read_dir(mounted.path("dir")).unwrap();
    let found: BTreeSet<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, names);
    for name in &names {
        assert_eq!(ino(&mounted.path("dir").join(name)), file);
    }
    let target = |name: &str| std::fs::read_link(mounted.path(name)).unwrap();
    assert_eq!(target("fast").as_os_str().as_bytes(), fast.as_bytes());
    assert_eq!(target("slow").as_os_str().as_bytes(), slow.as_bytes());
    let device = mounted.path("device").symlink_metadata().unwrap();
    assert_eq!(device.rdev(), rustix::fs::makedev(0x345, 0x1267));
    for (name, len) in ATTRIBUTES {
        assert_eq!(kernel_xattr(&mounted.path("file"), name), Some(vec![9; len]), "{name}");
    }
    mounted.unmount();
}

#[test]
fn we_go_on_with_a_directory_that_linux_indexed() {
    let image = Image::new(64, &[]);
    let Some(mounted) = mount(&image) else { return };
    let name = |n: usize| format!("{n}-{}", "é".repeat(n % 60));
    std::fs::create_dir(mounted.path("dir")).unwrap();
    std::fs::write(mounted.path("file"), b"").unwrap();
    for n in 0..4000 {
        std::fs::hard_link(mounted.path("file"), mounted.path("dir").join(name(n))).unwrap();
    }
    mounted.unmount();
    let image = image.loaded();
    let volume = image.open();
    let dir = lookup(&volume, ROOT, b"dir").unwrap().ino;
    let file = lookup(&volume, ROOT, b"file").unwrap().ino;
    let listed =
        || -> BTreeSet<Vec<u8>> { list(&volume, dir).into_iter().map(|entry| entry.0).collect() };
    assert_eq!(listed(), (0..4000).map(|n| name(n).into_bytes()).collect());
    for n in 0..4000 {
        if n % 3 == 0 {
            volume.unlink(dir, name(n).as_bytes()).unwrap();
        }
        volume.link(file, dir, name(n + 4000).as_bytes()).unwrap();
        volume.forget(file, 1);
    }
    let expected = (0..8000).filter(|n| *n >= 4000 || n % 3 != 0).map(|n| name(n).into_bytes());
    assert_eq!(listed(), expected.collect());
    volume.close().unwrap();
    image.check("a directory of Linux's");
}

/// A random valid list in Linux's form.
fn random_acl(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut entries = vec![(1, u32::MAX)];
    entries.extend((0..random.u32(..3)).map(|n| (2, 1000 + n)));
    entries.push((4, u32::MAX));
    entries.extend((0..random.u32(..3)).map(|n| (8, 50 + n)));
    if entries.len() > 2 || random.bool() {
        entries.push((0x10, u32::MAX));
    }
    entries.push((0x20, u32::MAX));
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, id) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(random.u16(..8).to_le_bytes());
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

/// A directory with lists, and what is then made in it with this mode; the file gets a chmod.
struct Case {
    name: String,
    acl: Vec<u8>,
    mode: u16,
    chmod: u16,
}

/// Inode, mode, access list, default list.
type State = (InodeNo, u32, Option<Vec<u8>>, Option<Vec<u8>>);

impl Case {
    /// Linux plays it: the states of the directory, the file and the directory in it.
    fn by_linux(&self, mounted: &Mounted) -> [State; 3] {
        let (dir, mode) = (mounted.path(&self.name), u32::from(self.mode));
        std::fs::create_dir(&dir).unwrap();
        setxattr(&dir, DEFAULT, &self.acl, KernelFlags::empty()).unwrap();
        setxattr(&dir, ACCESS, &self.acl, KernelFlags::empty()).unwrap();
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(mode).open(dir.join("file")).unwrap();
        std::fs::DirBuilder::new().mode(mode).create(dir.join("dir")).unwrap();
        let chmod = std::fs::Permissions::from_mode(u32::from(self.chmod));
        std::fs::set_permissions(dir.join("file"), chmod).unwrap();
        [dir.clone(), dir.join("file"), dir.join("dir")].map(|path| {
            let mode = path.metadata().unwrap().mode();
            (ino(&path), mode, kernel_xattr(&path, ACCESS), kernel_xattr(&path, DEFAULT))
        })
    }

    /// We play it.
    fn by_us(&self, volume: &RootVolume) -> [State; 3] {
        let name = format!("our-{}", self.name).into_bytes();
        let dir = make(volume, ROOT, &name, NewNode::Directory).unwrap().ino;
        for name in [DEFAULT, ACCESS] {
            volume.set_xattr(dir, name.as_bytes(), &self.acl, XattrFlags::Any).unwrap();
        }
        let born = |name: &[u8], node| {
            let attr = volume.make(dir, name, node, self.mode, 0o022, Owner::default()).unwrap();
            volume.forget(attr.ino, 1);
            attr.ino
        };
        let (file, sub) = (born(b"file", NewNode::Regular), born(b"dir", NewNode::Directory));
        let chmod = SetAttr { mode: Some(self.chmod), ..SetAttr::default() };
        volume.set_attr(file, &chmod).unwrap();
        [dir, file, sub].map(|ino| state(volume, ino))
    }
}

fn state(volume: &RootVolume, ino: InodeNo) -> State {
    let mode = u32::from(volume.get_attr(ino).unwrap().mode);
    (ino, mode, our_xattr(volume, ino, ACCESS), our_xattr(volume, ino, DEFAULT))
}

#[test]
fn access_lists_as_linux_has_them() {
    let image = Image::new(32, &[]);
    let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
    let cases: Vec<Case> = (0..tier::count(40))
        .map(|n| Case {
            name: format!("d{n}"),
            acl: random_acl(&mut random),
            mode: random.u16(..0o1000),
            chmod: random.u16(..0o1000),
        })
        .collect();
    let Some(mounted) = mount(&image) else { return };
    let expected: Vec<_> = cases.iter().map(|case| case.by_linux(&mounted)).collect();
    mounted.unmount();
    let image = image.loaded();
    let volume = image.open();
    for (case, theirs) in cases.iter().zip(&expected) {
        for theirs in theirs {
            assert_eq!(state(&volume, theirs.0), *theirs, "{} as Linux left it", case.name);
        }
        let without_ino = |state: &State| (state.1, state.2.clone(), state.3.clone());
        let ours = case.by_us(&volume).each_ref().map(without_ino);
        assert_eq!(ours, theirs.each_ref().map(without_ino), "{}", case.name);
    }
    volume.close().unwrap();
    image.check("access lists");
}

#[test]
fn an_attribute_block_that_linux_shares_is_copied() {
    let image = Image::new(32, &[]);
    let Some(mounted) = mount(&image) else { return };
    let paths: Vec<PathBuf> = (0..3).map(|n| mounted.path(&format!("f{n}"))).collect();
    for path in &paths {
        std::fs::write(path, b"").unwrap();
        setxattr(path, "user.shared", &[5; 1000], KernelFlags::empty()).unwrap();
    }
    let inos: Vec<InodeNo> = paths.iter().map(|path| ino(path)).collect();
    mounted.unmount();
    let image = image.loaded();
    let acl_of = |name: &str| {
        let stat = image.debugfs(&format!("stat {name}"));
        stat.lines().find(|line| line.starts_with("File ACL")).unwrap().to_owned()
    };
    assert_eq!(acl_of("f0"), acl_of("f1"), "Linux shares the block");
    let volume = image.open();
    volume.set_xattr(inos[0], b"user.own", &[6; 500], XattrFlags::Any).unwrap();
    volume.unlink(ROOT, b"f2").unwrap();
    assert_eq!(our_xattr(&volume, inos[0], "user.shared"), Some(vec![5; 1000]));
    assert_eq!(our_xattr(&volume, inos[1], "user.own"), None);
    assert_eq!(our_xattr(&volume, inos[1], "user.shared"), Some(vec![5; 1000]));
    volume.close().unwrap();
    image.check("a shared block");
}
