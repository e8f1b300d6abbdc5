//! Which way the data of an operation go, and the attempt after one that was undone.

use crate::error::{Error, Result};
use crate::op::Undone;

/// The way of the whole blocks of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Home from the caller's buffer, to other blocks: `held_count` blocks that hold data are freed
    /// first.
    Redirect { held_count: u64 },
    /// Home from the caller's buffer.
    Direct,
    /// Through the operation, as copies that were made before its handle was opened.
    Copied,
}

/// The credits that the operation of a chunk asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// For a few allocations.
    Few,
    /// For an allocation of each block, as far as a transaction has them.
    Most,
}

/// The attempt that follows when the operation of a chunk was undone.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The same chunk, with [`Ask::Most`].
    AskForMost,
    /// As much of it as an operation can hold, [`Way::Copied`].
    Copy,
    /// Its start, at most this long, which ends between units.
    CutAtUnit(usize),
    /// Its first bytes.
    CutAt(usize),
}

/// The attempt that follows when the operation of a chunk was undone for this reason.
pub(super) fn next_attempt(way: Way, ask: Ask, undone: Undone) -> Result<Next> {
    match (way, undone) {
        (_, Undone::Failed(error)) => Err(error),
        // A chunk that cannot be redirected as a whole goes through the journal.
        (Way::Redirect { .. }, _) | (_, Undone::NeedsCopies) => Ok(Next::Copy),
        (_, Undone::NeedsCredits { .. }) if ask == Ask::Few => Ok(Next::AskForMost),
        // A chunk that even the largest operation cannot write is cut.
        (_, Undone::NeedsCredits { fitting }) => {
            assert!(fitting > 0, "a transaction has room for one block of data");
            Ok(Next::CutAtUnit(fitting))
        }
        (_, Undone::NoSpace { fitting: 0 }) => Err(Error::NoSpace),
        // The blocks of the last piece may have no node to be mapped by: nothing of this operation
        // can be kept. The part that fits is written once more, alone.
        (_, Undone::NoSpace { fitting }) => Ok(Next::CutAt(fitting)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reasons: needs credits, needs copies, no space for any of the data, no space for all of
    /// them, another error.
    #[test]
    fn next_attempt_after_each_way_and_reason() {
        let redirected = "Ok(Copy) Ok(Copy) Ok(Copy) Ok(Copy) Err(NotFound)";
        let few = "Ok(AskForMost) Ok(Copy) Err(NoSpace) Ok(CutAt(7)) Err(NotFound)";
        let most = "Ok(CutAtUnit(7)) Ok(Copy) Err(NoSpace) Ok(CutAt(7)) Err(NotFound)";
        for (way, if_few, if_most) in [
            (Way::Redirect { held_count: 1 }, redirected, redirected),
            (Way::Direct, few, most),
            (Way::Copied, few, most),
        ] {
            for (ask, expected) in [(Ask::Few, if_few), (Ask::Most, if_most)] {
                let reasons = [
                    Undone::NeedsCredits { fitting: 7 },
                    Undone::NeedsCopies,
                    Undone::NoSpace { fitting: 0 },
                    Undone::NoSpace { fitting: 7 },
                    Undone::Failed(Error::NotFound),
                ];
                let next = reasons.map(|reason| format!("{:?}", next_attempt(way, ask, reason)));
                assert_eq!(next.join(" "), expected, "{way:?}, {ask:?}");
            }
        }
    }
}
