//! The bytes of SQLite's WAL file, as far as the extension reads them: the header, frame headers,
//! and the chain of checksums (the file format:
//! <https://www.sqlite.org/fileformat2.html#walformat>).

/// Bytes of the file's header.
pub const HEADER_BYTES: usize = 32;
/// Bytes of a frame's header; the page follows.
pub const FRAME_HEADER_BYTES: usize = 24;

const MAGIC: u32 = 0x377f_0682;

/// Salts of a generation. A WAL that begins again gets other salts.
pub type Salts = [u8; 8];
/// The two words of SQLite's running checksum.
pub type Checksum = [u32; 2];

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// SQLite's checksum over a multiple of eight bytes, continued from `from`.
///
/// Each step needs the result of the previous one, so a page takes 1024 times the latency of a
/// step. But a step is linear: the sum over a piece is the sum from zeros, plus the result of the
/// steps for the start value alone. So the pieces of a page are summed in parallel.
pub fn checksum(is_big_endian: bool, from: Checksum, bytes: &[u8]) -> Checksum {
    debug_assert!(bytes.len().is_multiple_of(8));
    match is_big_endian {
        true => checksum_of(from, bytes, u32::swap_bytes),
        false => checksum_of(from, bytes, |word| word),
    }
}

fn checksum_of(from: Checksum, bytes: &[u8], word: impl Fn(u32) -> u32) -> Checksum {
    let (pairs, _) = bytes.as_chunks::<8>();
    // Four pieces of so many steps, and what is left.
    let count = pairs.len() / 4;
    let (first, behind) = pairs.split_at(count);
    let (second, behind) = behind.split_at(count);
    let (third, behind) = behind.split_at(count);
    let (fourth, rest) = behind.split_at(count);
    // Each sum in variables of its own, so that they stay in registers.
    let [mut a0, mut a1] = from;
    let [mut b0, mut b1, mut c0, mut c1, mut d0, mut d1] = [0_u32; 6];
    let step = |s0: &mut u32, s1: &mut u32, pair: &[u8; 8]| {
        let pair = u64::from_le_bytes(*pair);
        *s0 = s0.wrapping_add(word(pair as u32)).wrapping_add(*s1);
        *s1 = s1.wrapping_add(word((pair >> 32) as u32)).wrapping_add(*s0);
    };
    for (((a, b), c), d) in first.iter().zip(second).zip(third).zip(fourth) {
        step(&mut a0, &mut a1, a);
        step(&mut b0, &mut b1, b);
        step(&mut c0, &mut c1, c);
        step(&mut d0, &mut d1, d);
    }
    let steps = Steps::of(count);
    let pieces = [[b0, b1], [c0, c1], [d0, d1]];
    let [mut s0, mut s1] = pieces.into_iter().fold([a0, a1], |sum, piece| steps.then(sum, piece));
    rest.iter().for_each(|pair| step(&mut s0, &mut s1, pair));
    [s0, s1]
}

/// The effect of a number of steps over zeros on a sum: a symmetric matrix.
#[derive(Clone, Copy)]
struct Steps([u32; 3]);

impl Steps {
    fn of(mut count: usize) -> Steps {
        let (mut all, mut power) = (Steps([1, 0, 1]), Steps([1, 1, 2]));
        while count > 0 {
            if count % 2 == 1 {
                all = all.and(power);
            }
            power = power.and(power);
            count /= 2;
        }
        all
    }

    /// The steps of both, one after the other. Both are powers of the same matrix, so their order
    /// does not matter.
    fn and(self, Steps([d, e, f]): Steps) -> Steps {
        let Steps([a, b, c]) = self;
        let dot =
            |x: u32, y: u32, z: u32, w: u32| x.wrapping_mul(y).wrapping_add(z.wrapping_mul(w));
        Steps([dot(a, d, b, e), dot(a, e, b, f), dot(b, e, c, f)])
    }

    /// `sum` after these steps.
    fn over_zeros(self, [s0, s1]: Checksum) -> Checksum {
        let Steps([a, b, c]) = self;
        let dot = |x: u32, y: u32| x.wrapping_mul(s0).wrapping_add(y.wrapping_mul(s1));
        [dot(a, b), dot(b, c)]
    }

