//! Checks that after a crash everything is there that has to be.

use std::sync::Arc;

use super::appended::{Appended, payload};
use super::found::{FoundRecord, FoundStream, FoundStreams};
use super::host::Machine;
use super::model::{BEFORE, Model, Presence, StreamModel};
use super::workload::Process;
use crate::engine::lane::{Anywhere, Lane};
use crate::format::scan::Records;
use crate::{Lsn, Usn};

/// Recovers the machine after a crash at `moment`, and compares the result with the model. The
/// error says what is wrong.
pub(super) fn check(
    machine: &Arc<Machine>,
    model: &Model,
    moment: u64,
) -> Result<(Process, FoundStreams), String> {
    let process = Process::join(machine).map_err(|e| format!("recovery: {e}"))?;
    let (mut found, mut usns) = (FoundStreams::new(), Vec::new());
    for (name, candidates) in model.by_name(moment) {
        let lane = process.open(name).map_err(|e| format!("stream {name}: {e}"))?;
        let Some(lane) = lane else {
            match candidates.iter().any(|(_, presence)| *presence == Presence::Yes) {
                true => return Err(format!("stream {name} is gone")),
                false => continue,
            }
        };
        let stream = read_all(&lane).map_err(|e| format!("stream {name}: {e}"))?;
        let mut why = "it was removed".to_owned();
        let mut candidates = candidates.iter().rev().filter(|(_, p)| *p != Presence::No);
        let fits = candidates.find_map(|(candidate, _)| {
            compare(candidate, &stream, moment).map_err(|text| why = text).ok()
        });
        match fits {
            Some(numbers) => usns.extend(numbers),
            None => return Err(format!("stream {name}: {why}")),
        }
        found.insert(name.to_owned(), stream);
    }
    if let Some(allocated) =
        Some(process.service.allocated_count()).filter(|allocated| *allocated > 0)
    {
        return Err(format!("{allocated} chunks are still allocated"));
    }
    usns.sort_unstable();
    match usns.windows(2).find(|pair| pair[0].1 >= pair[1].1) {
        None => Ok((process, found)),
        Some(pair) => Err(format!("USNs do not follow the appends: {pair:?}")),
    }
}

/// The records from the head to the end.
pub(super) fn read_all(lane: &Lane) -> Result<FoundStream, String> {
    let (head, end) = (lane.words.head(), lane.durable());
    let mut source = Anywhere(lane);
    let mut reader = Records::new(lane.identity(), &mut source, Lsn(head), end);
    let mut records = Vec::new();
    while reader.position().0 < end {
        let position = reader.position();
        let next = reader.next().map_err(|e| format!("at {position}: {e}"))?;
        let (lsn, header, payload) =
            next.ok_or_else(|| format!("no record at {position}, head {head}, end {end}"))?;
        records.push(FoundRecord { lsn: lsn.0, usn: header.usn, payload: payload.to_vec() });
    }
    Ok(FoundStream { head, records })
}

/// Compares the records of a stream with the model. Returns the numbers of the records that were
/// found, with their USNs.
fn compare(
    model: &StreamModel,
    found: &FoundStream,
    moment: u64,
) -> Result<Vec<(u64, Usn)>, String> {
    let newest = model.newest_head(moment);
    if found.head > newest.max(model.heads[0].0) {
        return Err(format!("its head is {}, not {newest} at most", found.head));
    }
    let least = model.least_end(moment);
    if found.end() < least {
        return Err(format!("it ends at {}, acknowledged {least}", found.end()));
    }
    let mut numbers = Vec::new();
    for record in &found.records {
        match model.record(record.lsn, &record.payload, moment) {
            Some(known) => numbers.push((known.number, record.usn)),
            None => return Err(format!("at {} a record that was not appended", record.lsn)),
        }
    }
    Ok(numbers)
}

/// A model of what was found, as the base for everything that comes after it.
pub(super) fn model_of(found: &FoundStreams, before: &Model) -> Model {
    let half_made = before.half_made.clone();
    let mut model = Model { next_number: before.next_number, half_made, streams: Vec::new() };
    for (name, stream) in found {
        let mut new = StreamModel::new(name, BEFORE);
        new.heads = vec![(stream.head, 0)];
        // If the writer of one append died, two appends may have the same bytes at the same place.
        // As in `compare`, a published append goes before an unpublished one.
        let known = before.streams.iter().rev().filter(|s| s.name == *name);
        let known: Vec<&Appended> =
            known.flat_map(|s| s.records.iter().chain(s.void.iter().map(|(r, _)| r))).collect();
        for record in &stream.records {
            let is_this = |a: &&&Appended| {
                a.lsn == record.lsn
                    && a.len_bytes == record.payload.len()
                    && payload(a.number, a.len_bytes) == record.payload
            };
            let appended = known.iter().find(is_this).expect("it was compared");
            new.records.push(Appended { begun: 0, ..(**appended).clone() });
        }
        new.acknowledged.push((stream.end(), 0));
        model.streams.push(new);
    }
    model
}
