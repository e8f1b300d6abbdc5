//! File data against a model in memory: random operations, large files, deep trees, full volumes.

use super::model::{BLOCK, MODES, Model, SMALL_GROUPS, check, read_all, set_size, step};
use crate::bench::Bench;
use crate::extent;
use crate::inode::read_inode;
use crate::{Allocate, DataMode, Error, OpenOptions, RootVolume};
use onejournal_testing::{test_name, tier};

fn random_operations(mode: DataMode, seed: u64) {
    let bench = Bench::new(mode, 64, 2);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut models = [Model::default(), Model::default()];
    let space = [200_000, 3_000_000][(seed % 2) as usize];
    let mut volume = bench.open();
    for round in 0..4 {
        let what = format!("{mode:?}, seed {seed}, round {round}");
        for _ in 0..60 {
            let at = random.usize(0..2);
            step(&mut random, &volume, bench.files[at], &mut models[at], space);
        }
        for (ino, model) in bench.files.iter().zip(&models) {
            check(&volume, *ino, model, &what);
        }
        if round % 2 == 0 {
            volume.close().expect("a clean close");
            bench.fsck();
            for (at, model) in models.iter().enumerate() {
                assert!(bench.dump(at) == model.bytes, "debugfs disagrees, {what}");
            }
        } else {
            volume.sync().expect("a sync");
            drop(volume); // a crash
        }
        volume = bench.open();
        for (ino, model) in bench.files.iter().zip(&models) {
            check(&volume, *ino, model, &format!("opened again, {what}"));
        }
    }
    volume.close().expect("a clean close");
    bench.fsck();
}

#[test]
fn random_operations_match_the_model() {
    let seeds = tier::seeds(test_name!(), 4);
    for (nth, mode) in (0..).zip(MODES) {
        // Neighbouring modes begin with small and large files by turns.
        seeds.clone().for_each(|seed| random_operations(mode, seed + nth));
    }
}

#[test]
fn large_writes_cross_many_operations() {
    for mode in MODES {
        let bench = Bench::new(mode, 128, 1);
        let (volume, ino) = (bench.open(), bench.files[0]);
        let mut model = Model::default();
        let mut data = vec![0; 20 << 20];
        fastrand::Rng::with_seed(5).fill(&mut data);
        assert_eq!(volume.write(ino, 1000, &data).expect("a write"), data.len());
        model.write(1000, &data);
        check(&volume, ino, &model, "fresh");
        assert_eq!(volume.write(ino, 3, &data).expect("a write"), data.len());
        model.write(3, &data);
        check(&volume, ino, &model, "overwritten");
        let inode = read_inode(&**volume, ino).expect("an inode");
        assert_eq!(extent::depth(&inode), 0, "one file alone lies in few extents");
        volume.close().expect("a clean close");
        bench.fsck();
        assert!(bench.dump(0) == model.bytes);
    }
}

#[test]
fn alternating_holes_make_a_deep_tree_and_it_goes_again() {
    for mode in MODES {
        let bench = Bench::new(mode, 128, 1);
        let (volume, ino) = (bench.open(), bench.files[0]);
        let mut model = Model::default();
        let count = 1500;
        for at in 0..count {
            let data = [(at % 251) as u8 + 1; 100];
            volume.write(ino, 2 * at * BLOCK, &data).expect("a write");
            model.write(2 * at * BLOCK, &data);
        }
        let depth =
            |volume: &RootVolume| extent::depth(&read_inode(&***volume, ino).expect("an inode"));
        assert!(depth(&volume) >= 2);
        check(&volume, ino, &model, "deep");
        volume.close().expect("a clean close");
        bench.fsck();
        let volume = bench.open();
        check(&volume, ino, &model, "deep, opened again");
        // Fill the holes: extents join, but leaves stay.
        volume.fallocate(ino, Allocate::Extend, 0, 2 * count * BLOCK).expect("a fallocate");
        model.fallocate(Allocate::Extend, 0, 2 * count * BLOCK);
        check(&volume, ino, &model, "filled");
        volume.fallocate(ino, Allocate::PunchHole, 0, count * BLOCK).expect("a punch");
        model.fallocate(Allocate::PunchHole, 0, count * BLOCK);
        check(&volume, ino, &model, "half of it punched");
        set_size(&volume, ino, 10).expect("a truncate");
        model.resize(10);
        check(&volume, ino, &model, "cut");
        let inode = read_inode(&**volume, ino).expect("an inode");
        assert_eq!((depth(&volume), inode.sectors()), (0, 0));
        volume.close().expect("a clean close");
        bench.fsck();
    }
}

