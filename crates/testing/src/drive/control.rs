//! Commands to a running disk. Each is one write to `control`.

use std::str::FromStr;

use device::Operation;

use crate::drive::parameters::{ParameterError, Parameters};

/// The commands.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// `reset`: counters to zero.
    Reset,
    /// `set PRESET` or `set KEY=VALUE,...`.
    Set(String),
    /// `trace on` begins a trace, `trace off` ends it.
    Trace(bool),
    /// `region NAME START END`: count writes that begin in these bytes.
    Region {
        /// The name of its counters.
        name: String,
        /// First byte.
        start: u64,
        /// End, not included.
        end: u64,
    },
    /// `regions off`: forget all regions.
    NoRegions,
    /// `power off`: reads, writes and flushes fail, until `power on`.
    Power(bool),
    /// `fail reads`, `fail writes` or `fail flushes`: these fail, and no others. `fail nothing`
    /// ends it.
    Fail(Option<Operation>),
    /// `hold on`: reads, writes and flushes are answered only after `hold off`.
    Hold(bool),
    /// `save`: store the content for `restore`.
    Save,
    /// `restore`: bring back the saved content. All of it counts as flushed.
    Restore,
    /// `crash PROBABILITY SEED`: each sector written since the last flush survives with this
    /// probability.
    Crash {
        /// From 0 (nothing) to 1 (everything).
        survival: f64,
        /// Seed of the random numbers.
        seed: u64,
    },
}

/// Why a text is not a command.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// Not a command, or a part of it is missing.
    #[error(
        "`{0}` is not: reset | set PRESET|KEY=VALUE,... | trace on|off | region NAME START END | \
         regions off | crash PROBABILITY SEED | power on|off | hold on|off | \
         fail reads|writes|flushes|nothing | save | restore"
    )]
    Unknown(String),
    /// A parameter that cannot be set.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
}

impl FromStr for Command {
    type Err = CommandError;

    fn from_str(text: &str) -> Result<Command, CommandError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let parsed = match words[..] {
            ["reset"] => Some(Command::Reset),
            ["set", _, ..] => {
                let list = words[1..].join(",");
                Parameters::preset("zero")?.apply(&list)?;
                Some(Command::Set(list))
            }
            ["trace", "on"] => Some(Command::Trace(true)),
            ["trace", "off"] => Some(Command::Trace(false)),
            ["region", name, start, end] => region(name, start, end),
            ["regions", "off"] => Some(Command::NoRegions),
            ["power", "on"] => Some(Command::Power(true)),
            ["power", "off"] => Some(Command::Power(false)),
            ["fail", "nothing"] => Some(Command::Fail(None)),
            ["fail", "reads"] => Some(Command::Fail(Some(Operation::Read))),
            ["fail", "writes"] => Some(Command::Fail(Some(Operation::Write))),
            ["fail", "flushes"] => Some(Command::Fail(Some(Operation::Flush))),
            ["hold", "on"] => Some(Command::Hold(true)),
            ["hold", "off"] => Some(Command::Hold(false)),
            ["save"] => Some(Command::Save),
            ["restore"] => Some(Command::Restore),
            ["crash", survival, seed] => crash(survival, seed),
            _ => None,
        };
        parsed.ok_or_else(|| CommandError::Unknown(text.trim().to_owned()))
    }
}

fn region(name: &str, start: &str, end: &str) -> Option<Command> {
    let (start, end) = (start.parse().ok()?, end.parse().ok()?);
    (start < end).then(|| Command::Region { name: name.to_owned(), start, end })
}

fn crash(survival: &str, seed: &str) -> Option<Command> {
    let survival = survival.parse().ok()?;
    let seed = seed.parse().ok()?;
    (0.0..=1.0).contains(&survival).then_some(Command::Crash { survival, seed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_and_nonsense_is_refused() {
        let read = |text: &str| text.parse::<Command>().unwrap();
        assert_eq!(read("reset\n"), Command::Reset);
        assert_eq!(read("set ssd840 write_us=3"), Command::Set("ssd840,write_us=3".into()));
        let region = Command::Region { name: "journal".into(), start: 5, end: 6 };
        assert_eq!(read("region journal 5 6"), region);
        assert_eq!((read("power off"), read("save")), (Command::Power(false), Command::Save));
        assert_eq!(read("hold on"), Command::Hold(true));
        assert_eq!(read("fail flushes"), Command::Fail(Some(Operation::Flush)));
        assert_eq!(read("crash 0.5 7"), Command::Crash { survival: 0.5, seed: 7 });
        for text in [
            "",
            "reset now",
            "set",
            "trace",
            "region a 6 6",
            "region a 5",
            "crash 2 1",
            "crash NaN 1",
        ] {
            let message = text.parse::<Command>().unwrap_err().to_string();
            assert!(message.contains("is not: reset"), "{message}");
        }
        assert!(matches!("set none=1".parse::<Command>(), Err(CommandError::Parameter(_))));
    }
}
