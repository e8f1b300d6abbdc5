//! The program `onejournal`: the command of the library, with its allocator.

/// Block versions are allocated and freed by the thousand, often in different threads; the system's
/// allocator gives their pages back and faults them in again (a third of the engine's time).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    onejournal_cli::main()
}
