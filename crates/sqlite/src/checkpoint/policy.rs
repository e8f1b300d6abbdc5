//! Who makes the checkpoint that is due after a commit: one table of all cases.

/// When the WAL has this many thresholds of frames, commits begin to help.
pub const GROWTH: u32 = 4;
/// A commit helps if at most this part of a threshold is left to copy.
const REST_PART: u32 = 8;

/// What is known after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Frames in the WAL.
    pub frames: u32,
    /// Frames of these that a pass has copied already.
    pub copied: u32,
    /// The frames at which a checkpoint is due.
    pub threshold: u32,
    pub pass: Pass,
}

/// The last pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// It is under way.
    Running,
    /// It has ended, or there was none.
    Ended,
}

/// What the hook does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: later passes copy what is there.
    Leave,
    /// A pass begins.
    Begin,
    /// The commit makes the checkpoint.
    Help,
    /// The commit waits for the pass under way, and then makes the checkpoint.
    WaitAndHelp,
}

/// Decides.
pub fn decide(case: Case) -> Decision {
    let Case { frames, copied, threshold, pass } = case;
    // The frames of another generation of the WAL were copied then.
    let rest = if copied > frames { frames } else { frames - copied };
    let is_large = frames >= threshold.saturating_mul(GROWTH);
    let is_huge = frames >= threshold.saturating_mul(2 * GROWTH);
    match pass {
        _ if frames < threshold => Decision::Leave,
        Pass::Running if is_huge => Decision::WaitAndHelp,
        Pass::Running => Decision::Leave,
        Pass::Ended if is_huge => Decision::Help,
        Pass::Ended if is_large && rest <= (threshold / REST_PART).max(1) => Decision::Help,
        Pass::Ended if is_large || rest >= threshold => Decision::Begin,
        Pass::Ended => Decision::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::Decision::{Begin, Help, Leave, WaitAndHelp};
    use super::*;

    /// Each row: frames, copied, and the decision while a pass runs, and when it has ended.
    const TABLE: [(u32, u32, [Decision; 2]); 12] = [
        (0, 0, [Leave, Leave]),
        (999, 0, [Leave, Leave]),
        (1000, 0, [Leave, Begin]),
        (1999, 1000, [Leave, Leave]),
        (2000, 1000, [Leave, Begin]),
        (1500, 3000, [Leave, Begin]),
        (3999, 3900, [Leave, Leave]),
        (4000, 3875, [Leave, Help]),
        (4000, 3874, [Leave, Begin]),
        (7999, 1000, [Leave, Begin]),
        (8000, 1000, [WaitAndHelp, Help]),
        (u32::MAX, 0, [WaitAndHelp, Help]),
    ];

    #[test]
    fn every_case_has_its_decision() {
        for (frames, copied, decisions) in TABLE {
            let passes = [Pass::Running, Pass::Ended];
            for (pass, decision) in passes.into_iter().zip(decisions) {
                let case = Case { frames, copied, threshold: 1000, pass };
                assert_eq!(decide(case), decision, "{case:?}");
            }
        }
    }

    #[test]
    fn the_smallest_threshold_lets_the_wal_begin_again() {
        let ended =
            |frames, copied| decide(Case { frames, copied, threshold: 1, pass: Pass::Ended });
        assert_eq!(
            [ended(1, 0), ended(4, 3), ended(4, 2), ended(8, 0)],
            [Begin, Help, Begin, Help]
        );
    }
}
