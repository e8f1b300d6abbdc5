//! Contents that are written in place, or in the kernel's order: each byte belongs to some version.

use sim::content::Content;

/// Checks the content of a file, given its versions since its last sync. Each byte must be that of
/// one of the versions, or zero if the file was shorter in one of them. The size must be within the
/// sizes of the versions.
pub fn check(found: &[u8], versions: &[&Content]) -> Result<(), String> {
    let sizes = versions.iter().map(|version| version.bytes().len());
    let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
    if !(least..=most).contains(&found.len()) {
        return Err(format!("{} bytes; its versions have {least} to {most}", found.len()));
    }
    // Nearly always it is one of them.
    if versions.iter().any(|version| version.bytes() == found) {
        return Ok(());
    }
    let is_allowed = |at: usize, byte: u8| {
        byte == 0 && at >= least
            || versions.iter().any(|version| version.bytes().get(at) == Some(&byte))
    };
    match (0..found.len()).find(|at| !is_allowed(*at, found[*at])) {
        None => Ok(()),
        Some(at) => Err(format!(
            "byte {at} is {}, which it was in none of {} versions since the last sync",
            found[at],
            versions.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(found: &[u8], versions: &[&[u8]]) -> Result<(), String> {
        let versions: Vec<Content> =
            versions.iter().map(|bytes| Content::new(bytes.to_vec())).collect();
        check(found, &versions.iter().collect::<Vec<_>>())
    }

    #[test]
    fn bytes_of_several_versions_are_allowed_and_no_others() {
        assert_eq!(judged(&[1, 2, 3], &[&[1, 1, 1], &[2, 2, 3]]), Ok(()));
        assert!(judged(&[1, 2, 9], &[&[1, 1, 1], &[2, 2, 3]]).unwrap_err().contains("byte 2 is 9"));
        assert!(
            judged(&[0, 2, 3], &[&[1, 1, 1], &[2, 2, 3]]).is_err(),
            "a zero that was never there"
        );
    }

    #[test]
    fn a_file_that_grew_may_be_zero_there_and_of_any_size_between() {
        let versions: [&[u8]; 2] = [&[1], &[1, 2, 3, 4]];
        assert_eq!(judged(&[1, 0, 3], &versions), Ok(()));
        assert!(judged(&[], &versions).is_err());
        assert!(judged(&[1, 2, 3, 4, 5], &versions).is_err());
    }
}
