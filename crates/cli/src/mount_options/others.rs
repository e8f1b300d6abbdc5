//! Options that are for others, and options of other file systems that a volume refuses.

/// Options of an fstab entry that are for mount(8), systemd and others, and options that state what
/// is always true.
const IGNORED: &str = "defaults auto noauto user nouser users nousers owner noowner group nogroup \
    nofail _netdev loop async nodiratime nostrictatime nolazytime nomand noiversion silent loud \
    acl user_xattr nodiscard";

/// The same with a value.
const IGNORED_WITH_VALUE: &str = "user comment helper uhelper loop";

/// Options without a value that would promise something that a volume does not do, and the reason
/// why they are refused.
const REFUSED: [(&[&str], &str); 5] = [
    (
        &["sync", "dirsync"],
        "writes are durable when the program calls fsync or opens with O_SYNC; leave it out",
    ),
    (
        &["strictatime", "diratime", "norelatime"],
        "access times are kept as with relatime, of files only; leave it out",
    ),
    (&["lazytime", "iversion", "mand"], "a FUSE mount has no such thing; leave it out"),
    (&["discard"], "freed blocks are not trimmed; leave it out"),
    (&["writeback_cache"], "it is called order=sync here"),
];

/// Takes an option that sets nothing, or says why it is refused. `None`: there is no such option.
pub fn take(name: &str, value: Option<&str>) -> Option<Result<(), &'static str>> {
    let ignored = if value.is_none() { IGNORED } else { IGNORED_WITH_VALUE };
    let is_ignored = ignored.split_whitespace().any(|one| one == name);
    match (name, value) {
        _ if is_ignored || name.starts_with("x-") || name.starts_with("X-") => Some(Ok(())),
        ("errors", Some("remount-ro")) => Some(Ok(())),
        ("errors", _) => {
            Some(Err("a volume turns read-only after an error; only errors=remount-ro can be had"))
        }
        (_, Some(_)) => None,
        (_, None) => {
            let refused = REFUSED.iter().find(|(names, _)| names.contains(&name));
            refused.map(|(_, why)| Err(*why))
        }
    }
}
