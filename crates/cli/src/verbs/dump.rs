//! `onejournal dump`: prints the journal. Reads only.

use std::path::Path;
use std::sync::Arc;

use device::BlockDevice;
use ext4::{Survey, uuid_text};
use host::Access;
use journal::{End, Record, Scan};
use serde_json::{Value, json};

use crate::journal_search::Need;
use crate::output::say_json;
use crate::output::{plain, plain_path};
use crate::{CliError, DumpArgs, Result, advice, journal_path, journal_search, say, target};

pub fn run(args: &DumpArgs) -> Result<u8> {
    let path = &args.target;
    let disk = Arc::new(target::open(path, Access::ReadOnly)?);
    let device: Arc<dyn BlockDevice> = disk.clone();
    let located = journal_search::locate(path, &device, args.journal.as_deref(), Need::Print)?;
    let open = |journal: &Path| journal_path::open_as_it_is(journal, Access::ReadOnly, path, &disk);
    let journal = located.as_deref().map(open).transpose()?;
    let survey = Survey::take(&device, journal.as_ref());
    let survey = survey.map_err(|error| advice::at_volume(path, &error))?;
    let space = survey.space.as_ref().map_err(|error| advice::at_volume(path, error))?;
    let scan = journal::scan(space, &survey.uuid).map_err(|error| match error {
        journal::JournalError::NoHeader if !survey.needs_recovery => CliError::at(
            path,
            "has never been mounted by OneJournal, so there is no journal yet: \
             onejournal mount TARGET DIR",
        ),
        error => CliError::at(path, error),
    })?;
    if args.json {
        let text = serde_json::to_string_pretty(&as_json(&survey, &scan, located.as_deref()));
        say_json!(text.expect("numbers and strings always render"));
    } else {
        print_text(&survey, &scan, located.as_deref())?;
    }
    Ok(0)
}

fn print_text(survey: &Survey, scan: &Scan, journal: Option<&Path>) -> Result<()> {
    let header = &scan.header;
    say!("volume      {} blocks, uuid {}", survey.block_count, uuid_text(&survey.uuid));
    say!("state       {}", if survey.needs_recovery { "not closed" } else { "clean" });
    if let Some(claimed_by) = &survey.claimed_by {
        say!("claim       {}", plain(claimed_by));
    }
    match journal {
        Some(journal) => say!("journal     on {}", plain_path(journal)),
        None => say!("journal     in the volume"),
    }
    say!("incarnation {:016x}, header {}", header.incarnation, header.sequence);
    say!("regions     {} of {} bytes", header.region_count, header.region_bytes);
    say!("tail        region {}, transaction {}", header.tail_region, header.tail_tid);
    say!("reach       {}", header.reach_offset);
    say!("step        {} bytes", header.step_bytes);
    say!("settled     transaction {}", header.settled_tid);
    say!("window      {} blocks", header.window_blocks);
    for record in &scan.records {
        say!(
            "transaction {} at {} ({} bytes): {} blocks, {} revokes",
            record.tid,
            record.offset,
            record.record_bytes,
            record.tags.len(),
            record.revokes.len()
        );
        for tag in &record.tags {
            say!("  {} {}, {} bytes", tag.home, form_name(tag.form), tag.stored_bytes);
        }
        for block in &record.revokes {
            say!("  {block} revoked");
        }
        for check in &record.checks {
            say!("  {} blocks in place from {}", check.block_count, check.home);
        }
    }
    say!("end         {} at {}", end_text(&scan.end), scan.end_offset);
    Ok(())
}

fn as_json(survey: &Survey, scan: &Scan, journal: Option<&Path>) -> Value {
    let header = &scan.header;
    json!({
        "uuid": uuid_text(&survey.uuid),
        "block_count": survey.block_count,
        "needs_recovery": survey.needs_recovery,
        "claimed_by": survey.claimed_by,
        "journal": journal.map(|journal| journal.display().to_string()),
        "header": {
            "incarnation": format!("{:016x}", header.incarnation),
            "sequence": header.sequence,
            "clean": header.clean,
            "region_count": header.region_count,
            "region_bytes": header.region_bytes,
            "tail_region": header.tail_region,
            "tail_tid": header.tail_tid.0,
            "reach_offset": header.reach_offset,
            "step_bytes": header.step_bytes,
            "settled_tid": header.settled_tid.0,
            "window_blocks": header.window_blocks,
        },
        "transactions": scan.records.iter().map(record_json).collect::<Vec<_>>(),
        "end": end_text(&scan.end),
        "end_offset": scan.end_offset,
    })
}

fn record_json(record: &Record) -> Value {
    let tag = |tag: &journal::Tag| {
        json!({
            "home": tag.home.0,
            "form": form_name(tag.form),
            "stored_bytes": tag.stored_bytes,
        })
    };
    let check = |check: &journal::DataCheck| {
        json!({
            "home": check.home.0,
            "block_count": check.block_count,
            "checksum": check.checksum,
        })
    };
    json!({
        "tid": record.tid.0,
        "time_ns": record.time_ns,
        "offset": record.offset,
        "record_bytes": record.record_bytes,
        "tags": record.tags.iter().map(tag).collect::<Vec<_>>(),
        "revokes": record.revokes.iter().map(|block| block.0).collect::<Vec<_>>(),
        "checks": record.checks.iter().map(check).collect::<Vec<_>>(),
    })
}

fn form_name(form: u8) -> &'static str {
    journal::form_name(form).expect("the scan takes known forms only")
}

fn end_text(end: &End) -> String {
    match end {
        End::Tail => "nothing valid follows".into(),
        End::Damaged { missing, found, found_offset } => format!(
            "DAMAGED: transaction {missing} is unreadable, transaction {found} is whole at \
             {found_offset}"
        ),
        End::Unknown { tid, what } => format!("transaction {tid} is not understood: {what}"),
    }
}
