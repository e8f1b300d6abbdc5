//! The blocks that the region of the last record holds as they are, for records that copy them.

use super::codec::DeltaCodec;
use super::codec::copy::{Place, Sources};
use super::contents::Committing;
use super::encode::Encoded;
use crate::faults::{self, Fault};
use crate::types::Tid;

/// The blocks of one region.
pub(crate) struct Held {
    /// Whether the codec copies them.
    are_wanted: bool,
    /// The region's first transaction, which tells it from all others.
    region: Option<Tid>,
    sources: Sources,
}

impl Held {
    /// At most so many blocks are known.
    pub(crate) fn new(codec: DeltaCodec, block_count_max: usize) -> Held {
        let are_wanted = codec == DeltaCodec::Copies;
        Held { are_wanted, region: None, sources: Sources::new(block_count_max) }
    }

    /// The blocks of the region with this first transaction (`None`: it has no record). Forgets
    /// those of another region.
    pub(crate) fn of_region(&mut self, region: Option<Tid>) -> &Sources {
        let is_other = region.is_none() || region != self.region;
        if is_other && !faults::is(Fault::CopyAcrossRegions) {
            self.sources.clear();
        }
        &self.sources
    }

    /// The region with the first transaction `region` has this record, so many bytes after its
    /// start.
    pub(crate) fn add(
        &mut self,
        (region, start_bytes): (Tid, u64),
        transaction: &Committing,
        encoded: &Encoded<'_>,
    ) {
        if !self.are_wanted {
            return;
        }
        self.region = Some(region);
        // A larger region is not addressed to its end.
        let Ok(record) = u32::try_from(start_bytes / 8) else { return };
        let blocks: Vec<_> = transaction.blocks.values().collect();
        for (index, offset) in encoded.blocks_as_they_are() {
            let Ok(mut offset) = u32::try_from(offset) else { return };
            if faults::is(Fault::CopyBesideSource) {
                offset += 8;
            }
            self.sources.add(blocks[index].version.clone(), Place { record, offset });
        }
    }
}
