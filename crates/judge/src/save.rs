//! Saves a run in a file, so that a failure can be replayed: one line of JSON, then the events and
//! their bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use onejournal_testing::Image;
use onejournal_testing::drive::record::{Data, Event};
use serde::{Deserialize, Serialize};

use crate::crash::Trace;
use crate::run::{Incarnation, Run};
use crate::scenario::Scenario;

#[derive(Serialize, Deserialize)]
struct Head {
    scenario: String,
    seed: u64,
    start: Vec<u64>,
    incarnations: Vec<(usize, usize, Vec<usize>)>,
    closed: (usize, usize),
    base_bytes: Vec<u64>,
    event_count: usize,
}

/// Writes a run to a file.
pub fn save(run: &Run, path: &Path) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let incarnations = run
        .incarnations
        .iter()
        .map(|incarnation| (incarnation.first, incarnation.ready, incarnation.from.clone()));
    let head = Head {
        scenario: run.scenario.name.to_owned(),
        seed: run.seed,
        start: run.start.clone(),
        incarnations: incarnations.collect(),
        closed: run.closed,
        base_bytes: run.trace.bases.iter().map(Image::size_bytes).collect(),
        event_count: run.trace.events.len(),
    };
    serde_json::to_writer(&mut out, &head)?;
    out.write_all(b"\n")?;
    for base in &run.trace.bases {
        let zeroed = Image::zeroed(base.size_bytes());
        for (offset, chunk, _) in base.differences(&zeroed) {
            put(&mut out, &[1, offset, chunk.len() as u64])?;
            out.write_all(chunk)?;
        }
        put(&mut out, &[0])?;
    }
    run.trace.events.iter().try_for_each(|event| put_event(&mut out, event))?;
    out.flush()
}

/// Reads it back.
pub fn load(path: &Path) -> Result<Run, String> {
    read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> io::Result<Run> {
    let mut input = BufReader::new(File::open(path)?);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let head: Head = serde_json::from_str(&line)?;
    let mut bases = Vec::new();
    for size_bytes in head.base_bytes {
        let mut image = Image::zeroed(size_bytes);
        while take(&mut input)? == 1 {
            let offset = take(&mut input)?;
            image.write(offset, &take_bytes(&mut input)?);
        }
        bases.push(image);
    }
    let events =
        (0..head.event_count).map(|_| take_event(&mut input)).collect::<io::Result<_>>()?;
    let incarnations = head.incarnations.into_iter().map(|(first, ready, from)| Incarnation {
        first,
        ready,
        from,
    });
    let scenario = Scenario::named(&head.scenario).map_err(io::Error::other)?;
    let trace = Trace {
        bases,
        events,
        has_nvram: scenario.has_nvram(),
        has_kernel_ext4: scenario.has_kernel_ext4(),
    };
    let Head { seed, start, closed, .. } = head;
    Ok(Run { scenario, seed, start, trace, incarnations: incarnations.collect(), closed })
}

fn put(out: &mut impl Write, words: &[u64]) -> io::Result<()> {
    words.iter().try_for_each(|word| out.write_all(&word.to_le_bytes()))
}

fn take(input: &mut impl Read) -> io::Result<u64> {
    let mut word = [0; 8];
    input.read_exact(&mut word)?;
    Ok(u64::from_le_bytes(word))
}

fn take_bytes(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let len_bytes = usize::try_from(take(input)?).map_err(io::Error::other)?;
    let mut bytes = vec![0; len_bytes];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

const MARK: u64 = 0;
const END: u64 = 1;
const FLUSH: u64 = 2;
const ZEROS: u64 = 3;
const WRITE: u64 = 4;
const WRITE_DURABLE: u64 = 5;

fn put_event(out: &mut impl Write, event: &Event) -> io::Result<()> {
    match event {
        Event::Mark(mark) => put(out, &[MARK, *mark]),
        Event::End(request) => put(out, &[END, *request]),
        Event::Flush { request, disk } => put(out, &[FLUSH, *request, u64::from(*disk)]),
        Event::Write { request, disk, offset, data: Data::Zeros(len_bytes), .. } => {
            put(out, &[ZEROS, *request, u64::from(*disk), *offset, *len_bytes])
        }
        Event::Write { request, disk, offset, data: Data::Bytes(bytes), is_durable } => {
            let kind = if *is_durable { WRITE_DURABLE } else { WRITE };
            put(out, &[kind, *request, u64::from(*disk), *offset, bytes.len() as u64])?;
            out.write_all(bytes)
        }
    }
}

fn take_event(input: &mut impl Read) -> io::Result<Event> {
    let kind = take(input)?;
    let request = take(input)?;
    match kind {
        MARK => return Ok(Event::Mark(request)),
        END => return Ok(Event::End(request)),
        _ => {}
    }
    let disk = u8::try_from(take(input)?).map_err(io::Error::other)?;
    if kind == FLUSH {
        return Ok(Event::Flush { request, disk });
    }
    let offset = take(input)?;
    let (data, is_durable) = match kind {
        ZEROS => (Data::Zeros(take(input)?), false),
        WRITE | WRITE_DURABLE => (Data::Bytes(take_bytes(input)?.into()), kind == WRITE_DURABLE),
        _ => return Err(io::Error::other("an event of an unknown kind")),
    };
    Ok(Event::Write { request, disk, offset, data, is_durable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read_back_as_it_was_saved() {
        let bytes = Data::Bytes([7; 1024].into());
        let write = |request, data, is_durable| Event::Write {
            request,
            disk: 1,
            offset: 512,
            data,
            is_durable,
        };
        let events = vec![
            write(0, bytes.clone(), false),
            Event::Flush { request: 1, disk: 1 },
            Event::End(0),
            Event::Mark(99),
            write(4, bytes, true),
            write(5, Data::Zeros(1 << 20), false),
        ];
        let mut base = Image::zeroed(1 << 20);
        base.write(70_000, &[3; 100]);
        let run = Run {
            scenario: Scenario::named("tree").unwrap(),
            seed: 5,
            start: vec![7, 8],
            trace: Trace {
                bases: vec![base, Image::zeroed(4096)],
                events,
                has_nvram: false,
                has_kernel_ext4: false,
            },
            incarnations: vec![Incarnation { first: 3, ready: 4, from: vec![1, 2] }],
            closed: (4, 6),
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        save(&run, file.path()).unwrap();
        let read = load(file.path()).unwrap();
        assert_eq!(read.trace.events, run.trace.events);
        let bytes = |run: &Run| run.trace.bases.iter().map(Image::to_bytes).collect::<Vec<_>>();
        assert!(bytes(&read) == bytes(&run));
        assert_eq!((read.seed, read.closed, read.scenario.name), (5, (4, 6), "tree"));
        assert_eq!((&read.start[..], &read.incarnations[0].from[..]), (&[7, 8][..], &[1, 2][..]));
    }
}
