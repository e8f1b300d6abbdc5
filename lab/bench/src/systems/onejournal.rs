//! OneJournal, in each data mode and with each kind of journal.

use super::{Running, Site, System, missing_programs};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab, Program};

/// The size of an external journal: that of DJFS.
pub const JOURNAL_MIB: u32 = 128;

/// Where the journal is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Journal {
    /// In the volume.
    Internal,
    /// In a tmpfs, which stands in for NVRAM; each cache line takes this many nanoseconds more.
    Nvram { latency_ns_per_line: u32 },
    /// On another device of the same kind.
    SameKind,
    /// On an emulated device of this preset, as the volume records it.
    On(&'static str),
}

/// How a volume is mounted.
#[derive(Debug, Clone)]
pub struct OneJournal {
    data: &'static str,
    journal: Journal,
    has_uring: bool,
    /// `None`: an internal journal has the size that `onejournal mkfs` chooses, another one
    /// [`JOURNAL_MIB`].
    journal_size_mib: Option<u32>,
    options: Vec<String>,
    /// In the report, instead of the mode and the options.
    paper: Option<String>,
}

impl OneJournal {
    /// The defaults: `data=auto`, the journal in the volume, io_uring where the kernel has it.
    pub fn new() -> OneJournal {
        let options = Vec::new();
        OneJournal {
            data: "auto",
            journal: Journal::Internal,
            has_uring: true,
            journal_size_mib: None,
            options,
            paper: None,
        }
    }

    /// What DJFS does, as far as options can have it: the compressed XOR of a block's versions on
    /// NVRAM, and a region goes home when the next one is entered.
    pub fn as_in_djfs(regions: u32) -> OneJournal {
        let ours = OneJournal::new().data("delta").nvram();
        let ours = ours.option("delta=xor-lzo").option("checkpoint=early");
        ours.option(&format!("regions={regions}")).named(format!("as in DJFS, {regions} regions"))
    }

    /// DJFS' NVRAM journaling: whole blocks, stored without a flush.
    pub fn as_in_nvram_journaling() -> OneJournal {
        let ours = OneJournal::new().data("journal").nvram();
        ours.option("delta=whole").named("NVRAM journaling as in DJFS".to_owned())
    }

    /// FAST'14's single-I/O data journaling: whole blocks, committed by one write.
    pub fn as_in_fast14() -> OneJournal {
        let ours = OneJournal::new().data("journal").option("delta=whole");
        ours.named("single-I/O journaling as in FAST'14".to_owned())
    }

    /// A mode of Okeanos: the bytes that were written, metadata as whole blocks, and blocks of the
    /// journal that are filled up.
    pub fn as_in_okeanos(mode: &'static str) -> OneJournal {
        let ours = OneJournal::new().data(mode).option("delta=whole");
        ours.named(format!("{mode} as in Okeanos"))
    }

    fn named(mut self, name: String) -> OneJournal {
        self.paper = Some(name);
        self
    }

    /// With another `data=`.
    pub fn data(mut self, mode: &'static str) -> OneJournal {
        self.data = mode;
        self
    }

    /// With an external journal.
    pub fn journal(mut self, journal: Journal) -> OneJournal {
        self.journal = journal;
        self
    }

    /// With its journal in memory, which stands in for NVRAM.
    pub fn nvram(self) -> OneJournal {
        self.journal(Journal::Nvram { latency_ns_per_line: 0 })
    }

    /// With its journal on an emulated device of this preset.
    pub fn journal_on(self, preset: &'static str) -> OneJournal {
        self.journal(Journal::On(preset))
    }

    /// The kernel collects writes, and syncs order them.
    pub fn order_sync(self) -> OneJournal {
        self.option("order=sync")
    }

    /// Through `/dev/fuse`.
    pub fn without_uring(mut self) -> OneJournal {
        self.has_uring = false;
        self
    }

    /// With a journal of this size, which the name shows.
    pub fn journal_size_mib(mut self, size_mib: u32) -> OneJournal {
        self.journal_size_mib = Some(size_mib);
        self
    }

    /// With another mount option, which the name shows.
    pub fn option(mut self, option: &str) -> OneJournal {
        self.options.push(option.to_owned());
        self
    }
}

