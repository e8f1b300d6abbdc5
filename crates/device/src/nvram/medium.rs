//! What a path leads to that is used as NVRAM, and what a store to it survives.
//!
//! | path | mapped by `MAP_SYNC` | promises |
//! |---|---|---|
//! | DAX device, or file on a DAX file system, of an NVDIMM | must be | `power` |
//! | the same of memory that is only called persistent (`memmap=nn!ss`) | must be | what the user says |
//! | DAX device of other memory (volatile CXL, HBM, virtio) | must be | `reboot` or `process`, as the user says |
//! | file on tmpfs, ramfs, hugetlbfs | cannot be | `process`, if the user says so |
//! | file on another file system, block device | cannot be | refused |

use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use host::{Access, DiskKind, read_number};
use rustix::fs::{FileType, Stat};

use super::processor::Native;
use crate::durability::Durability;
use crate::durability::file_system_durability;
use crate::error::Result;
use crate::error::refused;

/// The kinds of media that can be mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Medium {
    File,
    /// A DAX device, with its directory in sysfs.
    DaxDevice(PathBuf),
}

impl Medium {
    /// The medium at `path`, which `stat` describes.
    pub(super) fn of(path: &Path, stat: &Stat) -> Result<Medium> {
        let invalid = |why: &str| Err(refused(path, ErrorKind::InvalidInput, why));
        match (FileType::from_raw_mode(stat.st_mode), DiskKind::of(stat)) {
            (FileType::CharacterDevice, _) => match dax_directory(stat.st_rdev) {
                Some(directory) => Ok(Medium::DaxDevice(directory)),
                None => invalid("is a character device, but not a DAX device"),
            },
            (_, Ok(DiskKind::File)) => Ok(Medium::File),
            (_, Ok(DiskKind::Block)) => invalid(
                "is a block device, which can only be mapped through the page cache: make it a \
                 DAX device (ndctl create-namespace --mode=devdax), or give a file on a file \
                 system that is mounted from it with -o dax",
            ),
            (_, Err(what)) => invalid(&format!("is {what}, neither a file nor a DAX device")),
        }
    }

    /// Size of the mappable part of the open medium that `stat` describes, in bytes.
    pub(super) fn len_bytes(&self, stat: &Stat) -> u64 {
        match self {
            Medium::File => u64::try_from(stat.st_size).unwrap_or(0),
            Medium::DaxDevice(directory) => {
                let align_bytes = read_number(&directory.join("align")).unwrap_or(2 << 20).max(1);
                read_number(&directory.join("size")).unwrap_or(0) / align_bytes * align_bytes
            }
        }
    }
}

/// What is known of the durability of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Promise {
    /// The class that it has if the user names none; `None` if the user has to name one.
    assured: Option<Durability>,
    /// The strongest class that the user may name.
    most: Durability,
    /// The reason, as the end of a sentence that begins with "this ...".
    why: &'static str,
}

impl Promise {
    /// For a medium that was mapped with `MAP_SYNC`.
    pub(super) fn of_dax(medium: &Medium, stat: &Stat) -> Promise {
        let provider = match medium {
            Medium::File => provider(&block_directory(stat.st_dev)),
            Medium::DaxDevice(directory) => provider(directory),
        };
        let is_device = matches!(medium, Medium::DaxDevice(_));
        Self::of_provider(provider.as_deref(), is_device).on_this_processor()
    }

    /// For a medium on the NVDIMM bus of this provider; `None` if no provider was found.
    fn of_provider(provider: Option<&str>, is_device: bool) -> Promise {
        match provider {
            // The firmware, or the CXL device itself, vouches for it.
            Some("ACPI.NFIT" | "CXL") => Promise {
                assured: Some(Durability::Power),
                most: Durability::Power,
                why: "is an NVDIMM",
            },
            // The host has the stores only after a request that a mapping cannot make. DAX
            // devices offer MAP_SYNC nevertheless.
            Some("virtio-pmem") => Promise {
                assured: None,
                most: Durability::Reboot,
                why: "is memory of a virtual machine's host: say durability=reboot",
            },
            None if is_device => Promise {
                assured: None,
                most: Durability::Reboot,
                why: "is not an NVDIMM: say durability=reboot if its contents outlive a reboot, \
                      else durability=process",
            },
            // `memmap=nn!ss` ("e820") among them; or a device over several NVDIMMs.
            Some(_) | None => Promise {
                assured: None,
                most: Durability::Power,
                why: "is memory of which the kernel cannot tell what a power cut leaves: say \
                      durability=power if it is an NVDIMM or a battery keeps it, else \
                      durability=reboot",
            },
        }
    }

    /// For an open file that could not be mapped with `MAP_SYNC`; `None` if it must not be used.
    pub(super) fn of_page_cache(fd: impl AsFd) -> Option<Promise> {
        (file_system_durability(fd) == Durability::Process).then_some(Promise {
            assured: None,
            most: Durability::Process,
            why: "is ordinary memory, which survives this process but neither a reboot nor a \
                  power cut: say durability=process if that is enough",
        })
    }

