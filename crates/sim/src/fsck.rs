//! Runs e2fsck on images.

use std::path::Path;
use std::process::{Command, Stdio};

use onejournal_testing::Image;
use tempfile::NamedTempFile;

/// A file in memory that holds one image after the other for e2fsck.
pub struct Fsck {
    file: NamedTempFile,
    held: Option<Image>,
}

impl Fsck {
    /// Makes the file: in `/dev/shm` if that exists, otherwise among the temporary files. An error
    /// if e2fsck is not installed.
    pub fn new() -> Result<Fsck, String> {
        let version = Command::new("e2fsck").arg("-V").stderr(Stdio::null()).status();
        if let Err(error) = version {
            return Err(format!("cannot run e2fsck ({error}); install e2fsprogs"));
        }
        let shm = Path::new("/dev/shm");
        let builder =
            |dir: &Path| tempfile::Builder::new().prefix("onejournal-sim-").tempfile_in(dir);
        let file = builder(shm).or_else(|_| builder(&std::env::temp_dir()));
        let file = file.map_err(|e| format!("no file for e2fsck: {e}"))?;
        Ok(Fsck { file, held: None })
    }

    /// The complaint of e2fsck about the image, if it has one.
    pub fn check(&mut self, image: &Image) -> Result<(), String> {
        let file = self.file.as_file();
        let written = match self.held.take() {
            Some(held) => image.write_differences_to(file, &held),
            None => image.write_to(file),
        };
        written.map_err(|e| format!("cannot write the file for e2fsck: {e}"))?;
        self.held = Some(image.clone());
        let mut e2fsck = Command::new("e2fsck");
        e2fsck.args(["-f", "-n"]).arg(self.file.path()).stdin(Stdio::null());
        let output = e2fsck.output().map_err(|e| format!("cannot run e2fsck: {e}"))?;
        if output.status.code() == Some(0) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("Pass ")).collect();
        Err(format!("e2fsck -fn says ({}):\n  {}", output.status, lines.join("\n  ")))
    }
}
