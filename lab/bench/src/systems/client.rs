//! Variants of a system that change the environment of client programs: libeatmydata (no durability
//! at all, as the upper bound), and the SQLite extension with its log.

use std::path::Path;

use super::{Running, Site, System};
use crate::error::{Error, Result};
use crate::lab::{Lab, Program};
use crate::programs::Variable;

const EATMYDATA: &str = "libeatmydata.so";

/// The settings for clients of a system.
#[derive(Debug, Clone, Default)]
pub struct ClientSettings {
    environment: Vec<(&'static str, String)>,
    sqlite_arguments: Vec<String>,
}

impl ClientSettings {
    /// For any program.
    pub fn apply(&self, mut program: Program) -> Program {
        for (name, value) in &self.environment {
            program = program.env(name, value);
        }
        program
    }

    /// The same for a program of [`crate::programs`].
    pub fn variables(&self) -> Vec<Variable> {
        let all = self.environment.iter();
        all.map(|(name, value)| Variable { name: (*name).to_owned(), value: value.clone() })
            .collect()
    }

    /// For subcommands that open a database with [`crate::clients::SqliteOptions`].
    pub fn apply_to_sqlite(&self, program: Program) -> Program {
        self.apply(program).args(&self.sqlite_arguments)
    }
}

/// Clients run with libeatmydata: syncs do nothing.
pub struct Eatmydata(pub Box<dyn System>);

impl Eatmydata {
    fn suffix(&self) -> &'static str {
        ", eatmydata"
    }
}

impl System for Eatmydata {
    fn name(&self) -> String {
        self.0.name() + self.suffix()
    }

    fn missing(&self) -> Option<String> {
        let dirs = ["/usr/lib", "/usr/lib64", "/lib"].map(Path::new);
        let found = dirs.iter().any(|dir| holds(dir, EATMYDATA));
        if found { self.0.missing() } else { Some("libeatmydata is not installed".into()) }
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        let mut running = self.0.set_up(lab, &site.variant(self.suffix()))?;
        running.client.environment.push(("LD_PRELOAD", EATMYDATA.to_owned()));
        Ok(running)
    }
}

/// Searches `dir` and its directories (distributions put libraries of an architecture there).
fn holds(dir: &Path, name: &str) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    dir.join(name).exists()
        || entries
            .filter(|entry| entry.path().is_dir())
            .any(|inner| inner.path().join(name).exists())
}

/// The place of the SQLite extension's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// Beside the database. On a OneJournal volume there is no log.
    BesideDatabase,
    /// Beside the database, with its lanes in a tmpfs, which stands in for NVRAM.
    Nvram,
}

/// Clients of SQLite load the extension, with the default of every parameter.
pub struct SqliteExtension(pub Box<dyn System>, pub Log);

/// A thread of the client makes the checkpoints of a WAL.
pub struct InBackground(pub SqliteExtension);

const BACKGROUND: &str = "checkpoint=background";

impl SqliteExtension {
    fn suffix(&self) -> &'static str {
        match self.1 {
            Log::BesideDatabase => ", SQLite extension",
            Log::Nvram => ", SQLite extension (NVRAM)",
        }
    }
}

impl System for SqliteExtension {
    fn name(&self) -> String {
        self.0.name() + self.suffix()
    }

    fn missing(&self) -> Option<String> {
        self.0.missing()
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        let mut running = self.0.set_up(lab, &site.variant(self.suffix()))?;
        // The log's shared memory goes with the run's folder.
        let memory = lab.memory().display();
        let mut query = format!("vfs=onejournal&memory={memory}");
        if self.1 == Log::Nvram {
            let lanes = lab.memory().join(format!("{}-lanes", running.label));
            std::fs::create_dir(&lanes).map_err(Error::at(&lanes))?;
            let log = running.dir.join("log");
            query += &nvram_query(&log, &lanes);
            running.undo("removing the lanes", move || {
                std::fs::remove_dir_all(&lanes).map_err(Error::at(&lanes))
            });
        }
        let library = lab.programs().sqlite_extension.display().to_string();
        let arguments = ["--extension".to_owned(), library, "--query".to_owned(), query];
        running.client.sqlite_arguments.extend(arguments);
        Ok(running)
    }
}

impl System for InBackground {
    fn name(&self) -> String {
        format!("{}, {BACKGROUND}", self.0.name())
    }

    fn missing(&self) -> Option<String> {
        self.0.missing()
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        let mut running = self.0.set_up(lab, &site.variant("-background"))?;
        running.name = self.name();
        let query = running.client.sqlite_arguments.last_mut();
        *query.expect("the extension's parameters") += &format!("&{BACKGROUND}");
        Ok(running)
    }
}

fn nvram_query(log: &Path, lanes: &Path) -> String {
    format!("&log={}&nvram={}&durability=process", log.display(), lanes.display())
}

/// Clients of SQLite get further arguments ([`crate::clients::SqliteOptions`]).
pub struct SqliteArguments {
    pub system: Box<dyn System>,
    /// Suffix of the system's name.
    pub suffix: &'static str,
    pub arguments: &'static [&'static str],
}

impl System for SqliteArguments {
    fn name(&self) -> String {
        self.system.name() + self.suffix
    }

    fn missing(&self) -> Option<String> {
        self.system.missing()
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        let mut running = self.system.set_up(lab, &site.variant(self.suffix))?;
        let arguments = self.arguments.iter().map(|argument| (*argument).to_owned());
        running.client.sqlite_arguments.extend(arguments);
        Ok(running)
    }
}
