//! Random operations on names against a model in memory; then `e2fsck`, and the same tree again
//! from the opened volume.

use crate::support;

use std::collections::{BTreeMap, HashMap};

use onejournal_ext4::{Error, FileKind, InodeNo, NewNode, Owner, RenameHow, RootVolume};
use onejournal_testing::{test_name, tier};
use support::{Image, list, lookup, make};

#[derive(Debug)]
struct Node {
    kind: FileKind,
    links: u32,
    children: BTreeMap<Vec<u8>, InodeNo>,
    parent: InodeNo,
    target: Vec<u8>,
}

struct Model {
    nodes: HashMap<InodeNo, Node>,
}

/// The name of an error's variant.
fn word(error: &Error) -> String {
    format!("{error:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

type Outcome = Result<(), &'static str>;

impl Model {
    fn new(lost_and_found: InodeNo) -> Model {
        let dir = |parent, links| Node {
            kind: FileKind::Directory,
            links,
            children: BTreeMap::new(),
            parent,
            target: Vec::new(),
        };
        let mut nodes = HashMap::new();
        let mut root = dir(InodeNo::ROOT, 3);
        root.children.insert(b"lost+found".to_vec(), lost_and_found);
        nodes.insert(InodeNo::ROOT, root);
        nodes.insert(lost_and_found, dir(InodeNo::ROOT, 2));
        Model { nodes }
    }

    fn child(&self, dir: InodeNo, name: &[u8]) -> Option<InodeNo> {
        self.nodes[&dir].children.get(name).copied()
    }

    fn is_dir(&self, ino: InodeNo) -> bool {
        self.nodes[&ino].kind == FileKind::Directory
    }

    fn node(&mut self, ino: InodeNo) -> &mut Node {
        self.nodes.get_mut(&ino).expect("a node of the model")
    }

    fn attach(&mut self, dir: InodeNo, name: &[u8], ino: InodeNo) {
        self.node(dir).children.insert(name.to_vec(), ino);
        if self.is_dir(ino) {
            self.node(dir).links += 1;
            self.node(ino).parent = dir;
        }
    }

    fn detach(&mut self, dir: InodeNo, name: &[u8]) -> InodeNo {
        let ino = self.node(dir).children.remove(name).expect("a child");
        if self.is_dir(ino) {
            self.node(dir).links -= 1;
        }
        ino
    }

    fn drop_link(&mut self, ino: InodeNo) {
        let is_dir = self.is_dir(ino);
        let node = self.node(ino);
        node.links = if is_dir { 0 } else { node.links - 1 };
        if node.links == 0 {
            self.nodes.remove(&ino);
        }
    }

    fn make(
        &mut self,
        dir: InodeNo,
        name: &[u8],
        kind: FileKind,
        ino: Option<InodeNo>,
        target: &[u8],
    ) -> Outcome {
        if self.child(dir, name).is_some() {
            return Err("Exists");
        }
        let ino = ino.expect("the volume made it");
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        let node =
            Node { kind, links, children: BTreeMap::new(), parent: dir, target: target.to_vec() };
        assert!(self.nodes.insert(ino, node).is_none(), "{ino} is in use");
        self.attach(dir, name, ino);
        Ok(())
    }

    fn link(&mut self, ino: InodeNo, dir: InodeNo, name: &[u8]) -> Outcome {
        if self.is_dir(ino) {
            return Err("NotPermitted");
        }
        if self.child(dir, name).is_some() {
            return Err("Exists");
        }
        self.node(ino).links += 1;
        self.attach(dir, name, ino);
        Ok(())
    }

    fn remove(&mut self, dir: InodeNo, name: &[u8], directory: bool) -> Outcome {
        let ino = self.child(dir, name).ok_or("NotFound")?;
        match (self.is_dir(ino), directory) {
            (true, false) => return Err("IsDirectory"),
            (false, true) => return Err("NotDirectory"),
            (true, true) if !self.nodes[&ino].children.is_empty() => return Err("NotEmpty"),
            _ => {}
        }
        self.detach(dir, name);
        self.drop_link(ino);
        Ok(())
    }

    fn is_below(&self, mut dir: InodeNo, ancestor: InodeNo) -> bool {
        while dir != InodeNo::ROOT {
            if dir == ancestor {
                return true;
            }
            dir = self.nodes[&dir].parent;
        }
        false
    }

    fn rename(&mut self, from: (InodeNo, &[u8]), to: (InodeNo, &[u8]), how: RenameHow) -> Outcome {
        let moved = self.child(from.0, from.1).ok_or("NotFound")?;
        let target = self.child(to.0, to.1);
        if target.is_some() && matches!(how, RenameHow::NoReplace) {
            return Err("Exists");
        }
        if self.is_dir(moved) && from.0 != to.0 && self.is_below(to.0, moved) {
            return Err("InvalidArgument");
        }
        match (target, how) {
            (None, RenameHow::Exchange) => return Err("NotFound"),
            (Some(target), _) if target == moved => return Ok(()),
            (Some(target), RenameHow::Exchange) => {
                if self.is_dir(target) && from.0 != to.0 && self.is_below(from.0, target) {
                    return Err("InvalidArgument");
                }
                self.detach(from.0, from.1);
                self.detach(to.0, to.1);
                self.attach(from.0, from.1, target);
                self.attach(to.0, to.1, moved);
                return Ok(());
            }
            (Some(target), _) => {
                match (self.is_dir(moved), self.is_dir(target)) {
                    (true, false) => return Err("NotDirectory"),
                    (false, true) => return Err("IsDirectory"),
                    (true, true) if !self.nodes[&target].children.is_empty() => {
                        return Err("NotEmpty");
                    }
                    _ => {}
                }
                self.detach(to.0, to.1);
                self.drop_link(target);
            }
            (None, _) => {}
        }
        self.detach(from.0, from.1);
        self.attach(to.0, to.1, moved);
        Ok(())
    }

    fn compare(&self, volume: &RootVolume, scenario: &str) {
        for (ino, node) in &self.nodes {
            let attr = volume.get_attr(*ino).unwrap_or_else(|e| panic!("{scenario}: {ino}: {e}"));
            assert_eq!((attr.kind, attr.link_count), (node.kind, node.links), "{scenario}: {ino}");
            if node.kind == FileKind::Symlink {
                assert_eq!(volume.read_link(*ino).unwrap(), node.target, "{scenario}: {ino}");
            }
            if node.kind == FileKind::Directory {
                self.compare_dir(volume, *ino, node, scenario);
            }
        }
    }

    fn compare_dir(&self, volume: &RootVolume, ino: InodeNo, node: &Node, scenario: &str) {
        let mut found = list(volume, ino);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = node.children.iter();
        let expected: Vec<_> = expected
            .map(|(name, child)| (name.clone(), *child, Some(self.nodes[child].kind)))
            .collect();
        assert_eq!(found, expected, "{scenario}: {ino}");
        assert_eq!(lookup(volume, ino, b"..").unwrap().ino, node.parent, "{scenario}: {ino}");
    }
}

struct Run {
    random: fastrand::Rng,
    volume: RootVolume,
    model: Model,
    scenario: String,
    names: usize,
    long_names: bool,
}

impl Run {
    fn any_dir(&mut self) -> InodeNo {
        self.any(|node| node.kind == FileKind::Directory)
    }

    fn any(&mut self, which: impl Fn(&Node) -> bool) -> InodeNo {
        let nodes = self.model.nodes.iter().filter(|(_, node)| which(node));
        let mut all: Vec<InodeNo> = nodes.map(|(ino, _)| *ino).collect();
        all.sort_unstable();
        all[self.random.usize(..all.len())]
    }

    fn any_name(&mut self) -> Vec<u8> {
        let number = self.random.usize(..self.names);
        let pad = if self.long_names { number * 37 % 250 } else { number % 20 };
        format!("{number}{}", "é".repeat(pad / 2)).into_bytes()
    }

    fn existing(&mut self) -> (InodeNo, Vec<u8>) {
        let dir = self.any(|node| node.kind == FileKind::Directory && !node.children.is_empty());
        let names: Vec<_> = self.model.nodes[&dir].children.keys().cloned().collect();
        let name = names[self.random.usize(..names.len())].clone();
        if self.random.u8(..10) == 0 { (dir, self.any_name()) } else { (dir, name) }
    }

    fn agree(&self, what: &str, real: Result<(), Error>, expected: Outcome) {
        let real = real.map_err(|error| word(&error));
        assert_eq!(real, expected.map_err(str::to_owned), "{}: {what}", self.scenario);
    }

    fn step(&mut self) {
        match self.random.u8(..20) {
            0..=7 => self.make(),
            8 => self.link(),
            9 => self.make_unnamed(),
            10..=12 => self.remove(false),
            13..=14 => self.remove(true),
            15..=18 => self.rename(),
            _ => {
                let (dir, name) = self.existing();
                let found = lookup(&self.volume, dir, &name).ok().map(|attr| attr.ino);
                assert_eq!(found, self.model.child(dir, &name), "{}: lookup", self.scenario);
            }
        }
    }

    fn make(&mut self) {
        let (dir, name) = (self.any_dir(), self.any_name());
        let target = vec![b't'; self.random.usize(1..200)];
        let (node, kind) = match self.random.u8(..8) {
            0..=3 => (NewNode::Regular, FileKind::Regular),
            4..=5 => (NewNode::Directory, FileKind::Directory),
            6 => (NewNode::Symlink(&target), FileKind::Symlink),
            _ => (NewNode::Special(FileKind::CharDevice, 0x12_3456), FileKind::CharDevice),
        };
        let real = make(&self.volume, dir, &name, node);
        let ino = real.as_ref().ok().map(|attr| attr.ino);
        let expected = self.model.make(dir, &name, kind, ino, &target);
        self.agree("make", real.map(drop), expected);
    }

    /// A file without a name gets one, or goes.
    fn make_unnamed(&mut self) {
        let (dir, to, name) = (self.any_dir(), self.any_dir(), self.any_name());
        let made = self.volume.make_unnamed(dir, 0o644, 0, Owner::default()).unwrap();
        assert_eq!(made.link_count, 0);
        if self.random.bool() {
            let real = self.volume.link(made.ino, to, &name);
            let is_linked = real.is_ok();
            let expected = self.model.make(to, &name, FileKind::Regular, Some(made.ino), b"");
            self.agree("link of a file without a name", real.map(drop), expected);
            self.volume.forget(made.ino, u64::from(is_linked));
        }
        self.volume.forget(made.ino, 1);
    }

    fn link(&mut self) {
        let (ino, dir, name) = (self.any(|_| true), self.any_dir(), self.any_name());
        let real = self.volume.link(ino, dir, &name).map(|attr| self.volume.forget(attr.ino, 1));
        let expected = self.model.link(ino, dir, &name);
        self.agree("link", real, expected);
    }

    fn remove(&mut self, directory: bool) {
        let (dir, name) = self.existing();
        if name == b"lost+found" {
            return;
        }
        let real = match directory {
            true => self.volume.rmdir(dir, &name),
            false => self.volume.unlink(dir, &name),
        };
        let expected = self.model.remove(dir, &name, directory);
        self.agree("remove", real, expected);
    }

    fn rename(&mut self) {
        let (from, to_dir) = (self.existing(), self.any_dir());
        let to = if self.random.bool() { self.existing() } else { (to_dir, self.any_name()) };
        if from.1 == b"lost+found" || to.1 == b"lost+found" {
            return;
        }
        let how = match self.random.u8(..5) {
            0 => RenameHow::NoReplace,
            1 => RenameHow::Exchange,
            2 => RenameHow::Whiteout(Owner::default()),
            _ => RenameHow::Replace,
        };
        let real = self.volume.rename(from.0, &from.1, to.0, &to.1, how);
        let expected = self.model.rename((from.0, &from.1), (to.0, &to.1), how);
        let is_done = expected.is_ok();
        self.agree(&format!("rename {from:?} {to:?} {how:?}"), real, expected);
        // Where both names are of one inode, nothing happens.
        let is_free = self.model.child(from.0, &from.1).is_none();
        if matches!(how, RenameHow::Whiteout(_)) && is_done && is_free {
            let whiteout = lookup(&self.volume, from.0, &from.1).unwrap();
            assert_eq!((whiteout.mode, whiteout.rdev), (0o20000, 0), "{}", self.scenario);
            let ino = Some(whiteout.ino);
            self.model.make(from.0, &from.1, FileKind::CharDevice, ino, b"").unwrap();
        }
    }
}

fn start(seed: u64, image: &Image) -> Run {
    let volume = image.open();
    let lost_and_found = lookup(&volume, InodeNo::ROOT, b"lost+found").unwrap().ino;
    let mut random = fastrand::Rng::with_seed(seed);
    let names = if random.bool() { 30 } else { 600 };
    let long_names = random.bool();
    let model = Model::new(lost_and_found);
    Run { random, volume, model, scenario: String::new(), names, long_names }
}

fn play(seed: u64, steps: usize, options: &[&str]) {
    let image = Image::new(48, options);
    let mut run = start(seed, &image);
    for step in 0..steps {
        run.scenario = format!("seed {seed} step {step}");
        run.step();
    }
    run.finish(&image);
}

impl Run {
    fn finish(self, image: &Image) {
        self.model.compare(&self.volume, "before closing");
        self.volume.close().expect("a clean end");
        image.check(&self.scenario);
        let volume = image.open();
        self.model.compare(&volume, "opened again");
        volume.close().expect("a clean end");
        image.check(&self.scenario);
    }
}

#[test]
fn synced_names_survive_a_crash() {
    for seed in tier::seeds(test_name!(), 4) {
        let image = Image::new(48, &[]);
        let mut run = start(seed, &image);
        for step in 0..1500 {
            run.scenario = format!("seed {seed} step {step}");
            run.step();
            if step % 300 == 299 {
                run.volume.sync().expect("a commit");
                // Dropped, not closed: what is not in the journal or at home is lost.
                drop(run.volume);
                run.volume = image.open();
                run.model.compare(&run.volume, &run.scenario);
            }
        }
        run.finish(&image);
    }
}

#[test]
fn random_operations_match_the_model() {
    for seed in tier::seeds(test_name!(), 8) {
        play(seed, 1500, &[]);
    }
}

#[test]
fn without_checksums() {
    for seed in tier::seeds(test_name!(), 3) {
        play(seed, 1500, &["-O", "^metadata_csum"]);
    }
}

#[test]
fn without_an_index() {
    for seed in tier::seeds(test_name!(), 3) {
        play(seed, 1500, &["-O", "^dir_index,^orphan_file"]);
    }
}

#[test]
fn with_few_directories_that_grow() {
    // Deep trees keep directories small; here nearly everything is in the root.
    for seed in tier::seeds(test_name!(), 2) {
        play(seed, 6000, &["-N", "16384"]);
    }
}
