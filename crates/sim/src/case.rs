//! The short id of a run, and of one crash in it, which is enough to repeat it exactly.
//!
//! ```text
//! random:17:60:journal                              a run: workload, seed, operations, data mode
//! random:17:60:journal:nvram:xor-lzo                with its journal on NVRAM, and DJFS' codec
//! random:17:60:journal@cut=123,sub=5                a crash of it: cut, choice of what survives
//! random:17:60:journal@cut=123,sub=5,recut=4,resub=2    a crash of the recovery from that
//! ```
//! The place of the journal (`volume`, `nvram`, `device`) and the codec of deltas (`runs`,
//! `copies`, `xor-lzo`, `whole`) may be left out if they are the first ones. A last word `early`
//! says that regions go home early, as in DJFS.

use std::fmt;
use std::str::FromStr;

use ext4::{CheckpointPolicy, DataMode, DeltaCodec};
use onejournal_testing::Survival;

use crate::content::mix;
use crate::format::Shape;
use crate::workload::Workload;

/// A run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// What is done.
    pub workload: Workload,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of operations asked for; a hand-written workload may do a few more.
    pub op_count: usize,
    /// Route of file data.
    pub data_mode: DataMode,
    /// The journal.
    pub journal: JournalKind,
}

/// The place of a journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum JournalOn {
    /// In the volume.
    #[default]
    Volume,
    /// On simulated NVRAM: a crash keeps any of the words that were not fenced.
    Nvram,
    /// On a device of its own.
    Device,
}

impl JournalOn {
    /// All of them.
    pub const ALL: [JournalOn; 3] = [JournalOn::Volume, JournalOn::Nvram, JournalOn::Device];

    fn name(self) -> &'static str {
        match self {
            JournalOn::Volume => "volume",
            JournalOn::Nvram => "nvram",
            JournalOn::Device => "device",
        }
    }

    /// As of a mount.
    fn usual_codec(self) -> DeltaCodec {
        match self {
            JournalOn::Volume | JournalOn::Device => DeltaCodec::Copies,
            JournalOn::Nvram => DeltaCodec::Runs,
        }
    }
}

/// The place of a journal, its encoding of deltas, and when its regions go home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalKind {
    /// Where it is.
    pub on: JournalOn,
    /// How deltas are encoded.
    pub codec: DeltaCodec,
    /// When a filled region is brought home.
    pub checkpoint: CheckpointPolicy,
}

impl Default for JournalKind {
    fn default() -> Self {
        JournalKind {
            on: JournalOn::default(),
            codec: DeltaCodec::Copies,
            checkpoint: CheckpointPolicy::Late,
        }
    }
}

const CODECS: [(DeltaCodec, &str); 4] = [
    (DeltaCodec::Copies, "copies"),
    (DeltaCodec::Runs, "runs"),
    (DeltaCodec::XorLzo, "xor-lzo"),
    (DeltaCodec::Whole, "whole"),
];

const EARLY: &str = "early";

impl JournalKind {
    /// Every place with every codec, the default first, and with all that DJFS does.
    pub fn all() -> Vec<JournalKind> {
        let late = CheckpointPolicy::Late;
        let djfs = (DeltaCodec::XorLzo, CheckpointPolicy::Early);
        let kinds = CODECS.map(|(codec, _)| (codec, late)).into_iter().chain([djfs]);
        let on = |on| {
            let with = move |(codec, checkpoint)| JournalKind { on, codec, checkpoint };
            kinds.clone().map(with)
        };
        JournalOn::ALL.into_iter().flat_map(on).collect()
    }

    /// Sets the place with its usual codec, the codec, or the policy from a word of an id.
    fn with(self, word: &str) -> Result<JournalKind, String> {
        if word == EARLY {
            return Ok(JournalKind { checkpoint: CheckpointPolicy::Early, ..self });
        }
        if let Some(on) = JournalOn::ALL.into_iter().find(|on| on.name() == word) {
            return Ok(JournalKind { on, codec: on.usual_codec(), ..self });
        }
        match CODECS.into_iter().find(|(_, name)| *name == word) {
            Some((codec, _)) => Ok(JournalKind { codec, ..self }),
            None => Err(format!("{word} is no place of a journal, no codec and not {EARLY}")),
        }
    }
}

impl fmt::Display for JournalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codec = CODECS.into_iter().find(|(codec, _)| *codec == self.codec);
        let codec = codec.map(|(_, name)| name).unwrap_or_default();
        write!(f, "{}:{codec}", self.on.name())?;
        if self.checkpoint == CheckpointPolicy::Early { write!(f, ":{EARLY}") } else { Ok(()) }
    }
}

impl FromStr for JournalKind {
    type Err = String;

