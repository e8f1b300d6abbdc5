//! The traces that come with the program, taken from servers by `scripts/trace-redo-log`.

use super::trace::Trace;

/// Name, description, and text.
const TRACES: [(&str, &str, &str); 4] = [
    (
        "mariadb-commit1",
        "InnoDB, each commit synced (the paper's Cmt/Disk)",
        include_str!("../../../traces/mariadb-commit1.trace"),
    ),
    (
        "mariadb-commit2",
        "InnoDB, each commit written, synced once a second (Cmt/Cache)",
        include_str!("../../../traces/mariadb-commit2.trace"),
    ),
    (
        "mariadb-commit0",
        "InnoDB, written and synced once a second (Prd/Disk)",
        include_str!("../../../traces/mariadb-commit0.trace"),
    ),
    (
        "postgresql",
        "PostgreSQL's WAL, each commit synced",
        include_str!("../../../traces/postgresql.trace"),
    ),
];

/// The text of a trace.
pub fn text(name: &str) -> Option<&'static str> {
    TRACES.iter().find(|(known, _, _)| *known == name).map(|(_, _, text)| *text)
}

/// All names.
pub fn names() -> String {
    TRACES.map(|(name, _, _)| name).join(", ")
}

/// The traces, for `--help`.
pub fn help() -> String {
    let traces = TRACES.map(|(name, what, _)| format!("  {name:<16} {what}\n")).concat();
    format!("Traces:\n{traces}\n{}", Trace::FORMAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_a_trace_that_names_its_source() {
        for (name, _, text) in TRACES {
            let facts = text.parse::<Trace>().unwrap().facts();
            assert!(facts.source.contains("threads") || facts.source.contains("clients"), "{name}");
            assert!(facts.writes >= 20 && facts.syncs >= 5, "{name}: {facts:?}");
            assert!(facts.new_bytes < facts.written_bytes, "{name}: {facts:?}");
        }
    }
}
