//! Where a database's transactions are: in a stream of the log that is open, elsewhere, or in none.
//!
//! Everything that may be is in the table of [`judge`], and each of its rows has a test.

use std::path::PathBuf;

use crate::stream::binding::{Attribute, Binding};

/// Where a database's transactions are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// In this stream of the log.
    Same(String),
    /// In none. A stream is made for it.
    Unbound,
    /// In this stream of the log, which is the copy of another log, as the database is of another
    /// file.
    CopiedWithLog(String),
    /// In another log.
    Elsewhere(Binding),
    /// Its log is gone. It lay beside the database, and was removed.
    LogRemoved(PathBuf),
    /// That cannot be told: no log is used.
    Unknown(String),
}

/// What is known when the verdict is made.
pub struct Facts<'a> {
    /// The database's attribute.
    pub attribute: &'a Attribute,
    /// Which file the database is.
    pub file: u128,
    /// The log's UUID, and those of the logs that it is a copy of.
    pub log: &'a str,
    /// See `log`.
    pub copied_from: &'a [String],
    /// The names of the log's streams that belong to the file by their name.
    pub named: &'a [String],
    /// The names of streams of a log that this one is a copy of, of a file of the same name. They
    /// belong to the owner of the database.
    pub copied: &'a [String],
    /// Whether the stream that the attribute names belongs to the owner of the database. The name
    /// says only which file the stream is of, and a user may write the name of any file.
    pub is_owners: bool,
    /// Whether the log has a stream of this name.
    pub has_stream: &'a dyn Fn(&str) -> bool,
    /// Where the log is that the attribute names, if that is another one than this.
    pub place: Place,
}

/// Where the log is that a database's attribute names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It is where it was. At a socket, the daemon may serve it or another log.
    There,
    /// It lay beside the database, and is not there any more.
    RemovedBeside,
    /// It is another user's, who keeps this one out.
    Closed,
    /// It cannot be found.
    Nowhere,
}

/// Where the transactions of a database are.
///
/// | the attribute | names | verdict |
/// |---|---|---|
/// | is this file's | a stream of this log | same; none if it was removed |
/// | | a log that is found elsewhere | elsewhere |
/// | | a log that this one is a copy of, which is found nowhere | the copied stream |
/// | | a log that lay beside the database and was removed | none; it is told |
/// | | a log that this user may not read | unknown; it is told how to use it |
/// | | any other log | unknown |
/// | is another file's: this one is a copy | its owner's stream in a log that this one is a copy of | the copied stream |
/// | | anything else | as if it were missing, but for copied streams |
/// | is missing | one stream of this log has the file in its name | same |
/// | | several have | unknown |
/// | | one stream of its owner in a copied log has its file name | the copied stream |
/// | | several have | unknown |
/// | | none has | none |
/// | is of another version, names another file's stream, or cannot be read | | unknown |
pub fn judge(facts: &Facts<'_>) -> Verdict {
    match facts.attribute {
        Attribute::Unknown(why) => Verdict::Unknown(format!("its attribute: {why}")),
        Attribute::None => by_name(facts),
        Attribute::Binding(binding) if binding.file == facts.file => own(facts, binding),
        Attribute::Binding(binding) => {
            let is_copied = facts.is_owners && facts.copied_from.contains(&binding.log);
            match is_copied && (facts.has_stream)(&binding.stream) {
                true => Verdict::CopiedWithLog(binding.stream.clone()),
                // The attribute may have been written over together with the content.
                false => by_name(&Facts { copied: &[], ..*facts }),
            }
        }
    }
}

fn own(facts: &Facts<'_>, binding: &Binding) -> Verdict {
    if binding.log == facts.log {
        // One that was removed from the log is found out when it is opened.
        return Verdict::Same(binding.stream.clone());
    }
    let has_stream = (facts.has_stream)(&binding.stream);
    match facts.place {
        Place::There => Verdict::Elsewhere(binding.clone()),
        _ if has_stream && facts.copied_from.contains(&binding.log) => {
            Verdict::CopiedWithLog(binding.stream.clone())
        }
        Place::RemovedBeside => Verdict::LogRemoved(binding.directory.clone()),
        Place::Closed => Verdict::Unknown(format!(
            "it was last written with the log {}, which this user may not read: commits that are \
             only in that log are missing. Name that log (log=), and do what the error says. Or \
             open the database with recover=discard to go on without",
            binding.directory.display()
        )),
        Place::Nowhere => Verdict::Unknown(not_there(binding)),
    }
}

