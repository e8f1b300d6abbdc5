//! Requests that no kernel sends: random operations with random bodies. Each must be answered,
//! none may panic, and the volume must still be whole.

use std::process::Command;
use std::sync::Arc;

use device::MemoryDevice;
use ext4::DataMode;
use fuse::abi::InHeader;
use fuse::{Answer, FileSystem, Reply, Request};
use onejournal_testing::{test_name, tier};
use zerocopy::IntoBytes;

use super::harness::{adapter_on, image};

/// A body that often makes sense: small numbers, short names, and noise.
fn random_body(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..random.usize(0..12) {
        let number = match random.u32(0..4) {
            0 => 0,
            1 => random.u64(0..16),
            2 => random.u64(0..1 << 20),
            _ => random.u64(..),
        };
        body.extend_from_slice(&number.to_ne_bytes());
    }
    for _ in 0..random.usize(0..3) {
        body.push(b'a' + random.u8(0..6));
        body.push(0);
    }
    let noise = random.usize(0..64);
    body.extend((0..noise).map(|_| random.u8(..)));
    body
}

fn random_request(random: &mut fastrand::Rng, unique: u64) -> Vec<u8> {
    let body = random_body(random);
    let header = InHeader {
        len: u32::try_from(40 + body.len()).unwrap(),
        opcode: match random.u32(0..56) {
            // DESTROY would end it.
            38 => 1,
            opcode => opcode,
        },
        unique,
        nodeid: if random.bool() { random.u64(0..24) } else { 1 },
        uid: random.u32(0..2),
        ..InHeader::default()
    };
    [header.as_bytes(), &body].concat()
}

#[test]
fn no_request_makes_it_panic_and_the_volume_stays_whole() {
    let image = image();
    let bytes = onejournal_testing::read_sparse(image.path()).unwrap();
    let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
    let adapter = adapter_on(device.clone(), DataMode::Journal);
    let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
    let mut room = vec![0; 1 << 20];
    let (request_count, mut done_count) = (tier::count(30_000), 0);
    for unique in 0..request_count as u64 {
        let bytes = random_request(&mut random, unique);
        let request = Request::parse(&bytes).unwrap();
        let mut reply = Reply::new(&mut room);
        let answer = adapter.serve(&request, &mut reply);
        done_count += usize::from(answer == Answer::Done);
        assert!(reply.header(unique, answer).is_some() || answer == Answer::Silent);
    }
    assert!(done_count > request_count / 100, "only {done_count} requests made sense");
    adapter.close().unwrap();
    onejournal_testing::save_device(image.path(), &*device).unwrap();
    let check = Command::new("e2fsck").args(["-fn"]).arg(image.path()).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
}
