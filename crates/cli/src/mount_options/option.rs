//! An option of a mount: how it is written, what it takes, and what it sets.

use std::ops::RangeInclusive;

use super::parsed::Parsed;

pub type Str = &'static str;

/// Options that a user finds together.
pub struct Group {
    pub title: Str,
    pub options: &'static [MountOption],
}

impl Group {
    /// Writes each option with its meaning.
    pub fn list(&self, line: impl Fn(&str, &str) -> String) -> String {
        self.options.iter().map(|option| line(&option.shown(), &option.meaning())).collect()
    }
}

pub struct MountOption {
    pub name: Str,
    /// What holds without it, if that is to be said.
    pub default: Str,
    pub help: Str,
    pub kind: Kind,
}

/// What an option takes, and how that is set. Setting a word or a text fails if it is wrong.
pub enum Kind {
    /// No value. The text is an option that takes it back, or empty.
    Flag(Str, fn(&mut Parsed, bool)),
    /// One word of a list such as `late|early`.
    Words(Str, fn(&mut Parsed, &str) -> bool),
    /// A number in the range. The text is its unit.
    Number(RangeInclusive<u32>, Str, fn(&mut Parsed, u32)),
    /// So many bytes or more. The text says whose need that is.
    Size(u64, Str, fn(&mut Parsed, u64)),
    /// A text, as it is shown, and as it must be.
    Text(Str, Str, fn(&mut Parsed, &str) -> bool),
}

impl MountOption {
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || matches!(self.kind, Kind::Flag(off, _) if off == name)
    }

    /// The words that it takes.
    pub fn words(&self) -> impl Iterator<Item = Str> {
        let list = if let Kind::Words(list, _) = self.kind { list } else { "" };
        list.split('|').filter(|word| !word.is_empty())
    }

    /// How it is written, such as `regions=2..16`.
    fn shown(&self) -> String {
        let name = self.name;
        match &self.kind {
            Kind::Flag("", _) => name.to_owned(),
            Kind::Flag(off, _) => format!("{name}, {off}"),
            Kind::Number(range, ..) => format!("{name}={}..{}", range.start(), range.end()),
            Kind::Size(least_bytes, ..) => format!("{name}={}M..", least_bytes >> 20),
            Kind::Words(shown, _) | Kind::Text(shown, ..) => format!("{name}={shown}"),
        }
    }

    /// What it does, and in parentheses the default.
    fn meaning(&self) -> String {
        let default = Some(self.default).filter(|default| !default.is_empty());
        default.map_or(self.help.into(), |default| format!("{} ({default})", self.help))
    }
}
