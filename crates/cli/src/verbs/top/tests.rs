//! Draws generated samples on terminals of several sizes.

use std::time::{Duration, Instant};

use log::{Look, StreamStat, StreamsFound};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sample::Sample;
use super::view::{Part, View};
use super::{draw, text};
use crate::counters::Counters;
use crate::inventory::{FileCounters, SeenMount};
use crate::inventory::{MountState, SeenLog, SeenLogs, StreamCounters};

fn counters(commits: u64) -> Counters {
    let (bytes, fsyncs) = (commits * 10_000, commits * 2);
    let text = format!(
        r#"{{"durability":"power","mount_time_s":1000,"commits":{commits},"fsyncs":{fsyncs},
            "app_bytes":{bytes},"device_bytes_written":{bytes},"device_flushes":{fsyncs},
            "available_bytes":5000000,"stalls":3,
            "commit_latency_ns":{{"count":{commits},"p99":84000,"buckets":[[70000,{commits}],[140000,1]]}}}}"#
    );
    Counters(serde_json::from_str(&text).unwrap())
}

fn volume(dir: &str, commits: u64) -> SeenMount {
    let file = |ino: u64, journal_bytes, write_amplification, name: Option<&str>| FileCounters {
        ino,
        journal_bytes,
        write_amplification,
        name: name.map(str::to_owned),
        ..FileCounters::default()
    };
    let files = vec![file(12, 5_000, Some(1.5), Some("db")), file(13, 300, Some(21.0), None)];
    SeenMount {
        target: "/image".into(),
        dir: dir.into(),
        device: (0, 0),
        path: dir.into(),
        namespace_pid: None,
        state: MountState::ReadWrite,
        pid: Some(7),
        counters: counters(commits),
        files,
    }
}

fn log() -> SeenLog {
    let stat = StreamStat {
        name: "one".into(),
        head: 0,
        drained: 1_000,
        durable: 3_000,
        appended: 7_000,
        record_count: 42,
        payload_bytes: 6_000,
        file_bytes: 4_096,
        is_aborted: false,
    };
    let streams = vec![
        StreamCounters { name: "one".into(), file_bytes: 4_096, stat: Some(stat) },
        StreamCounters { name: "two".into(), file_bytes: 8_192, stat: None },
    ];
    let look = Look {
        uuid: String::new(),
        owner: 0,
        socket: None,
        durability: device::Durability::Power,
        nvram: None,
        pool_bytes: 1 << 20,
        streams: StreamsFound { count: 9, ..StreamsFound::default() },
    };
    SeenLog { dir: "/var/log-dir".into(), look: Some(look), streams, ..SeenLog::default() }
}

fn view() -> View {
    let mut view = View::default();
    let at = Instant::now();
    for (seconds, commits) in [(0, 1_000), (2, 1_400)] {
        view.take(Sample {
            at: at + Duration::from_secs(seconds),
            now_s: 1_010,
            volumes: vec![volume("/a/first", commits), volume("/a/second", 50)],
            logs: SeenLogs { logs: vec![log()], ..SeenLogs::default() },
        });
    }
    view
}

/// The screen of a terminal of this size.
fn screen(view: &mut View, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, view)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let rows = buffer.content().chunks(usize::from(width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect()).collect()
}

fn line<'a>(lines: &'a [String], word: &str) -> &'a str {
    let found = lines.iter().find(|line| line.contains(word));
    found.unwrap_or_else(|| panic!("no {word} in {lines:#?}"))
}

fn press(view: &mut View, code: KeyCode) -> bool {
    view.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn a_large_terminal_shows_everything() {
    let lines = screen(&mut view(), 150, 40);
    assert!(
        lines[0].starts_with("onejournal top   volumes: 2   logs: 1   rates of the last 2.0 s")
    );
    let first = line(&lines, "/a/first ");
    // 400 commits, 800 fsyncs and 4 MB in two seconds; as many flushes as fsyncs.
    for word in
        ["read-write", " 200.0 ", " 400.0 ", "2.0 MB", " 1.00 ", "84.0 µs", "5.0 MB", "power"]
    {
        assert!(first.contains(word), "no {word:?} in {first}");
    }
    assert!(line(&lines, "/a/second ").contains(" 0.0 "));
    assert!(line(&lines, "Files of /a/first by journal bytes").starts_with('┌'));
    assert!(line(&lines, "inode 13").contains("21.0"));
    // Only the commits since the sample before.
    let latency = line(&lines, "< 131 µs");
    assert!(latency.contains("400") && latency.contains('█'), "{latency}");
    let stream = line(&lines, "/var/log-dir/one");
    for word in ["6.0 kB", "4.0 kB", "42", "ok"] {
        assert!(stream.contains(word), "no {word:?} in {stream}");
    }
    assert!(line(&lines, "/var/log-dir/two").contains("no daemon"));
    assert!(lines[39].starts_with("q end"));
}

#[test]
fn the_columns_of_each_part_stay() {
    let text = text(&mut view(), 250);
    for columns in [
        "MOUNTED ON STATE COMMITS/s FSYNCS/s PROGRAMS/s DEVICE/s FLUSHES/FSYNC AMPLIFICATION P99 \
         STALLS FREE DURABILITY",
        "FILE JOURNAL AMPLIFICATION PROGRAMS FSYNCS IN PLACE HOME",
        "LATENCY COMMITS",
        "STREAM APPENDED NOT SYNCED NOT IN FILES FILES RECORDS STATE",
    ] {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.lines().any(|line| words(line) == columns), "no {columns} in {text}");
    }
}

