//! Writes of several ranges of a file as one atomic change (`volume_client::write_ranges`).
//!
//! The data come past the kernel's cache. So the kernel is told to drop its pages of the ranges
//! before the request is answered. Until then a program may read old and new pages; after it, all
//! read the change.

use ext4::{Error, FileKind, InodeNo};
use host::Account;
use rustix::io::Errno;
use volume_client::{RANGES_BYTES_MAX, RangePart};

use crate::adapter::call::Call;
use crate::adapter::failure::{Failure, Outcome};
use crate::adapter::range_parts::{ChangeKey, Staged};
use crate::convert::node_of;
use crate::session_options::Order;
use crate::stat::AdapterCounters;

/// `FS_IMMUTABLE_FL | FS_APPEND_FL`.
const FIXED_FLAGS: u32 = 0x10 | 0x20;
const PAGE: u64 = fuse::PAGE_BYTES as u64;

impl Call<'_, '_> {
    /// Bytes of one change; `None`: the mount takes none.
    pub(super) fn ranges_bytes_max(&self) -> Option<usize> {
        let bytes = RANGES_BYTES_MAX.min(self.volume.atomic_block_limit() * fuse::PAGE_BYTES);
        // With `Order::Sync` the kernel may hold newer bytes of the file, which it would write over
        // these.
        (self.adapter.order() == Order::History && bytes > 0).then_some(bytes)
    }

    /// Takes a part of a change. The last one makes it. Any error but `EIO` says that nothing was
    /// changed.
    pub(super) fn write_ranges(&mut self, ino: InodeNo, value: &[u8]) -> Outcome {
        let part = RangePart::parse(value).ok_or(Errno::INVAL)?;
        if self.ranges_bytes_max().is_none() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let uid = self.header.uid;
        let key = ChangeKey { uid, account: Account::of(uid), ino, id: part.id };
        let staged = &self.adapter.range_parts;
        if !part.is_last {
            return Ok(staged.add(key, &part)?);
        }
        let earlier = staged.find(key, &part)?;
        let earlier: &Staged = &earlier;
        let pieces: Vec<_> = earlier.pieces().chain(part.ranges.iter().copied()).collect();
        // All of it while this thread may wait: nothing may be changed before it is known that the
        // pages can be dropped.
        let done = self.wait_for_requests(|| self.change(ino, &pieces, part.is_durable))?;
        if !matches!(done, Err(Failure::Volume(Error::NoSpace))) {
            staged.forget(key);
        }
        done
    }

    fn change(&self, ino: InodeNo, pieces: &[(u64, &[u8])], is_durable: bool) -> Outcome {
        let attr = self.volume.get_attr(ino)?;
        if attr.kind != FileKind::Regular {
            return Err(Errno::INVAL.into());
        }
        if attr.flags & FIXED_FLAGS != 0 {
            return Err(Errno::PERM.into());
        }
        self.drop_privileges(ino, false)?;
        self.drop_ids_unless_capable(ino)?;
        {
            let _no_atomic = self.without_atomic_write(ino)?;
            self.volume.write_atomic(ino, pieces)?;
        }
        let counters = &self.adapter.counters;
        let bytes: usize = pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        AdapterCounters::add(&counters.app_writes, 1);
        AdapterCounters::add(&counters.app_bytes, bytes as u64);
        AdapterCounters::add(&counters.atomic_commits, 1);
        let synced = if is_durable { self.volume.fsync(ino, true) } else { Ok(()) };
        if let Some(notifier) = &self.adapter.notifier {
            let drop_pages =
                || pages_of(pieces).iter().for_each(|r| notifier.drop_pages_here(node_of(ino), *r));
            // If no thread can stand in, there are others.
            if self.reply.block_in_place(drop_pages).is_err() {
                drop_pages();
            }
        }
        // Also where the volume says something else: the change was made.
        synced.map_err(|error| {
            tracing::error!(%ino, %error, "making a change of several ranges durable");
            counters.note_error(&error);
            Errno::IO.into()
        })
    }
}

