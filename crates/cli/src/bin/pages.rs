//! The program `onejournal-pages DIR`: writes the man pages into DIR/man and the completions of
//! shells into DIR/completions. `make install` runs it; it is not installed.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(dir), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: onejournal-pages DIR");
        return ExitCode::from(2);
    };
    match onejournal_cli::pages::write(Path::new(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("onejournal-pages: {}: {error}", Path::new(&dir).display());
            ExitCode::FAILURE
        }
    }
}
