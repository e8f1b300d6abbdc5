//! Performs one operation on the volume and on the model.

use ext4::Error;

use crate::model::Model;
use crate::op::Op;
use crate::session::Session;

/// A result about which volume and model agree.
pub enum Outcome {
    /// It succeeded on both.
    Done,
    /// The volume refused it; the model is unchanged.
    Refused(Error),
    /// The medium failed. Contains the model after the operation, if the operation is possible.
    Broken(Error, Option<Box<Model>>),
}

/// Performs `op` on both. The error is a text, if they disagree about the result.
///
/// The volume may refuse an operation for lack of space that the model can perform. Then it must
/// have no effect.
pub fn step(session: &mut Session, model: &mut Model, op: &Op) -> Result<Outcome, String> {
    let real = session.apply(op);
    let mut next = model.clone();
    let expected = next.apply(op, real.as_ref().ok().and_then(|done| done.written_bytes));
    match (real, expected) {
        (Ok(_), Ok(())) => {
            *model = next;
            Ok(Outcome::Done)
        }
        (Err(error @ Error::Journal(_)), expected) => {
            Ok(Outcome::Broken(error, expected.is_ok().then(|| Box::new(next))))
        }
        (Err(error), Err(expected)) if is_same(&error, &expected) => Ok(Outcome::Refused(error)),
        (Err(error @ (Error::NoSpace | Error::AttributeTooLarge)), Ok(())) => {
            Ok(Outcome::Refused(error))
        }
        // Not offered where data do not go through the journal.
        (Err(error @ Error::NotSupported), Ok(())) if matches!(op, Op::WriteAtomic { .. }) => {
            Ok(Outcome::Refused(error))
        }
        (real, expected) => Err(format!(
            "the volume says {}, the model {}",
            outcome(real.map(drop)),
            outcome(expected)
        )),
    }
}

fn is_same(a: &Error, b: &Error) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

fn outcome(result: Result<(), Error>) -> String {
    match result {
        Ok(()) => "it succeeds".into(),
        Err(error) => format!("'{error}'"),
    }
}