/// The pages that the pieces touch, adjacent ones together: offset and length.
fn pages_of(pieces: &[(u64, &[u8])]) -> Vec<(u64, u64)> {
    let mut pages: Vec<(u64, u64)> = Vec::new();
    for (offset, bytes) in pieces {
        let first = offset / PAGE * PAGE;
        let end = (offset + bytes.len() as u64).next_multiple_of(PAGE);
        match pages.last_mut() {
            Some((begin, len_bytes)) if first <= *begin + *len_bytes => *len_bytes = end - *begin,
            _ => pages.push((first, end - first)),
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ext4::{DataMode, Owner, SetAttr, Volume};
    use fuse::abi::{SetxattrIn, init};
    use fuse::{Answer, Notifier};
    use volume_client::RANGES_XATTR;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::adapter::Adapter;
    use crate::adapter::harness::{self, make, serve_for};

    const SETXATTR: u32 = 21;
    const LAST: u32 = 1;
    const DURABLE: u32 = 2;

    fn value(id: u8, number: u32, flags: u32, ranges: &[(u64, &[u8])]) -> Vec<u8> {
        let mut value = [&1_u32.to_le_bytes()[..], &flags.to_le_bytes(), &[id; 16]].concat();
        value.extend_from_slice(&number.to_le_bytes());
        value.extend_from_slice(&(ranges.len() as u32).to_le_bytes());
        for (offset, bytes) in ranges {
            value.extend_from_slice(&offset.to_le_bytes());
            value.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            value.extend_from_slice(bytes);
        }
        value
    }

    fn set(adapter: &Adapter, ino: InodeNo, value: &[u8]) -> Answer {
        set_as(0, adapter, ino, value)
    }

    fn set_as(uid: u32, adapter: &Adapter, ino: InodeNo, value: &[u8]) -> Answer {
        let set = SetxattrIn { size: value.len() as u32, ..SetxattrIn::default() };
        let body = [set.as_bytes(), RANGES_XATTR.as_bytes(), b"\0", value].concat();
        serve_for(uid, adapter, SETXATTR, ino, &body)
    }

    fn with_volume<T>(adapter: &Adapter, f: impl FnOnce(&Volume) -> T) -> T {
        f(adapter.volume.read().as_ref().unwrap())
    }

    fn content(adapter: &Adapter, ino: InodeNo) -> Vec<u8> {
        with_volume(adapter, |volume| {
            let mut bytes = vec![0; volume.get_attr(ino).unwrap().size_bytes as usize];
            assert_eq!(volume.read(ino, 0, &mut bytes).unwrap(), bytes.len());
            bytes
        })
    }

    /// An adapter, a file of 10,000 ones on it, and the ranges that the kernel was told to drop.
    type Dropped = Arc<Mutex<Vec<[u64; 2]>>>;
    fn rig() -> (Adapter, InodeNo, Dropped) {
        let mut adapter = harness::adapter(DataMode::Auto);
        let dropped = Dropped::default();
        let log = dropped.clone();
        let kernel = move |bytes: &[u8]| {
            let number = |at| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
            log.lock().unwrap().push([number(24), number(32)]);
        };
        adapter.notifier = Some(Arc::new(Notifier::start(kernel).unwrap()));
        let ino = with_volume(&adapter, |volume| {
            let ino = make(volume, b"file", Owner::default());
            volume.as_root().write(ino, 0, &[1; 10_000]).unwrap();
            ino
        });
        (adapter, ino, dropped)
    }

    #[test]
    fn all_ranges_are_one_handle_and_the_kernel_drops_their_pages() {
        let (adapter, ino, dropped) = rig();
        let stats = || with_volume(&adapter, |volume| volume.journal().stats());
        let before = stats();
        // Two ranges of one block, one that crosses into the next, and one beyond the end.
        let ranges: [(u64, &[u8]); 4] =
            [(10, b"ab"), (20, b"cd"), (4094, b"efgh"), (20_000, &[7; 5000])];
        assert_eq!(set(&adapter, ino, &value(1, 0, LAST | DURABLE, &ranges)), Answer::Done);
        let after = stats();
        assert_eq!((after.handles - before.handles, after.commits - before.commits), (1, 1));
        let mut wanted = vec![1; 10_000];
        wanted.resize(25_000, 0);
        for (offset, bytes) in ranges {
            wanted[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        }
        assert!(content(&adapter, ino) == wanted);
        assert_eq!(*dropped.lock().unwrap(), [[0, 8192], [16_384, 12_288]]);
        adapter.close().unwrap();
    }

    #[test]
    fn without_the_flag_nothing_is_synced() {
        let (adapter, ino, _) = rig();
        let commits = || with_volume(&adapter, |volume| volume.journal().stats().commits);
        let before = commits();
        assert_eq!(set(&adapter, ino, &value(1, 0, LAST, &[(0, b"x")])), Answer::Done);
        assert_eq!(commits(), before);
        adapter.close().unwrap();
    }

    #[test]
    fn parts_change_nothing_before_the_last() {
        let (adapter, ino, dropped) = rig();
        assert_eq!(set(&adapter, ino, &value(1, 0, 0, &[(0, b"a")])), Answer::Done);
        assert_eq!(set(&adapter, ino, &value(1, 1, 0, &[(2, b"b")])), Answer::Done);
        assert!(content(&adapter, ino) == vec![1; 10_000] && dropped.lock().unwrap().is_empty());
        assert_eq!(set(&adapter, ino, &value(1, 2, LAST, &[(4, b"c")])), Answer::Done);
        assert_eq!(content(&adapter, ino)[..6], *b"a\x01b\x01c\x01");
        // It is not kept: the last part alone is another change, which lacks its first parts.
        let stale = Answer::Failed(Errno::STALE);
        assert_eq!(set(&adapter, ino, &value(1, 2, LAST, &[(4, b"d")])), stale);
        adapter.close().unwrap();
    }

    #[test]
    fn a_change_that_lacks_a_part_is_refused() {
        let (adapter, ino, _) = rig();
        let other = with_volume(&adapter, |volume| make(volume, b"other", Owner::default()));
        let stale = Answer::Failed(Errno::STALE);
        assert_eq!(set(&adapter, ino, &value(1, 0, 0, &[(0, b"a")])), Answer::Done);
        assert_eq!(set(&adapter, ino, &value(1, 2, 0, &[(0, b"c")])), stale);
        assert_eq!(set(&adapter, ino, &value(1, 2, LAST, &[(2, b"c")])), stale);
        assert_eq!(set(&adapter, ino, &value(2, 1, LAST, &[(2, b"c")])), stale);
        assert_eq!(set(&adapter, other, &value(1, 1, LAST, &[(2, b"c")])), stale);
        assert!(content(&adapter, ino) == vec![1; 10_000]);
        // Programs that never send a last part do not fill the memory: the oldest changes go.
        for id in 10..210 {
            let part = value(id, 0, 0, &[(0, &[id; 60_000])]);
            assert_eq!(set(&adapter, ino, &part), Answer::Done);
        }
        assert_eq!(set(&adapter, ino, &value(10, 1, LAST, &[(70_000, b"c")])), stale);
        assert_eq!(set(&adapter, ino, &value(209, 1, LAST, &[(70_000, b"c")])), Answer::Done);
        adapter.close().unwrap();
    }

    #[test]
    fn regression_unfinished_changes_of_one_user_drop_none_of_another() {
        let (adapter, ino, _) = rig();
        let (writer, spammer) = (1000, 1001);
        let first = value(1, 0, 0, &[(0, b"a")]);
        assert_eq!(set_as(writer, &adapter, ino, &first), Answer::Done);
        // Large ones, and as many small ones: more than fit.
        for id in 2..=255 {
            let data = vec![id; if id % 2 == 0 { 60_000 } else { 1 }];
            let part = value(id, 0, 0, &[(0, &data)]);
            assert_eq!(set_as(spammer, &adapter, ino, &part), Answer::Done, "{id}");
        }
        let stale = Answer::Failed(Errno::STALE);
        let next = value(2, 1, LAST, &[(70_000, b"b")]);
        assert_eq!(set_as(spammer, &adapter, ino, &next), stale, "the oldest went");
        // Another user cannot end the change either.
        let last = value(1, 1, LAST, &[(2, b"b")]);
        assert_eq!(set_as(spammer, &adapter, ino, &last), stale);
        assert_eq!(set_as(writer, &adapter, ino, &last), Answer::Done);
        assert_eq!(content(&adapter, ino)[..3], *b"a\x01b");
        adapter.close().unwrap();
    }

    /// A range takes memory beside its data.
    #[test]
    fn regression_a_change_of_too_many_ranges_is_refused() {
        let (adapter, ino, _) = rig();
        let mut answers = Vec::new();
        for number in 0..20 {
            let offset = |at: u64| 2 * (u64::from(number) * 4000 + at);
            let ranges: Vec<(u64, &[u8])> = (0..4000).map(|at| (offset(at), &b"x"[..])).collect();
            answers.push(set(&adapter, ino, &value(1, number, 0, &ranges)));
        }
        assert_eq!(answers[7], Answer::Done);
        assert_eq!(answers[8], Answer::Failed(Errno::FBIG));
        adapter.close().unwrap();
    }

    #[test]
    fn a_change_that_is_too_large_is_refused() {
        let (adapter, ino, _) = rig();
        let mut answers = Vec::new();
        for number in 0..40 {
            answers.push(set(&adapter, ino, &value(1, number, 0, &[(0, &[1; 65_000])])));
        }
        assert_eq!(answers[0], Answer::Done);
        assert!(answers.contains(&Answer::Failed(Errno::FBIG)), "{answers:?}");
        adapter.close().unwrap();
    }

    #[test]
    fn an_invalid_or_forbidden_change_is_refused() {
        let (mut adapter, ino, _) = rig();
        let change = value(1, 0, LAST, &[(0, b"x")]);
        let answer = |adapter: &Adapter, ino, value: &[u8]| set(adapter, ino, value);
        let failed = Answer::Failed;
        assert_eq!(answer(&adapter, InodeNo(1), &change), failed(Errno::INVAL));
        assert_eq!(answer(&adapter, ino, &change[1..]), failed(Errno::INVAL));
        let backwards = value(1, 0, LAST, &[(5, b"x"), (0, b"x")]);
        assert_eq!(answer(&adapter, ino, &backwards), failed(Errno::INVAL));
        with_volume(&adapter, |volume| {
            let flags = volume.get_attr(ino).unwrap().flags;
            let fixed = SetAttr { flags: Some(flags | 0x20), ..SetAttr::default() };
            volume.as_root().set_attr(ino, &fixed).unwrap();
        });
        assert_eq!(answer(&adapter, ino, &change), failed(Errno::PERM));
        adapter.agreed_flags |= init::WRITEBACK_CACHE;
        assert_eq!(answer(&adapter, ino, &change), failed(Errno::OPNOTSUPP));
        assert!(content(&adapter, ino) == vec![1; 10_000]);
        adapter.close().unwrap();
        let ordered = harness::adapter(DataMode::Ordered);
        let file = with_volume(&ordered, |volume| make(volume, b"file", Owner::default()));
        assert_eq!(answer(&ordered, file, &change), failed(Errno::OPNOTSUPP));
        ordered.close().unwrap();
    }
}
