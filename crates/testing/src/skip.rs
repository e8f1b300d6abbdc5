//! Tests that cannot run here say so through [`skip`]: the runner counts them, and a list of needs
//! makes such a skip a failure.

use std::fmt::Display;

/// What a test may lack. `ONEJOURNAL_MUST_RUN` is a list of their names, or `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The user root.
    Root,
    /// Mounting: `CAP_SYS_ADMIN`, and for volumes `/dev/fuse`.
    Fuse,
    /// Loop devices.
    Loop,
    /// Device nodes of partitions of loop devices.
    Partitions,
    /// A tmpfs on `/dev/shm`.
    Shm,
    /// `/var/tmp` on a disk.
    Disk,
    /// io_uring, or FUSE over it.
    Uring,
    /// Namespaces of mounts and processes, made by root.
    Namespaces,
    /// A namespace of users, made by a user who is not root: some distributions forbid it.
    UserNamespaces,
    /// Control groups that limit memory, made by root.
    Cgroups,
    /// CAP_SYS_RESOURCE, which root of a container often lacks.
    Resources,
    /// NVRAM or a medium like it, named in the environment.
    Nvram,
    /// A kernel that has what the test is about.
    Kernel,
    /// A machine with an id, and without a serial number in its device tree.
    MachineId,
    /// A program of a package that `scripts/setup` installs.
    Program,
    /// Another program, or a module of a language.
    OptionalProgram,
    /// A database server, or a plug-in for one.
    Database,
    /// More time than the gate has, or luck.
    Tier,
}

impl Need {
    /// All of them, in the order of their definition.
    pub const ALL: [Need; 17] = [
        Need::Root,
        Need::Fuse,
        Need::Loop,
        Need::Partitions,
        Need::Shm,
        Need::Disk,
        Need::Uring,
        Need::Namespaces,
        Need::UserNamespaces,
        Need::Cgroups,
        Need::Resources,
        Need::Nvram,
        Need::Kernel,
        Need::MachineId,
        Need::Program,
        Need::OptionalProgram,
        Need::Database,
    ];

    /// Its name in messages and in `ONEJOURNAL_MUST_RUN`.
    pub fn name(self) -> &'static str {
        match self {
            Need::Root => "root",
            Need::Fuse => "fuse",
            Need::Loop => "loop",
            Need::Partitions => "partitions",
            Need::Shm => "shm",
            Need::Disk => "disk",
            Need::Uring => "uring",
            Need::Namespaces => "namespaces",
            Need::UserNamespaces => "user-namespaces",
            Need::Cgroups => "cgroups",
            Need::Resources => "resources",
            Need::Nvram => "nvram",
            Need::Kernel => "kernel",
            Need::MachineId => "machine-id",
            Need::Program => "program",
            Need::OptionalProgram => "optional-program",
            Need::Database => "database",
            Need::Tier => "tier",
        }
    }
}

/// Says on standard error that the calling test cannot run, in the form that the runner counts:
/// `skipped: NEED: why`. Panics if `ONEJOURNAL_MUST_RUN` lists the need.
#[track_caller]
pub fn skip(need: Need, why: impl Display) {
    let must_run = std::env::var("ONEJOURNAL_MUST_RUN").unwrap_or_default();
    assert!(!is_listed(need, &must_run), "cannot run, but must: {}: {why}", need.name());
    eprintln!("skipped: {}: {why}", need.name());
}

/// A name that is not known is an error: it would let a test be skipped that must run.
fn is_listed(need: Need, list: &str) -> bool {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<&str> = names.collect();
    for name in &names {
        let is_known = *name == "all" || Need::ALL.iter().any(|known| known.name() == *name);
        assert!(is_known, "ONEJOURNAL_MUST_RUN: no need has the name {name:?}");
    }
    names.iter().any(|name| *name == "all" || *name == need.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_needs_or_all_of_them() {
        assert!(is_listed(Need::Fuse, "root, fuse"));
        assert!(!is_listed(Need::Loop, "root,fuse"));
        assert!(is_listed(Need::Loop, "all"));
        assert!(!is_listed(Need::Loop, ""));
    }

    #[test]
    #[should_panic(expected = "no need has the name \"roots\"")]
    fn an_unknown_name_in_a_list_is_an_error() {
        is_listed(Need::Root, "root,roots");
    }

    #[test]
    fn needs_have_their_own_names_which_the_developers_page_explains() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/developers/development.md");
        let page = std::fs::read_to_string(page).expect("the page");
        for (index, need) in Need::ALL.into_iter().enumerate() {
            assert_eq!(need as usize, index, "{need:?} is at its place");
            let row = format!("\n| `{}` | ", need.name());
            assert_eq!(page.matches(&row).count(), 1, "{row:?} in docs/developers/development.md");
        }
    }

    #[test]
    fn a_skip_of_what_must_run_is_a_failure() {
        let run = |list: &str| {
            let mut command = crate::again(module_path!(), "lacks_nvram");
            command.env("ONEJOURNAL_MUST_RUN", list).output().expect("a process")
        };
        let [may, must] = [run("root"), run("root,nvram")];
        let said = String::from_utf8_lossy(&may.stderr);
        assert!(may.status.success() && said.contains("skipped: nvram: a test"), "{said}");
        let said = String::from_utf8_lossy(&must.stderr);
        assert!(!must.status.success() && said.contains("must: nvram: a test"), "{said}");
    }

    #[test]
    #[ignore = "a process of the test above"]
    fn lacks_nvram() {
        skip(Need::Nvram, "a test");
    }
}
