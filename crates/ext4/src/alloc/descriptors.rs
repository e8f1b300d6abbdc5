//! Writing group descriptors.

use zerocopy::IntoBytes;

use crate::Result;
use crate::layout::group::GroupDesc;
use crate::op::Op;

impl Op<'_> {
    /// Writes a group's descriptor, with its checksum.
    pub(super) fn put_desc(&mut self, group: u32, desc: &GroupDesc) -> Result<()> {
        let facts = &self.mounted().facts;
        let mut desc = *desc;
        if facts.checksums.groups_enabled() {
            desc.bg_checksum.set(facts.checksums.group_desc(group, &desc));
        }
        let (block, offset) = facts.geometry.desc_place(group);
        let size = facts.geometry.desc_bytes;
        let bytes = self.write_block(block)?;
        bytes[offset..offset + size].copy_from_slice(&desc.as_bytes()[..size]);
        Ok(())
    }
}
