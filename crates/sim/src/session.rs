//! An open volume, on which a workload's operations are performed through the real file system.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use device::BlockDevice;
use ext4::{
    Allocate, CheckpointPolicy, Claim, Claimant, DataMode, DeltaCodec, Error, FileKind, InodeNo,
    NewNode, OpenOptions, Owner, Pin, RenameHow, Result, RootVolume, SetAttr, Timestamp,
};
use journal::Medium;

use crate::content::pattern;
use crate::op::{Op, RenameKind, Reserve, Target, symlink_target};

/// The options with which the volume of a run is opened.
#[derive(Clone)]
pub struct Setup {
    /// Route of file data.
    pub data_mode: DataMode,
    /// Seed of generations and of the journal's incarnations.
    pub seed: u64,
    /// How deltas are encoded.
    pub codec: DeltaCodec,
    /// When a filled region is brought home.
    pub checkpoint: CheckpointPolicy,
    /// The external journal, if there is one.
    pub journal: Option<Medium>,
}

impl Setup {
    /// A volume with its journal inside.
    pub fn new(data_mode: DataMode, seed: u64) -> Setup {
        let (codec, checkpoint) = (DeltaCodec::Copies, CheckpointPolicy::Late);
        Setup { data_mode, seed, codec, checkpoint, journal: None }
    }

    /// The same with another journal medium.
    pub fn with_journal(&self, journal: Option<Medium>) -> Setup {
        Setup { journal, ..self.clone() }
    }

    /// Number of regions of the journal, 2 to 4, chosen by the seed.
    pub fn region_count(&self) -> usize {
        [4, 2, 3][usize::try_from(self.seed % 3).expect("below 3")]
    }

    /// Options for the `incarnation`th opening: no threads, no timer, a clock that counts its
    /// calls.
    pub fn options(&self, incarnation: u64) -> OpenOptions {
        let ticks = AtomicI64::new(0);
        let base = 1_700_000_000 + i64::try_from(incarnation).unwrap_or(0) * 1_000_000;
        let clock = move || Timestamp {
            seconds: base + ticks.fetch_add(1, Ordering::Relaxed),
            nanoseconds: 7,
        };
        OpenOptions {
            data_mode: self.data_mode,
            delta_codec: Some(self.codec),
            checkpoint: self.checkpoint,
            journal: self.journal.clone().into(),
            claimant: Some(claimant(incarnation)),
            region_count: self.region_count(),
            commit_interval: None,
            background: false,
            clock: Arc::new(clock),
            random_seed: self.seed.wrapping_mul(1000).wrapping_add(incarnation),
            ..OpenOptions::default()
        }
    }
}

/// The claimant of this incarnation: one machine, which boots again for each incarnation. So after
/// a crash, the next opening finds a claim of an earlier boot.
fn claimant(incarnation: u64) -> Claimant {
    let claim = Claim {
        machine_id: [1; 16],
        boot_id: u128::from(incarnation + 1).to_be_bytes(),
        process: 1,
        heartbeat_s: 0,
        living: incarnation,
        claimed_s: incarnation,
        sequence: 0,
        host_name: "simulated".into(),
    };
    let (lives, wait) = (Arc::new(|_| false), Arc::new(|_| {}));
    Claimant { claim, lives, wait, take_over: false }
}

/// The effect of an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Bytes of an [`Op::Write`] or [`Op::Fallocate`] that were done.
    pub written_bytes: Option<usize>,
}

/// An open volume, with the open files of a workload.
pub struct Session {
    device: Arc<dyn BlockDevice>,
    setup: Setup,
    volume: Option<RootVolume>,
    slots: BTreeMap<u32, InodeNo>,
    incarnation: u64,
}

impl Session {
    /// Opens the volume.
    pub fn open(device: Arc<dyn BlockDevice>, setup: Setup) -> Result<Session> {
        let volume = Some(RootVolume::open(device.clone(), setup.options(0))?);
        Ok(Session { device, setup, volume, slots: BTreeMap::new(), incarnation: 0 })
    }

    /// The volume. Panics if a remount has failed.
    pub fn volume(&self) -> &RootVolume {
        self.volume.as_ref().expect("the volume is open")
    }

    /// Closes all open files and the volume.
    pub fn close(mut self) -> Result<()> {
        self.give_up_slots();
        self.volume.take().expect("the volume is open").close()
    }

