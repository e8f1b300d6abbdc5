//! A page as a record stores it: the bytes that changed since the last version, the bytes that are
//! not zero, or the whole page.
//!
//! ```text
//! delta, sparse: for each 4 KiB of the page (smaller pages are filled up with zeros)
//!                | u16 bytes of the list | list of runs as journal::codec::runs |
//! whole:         the page
//! ```

use journal::codec::runs;

use crate::failure::Failure;

const BLOCK_BYTES: usize = 4096;
static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// How a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// After-images of the runs that differ from the last version.
    Delta = 1,
    /// After-images of the bytes that are not zero, for a page that did not exist before.
    Sparse = 2,
    /// The page.
    Whole = 3,
}

impl Form {
    /// The form with this number.
    pub fn from_number(number: u8) -> Option<Form> {
        [Form::Delta, Form::Sparse, Form::Whole].into_iter().find(|form| *form as u8 == number)
    }
}

/// The block of `page` at `at`. If the page is smaller, `filled` holds the block.
fn block<'a>(
    page: &'a [u8],
    at: usize,
    filled: &'a mut Option<[u8; BLOCK_BYTES]>,
) -> &'a [u8; BLOCK_BYTES] {
    if let Some((block, _)) = page[at..].split_first_chunk() {
        return block;
    }
    let filled = filled.insert([0; BLOCK_BYTES]);
    filled[..page.len() - at].copy_from_slice(&page[at..]);
    filled
}

/// Appends `page` in the smallest form. `base` is its last version; `None` if it did not exist.
pub fn encode(base: Option<&[u8]>, page: &[u8], out: &mut Vec<u8>) -> Form {
    let start = out.len();
    let budget = page.len() - page.len() / 4;
    for at in (0..page.len()).step_by(BLOCK_BYTES) {
        let (mut filled_base, mut filled) = (None, None);
        let base_block = base.map_or(&ZEROS, |base| block(base, at, &mut filled_base));
        let length_at = out.len();
        out.extend_from_slice(&[0; 2]);
        let left = (start + budget).saturating_sub(out.len());
        let Some(bytes) = runs::encode(base_block, block(page, at, &mut filled), left, out) else {
            out.truncate(start);
            out.extend_from_slice(page);
            return Form::Whole;
        };
        let bytes = u16::try_from(bytes).expect("less than three quarters of 64 KiB");
        out[length_at..length_at + 2].copy_from_slice(&bytes.to_le_bytes());
    }
    if base.is_some() { Form::Delta } else { Form::Sparse }
}

/// Changes `page` to the next version. It holds the last version, or any mixture of it with later
/// ones.
pub fn apply(form: Form, bytes: &[u8], page: &mut [u8]) -> Result<(), Failure> {
    let wrong = |what: &str| Failure::Damaged(format!("a record's page: {what}"));
    if form == Form::Whole {
        if bytes.len() != page.len() {
            return Err(wrong("its size is not the database's page size"));
        }
        page.copy_from_slice(bytes);
        return Ok(());
    }
    if form == Form::Sparse {
        page.fill(0);
    }
    let mut rest = bytes;
    for at in (0..page.len()).step_by(BLOCK_BYTES) {
        let (length, behind) = rest.split_at_checked(2).ok_or_else(|| wrong("cut short"))?;
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let (list, behind) = behind.split_at_checked(length).ok_or_else(|| wrong("cut short"))?;
        let mut changed = *block(page, at, &mut None);
        runs::apply(&mut changed, list).map_err(|e| wrong(&e.to_string()))?;
        let end = (at + BLOCK_BYTES).min(page.len());
        page[at..end].copy_from_slice(&changed[..end - at]);
        rest = behind;
    }
    if rest.is_empty() { Ok(()) } else { Err(wrong("bytes after its end")) }
}

/// The offset of a page in the database file.
pub fn page_at(page: u32, page_bytes: usize) -> u64 {
    u64::from(page - 1) * page_bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(onejournal_testing::proptest_config!(256))]

        /// Deltas in order give the last version over any mixture of the versions.
        #[test]
        fn deltas_over_a_mixture(seed: u64, size in 9..=16_u32, steps in 1..6usize) {
            let mut random = fastrand::Rng::with_seed(seed);
            let page_bytes = 1usize << size;
            let mut versions: Vec<Vec<u8>> = vec![(0..page_bytes).map(|_| random.u8(..)).collect()];
            let mut deltas = Vec::new();
            for _ in 0..steps {
                let mut next = versions.last().expect("one").clone();
                for _ in 0..random.usize(..20) {
                    let at = random.usize(..page_bytes);
                    let end = (at + random.usize(..200)).min(page_bytes);
                    next[at..end].fill_with(|| random.u8(..));
                }
                let mut out = Vec::new();
                let form = encode(Some(versions.last().expect("one")), &next, &mut out);
                deltas.push((form, out));
                versions.push(next);
            }
            let mut mixed: Vec<u8> =
                (0..page_bytes).map(|at| versions[random.usize(..versions.len())][at]).collect();
            for (form, bytes) in &deltas {
                apply(*form, bytes, &mut mixed).expect("applies");
            }
            prop_assert!(&mixed == versions.last().expect("one"));
        }

        #[test]
        fn garbage_is_refused_or_applied_without_panic(bytes: Vec<u8>, form in 1..=3u8) {
            let _ = apply(Form::from_number(form).expect("known"), &bytes, &mut [0; 1024]);
        }
    }

    #[test]
    fn a_new_page_is_what_is_not_zero_of_it() {
        let mut page = vec![0; 8192];
        page[5000] = 7;
        let mut out = Vec::new();
        assert_eq!(encode(None, &page, &mut out), Form::Sparse);
        assert!(out.len() < 16);
        let mut found = vec![9; 8192];
        apply(Form::Sparse, &out, &mut found).expect("applies");
        assert_eq!(found, page);
        let mut random = fastrand::Rng::with_seed(1);
        let noise: Vec<u8> = (0..8192).map(|_| random.u8(..)).collect();
        out.clear();
        assert_eq!(encode(None, &noise, &mut out), Form::Whole);
        assert_eq!(out, noise);
    }
}
