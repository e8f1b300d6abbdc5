//! Checks the names of a URI's parameters. An unknown name is refused, because a misspelled `log`
//! would silently put the log elsewhere.

use crate::failure::Failure;

/// The extension's own parameters.
const OURS: [&str; 6] = ["log", "nvram", "durability", "memory", "recover", "checkpoint"];
/// SQLite's own parameters (<https://www.sqlite.org/uri.html>, and `8_3_names`).
const OF_SQLITE: [&str; 8] =
    ["vfs", "mode", "cache", "psow", "nolock", "immutable", "modeof", "8_3_names"];

/// Refuses a parameter that neither SQLite nor the extension knows. Names that begin with an
/// underscore are allowed, because drivers have such parameters of their own and pass them on.
pub fn check(keys: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    let is_known =
        |key: &str| key.starts_with('_') || OURS.contains(&key) || OF_SQLITE.contains(&key);
    match keys.into_iter().find(|key| !is_known(key)) {
        None => Ok(()),
        Some(key) => Err(Failure::CannotOpen(format!(
            "the URI's parameter {key} is not known. The extension's are {}; SQLite's are {}",
            OURS.join(", "),
            OF_SQLITE.join(", ")
        ))),
    }
}

/// Whether checkpoints are made in the background, by the value of the parameter `checkpoint`.
pub fn is_in_background(value: Option<&str>) -> Result<bool, Failure> {
    match value {
        None | Some("commit") => Ok(false),
        Some("background") => Ok(true),
        Some(other) => Err(Failure::CannotOpen(format!(
            "checkpoint={other} is not known: it can be commit or background"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_parameter_is_named() {
        let of = |keys: &[&str]| check(keys.iter().map(|key| (*key).to_owned()));
        assert!(of(&[]).is_ok() && of(&OURS).is_ok() && of(&OF_SQLITE).is_ok());
        assert!(of(&["_busy_timeout", "vfs"]).is_ok());
        for wrong in ["Log", "lgo", "logs", "recovery", ""] {
            let told = of(&["vfs", wrong]).expect_err("refused").to_string();
            assert!(told.contains(&format!("parameter {wrong} ")), "{told}");
        }
    }
}
