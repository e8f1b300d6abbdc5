//! The places to which records are appended.

use std::fs::File;
use std::io::Write;

use log::{Log, LogError, Stream};

use super::{TargetArgs, To};
use crate::clients::ring::{RingClient, Service};
use crate::error::{Error, Result};

/// A place to append to.
pub enum Target {
    /// The log is closed with the last handle of its streams, so it is kept.
    Lane {
        _log: Log,
        stream: Stream,
    },
    Ring(RingClient),
    Native(Service),
    File {
        file: File,
        is_data_only: bool,
    },
}

impl Target {
    /// Connects to the place, or makes it.
    pub fn open(args: &TargetArgs) -> Result<Target> {
        Ok(match args.to {
            To::Lane => {
                let log = Log::connect(&args.path).map_err(failed)?;
                let stream = log.stream(&args.stream).map_err(failed)?;
                Target::Lane { _log: log, stream }
            }
            To::Ring => Target::Ring(RingClient::connect(&args.path)?),
            To::Native => {
                let ring = args.ring.as_deref().expect("clap asks for it");
                Target::Native(Service::start(ring, &args.path, args.ring_size, 1)?)
            }
            To::Fsync | To::Fdatasync => {
                let file = File::create(&args.path).map_err(Error::at(&args.path))?;
                Target::File { file, is_data_only: args.to == To::Fdatasync }
            }
        })
    }

    /// Returns when the record is durable, as far as the medium allows.
    #[inline]
    pub fn append(&mut self, payload: &[u8]) -> Result<()> {
        match self {
            Target::Lane { stream, .. } => stream.append(payload).map(drop).map_err(failed),
            Target::Ring(client) => client.append(payload),
            Target::Native(service) => service.log(0, payload),
            Target::File { file, is_data_only } => {
                let written = file.write_all(payload);
                let sync = || if *is_data_only { file.sync_data() } else { file.sync_all() };
                written.and_then(|()| sync()).map_err(Error::io("write and sync"))
            }
        }
    }

    /// Returns when all records are in files on disk and a reader of the stream has read them.
    /// Records in a ring that has a service follow when the service ends.
    pub fn flush(self) -> Result<()> {
        match self {
            Target::Lane { stream, .. } => stream
                .flush()
                .and_then(|()| stream.truncate_before(stream.appended()))
                .map_err(failed),
            Target::Native(service) => service.stop(),
            Target::Ring(_) | Target::File { .. } => Ok(()),
        }
    }
}

fn failed(error: LogError) -> Error {
    Error::other(format!("the log: {error}"))
}