impl System for OneJournal {
    fn name(&self) -> String {
        let mut name = match (&self.paper, self.data) {
            (Some(paper), _) => paper.clone(),
            (None, "auto") => "OneJournal".to_owned(),
            (None, mode) => format!("OneJournal {mode}"),
        };
        match &self.journal {
            Journal::Internal => {}
            Journal::Nvram { latency_ns_per_line: 0 } => name.push_str(", NVRAM"),
            Journal::Nvram { latency_ns_per_line } => {
                name.push_str(&format!(", NVRAM +{latency_ns_per_line} ns"));
            }
            Journal::SameKind => name.push_str(", ext. journal"),
            Journal::On(preset) => name.push_str(&format!(", journal on {preset}")),
        }
        if !self.has_uring {
            name.push_str(", /dev/fuse");
        }
        if let Some(size_mib) = self.journal_size_mib {
            name.push_str(&format!(", journal of {size_mib} MiB"));
        }
        if self.paper.is_none() {
            for option in &self.options {
                name.push_str(&format!(", {option}"));
            }
        }
        name
    }

    fn missing(&self) -> Option<String> {
        missing_programs(&["mke2fs"])
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        let mut running = Running::begin(lab, self.name(), site)?;
        let onejournal = || Program::new(&lab.programs().onejournal);
        let mut make = onejournal().args(["mkfs", "--force"]);
        if let Journal::On(preset) = self.journal {
            let journal = running.add_journal(lab, &Device::preset(preset), self.external_mib())?;
            make = make.arg("--journal").arg(journal);
        }
        if let (Journal::Internal, Some(size_mib)) = (&self.journal, self.journal_size_mib) {
            make = make.args(["--journal-size", &format!("{size_mib}M")]);
        }
        make.arg(running.block()).run()?;
        let mut options = vec![
            format!("data={}", self.data),
            format!("io_uring={}", if self.has_uring { "auto" } else { "off" }),
            "noatime".to_owned(),
        ];
        options.extend(self.options.iter().cloned());
        options.extend(self.journal_options(lab, site, &mut running)?);
        let in_memory =
            *site.device == Device::Memory || matches!(self.journal, Journal::Nvram { .. });
        if in_memory {
            // It has to be said: what is in a tmpfs survives the process only.
            options.push("durability=process".into());
        }
        let mount = onejournal().args(["mount", "-o", &options.join(",")]);
        let mount = mount.arg(running.block()).arg(&running.dir);
        running.mount(mount, onejournal().arg("umount"))?;
        running.has_stat();
        Ok(running)
    }
}

impl OneJournal {
    /// The size of a journal that is not in the volume.
    fn external_mib(&self) -> u32 {
        self.journal_size_mib.unwrap_or(JOURNAL_MIB)
    }

    fn journal_options(
        &self,
        lab: &Lab,
        site: &Site<'_>,
        running: &mut Running,
    ) -> Result<Vec<String>> {
        match &self.journal {
            // Mounting finds the journal that the volume records.
            Journal::Internal | Journal::On(_) => Ok(Vec::new()),
            Journal::Nvram { latency_ns_per_line } => {
                Ok(nvram_options(lab, *latency_ns_per_line, self.external_mib(), running))
            }
            Journal::SameKind => {
                let path = running.add_journal(lab, site.device, self.external_mib())?;
                Ok(vec![format!("journal={}", path.display())])
            }
        }
    }
}

fn nvram_options(
    lab: &Lab,
    latency_ns_per_line: u32,
    size_mib: u32,
    running: &mut Running,
) -> Vec<String> {
    let path = lab.memory().join(format!("{}.journal", running.label));
    let mut options =
        vec![format!("journal={}", path.display()), format!("journal_size={size_mib}M")];
    if latency_ns_per_line > 0 {
        options.push(format!("journal_latency={latency_ns_per_line}"));
    }
    running.undo("removing the journal", move || match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::at(&path)(error)),
        _ => Ok(()),
    });
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_of_a_paper_has_the_papers_name() {
        let names = [
            (OneJournal::as_in_djfs(2), "as in DJFS, 2 regions, NVRAM"),
            (OneJournal::as_in_nvram_journaling(), "NVRAM journaling as in DJFS, NVRAM"),
            (OneJournal::as_in_fast14(), "single-I/O journaling as in FAST'14"),
            (OneJournal::as_in_okeanos("selective"), "selective as in Okeanos"),
            (OneJournal::new().data("delta").nvram(), "OneJournal delta, NVRAM"),
            (OneJournal::new().option("regions=2"), "OneJournal, regions=2"),
            (
                OneJournal::as_in_djfs(4).journal_size_mib(32),
                "as in DJFS, 4 regions, NVRAM, journal of 32 MiB",
            ),
        ];
        for (system, name) in names {
            assert_eq!(system.name(), name);
        }
    }
}
