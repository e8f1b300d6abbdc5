//! What dead, failing and hostile processes leave in the shared words: one test for each case.

use std::sync::Arc;

use device::Operation;
use onejournal_testing::{Fault, Survival};

use super::check::read_all;
use super::host::{Images, Machine};
use super::run::{Medium, small};
use super::workload::Process;
use crate::engine::lane::Lane;
use crate::format::chunk::DATA_OFFSET;
use crate::host::Settings;
use crate::words::{Client, GroupPosition};
use crate::{LogError, Lsn, Result, StreamId};

fn machine(medium: Medium) -> Arc<Machine> {
    machine_of(small(medium))
}

fn machine_of(settings: Settings) -> Arc<Machine> {
    let machine = Machine::power_up(&settings, Images::fresh(&settings));
    machine.start_trace();
    machine
}

fn append(process: &Process, lane: &Arc<Lane>, payload: &[u8]) -> Result<Lsn> {
    process.service.with_writer(lane, |writer, allocator| writer.append(allocator, payload))
}

/// The machine after a power cut that keeps everything.
fn restarted(machine: &Machine) -> Arc<Machine> {
    let traces = machine.take_trace();
    let mut cursor = traces.cursor();
    cursor.advance_to(u64::MAX);
    let again = Machine::power_up(&machine.settings, cursor.crash(Survival::Everything));
    again.start_trace();
    again
}

/// Restarts the machine after a power cut that keeps nothing that was not durable. Returns how many
/// records the stream has.
fn after_power_cut(machine: &Machine, name: &str) -> usize {
    let traces = machine.take_trace();
    let mut cursor = traces.cursor();
    cursor.advance_to(u64::MAX);
    let again = Machine::power_up(&machine.settings, cursor.crash(Survival::Nothing));
    let process = Process::join(&again).expect("recovered");
    let lane = process.open(name).expect("whole").expect("there");
    read_all(&lane).expect("readable").count()
}

#[test]
fn a_leader_that_dies_between_the_words_of_the_group_log_costs_nothing() {
    for lost in ["the number", "number and offset"] {
        let machine = machine(Medium::Memory);
        let first = Process::join(&machine).expect("join");
        let lane = first.make("a").expect("stream");
        for _ in 0..2 {
            let before = first.service.control.group_position();
            let lsn = append(&first, &lane, b"one").expect("append");
            first.service.sync(&lane, lsn).expect("sync");
            let position = first.service.control.group_position();
            if lost == "number and offset" {
                let sequence = position.sequence - 1;
                let position = GroupPosition { sequence, offset: before.offset, ..position };
                first.service.control.spoil_group_position(position);
                break;
            }
        }
        if lost == "the number" {
            let position = first.service.control.group_position();
            let position = GroupPosition { sequence: position.sequence - 1, ..position };
            first.service.control.spoil_group_position(position);
        }
        first.service.control.spoil_leader(client(&first));
        first.host.die();
        let heir = Process::join(&machine).expect("join");
        let lane = heir.open("a").expect("open").expect("there");
        let before = read_all(&lane).expect("readable").count();
        let lsn = append(&heir, &lane, b"two").expect("append");
        heir.service.sync(&lane, lsn).expect("sync");
        assert_eq!(after_power_cut(&machine, "a"), before + 1, "{lost}");
    }
}

fn client(process: &Process) -> Client {
    crate::host::Host::client(&*process.host)
}

#[test]
fn the_chunks_of_a_dead_lessee_come_back_with_the_next_drain() {
    let machine = machine(Medium::Nvram);
    let dead = Process::join(&machine).expect("join");
    let lane = dead.make("a").expect("stream");
    append(&dead, &lane, &[1; 30_000]).expect("append");
    // It was allocating itself one more.
    assert!(dead.service.control.take_chunk(9, lane.identity().stream));
    dead.host.die();
    let process = Process::join(&machine).expect("join");
    let lane = process.open("a").expect("open").expect("there");
    process.service.drain(&lane).expect("drain");
    assert_eq!(process.service.allocated_count(), 0);
    assert_eq!(read_all(&lane).expect("readable").count(), 1);
}