    /// The sum of a piece with this number of steps, continued from `sum`, if its sum from zeros is
    /// `piece`.
    fn then(self, sum: Checksum, [p0, p1]: Checksum) -> Checksum {
        let [s0, s1] = self.over_zeros(sum);
        [s0.wrapping_add(p0), s1.wrapping_add(p1)]
    }

    /// The sum of the piece from zeros, if the sum continued from `sum` is `all`.
    fn alone(self, sum: Checksum, [all0, all1]: Checksum) -> Checksum {
        let [s0, s1] = self.over_zeros(sum);
        [all0.wrapping_sub(s0), all1.wrapping_sub(s1)]
    }
}

/// The checksum of a frame's page alone, from zeros, computed from the checksum of the frame and
/// that of the previous frame.
pub fn page_checksum(
    is_big_endian: bool,
    before: Checksum,
    frame: &FrameHeader,
    page_bytes: usize,
) -> Checksum {
    let mut front = [0; 8];
    front[..4].copy_from_slice(&frame.page.to_be_bytes());
    front[4..].copy_from_slice(&frame.commit_pages.to_be_bytes());
    let sum = checksum(is_big_endian, before, &front);
    Steps::of(page_bytes / 8).alone(sum, frame.checksum)
}

/// The header of a WAL file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of a page: a power of two, 512 to 65,536.
    pub page_bytes: usize,
    /// Salts of the generation.
    pub salts: Salts,
    /// Checksum of the header, from which that of the first frame continues.
    pub checksum: Checksum,
    /// Whether checksums are over big-endian words.
    pub is_big_endian: bool,
}

