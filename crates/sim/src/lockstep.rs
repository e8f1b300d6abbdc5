//! One operation on the volume and on the model.

use ext4::Error;

use crate::model::Model;
use crate::op::Op;
use crate::session::Session;

/// How an operation ended that volume and model agree about.
pub enum Outcome {
    /// Done on both.
    Done,
    /// Refused by the volume; the model is as before.
    Refused(Error),
    /// The medium failed. What the model would be after the operation, if it can be done.
    Broken(Error, Option<Box<Model>>),
}

/// Does `op` on both. A text when they disagree about the outcome.
///
/// The volume may refuse for want of space what the model can do; then nothing of it happened.
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
