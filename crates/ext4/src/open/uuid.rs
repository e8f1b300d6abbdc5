//! UUIDs of new journals.

/// A random (version 4) UUID.
pub(super) fn random_uuid(seed: u64) -> [u8; 16] {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut uuid = [0; 16];
    for half in uuid.chunks_exact_mut(8) {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(seed);
        half.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}
