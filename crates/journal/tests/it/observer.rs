//! What an observer hears: every byte that was written for an owner, once.

use crate::common;

use std::sync::{Arc, Mutex};

use common::{Rig, put, quiet};
use onejournal_journal::{
    BLOCK_BYTES, BlockOwner, Form, HomeBlock, Observer, Options, Written, WrittenAs,
};

#[derive(Debug, Default)]
struct Heard {
    written: Mutex<Vec<Written>>,
}

impl Observer for Heard {
    fn written(&self, written: &[Written]) {
        assert!(!written.is_empty());
        self.written.lock().unwrap().extend_from_slice(written);
    }
}

impl Heard {
    fn take(&self) -> Vec<(u64, WrittenAs, u64)> {
        let all = std::mem::take(&mut *self.written.lock().unwrap());
        all.into_iter().map(|one| (one.owner.0, one.how, one.len_bytes)).collect()
    }
}

#[test]
fn owners_hear_of_their_data_and_no_owner_of_metadata() {
    const TAG_BYTES: u64 = 12;
    const BLOCK: u64 = BLOCK_BYTES as u64;
    let heard = Arc::<Heard>::default();
    let rig = Rig::new();
    let journal = rig.open(Options { observer: Some(heard.clone()), ..quiet() });
    let data = || Arc::new([7; BLOCK_BYTES]);

    let mut handle = journal.begin(8).unwrap();
    handle.write(HomeBlock(1)).unwrap()[0] = 1;
    assert_eq!(handle.set_owner(BlockOwner(50)), BlockOwner::NOBODY);
    handle.put(HomeBlock(2), data(), Form::Block).unwrap();
    handle.put_ordered(HomeBlock(3), data()).unwrap();
    handle.write(HomeBlock(4)).unwrap()[0] = 1;
    handle.create(HomeBlock(5)).unwrap()[0] = 1;
    assert_eq!(handle.set_owner(BlockOwner(51)), BlockOwner(50));
    handle.put(HomeBlock(6), data(), Form::Block).unwrap();
    let tid = handle.stop();
    assert_eq!(heard.take(), [], "nothing is written yet");
    journal.sync(tid).unwrap();
    let (block, delta) = (WrittenAs::Logged { form: 1 }, WrittenAs::Logged { form: 4 });
    let whole = BLOCK + TAG_BYTES;
    assert_eq!(
        heard.take(),
        [(50, WrittenAs::InPlace, BLOCK), (50, block, whole), (51, block, whole)]
    );

    // The block changes hands; the form is the one that was written.
    let mut handle = journal.begin(1).unwrap();
    handle.set_owner(BlockOwner(51));
    let mut changed = handle.read(HomeBlock(2)).unwrap();
    Arc::make_mut(&mut changed)[9] = 8;
    handle.put(HomeBlock(2), changed, Form::Delta).unwrap();
    let tid = handle.stop();
    journal.sync(tid).unwrap();
    let heard_of = heard.take();
    let [(51, how, len_bytes)] = heard_of[..] else { panic!("{heard_of:?}") };
    assert!(how == delta && (TAG_BYTES + 1..64).contains(&len_bytes), "{heard_of:?}");

    journal.checkpoint().unwrap();
    assert_eq!(heard.take(), [(51, WrittenAs::Home, BLOCK), (51, WrittenAs::Home, BLOCK)]);
    put(&journal, 1, 3);
    journal.close().unwrap();
    assert_eq!(heard.take(), []);
}
