//! Reads what the log holds of a database that its file may lack: the frames of a WAL, or
//! transactions of pages.

use log::Lsn;

use crate::failure::{Damage, Failure};
use crate::format::base::{Base, Kind};
use crate::format::frames::FramesHead;
use crate::format::pages::{Batches, Head};
use crate::format::record::Record;
use crate::stream::header::{Holds, SharedHeader};
use crate::stream::lease::find_header;
use crate::stream::stamped::Stream;

/// Most bytes of records that are kept of another user's stream. They are in memory uncompressed.
/// The extension begins anew after 32 MiB of frames, or 64 MiB of transactions of pages, but a user
/// may write more.
const KEPT_BYTES_MAX: usize = if cfg!(test) { 64 << 10 } else { 512 << 20 };

/// What the log holds for a database: frames of a WAL, or transactions of pages.
pub struct Live {
    /// The newest base.
    pub base: Base,
    /// The records of frames after it.
    pub frames: Vec<(FramesHead, Vec<u8>)>,
    /// The transactions that `batch` replays.
    pub batches: Batches,
}

/// What a stream holds.
pub enum Contents {
    /// No record that counts.
    Nothing,
    /// Records that count.
    Live(Live),
    /// Records that cannot be read.
    Damaged(Damage),
}

impl Live {
    /// The content of the record *closed*.
    fn closed() -> Live {
        Live { base: Base::closed(), frames: Vec::new(), batches: Batches::new() }
    }
}

/// Whether the stream may hold something that the database does not have.
pub fn holds_records(stream: &Stream) -> Result<bool, Failure> {
    Ok(match find_header(stream)? {
        SharedHeader::Whole(shared) => shared.holds != Holds::Nothing,
        SharedHeader::Torn => match read_live(stream)? {
            Contents::Live(_) => true,
            Contents::Nothing => false,
            Contents::Damaged(damage) => return Err(damage.into()),
        },
        SharedHeader::Unset => false,
    })
}

/// Reads what the stream holds.
///
/// A durable record says where the records that count begin: at a base, or at the LSN in a *home*.
/// The stream's head is there, or earlier after a restart of the machine. So the reader meets that
/// record, which voids what was read before it.
///
/// The reader may also meet a *home* with an LSN before the head. Background syncs of several
/// processes overlap: one that began first may end last, and then appends its *home* after that of
/// the other. Such a *home* has no effect, because the records that it voids were truncated.
///
/// If no record says where to begin, the log is damaged.
pub fn read_live(stream: &Stream) -> Result<Contents, Failure> {
    match read_records(stream) {
        Ok(Some(live)) => Ok(Contents::Live(live)),
        Ok(None) => Ok(Contents::Nothing),
        Err(e) => e.damage().map(Contents::Damaged),
    }
}

/// Memory that a record takes which is kept.
fn record_bytes(bytes: &[u8]) -> usize {
    bytes.len() + size_of::<(Lsn, FramesHead, Vec<u8>)>()
}

fn too_much() -> Failure {
    Failure::CannotOpen(format!(
        "the log has more than {} MiB for this database, which belongs to another user: open it as \
         that user, for whom there is no limit",
        KEPT_BYTES_MAX >> 20
    ))
}

/// As [`read_live`], but damage is an error.
fn read_records(stream: &Stream) -> Result<Option<Live>, Failure> {
    let mut live: Option<Live> = None;
    let mut batches: Vec<(Lsn, Head, Vec<u8>)> = Vec::new();
    let mut kept_bytes = 0;
    for record in stream.read_from(stream.head())? {
        let record = record?;
        if kept_bytes > KEPT_BYTES_MAX && stream.is_others() {
            return Err(too_much());
        }
        match Record::parse(&record.payload)? {
            Record::Base(base) => {
                kept_bytes = 0;
                batches.clear();
                live = Some(Live { base, frames: Vec::new(), batches: Vec::new() });
            }
            Record::Frames(head, bytes) => {
                // Before the first base: of a part of the stream that was given back.
                let Some(live) = &mut live else { continue };
                if live.base.salts != head.salts || live.base.page_bytes != head.page_bytes {
                    let text = "the log's frames are not of the generation before them";
                    return Err(Failure::Damaged(text.into()));
                }
                // Logged twice: the process that logged it first died before SQLite counted it.
                while live.frames.last().is_some_and(|(last, _)| last.first >= head.first) {
                    live.frames.pop();
                }
                kept_bytes += record_bytes(&bytes);
                live.frames.push((head, bytes));
            }
            Record::Pages(head, bytes) => {
                if live.as_ref().is_some_and(|live| live.base.kind != Kind::Closed) {
                    let text = "the log has pages in a generation of a WAL";
                    return Err(Failure::Damaged(text.into()));
                }
                // Before the first base: it may have been given back because of a record that
                // follows.
                kept_bytes += record_bytes(&bytes);
                batches.push((record.lsn, head, bytes));
            }
            // All that it voids was given back.
            Record::Home(upto) if live.is_none() && upto < stream.head().0 => {}
            Record::Home(upto) => {
                if live.as_ref().is_some_and(|live| live.base.kind != Kind::Closed) {
                    let text = "the log says of a generation of a WAL that the database holds it";
                    return Err(Failure::Damaged(text.into()));
                }
                batches.retain(|(lsn, ..)| lsn.0 >= upto);
                kept_bytes = batches.iter().map(|(.., bytes)| record_bytes(bytes)).sum();
                live.get_or_insert_with(Live::closed);
            }
        }
    }
    if live.is_none() && !batches.is_empty() {
        let text = "the log lacks what comes before its transactions";
        return Err(Failure::Damaged(text.into()));
    }
    if let Some(live) = &mut live {
        live.batches = batches.into_iter().map(|(_, head, bytes)| (head, bytes)).collect();
    }
    Ok(live.filter(|live| live.base.kind != Kind::Closed || !live.batches.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::base::encode_base;
    use crate::format::pages::Writer;
    use crate::stream::stamp::Stamp;

    #[test]
    fn regression_what_is_kept_of_another_users_stream_is_bounded() {
        let home = tempfile::tempdir_in("/dev/shm").expect("directory");
        let memory = home.path().join("memory");
        let options = log::Options { memory, ..log::Options::default() };
        let log = log::Log::open(home.path().join("log"), &options).expect("open");
        let stream = Stream::new(log.stream("s").expect("stream"), Stamp::default());
        let head = Head {
            page_bytes: 65536,
            counter_before: 1,
            counter_after: 2,
            pages_before: 1,
            pages_after: 1,
        };
        let mut transaction = Writer::new(&head);
        transaction.push(1, None, &[7; 65536]);
        let transaction = transaction.finish();
        stream.append(&encode_base(&Base::closed())).expect("appended");
        for count in 1..=4 {
            let lsn = stream.append(&transaction).expect("appended");
            stream.sync(lsn).expect("synced");
            let Ok(Contents::Live(live)) = read_live(&stream) else { panic!("{count}") };
            assert_eq!(live.batches.len(), count, "an own one has no limit");
        }
        let refused = read_live(&stream.clone().of_user(true)).err().expect("refused").to_string();
        assert!(refused.contains("belongs to another user: open it as that user"), "{refused}");
    }
}
