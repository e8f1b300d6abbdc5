//! The first page of a device after a measurement. It says that what the device held at its
//! beginning is gone already.

/// One page, so that nothing else is in it: a file system has its superblock there.
const MARK_BYTES: usize = 4096;

const TEXT: &[u8] =
    b"onejournal probe has overwritten the beginning of this device with random bytes.\n";

/// The page.
pub fn mark() -> [u8; MARK_BYTES] {
    let mut page = [0; MARK_BYTES];
    page[..TEXT.len()].copy_from_slice(TEXT);
    page
}

/// Whether a device whose first bytes these are begins with the page.
pub fn is_mark(head: &[u8]) -> bool {
    head.get(..MARK_BYTES) == Some(&mark()[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_the_whole_page() {
        let mut page = mark().to_vec();
        assert!(is_mark(&page) && !is_mark(&page[..4095]) && !is_mark(&[0; 4096]));
        page.push(9);
        assert!(is_mark(&page));
        page[4095] = 1;
        assert!(!is_mark(&page));
    }
}
