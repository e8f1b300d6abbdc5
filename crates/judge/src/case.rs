//! One crash image and the way of its recovery, as a short text that replays it on a saved run.

use std::fmt;
use std::str::FromStr;

use crate::crash::Survival;

/// How an image is recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// In this process.
    Here,
    /// By `onejournal fsck`.
    Fsck,
    /// By `onejournal mount`.
    Mount,
    /// By the kernel's ext4, which mounts it.
    Kernel,
    /// By programs that open their databases or streams.
    Opened,
    /// The same, through `onejournal logd`.
    Served,
}

/// A power cut, and the recovery that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Number of events that have happened: of the run, or of the previous recovery.
    pub event: usize,
    pub survival: Survival,
    pub how: How,
    /// Size of the disk's sectors during the recovery.
    pub sector_bytes: u32,
}

/// Cuts, each during the recovery after the previous one. The last recovery is not cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    pub cuts: Vec<Cut>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.how {
            How::Here => "here",
            How::Fsck => "fsck",
            How::Mount => "mount",
            How::Kernel => "kernel",
            How::Opened => "opened",
            How::Served => "served",
        };
        write!(f, "{}.{}.{how}.{}", self.event, self.survival, self.sector_bytes)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cuts: Vec<String> = self.cuts.iter().map(Cut::to_string).collect();
        f.write_str(&cuts.join("+"))
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let cut = |text: &str| {
            let words: Vec<&str> = text.split('.').collect();
            let [event, survival, how, sector_bytes] = words[..] else { return None };
            let how = match how {
                "here" => How::Here,
                "fsck" => How::Fsck,
                "mount" => How::Mount,
                "kernel" => How::Kernel,
                "opened" => How::Opened,
                "served" => How::Served,
                _ => return None,
            };
            let (event, survival) = (event.parse().ok()?, survival.parse().ok()?);
            Some(Cut { event, survival, how, sector_bytes: sector_bytes.parse().ok()? })
        };
        let cuts: Option<Vec<Cut>> = text.split('+').map(cut).collect();
        let why = || format!("{text:?} is no case, such as 812.s50-7.here.512");
        Ok(Case { cuts: cuts.ok_or_else(why)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        for text in [
            "812.s50-7.here.512",
            "9.w0-1.fsck.4096+17.s97-3.mount.512",
            "3.w0-1.opened.512+9.w0-1.served.512",
            "3.w0-1.kernel.512",
        ] {
            assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
        }
        for text in ["", "812", "812.s50-7.there.512", "812.s50-7.here.512+"] {
            assert!(text.parse::<Case>().unwrap_err().contains("is no case"), "{text}");
        }
    }
}
