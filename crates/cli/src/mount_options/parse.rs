//! Parses the options of a mount.

use super::option::{Kind, MountOption};
use super::others;
use super::parsed::Parsed;
use super::table::rows;
use crate::error::{CliError, Result};
use crate::target::parse_size;

/// Whether an option is set, or what is wrong.
type Outcome = std::result::Result<(), String>;

/// Parses the options of the command line.
pub fn parse(options: &[String]) -> Result<Parsed> {
    let mut parsed = Parsed::default();
    words(options).try_for_each(|option| parsed.set(option))?;
    parsed.check_together()?;
    Ok(parsed)
}

/// The options one by one.
pub fn words(options: &[String]) -> impl Iterator<Item = &str> {
    options.iter().map(|option| option.trim()).filter(|option| !option.is_empty())
}

/// Whether the option exists.
pub fn is_known(option: &str) -> bool {
    Parsed::default().try_set(option).is_some()
}

/// Name and value of an option.
pub fn split(option: &str) -> (&str, Option<&str>) {
    option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)))
}

impl Parsed {
    /// Sets one option.
    pub fn set(&mut self, option: &str) -> Result<()> {
        let set = self.try_set(option).unwrap_or_else(|| {
            let (name, _) = split(option);
            Err(format!("unknown option {name}; to list all options: onejournal mount -o help"))
        });
        set.map_err(CliError::usage)
    }

    /// Sets one option, or says what is wrong. `None`: there is no such option.
    fn try_set(&mut self, option: &str) -> Option<Outcome> {
        let (name, value) = split(option);
        let rows = rows(name);
        let Some(row) = rows.first() else {
            let taken = others::take(name, value)?;
            return Some(taken.map_err(|why| format!("option {option}: {why}")));
        };
        if let Kind::Flag(_, set) = row.kind {
            let is_on = row.name == name;
            return value.is_none().then(|| set(self, is_on)).map(Ok);
        }
        let value = value.unwrap_or_default();
        let set = set_value(self, &rows, value);
        Some(set.map_err(|why| format!("option {name}={value} {why}")))
    }
}

/// Sets an option that takes a value, or says what is wrong with the value.
fn set_value(parsed: &mut Parsed, rows: &[&MountOption], value: &str) -> Outcome {
    let wanted = match &rows[0].kind {
        Kind::Words(_, set) => {
            let words: Vec<&str> = rows.iter().flat_map(|row| row.words()).collect();
            if words.contains(&value) && set(parsed, value) {
                return Ok(());
            }
            let words = words.join(", ");
            let (others, last) = words.rsplit_once(", ").unwrap_or_default();
            format!("{others} or {last}")
        }
        Kind::Number(range, unit, set) => {
            if let Some(number) = value.parse().ok().filter(|number| range.contains(number)) {
                set(parsed, number);
                return Ok(());
            }
            format!("{} to {} {unit}", range.start(), range.end())
        }
        Kind::Size(least_bytes, whose, set) => match parse_size(value) {
            Ok(bytes) if bytes < *least_bytes => {
                let least = least_bytes >> 20;
                return Err(format!("is too little: {whose} needs {least}M at least"));
            }
            Ok(bytes) => {
                set(parsed, bytes);
                return Ok(());
            }
            Err(why) => format!("a size such as 256M: {why}"),
        },
        Kind::Text(.., set) if !value.is_empty() && set(parsed, value) => return Ok(()),
        Kind::Text(_, wanted, _) => (*wanted).to_owned(),
        Kind::Flag(..) => unreachable!("a flag takes no value"),
    };
    Err(format!("must be {wanted}"))
}

#[cfg(test)]
mod tests {
    use std::fmt::Display;

    use device::Durability;
    use ext4::{CheckpointPolicy, DataMode, DeltaCodec};
    use tracing::Level;

    use super::super::table::GROUPS;
    use super::*;
    use crate::journal_path::JournalOptions;

    fn parse_text(text: &str) -> Result<Parsed> {
        parse(&text.split(',').map(String::from).collect::<Vec<_>>())
    }

    /// The defaults with one option.
    fn with(option: &str) -> Result<Parsed> {
        let mut parsed = Parsed::default();
        parsed.set(option).map(|()| parsed)
    }

    #[test]
    fn known_options() {
        let text = "ro,data=ordered,commit=30,regions=8,threads=2,metrics=[::1]:9,memory=48M,\
                    takeover,heartbeat=5,delta=whole,checkpoint=early,may_tear,log_level=debug";
        let parsed = parse_text(text).unwrap();
        let mount = &parsed.session.mount;
        assert_eq!((mount.read_only, mount.thread_count, parsed.session.may_tear), (true, 2, true));
        let numbers = (parsed.commit_interval.as_secs(), parsed.region_count, parsed.heartbeat_s);
        assert_eq!((numbers, parsed.memory_bytes), ((30, 8, 5), Some(48 << 20)));
        let words = (parsed.data_mode, parsed.delta_codec, parsed.checkpoint, parsed.log_level);
        let expected =
            (DataMode::Ordered, Some(DeltaCodec::Whole), CheckpointPolicy::Early, Level::DEBUG);
        assert_eq!((words, parsed.take_over), (expected, true));
        assert_eq!(parsed.metrics.unwrap().port(), 9);
        for mode in DataMode::ALL {
            assert_eq!(parse_text(&format!("data={}", mode.name())).unwrap().data_mode, mode);
        }
    }

