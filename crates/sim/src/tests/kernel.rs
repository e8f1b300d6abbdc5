//! The kernel's ext4 compared with OneJournal: the same operations on both, and each reads what the
//! other wrote. Without root and loop devices, the tests are skipped.

use std::sync::{Arc, Mutex};

use crate::format::{Shape, formatted};
use crate::fsck::Fsck;
use crate::kernel::Mounted;
use crate::model::Model;
use crate::op::Op;
use crate::recover::read_back;
use crate::session::{Session, Setup};
use crate::tree::{Interner, Tree};
use crate::workload::Workload;
use ext4::{DataMode, Error};
use onejournal_testing::{Image, SimDevice, Survival, can_mount_ext4, test_name, tier};

fn assert_same(a: &Tree, b: &Tree, names: [&str; 2], run: &str) {
    assert!(
        a == b,
        "{run}: {} and {} differ:\n{}",
        names[0],
        names[1],
        a.differences(b, names, 10)
    );
}

/// The image after the operations, and why OneJournal refused each of them, if it did.
fn ours(ops: &[Op], image: &Image, data_mode: DataMode) -> (Image, Vec<Option<Error>>) {
    let device = Arc::new(SimDevice::from_image(image.clone(), 512));
    let mut session =
        Session::open(device.clone(), Setup::new(data_mode, 5)).expect("the volume opens");
    let done = ops.iter().map(|op| match session.apply(op) {
        Ok(_) => None,
        Err(Error::Journal(error)) => panic!("{op}: {error}"),
        Err(error) => Some(error),
    });
    let done = done.collect();
    session.close().expect("the volume closes");
    (device.crash(Survival::Nothing), done)
}

fn compare(workload: Workload, seed: u64, op_count: usize, shape: Shape, data_mode: DataMode) {
    let run = format!("{workload}:{seed}:{op_count} {shape:?} {data_mode:?}");
    let ops = workload.ops(seed, op_count);
    let image = formatted(shape).expect("mke2fs").image.clone();
    let mut mounted = Mounted::mount(&image).expect("the kernel mounts a new volume");
    let mut model = Model::formatted();
    let (our_image, refused) = ours(&ops, &image, data_mode);
    for (op, error) in ops.iter().zip(refused) {
        let by_kernel = mounted.apply(op);
        let is_done = error.is_none();
        assert_eq!(by_kernel.is_ok(), is_done, "{run}: {op}: the kernel says {by_kernel:?}");
        // The model does not know what attributes take.
        if let Some(Error::NoSpace | Error::AttributeTooLarge) = error {
            continue;
        }
        let by_model = model.apply(op, None);
        assert_eq!(by_model.is_ok(), is_done, "{run}: {op}: the model says {by_model:?}");
    }
    let kernel_tree = mounted.tree().expect("the mount can be read");
    assert_same(&kernel_tree, &model.tree(), ["kernel", "model"], &run);

    // What the kernel wrote, read by us.
    let kernel_image = Image::from_bytes(&mounted.unmount().expect("unmount"));
    let setup = Setup::new(data_mode, 6);
    let interner = &mut Interner::default();
    let tree = read_back(&kernel_image, 512, &setup, interner).expect("our driver reads it");
    assert_same(&tree, &kernel_tree, ["our reading of the kernel's volume", "kernel"], &run);

    // What we wrote, read by the kernel.
    Fsck::new().expect("e2fsck").check(&our_image).expect("our volume is sound");
    let mounted = Mounted::mount(&our_image).expect("the kernel mounts our volume");
    let tree = mounted.tree().expect("the kernel reads our volume");
    assert_same(&tree, &kernel_tree, ["the kernel's reading of our volume", "kernel"], &run);
    mounted.unmount().expect("unmount");
}

/// Allows one test at a time: a command that a test starts has, for a moment, the files open that
/// another test has open on a mount, which that test is about to unmount.
static MOUNTING: Mutex<()> = Mutex::new(());

#[test]
fn both_make_the_same_of_random_operations() {
    if !can_mount_ext4() {
        return;
    }
    let _alone = MOUNTING.lock();
    // All pairs of a shape and a mode, because 4 and 7 have no common divisor.
    for seed in tier::seeds(test_name!(), Shape::ALL.len() * DataMode::ALL.len()) {
        let shape = Shape::ALL[seed as usize % Shape::ALL.len()];
        let data_mode = DataMode::ALL[seed as usize % DataMode::ALL.len()];
        compare(Workload::Random, seed, 400, shape, data_mode);
    }
}

#[test]
fn both_make_the_same_of_the_other_workloads() {
    if !can_mount_ext4() {
        return;
    }
    let _alone = MOUNTING.lock();
    let workloads = [
        Workload::Sqlite,
        Workload::Directory,
        Workload::Writers,
        Workload::Truncate,
        Workload::Orphans,
    ];
    for seed in tier::seeds(test_name!(), workloads.len()) {
        let workload = workloads[seed as usize % workloads.len()];
        compare(workload, seed, 300, Shape::Usual, DataMode::Journal);
    }
}