    fn on_this_processor(self) -> Promise {
        if Native::CAN_WRITE_BACK {
            return self;
        }
        let why = "cannot be written back to from this kind of processor: say durability=process";
        Promise { assured: None, most: Durability::Process, why }
    }

    /// The class of the medium, if the user has `asked` for one or not.
    pub(super) fn class(
        self,
        path: &Path,
        access: Access,
        asked: Option<Durability>,
    ) -> Result<Durability> {
        let Promise { assured, most, why } = self;
        match (asked, assured, access) {
            (Some(asked), _, _) if asked <= most => Ok(asked),
            (Some(asked), _, _) => {
                let why = format!("cannot give durability={}: this {why}", asked.name());
                Err(refused(path, ErrorKind::InvalidInput, why))
            }
            (None, Some(assured), _) => Ok(assured),
            // Nothing will be stored, so the weakest class is right.
            (None, None, Access::ReadOnly) => Ok(Durability::Process),
            (None, None, Access::ReadWrite) => {
                Err(refused(path, ErrorKind::InvalidInput, format!("this {why}")))
            }
        }
    }
}

/// The directory in sysfs of a character device, if it is a DAX device.
fn dax_directory(device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let directory = fs::canonicalize(format!("/sys/dev/char/{major}:{minor}")).ok()?;
    let subsystem = fs::canonicalize(directory.join("subsystem")).ok()?;
    (subsystem.file_name()? == "dax").then_some(directory)
}

fn block_directory(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// The provider of the NVDIMM bus that `directory` is on, which says whether there is an NVDIMM.
fn provider(directory: &Path) -> Option<String> {
    let directory = fs::canonicalize(directory).ok()?;
    let is_bus = |name: &&Path| {
        name.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ndbus"))
    };
    let bus = directory.ancestors().find(is_bus)?;
    Some(fs::read_to_string(bus.join("provider")).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Durability::{Power, Process, Reboot};

    const MEMORY: Promise = Promise { assured: None, most: Process, why: "is memory" };

    fn class(promise: Promise, asked: Option<Durability>) -> Option<Durability> {
        promise.class(Path::new("x"), Access::ReadWrite, asked).ok()
    }

    #[test]
    fn less_than_power_is_given_only_by_name_and_more_than_there_is_never() {
        let asked = [None, Some(Power), Some(Reboot), Some(Process)];
        let classes = |promise| asked.map(|asked| class(promise, asked));
        let nvdimm = Promise::of_provider(Some("ACPI.NFIT"), true);
        assert_eq!(classes(nvdimm), [Some(Power), Some(Power), Some(Reboot), Some(Process)]);
        let called_so = Promise::of_provider(Some("e820"), false);
        assert_eq!(classes(called_so), [None, Some(Power), Some(Reboot), Some(Process)]);
        assert_eq!(classes(MEMORY), [None, None, None, Some(Process)]);
    }

    #[test]
    fn only_an_nvdimm_assures_power_and_what_is_none_never_gives_it() {
        let found = |provider, is_device| {
            let promise = Promise::of_provider(provider, is_device);
            (promise.assured, promise.most)
        };
        for is_device in [false, true] {
            assert_eq!(found(Some("CXL"), is_device), (Some(Power), Power));
            assert_eq!(found(Some("e820"), is_device), (None, Power));
            assert_eq!(found(Some("virtio-pmem"), is_device), (None, Reboot));
        }
        assert_eq!(found(None, true), (None, Reboot));
        assert_eq!(found(None, false), (None, Power));
    }

    #[test]
    fn a_refusal_says_why() {
        let refusal = |asked| {
            MEMORY.class(Path::new("x"), Access::ReadWrite, asked).expect_err("must be refused")
        };
        assert_eq!(refusal(None).to_string(), "open: x: this is memory");
        let wanted = "open: x: cannot give durability=power: this is memory";
        assert_eq!(refusal(Some(Power)).to_string(), wanted);
    }

    #[test]
    fn a_medium_that_is_only_read_promises_nothing() {
        assert!(matches!(MEMORY.class(Path::new("x"), Access::ReadOnly, None), Ok(Process)));
    }

    #[test]
    fn the_provider_is_found_up_the_tree_only() {
        let directory = tempfile::tempdir().expect("directory");
        let disk = directory.path().join("ndbus0/region0/namespace0.0/block/pmem0");
        fs::create_dir_all(&disk).expect("directories");
        assert_eq!(provider(&disk), None);
        fs::write(directory.path().join("ndbus0/provider"), "e820\n").expect("provider");
        assert_eq!(provider(&disk).as_deref(), Some("e820"));
        assert_eq!(provider(directory.path()), None);
    }
}
