//! Marks that actors set in the trace.

/// A mark in the trace: an actor's step begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub actor: usize,
    pub step: usize,
    pub moment: Moment,
}

/// The moments of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Begin,
    Done,
    Refused,
    /// Refused for lack of space, which the model does not know.
    NoRoom,
}

impl Mark {
    /// As a number in the trace.
    pub fn number(self) -> u64 {
        (self.actor as u64) << 40 | (self.step as u64) << 2 | self.moment as u64
    }

    /// From a number in the trace.
    pub fn from_number(number: u64) -> Mark {
        let moment = match number & 3 {
            0 => Moment::Begin,
            1 => Moment::Done,
            2 => Moment::Refused,
            _ => Moment::NoRoom,
        };
        let low = |value: u64| usize::try_from(value).expect("small numbers");
        Mark { actor: low(number >> 40), step: low(number >> 2 & 0xf_ffff_ffff), moment }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_from_its_number() {
        for moment in [Moment::Begin, Moment::Done, Moment::Refused, Moment::NoRoom] {
            let mark = Mark { actor: 3, step: 70_000, moment };
            assert_eq!(Mark::from_number(mark.number()), mark);
        }
    }
}