#[test]
fn a_lane_that_names_the_chunks_of_others_gets_none_of_them() {
    for medium in [Medium::Memory, Medium::Nvram] {
        let machine = machine(medium);
        let process = Process::join(&machine).expect("join");
        let [hostile, victim] = ["a", "b"].map(|name| process.make(name).expect("stream"));
        append(&process, &hostile, b"mine").expect("append");
        append(&process, &victim, b"yours").expect("append");
        let (_, index) = victim.chunks()[0];
        for ordinal in [1, 7, (1 << 48) - 1] {
            hostile.words.set_chunk(ordinal, index);
        }
        let own = hostile.chunks()[0];
        hostile.words.set_chunk(3, own.1);
        process.service.drain(&hostile).expect("drain");
        process.service.release(&hostile);
        hostile.words.set_suspect(true);
        process.service.drain(&hostile).expect("drain");
        assert!(matches!(hostile.chunk_memory(index), Err(LogError::DamagedMemory { .. })));
        process.service.drain(&victim).expect("its chunk is untouched");
        assert_eq!(read_all(&victim).expect("readable").count(), 1);
        assert_eq!(process.service.allocated_count(), 1, "the victim's");
    }
}

#[test]
fn words_that_cannot_be_refuse_the_lease_and_overflow_nothing() {
    let machine = machine(Medium::Nvram);
    let process = Process::join(&machine).expect("join");
    for (number, value) in [(0, u64::MAX), (1, u64::MAX), (2, u64::MAX), (3, 1 << 40)] {
        let lane = process.make(&format!("s{number}")).expect("stream");
        let words = &lane.words;
        match number {
            0 => words.spoil_appended(value),
            1 => words.spoil_last_usn(value),
            2 => words.spoil_drained(value),
            _ => words.spoil_synced(value),
        }
        let error = append(&process, &lane, b"x").expect_err("refused");
        assert!(matches!(error, LogError::DamagedMemory { .. }), "{error}");
        let _ = process.service.drain(&lane);
        assert_eq!(words.lessee(), Client::NOBODY, "a lease that could not be used is nobody's");
    }
}

#[test]
fn a_batch_that_finds_no_usn_stores_nothing() {
    let machine = machine(Medium::Nvram);
    let process = Process::join(&machine).expect("join");
    let lane = process.make("a").expect("stream");
    let far = 1 << 60;
    lane.words.spoil_last_usn(far);
    process.service.control.set_usn_limit(far + 3);
    machine.inject(false, Fault::once(Operation::Write, 0));
    let batch: Vec<&[u8]> = vec![b"a batch"; 5];
    process
        .service
        .with_writer(&lane, |writer, allocator| writer.append_batch(allocator, &batch))
        .expect_err("the limit could not be kept");
    let mut bytes = vec![1; 1000];
    let (_, index) = lane.chunks()[0];
    lane.chunk_memory(index).expect("allocated").read(DATA_OFFSET, &mut bytes).expect("read");
    assert_eq!(bytes, [0; 1000]);
}

#[test]
fn a_writer_that_waited_in_vain_frees_what_it_does_not_use() {
    let machine = machine(Medium::Memory);
    let process = Process::join(&machine).expect("join");
    let lane = process.make("a").expect("stream");
    let control = &process.service.control;
    // Others hold most of the pool.
    (0..12).for_each(|index| control.adopt_chunk(index, StreamId(998)));
    let big = vec![1; 50_000];
    let error = append(&process, &lane, &big).expect_err("7 chunks are needed, 4 are free");
    assert!(matches!(error, LogError::Full { .. }), "{error}");
    assert_eq!(lane.chunks().len(), 1, "the one that holds the end");
    (0..12).for_each(|index| control.free_chunk(index));
    append(&process, &lane, &big).expect("append");
}

#[test]
fn a_process_that_is_stopped_stops_drains_and_no_syncs() {
    let machine = machine(Medium::Memory);
    let [stopped, process] = [(); 2].map(|()| Process::join(&machine).expect("join"));
    let lane = process.make("a").expect("stream");
    let control = &process.service.control;
    let sync = || {
        let lsn = append(&process, &lane, b"one").expect("append");
        process.service.sync(&lane, lsn).expect("sync");
    };
    // It leads, it drains, it does both.
    for (leads, drains) in [(true, false), (false, true), (true, true)] {
        let stop = |by: Client| {
            if leads {
                control.spoil_leader(by);
            }
            if drains {
                lane.words.spoil_drainer(by);
            }
        };
        stop(client(&stopped));
        sync();
        if drains {
            let error = process.service.drain(&lane).expect_err("it lives, and does nothing");
            assert!(error.to_string().contains("does not go on"), "{error}");
        }
        // It goes on.
        stop(Client::NOBODY);
        sync();
        process.service.drain(&lane).expect("drain");
    }
}