/// Why no log is used for a database whose log is not where its attribute says.
pub fn not_there(binding: &Binding) -> String {
    format!(
        "it was last written with the log {}, which is not there: commits that are only in that \
         log are missing. Open it once with that log, or with recover=discard to go on without",
        binding.directory.display()
    )
}

fn by_name(facts: &Facts<'_>) -> Verdict {
    let several = |names: &[String]| {
        Verdict::Unknown(format!("several streams of the log may be its own: {}", names.join(", ")))
    };
    match (facts.named, facts.copied) {
        ([name], _) => Verdict::Same(name.clone()),
        ([], [name]) => Verdict::CopiedWithLog(name.clone()),
        ([], []) => Verdict::Unbound,
        ([], names) | (names, _) => several(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u128 = 7;
    const LOG: &str = "log";
    const FORMER: &str = "former";

    fn binding(file: u128, log: &str, stream: &str) -> Attribute {
        let (log, stream) = (log.to_owned(), stream.to_owned());
        Attribute::Binding(Binding { log, file, stream, directory: "/l".into() })
    }

    /// The verdict if the log has a stream `there`, which belongs to the owner of the database.
    fn verdict(attribute: &Attribute, place: Place, named: &[&str], copied: &[&str]) -> Verdict {
        verdict_if(true, attribute, place, named, copied)
    }

    fn verdict_if(
        is_owners: bool,
        attribute: &Attribute,
        place: Place,
        named: &[&str],
        copied: &[&str],
    ) -> Verdict {
        let owned =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        judge(&Facts {
            attribute,
            file: FILE,
            log: LOG,
            copied_from: &[FORMER.into()],
            named: &owned(named),
            copied: &owned(copied),
            is_owners,
            has_stream: &|name| name == "there",
            place,
        })
    }

    fn is_unknown(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Unknown(_))
    }

    #[test]
    fn an_attribute_of_this_file_is_believed() {
        let of = |log, stream, place| verdict(&binding(FILE, log, stream), place, &[], &[]);
        for place in [Place::There, Place::RemovedBeside, Place::Closed, Place::Nowhere] {
            assert_eq!(of(LOG, "there", place), Verdict::Same("there".into()));
        }
        for (log, stream) in [("other", "there"), (FORMER, "there"), (FORMER, "gone")] {
            assert!(matches!(of(log, stream, Place::There), Verdict::Elsewhere(_)));
        }
        for place in [Place::RemovedBeside, Place::Closed, Place::Nowhere] {
            let copied = Verdict::CopiedWithLog("there".into());
            assert_eq!(of(FORMER, "there", place), copied);
        }
        for (log, stream) in [("other", "there"), (FORMER, "gone")] {
            let removed = of(log, stream, Place::RemovedBeside);
            assert_eq!(removed, Verdict::LogRemoved("/l".into()));
            for place in [Place::Closed, Place::Nowhere] {
                assert!(is_unknown(&of(log, stream, place)));
            }
        }
    }

    #[test]
    fn a_copy_has_only_what_was_copied_with_it() {
        let of = |log, stream| verdict(&binding(8, log, stream), Place::There, &[], &[]);
        assert_eq!(of(FORMER, "there"), Verdict::CopiedWithLog("there".into()));
        for (log, stream) in [(LOG, "there"), (LOG, "gone"), (FORMER, "gone"), ("other", "there")] {
            assert_eq!(of(log, stream), Verdict::Unbound, "{log} {stream}");
        }
        let foreign = binding(8, FORMER, "there");
        let of_another_user = verdict_if(false, &foreign, Place::There, &[], &[]);
        assert_eq!(of_another_user, Verdict::Unbound);
        // A backup was copied over the file, with its attribute.
        let restored = verdict(&binding(8, LOG, "there"), Place::There, &["a"], &["b"]);
        assert_eq!(restored, Verdict::Same("a".into()));
    }

    #[test]
    fn without_an_attribute_names_decide() {
        let of = |named: &[&str], copied: &[&str]| {
            verdict(&Attribute::None, Place::Nowhere, named, copied)
        };
        assert_eq!(of(&[], &[]), Verdict::Unbound);
        assert_eq!(of(&["a"], &[]), Verdict::Same("a".into()));
        assert_eq!(of(&["a"], &["b", "c"]), Verdict::Same("a".into()));
        assert_eq!(of(&[], &["b"]), Verdict::CopiedWithLog("b".into()));
        assert!(is_unknown(&of(&["a", "b"], &[])) && is_unknown(&of(&[], &["b", "c"])));
        assert!(is_unknown(&verdict(&Attribute::Unknown("?".into()), Place::There, &["a"], &[])));
    }
}
