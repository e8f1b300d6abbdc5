//! The description of an experiment.

use super::scale::{PaperSize, Scale};
use crate::error::Result;
use crate::lab::Lab;
use crate::measure::Samples;
use crate::results::Section;

/// The names of the papers.
pub const FAST14: &str = "Shen, Park, Zhu: Journaling of Journal Is (Almost) Free, FAST 2014";
pub const DJFS: &str = "Kim, Lee, Song, Eom: DJFS: Providing Highly Reliable and High-Performance \
                        File System with Small-Sized NVRAM, ETRI Journal 2017";
pub const OKEANOS: &str = "Hatzieleftheriou, Anastasiadis: Okeanos: Wasteless Journaling for Fast \
                           and Reliable Multistream Storage, USENIX ATC 2011";
pub const XLOG: &str = "Luo, Jiang, Yan, Yang: Fast Transaction Logging for Smartphones, MSST 2016";

/// One experiment.
pub struct Experiment {
    /// Its subcommand, and the name of its files.
    pub id: &'static str,
    pub title: &'static str,
    /// The paper that it is about; empty for an experiment of this project.
    pub paper: &'static str,
    /// Figure or table of the paper.
    pub figure: &'static str,
    /// What is done, and what the result shows, in Markdown.
    pub about: &'static str,
    /// The paper's result.
    pub paper_claim: &'static str,
    /// What OneJournal must reach.
    pub goal: &'static str,
    /// The sizes that decide how long it takes; empty for an experiment of this project.
    pub sizes: &'static [&'static PaperSize],
    /// Fills the section and takes samples. If it fails, what both hold so far is kept.
    pub run: fn(&Lab, &Scale, &mut Section, &mut Samples) -> Result<()>,
}

impl Experiment {
    /// A section with this description, and without results.
    pub fn section(&self) -> Section {
        let mut section = Section { id: self.id.to_owned(), ..Section::default() };
        self.describe(&mut section);
        section
    }

    /// Replaces the texts of a section by this description.
    pub fn describe(&self, section: &mut Section) {
        let Experiment { title, paper, figure, about, paper_claim, goal, .. } = self;
        section.title = (*title).to_owned();
        section.paper = (*paper).to_owned();
        section.figure = (*figure).to_owned();
        section.about = (*about).to_owned();
        section.paper_claim = (*paper_claim).to_owned();
        section.goal = (*goal).to_owned();
    }
}
