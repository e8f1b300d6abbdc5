//! The output of a command. If the reader closes the pipe (`| head`), the command ends without a
//! message, like other programs.

use std::io::{ErrorKind, Write};

use crate::{CliError, Result};

/// Exit code of a program that SIGPIPE ended, as shells show it.
const BROKEN_PIPE: u8 = 128 + 13;

/// Prints `bytes` and a newline.
pub fn print_line(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.write_all(b"\n"));
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CliError { text: String::new(), code: BROKEN_PIPE },
        _ => CliError::new(format!("standard output: {error}")),
    })
}

/// Prints a line like `println!`, and returns from the function if that fails.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::output::print_line(format!($($argument)*).as_bytes())?
    };
}

/// The same for work that has to continue after the reader has closed the pipe.
#[macro_export]
macro_rules! mention {
    ($($argument:tt)*) => {{
        let _ = $crate::output::print_line(format!($($argument)*).as_bytes());
    }};
}
