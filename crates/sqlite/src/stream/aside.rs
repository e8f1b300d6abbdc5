//! Sets aside the records of a database that was deleted and made again.
//!
//! A database that the log has records of has at least one page on the disk: a period of
//! transactions begins with a sync of a database that has one, and so does a generation of a WAL.
//! So an empty file is a new database. The records of the old one are neither applied nor deleted:
//! they are copied, durably, to a stream of another name, before the log says that none of them
//! counts.

use std::path::Path;

use log::{Log, Stream};

use crate::failure::Failure;
use crate::ffi::SQLITE_WARNING;
use crate::messages::tell;
use crate::real::file::Real;
use crate::stream::settings::Settings;

/// At most this many streams are set aside under one name. Then the user has to remove some.
const COUNT_MAX: usize = 1000;

/// Whether the database is a new one. The log then holds records of a database that was deleted.
pub fn is_anew(settings: &Settings, main: Real) -> Result<bool, Failure> {
    Ok(!settings.may_discard && main.size()? == 0)
}

/// Copies all records to another stream, which has no other use. The caller voids the records
/// afterwards.
pub fn set_aside(
    log: &Log,
    stream: &Stream,
    settings: &Settings,
    path: &Path,
) -> Result<(), Failure> {
    let name = new_name(log, &settings.stream_name(path))?;
    let aside = log.stream(&name)?;
    for record in stream.read_from(stream.head())? {
        aside.append(&record?.payload)?;
    }
    aside.flush()?;
    aside.release();
    let directory = settings.directory.display();
    let text = format!(
        "{}: it was deleted and made anew. What the log {directory} held of the old one is set aside in the stream \
             {name}: onejournal log cat shows it, onejournal log rm removes it",
        path.display(),
    );
    tell(SQLITE_WARNING, &text);
    Ok(())
}

/// A name that no stream has.
fn new_name(log: &Log, name: &str) -> Result<String, Failure> {
    for number in 1..=COUNT_MAX {
        let name = format!("{name}.aside-{number}");
        if log.existing_stream(&name)?.is_none() {
            return Ok(name);
        }
    }
    let text = format!("{COUNT_MAX} streams {name}.aside-NUMBER are there: onejournal log rm");
    Err(Failure::CannotOpen(text))
}
