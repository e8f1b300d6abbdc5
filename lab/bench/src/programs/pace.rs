//! How evenly transactions end: dips, such as at a database's checkpoints.

/// Length of the windows in which transactions are counted.
const WINDOW_US: u64 = 250_000;
/// With fewer windows there is no typical one.
const WINDOW_COUNT_MIN: usize = 4;

/// Transactions of the slowest quarter of a second, as a part of the median quarter's. `ends_us`
/// are the times at which transactions ended, in any order, in microseconds of any clock. Windows
/// begin with the first of them, and the last window is dropped because it is not whole. `None` if
/// there are fewer than four windows.
pub fn slowest_window(ends_us: &[u64]) -> Option<f64> {
    let (first, last) = (ends_us.iter().min()?, ends_us.iter().max()?);
    let window_count = usize::try_from((last - first) / WINDOW_US).ok()?;
    if window_count < WINDOW_COUNT_MIN {
        return None;
    }
    let mut windows = vec![0_u32; window_count];
    for end in ends_us {
        let window = usize::try_from((end - first) / WINDOW_US).ok()?;
        if let Some(count) = windows.get_mut(window) {
            *count += 1;
        }
    }
    windows.sort_unstable();
    let median = windows[window_count / 2];
    (median > 0).then(|| f64::from(windows[0]) / f64::from(median))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This many transactions in each window.
    fn ends(counts: &[u64]) -> Vec<u64> {
        let window = |(index, count): (u64, &u64)| {
            let count = *count;
            (0..count).map(move |number| index * WINDOW_US + number * WINDOW_US / count)
        };
        (0..).zip(counts).flat_map(window).collect()
    }

    #[test]
    fn a_dip_is_found_and_the_last_window_is_dropped() {
        assert_eq!(slowest_window(&ends(&[100, 100, 25, 100, 120, 3])), Some(0.25));
        assert_eq!(slowest_window(&ends(&[100, 100, 0, 100, 120, 3])), Some(0.0));
        assert_eq!(slowest_window(&ends(&[50, 50, 50, 50, 50])), Some(1.0));
    }

    #[test]
    fn a_short_run_has_no_typical_window() {
        assert_eq!(slowest_window(&ends(&[100, 100, 25, 100])), None);
        assert_eq!(slowest_window(&[7]), None);
        assert_eq!(slowest_window(&[]), None);
        // Nothing in most windows.
        assert_eq!(slowest_window(&ends(&[1, 0, 0, 0, 0, 1])), None);
    }
}
