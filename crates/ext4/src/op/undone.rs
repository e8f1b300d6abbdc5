//! Why an operation is undone.

use crate::error::Error;

/// Why an operation is undone. `F` says how far it came: bytes of data, or a logical block.
#[derive(Debug)]
pub(crate) enum Undone<F = usize> {
    /// It has not enough credits for everything, but for the part up to here.
    NeedsCredits { fitting: F },
    /// Some of the whole blocks cannot go home directly.
    NeedsCopies,
    /// The volume is full. Blocks were found for the part up to here.
    NoSpace { fitting: F },
    /// Any other error.
    Failed(Error),
}

impl<F> Undone<F> {
    pub(crate) fn new(error: Error, fitting: F) -> Undone<F> {
        match error {
            Error::NoSpace => Undone::NoSpace { fitting },
            error => Undone::Failed(error),
        }
    }
}

impl<F: Default> From<Error> for Undone<F> {
    fn from(error: Error) -> Undone<F> {
        Undone::new(error, F::default())
    }
}

/// The error of an operation that is not tried again.
impl<F> From<Undone<F>> for Error {
    fn from(undone: Undone<F>) -> Error {
        match undone {
            Undone::NeedsCredits { .. } | Undone::NoSpace { .. } => Error::NoSpace,
            Undone::NeedsCopies => unreachable!("only a chunk without copies needs them"),
            Undone::Failed(error) => error,
        }
    }
}
