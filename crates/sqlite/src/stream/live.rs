//! Reads what the log holds of a database that its file may lack: the frames of a WAL, or
//! transactions of pages.

use log::Lsn;

use crate::failure::{Damage, Failure};
use crate::format::base::{Base, Kind};
use crate::format::frames::FramesHead;
use crate::format::pages::{Batches, Head};
use crate::format::record::Record;
use crate::stream::header::SharedHeader;
use crate::stream::lease::find_header;
use crate::stream::stamped::Stream;

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
        SharedHeader::Whole(shared) => shared.has_frames || shared.has_pages,
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

/// As [`read_live`], but damage is an error.
fn read_records(stream: &Stream) -> Result<Option<Live>, Failure> {
    let mut live: Option<Live> = None;
    let mut batches: Vec<(Lsn, Head, Vec<u8>)> = Vec::new();
    for record in stream.read_from(stream.head())? {
        let record = record?;
        match Record::parse(&record.payload)? {
            Record::Base(base) => {
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
                live.frames.push((head, bytes));
            }
            Record::Pages(head, bytes) => {
                if live.as_ref().is_some_and(|live| live.base.kind != Kind::Closed) {
                    let text = "the log has pages in a generation of a WAL";
                    return Err(Failure::Damaged(text.into()));
                }
                // Before the first base: it may have been given back because of a record that
                // follows.
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