#[test]
fn a_full_volume_stays_sound() {
    for mode in MODES {
        let bench = Bench::new(mode, 24, 2);
        let volume = bench.open();
        let data = vec![0x5A; 1 << 20];
        let mut size = 0;
        // Every other block only, so that the tree needs blocks as well.
        let error = loop {
            match volume.write(bench.files[1], size * 2, &data[..4096]) {
                Ok(len) => size += len as u64,
                Err(error) => break error,
            }
            if size == 8 << 20 {
                break Error::NoSpace;
            }
        };
        assert!(matches!(error, Error::NoSpace));
        let mut size = 0;
        loop {
            match volume.write(bench.files[0], size, &data) {
                Ok(len) => size += len as u64,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let result = volume.fallocate(bench.files[0], Allocate::Extend, 0, 1 << 30);
        assert!(matches!(result, Err(Error::NoSpace)));
        let bytes = read_all(&volume, bench.files[0], size as usize);
        assert!(bytes.iter().all(|byte| *byte == 0x5A));
        // The blocks that `set_size` frees can be used at once.
        set_size(&volume, bench.files[1], 0).expect("a truncate");
        assert_eq!(volume.write(bench.files[1], 0, &data).expect("room again"), data.len());
        volume.close().expect("a clean close");
        bench.fsck();
    }
}

#[test]
fn small_groups_and_no_checksums() {
    for mode in MODES {
        let bench = Bench::with_options(mode, 64, 1, &SMALL_GROUPS);
        let (volume, ino) = (bench.open(), bench.files[0]);
        let mut model = Model::default();
        let data = vec![7; 24 << 20];
        volume.write(ino, 0, &data).expect("a write");
        model.write(0, &data);
        volume.fallocate(ino, Allocate::PunchHole, 4096, 20 << 20).expect("a punch");
        model.fallocate(Allocate::PunchHole, 4096, 20 << 20);
        check(&volume, ino, &model, "punched over many groups");
        volume.close().expect("a clean close");
        bench.fsck();
    }
}

/// Threads with a file each, with commits and checkpoints in the background: no thread waits for
/// ever, and each reads what it wrote.
#[test]
fn writers_side_by_side() {
    let (seed, step_count) = (tier::seed_of(test_name!()), tier::count(300));
    for mode in MODES {
        let bench = Bench::new(mode, 128, 4);
        let options =
            OpenOptions { data_mode: mode, background: true, random_seed: 1, ..Default::default() };
        let volume = RootVolume::open(bench.device.clone(), options).expect("a volume");
        let models: Vec<Model> = std::thread::scope(|scope| {
            let threads: Vec<_> = bench
                .files
                .iter()
                .map(|ino| {
                    let (volume, ino) = (&volume, *ino);
                    scope.spawn(move || {
                        let mut random = fastrand::Rng::with_seed(seed ^ u64::from(ino.0));
                        let mut model = Model::default();
                        (0..step_count)
                            .for_each(|_| step(&mut random, volume, ino, &mut model, 2_000_000));
                        check(volume, ino, &model, "by its writer");
                        model
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        volume.close().expect("a clean close");
        bench.fsck();
        for (at, model) in models.iter().enumerate() {
            assert!(bench.dump(at) == model.bytes, "debugfs disagrees, {mode:?}, file {at}");
        }
    }
}
