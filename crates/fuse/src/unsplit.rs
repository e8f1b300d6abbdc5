//! The largest write of a program that the kernel passes on as one request.
//!
//! A request has a limited number of bytes, and of pages of memory. Memory that does not begin at a
//! page boundary is on one page more than its length needs. So an aligned write from any memory is
//! half as large as a request.

use crate::transport::receive::MAX_TRANSFER_BYTES;

/// The most pages of a request, for all FUSE mounts of the machine (Linux 6.13). An older kernel
/// has a fixed limit of [`USUAL_PAGE_COUNT`].
const PAGE_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";
const USUAL_PAGE_COUNT: usize = 256;

/// Bytes, a power of two: a `write` of at most so many bytes that is aligned in the file (it begins
/// at a multiple of its size, which is a power of two) reaches the file system of a new connection
/// as one request. 0: there is no such size.
///
/// It holds for memory at any address with `O_DIRECT`. Without `O_DIRECT` the kernel copies the
/// data, and splits a write where it meets a page of memory that is not resident, unless the memory
/// begins at a page boundary. It does not hold with [`crate::MountOptions::writeback_cache`].
pub fn unsplit_write_bytes() -> usize {
    let limit = std::fs::read_to_string(PAGE_LIMIT).ok();
    let limit = limit.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL_PAGE_COUNT);
    unsplit_bytes(limit, rustix::param::page_size())
}

fn unsplit_bytes(page_limit: usize, page_bytes: usize) -> usize {
    let page_count = (MAX_TRANSFER_BYTES / page_bytes).min(page_limit);
    let bytes = page_count.saturating_sub(1) * page_bytes;
    bytes.checked_ilog2().map_or(0, |log2| 1 << log2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_is_for_memory_that_is_not_aligned() {
        assert_eq!(unsplit_bytes(256, 4096), 512 << 10);
        assert_eq!(unsplit_bytes(65_535, 4096), 512 << 10, "a request has 1 MiB");
        assert_eq!(unsplit_bytes(256, 65_536), 512 << 10, "16 large pages");
        assert_eq!(unsplit_bytes(32, 4096), 64 << 10);
        assert_eq!(unsplit_bytes(2, 4096), 4096);
        assert_eq!(unsplit_bytes(1, 4096), 0);
    }
}
