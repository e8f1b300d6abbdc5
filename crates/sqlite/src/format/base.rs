//! The record *base*: how a generation of the WAL stands, by itself. It voids all records before
//! it.
//!
//! ```text
//! base:    | salts 8 | u32 page bytes | u32 change counter | u32 frames | checksum 8 | u32 count
//!          | count times: salts 8, u32 frames | u32 witnesses | so often: u32 page, u32 crc |
//! ```

use crate::format::codec::{Take, empty, finish, put, u32_of};
use crate::format::wal::{Checksum, Salts};

/// The state of a generation of the WAL, without earlier records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The generation is about to begin. The database durably holds everything before it.
    Begin,
    /// The WAL file durably holds the generation's first frames.
    Durable,
    /// There is no WAL. The database durably holds everything.
    Closed,
}

/// A generation that a WAL file may show after a power cut instead of the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// Its salts.
    pub salts: Salts,
    /// The largest number of frames that it had.
    pub frames: u32,
}

/// A page that the database has if all frames before the base were copied to it. Pages that were
/// written last are the witnesses. They tell a database whose WAL was copied and removed by a
/// program without the extension from an older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    /// Number of the page.
    pub page: u32,
    /// CRC32C of the page.
    pub crc: u32,
}

/// A record that voids all records before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// The kind of base.
    pub kind: Kind,
    /// The generation; zeros in [`Kind::Closed`].
    pub salts: Salts,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Change counter of the database file at that time.
    pub change_counter: u32,
    /// Frames that the file holds durably ([`Kind::Durable`]).
    pub frames: u32,
    /// Checksum of the last of these frames.
    pub checksum: Checksum,
    /// Generations since the file was last durable, oldest first.
    pub stale: Vec<Stale>,
    /// The pages of the last frames before the base.
    pub witnesses: Vec<Witness>,
}

impl Base {
    /// The base of [`Kind::Closed`].
    pub fn closed() -> Base {
        let (kind, salts, checksum) = (Kind::Closed, [0; 8], [0; 2]);
        let (stale, witnesses) = (Vec::new(), Vec::new());
        let (page_bytes, change_counter, frames) = (0, 0, 0);
        Base { kind, salts, page_bytes, change_counter, frames, checksum, stale, witnesses }
    }
}

/// The bytes of a base.
pub fn encode_base(base: &Base) -> Vec<u8> {
    let kind = match base.kind {
        Kind::Begin => 1,
        Kind::Durable => 2,
        Kind::Closed => 3,
    };
    let mut body = empty();
    body.extend_from_slice(&base.salts);
    put(&mut body, u32_of(base.page_bytes));
    put(&mut body, base.change_counter);
    put(&mut body, base.frames);
    put(&mut body, base.checksum[0]);
    put(&mut body, base.checksum[1]);
    put(&mut body, u32_of(base.stale.len()));
    for stale in &base.stale {
        body.extend_from_slice(&stale.salts);
        put(&mut body, stale.frames);
    }
    put(&mut body, u32_of(base.witnesses.len()));
    for witness in &base.witnesses {
        put(&mut body, witness.page);
        put(&mut body, witness.crc);
    }
    finish(kind, body)
}

impl Take<'_> {
    pub(crate) fn base(&mut self, kind: Kind) -> Option<Base> {
        let salts = self.salts()?;
        let page_bytes = self.page_bytes()?;
        let (change_counter, frames) = (self.u32()?, self.u32()?);
        let checksum = [self.u32()?, self.u32()?];
        let mut stale = Vec::new();
        for _ in 0..self.u32()? {
            stale.push(Stale { salts: self.salts()?, frames: self.u32()? });
        }
        let mut witnesses = Vec::new();
        for _ in 0..self.u32()? {
            witnesses.push(Witness { page: self.u32()?, crc: self.u32()? });
        }
        Some(Base { kind, salts, page_bytes, change_counter, frames, checksum, stale, witnesses })
    }
}