    /// Performs one operation.
    pub fn apply(&mut self, op: &Op) -> Result<Done> {
        match op {
            Op::Write { target, offset, len_bytes, tag } => {
                return self.write(target, *offset, &pattern(*tag, *offset, *len_bytes));
            }
            Op::WriteAtomic { target, pieces, tag } => self.write_atomic(target, pieces, *tag)?,
            Op::Fallocate { target, how, offset, len_bytes } => {
                return self.fallocate(target, *how, *offset, *len_bytes);
            }
            Op::Remount => self.remount()?,
            Op::Restart => self.restart()?,
            Op::Sync => self.volume().sync()?,
            Op::Checkpoint => self.volume().journal().checkpoint()?,
            Op::Open { path, slot } => {
                let ino = self.find(path)?;
                let old = self.slots.insert(*slot, ino);
                old.into_iter().for_each(|old| self.volume().forget(old, 1));
            }
            Op::Close { slot } => {
                let old = self.slots.remove(slot);
                old.into_iter().for_each(|old| self.volume().forget(old, 1));
            }
            Op::Fsync { target, data_only } => {
                self.on(target, |volume, ino| volume.fsync(ino, *data_only))?;
            }
            Op::Truncate { .. } | Op::SetAttr { .. } => self.set_attr(op)?,
            Op::SetXattr { target, name, len_bytes, tag, flags } => {
                let value = pattern(*tag, 0, *len_bytes);
                self.on(target, |v, ino| v.set_xattr(ino, name.as_bytes(), &value, *flags))?;
            }
            Op::SetMode { target, mode } => {
                self.on(target, |volume, ino| volume.set_data_mode(ino, Some(*mode)))?;
            }
            Op::RemoveXattr { target, name } => {
                self.on(target, |volume, ino| volume.remove_xattr(ino, name.as_bytes()))?;
            }
            _ => self.apply_to_names(op)?,
        }
        Ok(Done::default())
    }

    fn apply_to_names(&self, op: &Op) -> Result<()> {
        let volume = self.volume();
        match op {
            Op::Create { path, mode } => self.make(path, NewNode::Regular, *mode),
            Op::MakeDir { path, mode } => self.make(path, NewNode::Directory, *mode),
            Op::Symlink { path, target_bytes } => {
                self.make(path, NewNode::Symlink(&symlink_target(*target_bytes)), 0o777)
            }
            Op::Special { path, kind, rdev } => {
                self.make(path, NewNode::Special(*kind, *rdev), 0o644)
            }
            Op::Link { from, to } => self.on(&Target::Path(from.clone()), |volume, ino| {
                self.in_parent(to, |parent, name| {
                    volume.link(ino, parent, name)?;
                    volume.forget(ino, 1);
                    Ok(())
                })
            }),
            Op::Unlink { path } => self.in_parent(path, |dir, name| volume.unlink(dir, name)),
            Op::RemoveDir { path } => self.in_parent(path, |dir, name| volume.rmdir(dir, name)),
            Op::Rename { from, to, kind } => {
                let how = match kind {
                    RenameKind::Replace => RenameHow::Replace,
                    RenameKind::NoReplace => RenameHow::NoReplace,
                    RenameKind::Exchange => RenameHow::Exchange,
                };
                self.in_parent(from, |from_dir, from_name| {
                    self.in_parent(to, |to_dir, to_name| {
                        volume.rename(from_dir, from_name, to_dir, to_name, how)
                    })
                })
            }
            other => unreachable!("{other} is not about names"),
        }
    }

    fn remount(&mut self) -> Result<()> {
        self.give_up_slots();
        self.volume.take().expect("the volume is open").close()?;
        self.open_again(Vec::new())
    }

    fn restart(&mut self) -> Result<()> {
        let pins = self.volume.take().expect("the volume is open").hand_over()?;
        self.open_again(pins)
    }

    fn open_again(&mut self, pins: Vec<Pin>) -> Result<()> {
        self.incarnation += 1;
        let options = self.setup.options(self.incarnation);
        let options = OpenOptions { pins: pins.into(), ..options };
        self.volume = Some(RootVolume::open(self.device.clone(), options)?);
        Ok(())
    }