    fn from_str(text: &str) -> Result<JournalKind, String> {
        text.split(':').try_fold(JournalKind::default(), JournalKind::with)
    }
}

impl Case {
    /// The shape of the volume, chosen by the seed.
    pub fn shape(&self) -> Shape {
        let index = usize::try_from(mix(self.seed ^ 0x5a) % 4).expect("below 4");
        Shape::ALL[index]
    }
}

/// A power cut, and what survived it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crash {
    /// Number of events on all media that had ended.
    pub cut: usize,
    /// 0 to 3: the extremes of [`Survival`]; larger numbers are random.
    pub sub: u32,
}

impl Crash {
    /// What survives in this crash of that run.
    pub fn survival(self, case: &Case) -> Survival {
        match usize::try_from(self.sub).ok().and_then(|sub| Survival::EXTREMES.get(sub)) {
            Some(extreme) => *extreme,
            None => Survival::Random(mix(case.seed ^ u64::from(self.sub) << 32)),
        }
    }
}

/// A run, or one crash in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    /// The run.
    pub case: Case,
    /// The crash.
    pub crash: Option<Crash>,
    /// A second crash, during the recovery from the first.
    pub again: Option<Crash>,
}

impl Id {
    /// The run itself.
    pub fn run(case: Case) -> Id {
        Id { case, crash: None, again: None }
    }
}

/// The mode of that name.
pub fn mode_of(name: &str) -> Result<DataMode, String> {
    DataMode::from_name(name).ok_or_else(|| format!("{name} is not a data mode"))
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { workload, seed, op_count, data_mode, journal } = self;
        write!(f, "{workload}:{seed}:{op_count}:{}", data_mode.name())?;
        if *journal == JournalKind::default() { Ok(()) } else { write!(f, ":{journal}") }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.case)?;
        if let Some(Crash { cut, sub }) = self.crash {
            write!(f, "@cut={cut},sub={sub}")?;
        }
        if let Some(Crash { cut, sub }) = self.again {
            write!(f, ",recut={cut},resub={sub}")?;
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let [workload, seed, op_count, mode, ref journal @ ..] = parts[..] else {
            return Err(format!("{text}: not WORKLOAD:SEED:OPERATIONS:MODE[:JOURNAL][:CODEC]"));
        };
        Ok(Case {
            workload: workload.parse()?,
            seed: seed.parse().map_err(|e| format!("seed {seed}: {e}"))?,
            op_count: op_count.parse().map_err(|e| format!("operations {op_count}: {e}"))?,
            data_mode: mode_of(mode)?,
            journal: journal
                .iter()
                .try_fold(JournalKind::default(), |kind, word| kind.with(word))?,
        })
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Id, String> {
        let Some((case, crash)) = text.split_once('@') else { return Ok(Id::run(text.parse()?)) };
        let mut numbers = Vec::new();
        for (part, name) in crash.split(',').zip(["cut", "sub", "recut", "resub"]) {
            let number = part.strip_prefix(name).and_then(|part| part.strip_prefix('='));
            let number = number.and_then(|number| number.parse::<u32>().ok());
            numbers.push(number.ok_or_else(|| format!("{part}: not {name}=NUMBER"))?);
        }
        let crash =
            |cut: u32, sub| Some(Crash { cut: usize::try_from(cut).expect("32 bits fit"), sub });
        let case = case.parse()?;
        match numbers[..] {
            [cut, sub] => Ok(Id { case, crash: crash(cut, sub), again: None }),
            [cut, sub, recut, resub] => {
                Ok(Id { case, crash: crash(cut, sub), again: crash(recut, resub) })
            }
            _ => Err(format!("{crash:?}: not cut=N,sub=N[,recut=N,resub=N]", crash = text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_as_it_prints() {
        for text in [
            "random:17:60:journal",
            "random:17:60:ordered@cut=123,sub=5",
            "orphans:1:2:journal@cut=3,sub=4,recut=5,resub=6",
            "writers:3:4:delta:nvram:xor-lzo@cut=3,sub=4",
            "writers:3:4:delta:volume:xor-lzo",
            "writers:3:4:delta:nvram:xor-lzo:early",
        ] {
            assert_eq!(text.parse::<Id>().expect("parses").to_string(), text);
        }
        let short = "random:1:2:journal:device".parse::<Id>().expect("parses");
        assert_eq!(short.to_string(), "random:1:2:journal:device:copies");
        for text in [
            "random",
            "random:1:2",
            "random:1:2:journal:moon",
            "nothing:1:2:journal",
            "random:1:2:journal@cut=1",
        ] {
            assert!(text.parse::<Id>().is_err(), "{text}");
        }
    }
}