#[test]
fn a_process_that_is_stopped_with_the_lock_stops_no_syncs_of_other_streams() {
    let machine = machine(Medium::Memory);
    let [stopped, process] = [(); 2].map(|()| Process::join(&machine).expect("join"));
    let [drained, lane] = ["a", "b"].map(|name| process.make(name).expect("stream"));
    let sync = |lane: &Arc<Lane>| {
        let lsn = append(&process, lane, &[1; 30_000]).expect("append");
        process.service.sync(lane, lsn)
    };
    sync(&drained).expect("sync");
    drained.words.spoil_drainer(client(&stopped));
    machine.keep_lock(true);
    let generation = || process.service.control.group_position().generation;
    let before = generation();
    // More than the group log holds, which cannot begin again.
    (0..15).for_each(|_| sync(&lane).expect("sync"));
    assert_eq!(generation(), before, "the first stream is not put aside");
    // It goes on, and drains still.
    machine.keep_lock(false);
    sync(&lane).expect("sync");
    assert!(generation() > before, "a new round");
}

#[test]
fn an_entry_is_never_larger_than_the_group_log() {
    let machine = machine_of(Settings { chunk_bytes: 40 << 10, ..small(Medium::Memory) });
    let process = Process::join(&machine).expect("join");
    let lanes = ["a", "b", "c", "d", "e"].map(|name| process.make(name).expect("stream"));
    for lane in &lanes {
        let lsn = append(&process, lane, &[1; 79_000]).expect("append");
        lane.words.spoil_wanted(lsn.0 + 79_024);
        process.service.control.set_pending(lane.identity().stream.index());
    }
    process.service.sync(&lanes[4], Lsn(0)).expect("sync");
    process.service.sync(&lanes[0], Lsn(0)).expect("sync");
    assert!(!process.service.control.is_aborted());
}

#[test]
fn append_to_a_removed_stream_fails_and_leaves_no_chunk() {
    let machine = machine(Medium::Nvram);
    let [one, other] = [(); 2].map(|()| Process::join(&machine).expect("join"));
    let lane = one.make("a").expect("stream");
    append(&one, &lane, b"old").expect("append");
    let open = other.open("a").expect("open").expect("there");
    one.service.remove(&lane).expect("remove");
    let error = append(&other, &open, b"lost").expect_err("it is gone");
    assert!(error.to_string().contains("it was removed"), "{error}");
    assert_eq!(one.service.allocated_count(), 0);
    let anew = one.make("a").expect("made anew");
    append(&one, &anew, b"new").expect("append");
    assert_eq!(read_all(&anew).expect("readable").count(), 1);
}

#[test]
fn a_word_that_says_that_we_drain_keeps_us_from_nothing() {
    let machine = machine(Medium::Memory);
    let process = Process::join(&machine).expect("join");
    let lane = process.make("a").expect("stream");
    append(&process, &lane, b"one").expect("append");
    lane.words.spoil_drainer(client(&process));
    process.service.drain(&lane).expect("drain");
    process.service.release(&lane);
    let brief = crate::host::Host::client(&*process.host).for_a_moment();
    lane.words.spoil_lessee(brief);
    let error = append(&process, &lane, b"two").expect_err("for ever is too long");
    assert!(matches!(error, LogError::Busy(_)), "{error}");
}

#[test]
fn regression_damage_stays_known_when_the_group_log_holds_more_than_the_file_has_room_for() {
    for has_file in [true, false] {
        let machine = machine(Medium::Memory);
        let process = Process::join(&machine).expect("join");
        let lane = process.make("a").expect("stream");
        append(&process, &lane, b"first").expect("append");
        let mut damaged = 0;
        if has_file {
            process.service.drain(&lane).expect("drain");
        } else {
            // As if it had never been anywhere.
            lane.words.want(lane.words.appended());
            lane.words.mark_synced(lane.words.appended());
        }
        for _ in 0..4 {
            damaged = append(&process, &lane, &[7; 30_000]).expect("append").0;
            process.service.sync(&lane, Lsn(damaged)).expect("sync");
        }
        assert!(damaged > 64 << 10, "behind the room of the first file");
        let mut machine = restarted(&machine);
        assert!(!has_file || machine.damage("a", 0));
        for restart in 0..3 {
            let process = Process::join(&machine).expect("join");
            let opened = process.open("a");
            let is_seen = matches!(opened, Err(LogError::Damaged { at: Lsn(0), .. }));
            assert!(is_seen, "restart {restart}, with a file: {has_file}");
            drop(opened);
            machine = restarted(&machine);
        }
    }
}