impl Header {
    /// The header, if `bytes` begin with a valid one.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let magic = be32(bytes, 0);
        let is_big_endian = magic & 1 == 1;
        let page_bytes = be32(bytes, 8) as usize;
        let sum = checksum(is_big_endian, [0; 2], &bytes[..24]);
        let is_valid = magic & !1 == MAGIC
            && page_bytes.is_power_of_two()
            && (512..=65536).contains(&page_bytes)
            && sum == [be32(bytes, 24), be32(bytes, 28)];
        let salts = bytes[16..24].try_into().expect("eight bytes");
        is_valid.then_some(Header { page_bytes, salts, checksum: sum, is_big_endian })
    }

    /// Bytes of a frame.
    pub fn frame_bytes(&self) -> u64 {
        (FRAME_HEADER_BYTES + self.page_bytes) as u64
    }

    /// Where frame `number` begins; the first is 1.
    pub fn frame_at(&self, number: u32) -> u64 {
        debug_assert!(number > 0);
        HEADER_BYTES as u64 + u64::from(number - 1) * self.frame_bytes()
    }

    /// How many whole frames fit before `end`.
    pub fn frames_before(&self, end: u64) -> u32 {
        let count = end.saturating_sub(HEADER_BYTES as u64) / self.frame_bytes();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The checksum of `frame`, if that of the previous frame is `from`.
    pub fn frame_checksum(&self, from: Checksum, frame: &[u8]) -> Checksum {
        let sum = checksum(self.is_big_endian, from, &frame[..8]);
        checksum(self.is_big_endian, sum, &frame[FRAME_HEADER_BYTES..])
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Number of the page.
    pub page: u32,
    /// In the last frame of a transaction the database's size in pages, else 0.
    pub commit_pages: u32,
    /// Salts of the frame's generation.
    pub salts: Salts,
    /// Checksum up to and including this frame.
    pub checksum: Checksum,
}

impl FrameHeader {
    /// The header at the front of `bytes`, which are at least [`FRAME_HEADER_BYTES`].
    pub fn parse(bytes: &[u8]) -> FrameHeader {
        FrameHeader {
            page: be32(bytes, 0),
            commit_pages: be32(bytes, 4),
            salts: bytes[8..16].try_into().expect("eight bytes"),
            checksum: [be32(bytes, 16), be32(bytes, 20)],
        }
    }
}

/// The change counter in a database's header. `page` has the first bytes of the header.
pub fn change_counter(page: &[u8]) -> u32 {
    be32(page, 24)
}

/// The page size in a database's header; `None` if it is not a database.
pub fn database_page_bytes(header: &[u8]) -> Option<usize> {
    if header.get(..16)? != b"SQLite format 3\0" {
        return None;
    }
    match usize::from(u16::from_be_bytes(header.get(16..18)?.try_into().ok()?)) {
        1 => Some(65536),
        size if size.is_power_of_two() && size >= 512 => Some(size),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header that SQLite 3.40 wrote.
    #[test]
    fn golden_header() {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&0x377f_0682_u32.to_be_bytes());
        bytes[4..8].copy_from_slice(&3_007_000_u32.to_be_bytes());
        bytes[8..12].copy_from_slice(&4096_u32.to_be_bytes());
        bytes[16..24].copy_from_slice(b"saltsalt");
        assert_eq!(Header::parse(&bytes), None, "no checksum");
        let sum = checksum(false, [0; 2], &bytes[..24]);
        bytes[24..28].copy_from_slice(&sum[0].to_be_bytes());
        bytes[28..].copy_from_slice(&sum[1].to_be_bytes());
        let header = Header::parse(&bytes).expect("valid");
        assert_eq!((header.page_bytes, &header.salts), (4096, b"saltsalt"));
        assert_eq!((header.frame_at(1), header.frame_at(3)), (32, 32 + 2 * 4120));
        assert_eq!((header.frames_before(4151), header.frames_before(4152)), (0, 1));
        bytes[9] ^= 1;
        assert_eq!(Header::parse(&bytes), None);
        assert_eq!(Header::parse(&bytes[..31]), None);
    }

    #[test]
    fn checksum_of_both_byte_orders() {
        let bytes = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0];
        assert_eq!(checksum(false, [0; 2], &bytes), [7, 14]);
        let swapped: Vec<u8> =
            bytes.chunks(4).flat_map(|four| four.iter().rev().copied()).collect();
        assert_eq!(checksum(true, [0; 2], &swapped), [7, 14]);
    }

    /// The checksum by the file format's description, one step after the other.
    fn checksum_in_steps(
        is_big_endian: bool,
        [mut s0, mut s1]: Checksum,
        bytes: &[u8],
    ) -> Checksum {
        let word = |four: &[u8]| {
            let four = four.try_into().expect("four bytes");
            if is_big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
        };
        for pair in bytes.chunks_exact(8) {
            s0 = s0.wrapping_add(word(&pair[..4])).wrapping_add(s1);
            s1 = s1.wrapping_add(word(&pair[4..])).wrapping_add(s0);
        }
        [s0, s1]
    }

    /// With any sum before a page.
    #[test]
    fn a_page_has_a_checksum_by_itself() {
        let mut random = fastrand::Rng::with_seed(5);
        for size in 9..=16 {
            let page_bytes = 1 << size;
            for is_big_endian in [false, true] {
                let header = Header { page_bytes, salts: [1; 8], checksum: [0; 2], is_big_endian };
                let mut frame: Vec<u8> =
                    (0..FRAME_HEADER_BYTES + page_bytes).map(|_| random.u8(..)).collect();
                let before = [random.u32(..), random.u32(..)];
                let sum = header.frame_checksum(before, &frame);
                frame[16..20].copy_from_slice(&sum[0].to_be_bytes());
                frame[20..24].copy_from_slice(&sum[1].to_be_bytes());
                let wanted = checksum(is_big_endian, [0; 2], &frame[FRAME_HEADER_BYTES..]);
                let parsed = FrameHeader::parse(&frame);
                assert_eq!(page_checksum(is_big_endian, before, &parsed, page_bytes), wanted);
            }
        }
    }

    #[test]
    fn checksum_of_every_length() {
        let mut random = fastrand::Rng::with_seed(3);
        let bytes: Vec<u8> = (0..65536).map(|_| random.u8(..)).collect();
        for pairs in (0..100).chain([128, 512, 4096, 8191, 8192]) {
            for is_big_endian in [false, true] {
                let (from, bytes) = ([random.u32(..), random.u32(..)], &bytes[..pairs * 8]);
                let sums = [checksum, checksum_in_steps].map(|sum| sum(is_big_endian, from, bytes));
                assert_eq!(sums[0], sums[1], "{pairs} pairs");
            }
        }
    }
}