#[test]
fn a_small_terminal_shows_one_part_at_a_time() {
    let mut view = view();
    let titles = ["Volumes", "Files of", "Commit latency", "Log streams"];
    for part in 0..5 {
        let lines = screen(&mut view, 40, 8);
        for (index, title) in titles.iter().enumerate() {
            let is_shown = lines.iter().any(|line| line.contains(title));
            assert_eq!(is_shown, index == part % 4, "{title} in {lines:#?}");
        }
        assert!(!press(&mut view, KeyCode::Tab));
    }
    // Columns that do not fit are left out whole, and long names lose their beginning.
    view.part = Part::Volumes;
    let lines = screen(&mut view, 26, 8);
    assert!(!lines.iter().any(|line| line.contains("COMM")), "{lines:#?}");
    assert!(line(&lines, "read-write").contains("/first"));
    view.part = Part::Streams;
    assert!(line(&screen(&mut view, 16, 8), "…").contains("/one"));
    for (width, height) in [(1, 1), (3, 3), (20, 4), (59, 19), (60, 20), (500, 200)] {
        screen(&mut view, width, height);
    }
}

#[test]
fn keys_choose_scroll_sort_and_end() {
    let mut view = view();
    press(&mut view, KeyCode::Down);
    assert_eq!(view.chosen_index(), 1);
    press(&mut view, KeyCode::Down);
    assert_eq!(view.chosen_index(), 1, "there are only two");
    assert!(line(&screen(&mut view, 150, 40), "Files of").contains("/a/second"));
    let inodes = |view: &View| view.files().iter().map(|file| file.ino).collect::<Vec<_>>();
    assert_eq!(inodes(&view), [12, 13]);
    press(&mut view, KeyCode::Char('s'));
    assert_eq!(inodes(&view), [13, 12]);
    assert!(line(&screen(&mut view, 150, 40), "Files of").contains("by write amplification"));
    press(&mut view, KeyCode::Tab);
    for _ in 0..9 {
        press(&mut view, KeyCode::Down);
    }
    // One line of files fits.
    screen(&mut view, 40, 6);
    assert_eq!((view.files_above, view.chosen_index()), (1, 1), "no further than the last");
    press(&mut view, KeyCode::Up);
    assert_eq!(view.files_above, 0);
    press(&mut view, KeyCode::BackTab);
    press(&mut view, KeyCode::Up);
    assert_eq!((view.part, view.chosen_index()), (Part::Volumes, 0));
    assert!(press(&mut view, KeyCode::Char('q')) && press(&mut view, KeyCode::Esc));
    assert!(view.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(!press(&mut view, KeyCode::Char('c')));
}

#[test]
fn text_has_every_row() {
    let mut view = view();
    view.sample.as_mut().unwrap().volumes[0].files =
        (0..300).map(|ino| FileCounters { ino, ..FileCounters::default() }).collect();
    let text = text(&mut view, 120);
    assert!(text.contains("inode 299 ") && text.contains("/var/log-dir/two"));
    assert!(!text.contains("more logs"), "{text}");
    view.sample.as_mut().unwrap().logs.left_out_count = 5;
    let text = super::text(&mut view, 120);
    assert!(text.contains("/var/log-dir: ... and 7 more streams "), "{text}");
    assert!(text.contains("logs: 6 ") && text.contains("... and 5 more logs "), "{text}");
    let mut nothing = View::default();
    assert!(super::text(&mut nothing, 80).contains("no volume is mounted"));
    assert!(screen(&mut nothing, 80, 24)[0].contains("waiting"));
}

#[test]
fn regression_escape_sequences_are_not_drawn() {
    const ACTIVE: &str = "/a\x1b[2J\u{9b}2J\u{202e}b";
    let mut view = view();
    let sample = view.sample.as_mut().unwrap();
    sample.volumes = vec![volume(ACTIVE, 1)];
    sample.volumes[0].counters.0.insert("durability".into(), ACTIVE.into());
    sample.volumes[0].files[0].name = Some(ACTIVE.into());
    sample.logs.logs[0].dir = ACTIVE.into();
    for text in [text(&mut view, 200), screen(&mut view, 200, 40).join("\n")] {
        assert_eq!(text.matches("/a?[2J?2J?b").count(), 7, "{text}");
        assert!(!text.contains(['\x1b', '\u{9b}', '\u{202e}']), "{text:?}");
    }
}

#[test]
fn a_volume_that_was_mounted_anew_has_rates_since_then() {
    let mut view = view();
    let mut sample = view.sample.clone().unwrap();
    sample.volumes[0].counters.0.insert("mount_time_s".into(), 1_005.into());
    view.take(sample);
    // 1,400 commits in the five seconds since then.
    assert!(line(&screen(&mut view, 150, 40), "/a/first ").contains(" 280.0 "));
}