    fn give_up_slots(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        slots.into_values().for_each(|ino| self.volume().forget(ino, 1));
    }

    fn make(&self, path: &str, node: NewNode<'_>, mode: u16) -> Result<()> {
        let umask = if matches!(node, NewNode::Symlink(_)) { 0 } else { 0o022 };
        self.in_parent(path, |parent, name| {
            let volume = self.volume();
            let attr = volume.make(parent, name, node, mode, umask, Owner::default())?;
            volume.forget(attr.ino, 1);
            Ok(())
        })
    }

    fn write(&self, target: &Target, offset: u64, data: &[u8]) -> Result<Done> {
        let count = self.on(target, |volume, ino| volume.write(ino, offset, data))?;
        Ok(Done { written_bytes: Some(count) })
    }

    fn write_atomic(&self, target: &Target, pieces: &[(u64, usize)], tag: u32) -> Result<()> {
        let data: Vec<_> =
            pieces.iter().map(|(offset, len)| (*offset, pattern(tag, *offset, *len))).collect();
        let pieces: Vec<_> = data.iter().map(|(offset, bytes)| (*offset, &bytes[..])).collect();
        self.on(target, |volume, ino| volume.write_atomic(ino, &pieces))
    }

    /// If a reservation fails for lack of space, the file may have become longer. Returns how much
    /// was done.
    fn fallocate(&self, target: &Target, how: Reserve, offset: u64, len: u64) -> Result<Done> {
        let (kind, grows) = match how {
            Reserve::Extend => (Allocate::Extend, true),
            Reserve::KeepSize => (Allocate::KeepSize, false),
            Reserve::Punch => (Allocate::PunchHole, false),
            Reserve::Zero { keep_size } => (Allocate::ZeroRange { keep_size }, !keep_size),
        };
        self.on(target, |volume, ino| {
            let before = volume.get_attr(ino)?.size_bytes;
            match volume.fallocate(ino, kind, offset, len) {
                Err(Error::NoSpace) if grows => {
                    let after = volume.get_attr(ino)?.size_bytes;
                    if after == before {
                        return Err(Error::NoSpace);
                    }
                    let done = usize::try_from(after.saturating_sub(offset)).unwrap_or(usize::MAX);
                    Ok(Done { written_bytes: Some(done) })
                }
                result => result.map(|()| Done::default()),
            }
        })
    }

    fn set_attr(&self, op: &Op) -> Result<()> {
        let (target, set) = match op {
            Op::Truncate { target, size_bytes } => {
                (target, SetAttr { size_bytes: Some(*size_bytes), ..SetAttr::default() })
            }
            Op::SetAttr { target, mode, uid, gid } => (target, Op::attributes(*mode, *uid, *gid)),
            other => unreachable!("{other} sets no attributes"),
        };
        self.on(target, |volume, ino| volume.set_attr(ino, &set).map(drop))
    }

    /// Runs `work` on the inode of a target, which is pinned meanwhile.
    fn on<T>(
        &self,
        target: &Target,
        work: impl FnOnce(&RootVolume, InodeNo) -> Result<T>,
    ) -> Result<T> {
        match target {
            Target::Open(slot) => {
                let ino = *self.slots.get(slot).ok_or(Error::NotFound)?;
                work(self.volume(), ino)
            }
            Target::Path(path) => {
                let ino = self.find(path)?;
                let result = work(self.volume(), ino);
                self.volume().forget(ino, 1);
                result
            }
        }
    }

    /// Looks a path up; the inode is pinned once.
    fn find(&self, path: &str) -> Result<InodeNo> {
        let volume = self.volume();
        let mut at = InodeNo::ROOT;
        volume.pin(at);
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let child = volume.lookup(at, name.as_bytes());
            volume.forget(at, 1);
            at = child?.ino;
        }
        Ok(at)
    }

    /// Runs `work` on the directory and name of a path.
    fn in_parent(&self, path: &str, work: impl FnOnce(InodeNo, &[u8]) -> Result<()>) -> Result<()> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.find(parent)?;
        if self.volume().get_attr(parent)?.kind != FileKind::Directory {
            self.volume().forget(parent, 1);
            return Err(Error::NotDirectory);
        }
        let result = work(parent, name.as_bytes());
        self.volume().forget(parent, 1);
        result
    }
}