    #[test]
    fn a_journal_elsewhere() {
        let parsed = parse_text("journal=/x/y,journal_size=8M,journal_latency=300").unwrap();
        let expected = JournalOptions {
            path: "/x/y".into(),
            size_bytes: Some(8 << 20),
            latency_ns_per_line: 300,
        };
        assert_eq!((parsed.journal, parsed.durability), (Some(expected), None));
        let parsed = parse_text("durability=reboot").unwrap();
        assert_eq!((parsed.journal, parsed.durability), (None, Some(Durability::Reboot)));
        assert!(!parsed.journal_inside);
        let parsed = parse_text("journal=internal").unwrap();
        assert_eq!((parsed.journal, parsed.journal_inside), (None, true));
        let parsed = parse_text("journal=./internal").unwrap();
        assert_eq!(parsed.journal.map(|journal| journal.path), Some("./internal".into()));
        assert!(parse_text("journal=internal,journal=/x").is_err());
    }

    #[test]
    fn an_fstab_entry_has_options_for_others() {
        let text = "defaults,noauto,nofail,auto,user,users,nouser,owner,group,_netdev,\
                    comment=a b,x-systemd.automount,X-mount.mkdir=0755,x-gvfs-show,\
                    uhelper=onejournal,nodiratime,errors=remount-ro";
        assert!(parse_text(text).unwrap() == Parsed::default());
    }

    #[test]
    fn printed_ranges_and_defaults_hold() {
        for row in GROUPS.iter().flat_map(|group| group.options) {
            let option = |value: &dyn Display| format!("{}={value}", row.name);
            assert!(row.words().all(|word| with(&option(&word)).is_ok()), "{}", row.name);
            if let Kind::Number(range, ..) = &row.kind {
                let (least, most) = (i64::from(*range.start()), i64::from(*range.end()));
                let tried = [(least - 1, false), (least, true), (most, true), (most + 1, false)];
                for (number, is_good) in tried {
                    assert_eq!(with(&option(&number)).is_ok(), is_good, "{}", option(&number));
                }
            }
            let default = match row.kind {
                // A class that is named is a statement of the user. A latency needs journal=.
                _ if row.default.is_empty() => continue,
                _ if ["durability", "journal_latency"].contains(&row.name) => continue,
                Kind::Flag(off, _) if !off.is_empty() => off.to_owned(),
                Kind::Words(..) | Kind::Number(..) => option(&row.default),
                Kind::Flag(..) | Kind::Size(..) | Kind::Text(..) => continue,
            };
            assert!(with(&default).unwrap() == Parsed::default(), "{default}");
        }
    }

    #[test]
    fn malformed_and_unsupported_options_are_refused_by_name() {
        let bad = "sync dirsync strictatime lazytime discard errors=continue writeback_cache \
                   remount=1 users=x takeover=1 log_level data order commit memory metrics \
                   metrics=9150 metrics=0.0.0.0:9150 journal= journal_size=1G journal_latency=5 \
                   journal=internal,journal_size=8M";
        for text in bad.split(' ') {
            let name = text.split('=').next().unwrap();
            let error = parse_text(text).err().unwrap();
            assert!(error.text.contains(name), "{text}: {error}");
        }
        for other in ["data=ordered", "data=selective", "data=writeback", "order=sync", "ro"] {
            let error = parse_text(&format!("atomic_writes,{other}")).err().unwrap();
            assert!(error.text.contains(other), "{error}");
        }
        assert!(parse_text("atomic_writes,data=journal").unwrap().session.atomic_writes);
        for (text, message) in [
            ("order=sync,io_uring=on", "order=sync cannot be had together with io_uring=on: "),
            ("frobnicate", "unknown option frobnicate; "),
            ("delta=lz4", "option delta=lz4 must be auto, copies, runs, xor-lzo or whole"),
            ("regions=1", "option regions=1 must be 2 to 16 regions"),
            ("memory=47M", "option memory=47M is too little: a mount needs 48M at least"),
        ] {
            let error = parse_text(text).err().unwrap();
            assert!(error.text.starts_with(message), "{error}");
        }
    }

    #[test]
    fn a_wrong_value_does_not_make_an_option_unknown() {
        let known = "ro data=delta data=fast data sync journal_size=1M remount comment=x";
        assert!(known.split(' ').all(is_known));
        let unknown = "frobnicate frobnicate=1 journal_x=1 ro=1 help";
        assert!(!unknown.split(' ').any(is_known));
    }
}
