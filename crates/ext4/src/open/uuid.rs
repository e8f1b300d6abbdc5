//! UUIDs of journals: made, and as people write them.

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

/// A UUID as people write it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
