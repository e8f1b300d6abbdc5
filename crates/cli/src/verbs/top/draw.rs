//! Draws the screen: four parts, or on a small terminal only the part that the user has chosen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use super::rows::{Table, files, histogram, streams, volumes};
use super::view::{Part, View};
use crate::output::plain;

/// A terminal with fewer lines or columns shows one part at a time.
const WHOLE_HEIGHT: u16 = 20;
const WHOLE_WIDTH: u16 = 60;
/// The least width of the first column, if the terminal is wide enough.
const NAME_WIDTH: usize = 14;
/// Lines of a part beside its rows: borders and heading; as text, title, heading and an empty line.
const FRAME_LINES: u16 = 3;

const KEYS: &str = "q end   Tab part   arrows choose, scroll   s sort";

/// The screen of a terminal.
pub fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let area = frame.area();
    let lines = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)];
    let [top, middle, bottom] = Layout::vertical(lines).areas(area);
    frame.render_widget(Paragraph::new(heading(view)), top);
    frame.render_widget(Paragraph::new(KEYS), bottom);
    if area.height < WHOLE_HEIGHT || area.width < WHOLE_WIDTH {
        return draw_part(frame, middle, view, view.part);
    }
    let volume_lines = (view.volumes().len() as u16).clamp(1, 6) + FRAME_LINES;
    let parts = [Constraint::Length(volume_lines), Constraint::Fill(1), Constraint::Fill(1)];
    let [volumes, files, rest] = Layout::vertical(parts).areas(middle);
    let halves = [Constraint::Percentage(40), Constraint::Percentage(60)];
    let [latency, streams] = Layout::horizontal(halves).areas(rest);
    draw_part(frame, volumes, view, Part::Volumes);
    draw_part(frame, files, view, Part::Files);
    draw_part(frame, latency, view, Part::Latency);
    draw_part(frame, streams, view, Part::Streams);
}

/// Heights of the parts if every row is shown.
fn whole_heights(view: &View) -> [u16; 4] {
    let tables = [volumes(view), files(view), histogram(view), streams(view)];
    let height = |table: &Table| u16::try_from(table.rows.len().max(1)).unwrap_or(1000).min(1000);
    tables.each_ref().map(|table| height(table) + FRAME_LINES)
}

/// Lines that [`draw_whole`] needs.
pub fn whole_height(view: &View) -> u16 {
    // With an empty line below the first line of all.
    whole_heights(view).iter().sum::<u16>() + 2
}

/// All parts with all their rows, one below the other.
pub fn draw_whole(frame: &mut Frame<'_>, view: &mut View) {
    let [volumes, files, latency, streams] = whole_heights(view).map(Constraint::Length);
    let parts = [Constraint::Length(2), volumes, files, latency, streams];
    let [top, volumes, files, latency, streams] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(heading(view)), top);
    put_part(frame, volumes, view, Part::Volumes);
    put_part(frame, files, view, Part::Files);
    put_part(frame, latency, view, Part::Latency);
    put_part(frame, streams, view, Part::Streams);
}

/// A part without borders.
fn put_part(frame: &mut Frame<'_>, area: Rect, view: &View, part: Part) {
    let table = table(view, part);
    let [title, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(plain(&table.title)), title);
    let rows = lines(&table, usize::from(body.width), 0, table.rows.len());
    frame.render_widget(Paragraph::new(rows), body);
}

fn table(view: &View, part: Part) -> Table {
    match part {
        Part::Volumes => volumes(view),
        Part::Files => files(view),
        Part::Latency => histogram(view),
        Part::Streams => streams(view),
    }
}

fn heading(view: &View) -> String {
    let Some(sample) = &view.sample else { return "onejournal top: waiting for answers".into() };
    let rates = match &view.before {
        Some(before) => format!("of the last {:.1} s", (sample.at - before.at).as_secs_f64()),
        None => "since the mount".into(),
    };
    let (volumes, logs) =
        (sample.volumes.len(), sample.logs.logs.len() + sample.logs.left_out_count);
    format!("onejournal top   volumes: {volumes}   logs: {logs}   rates {rates}")
}

fn draw_part(frame: &mut Frame<'_>, area: Rect, view: &mut View, part: Part) {
    let table = table(view, part);
    let room = usize::from(area.height.saturating_sub(FRAME_LINES));
    // As far down as there is something below.
    let last_above = table.rows.len().saturating_sub(room);
    let above = match part {
        Part::Volumes => (view.chosen_index() + 1).saturating_sub(room),
        Part::Latency => 0,
        Part::Files => {
            view.files_above = view.files_above.min(last_above);
            view.files_above
        }
        Part::Streams => {
            view.streams_above = view.streams_above.min(last_above);
            view.streams_above
        }
    };
    let is_chosen = part == view.part;
    let style = if is_chosen { Modifier::BOLD } else { Modifier::empty() };
    let title =
        Span::styled(format!(" {} ", plain(&table.title)), Style::new().add_modifier(style));
    let block = Block::new().borders(Borders::ALL).title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let lines = lines(&table, usize::from(inner.width), above, room);
    frame.render_widget(Paragraph::new(lines), inner);
}

/// The heading and `room` rows, beginning with row `above`.
fn lines(table: &Table, width: usize, above: usize, room: usize) -> Vec<Line<'static>> {
    if table.rows.is_empty() {
        return vec![Line::raw(table.empty)];
    }
    let widths = widths(table, width);
    let mut lines = vec![Line::styled(
        line(&table.heading.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>(), &widths),
        Modifier::DIM,
    )];
    for (index, row) in table.rows.iter().enumerate().skip(above).take(room) {
        let is_marked = table.marked == Some(index);
        let style = if is_marked { Modifier::REVERSED } else { Modifier::empty() };
        lines.push(Line::styled(line(row, &widths), style));
    }
    lines
}

/// Widths of the columns that fit, from the left. The first column gets the rest.
fn widths(table: &Table, width: usize) -> Vec<usize> {
    let wanted = |column: usize| {
        let cells = table.rows.iter().map(|row| row[column].chars().count());
        cells.chain([table.heading[column].chars().count()]).max().unwrap_or(0)
    };
    let first = wanted(0);
    let mut left = width.saturating_sub(first.min(NAME_WIDTH));
    let mut others = Vec::new();
    for column in 1..table.heading.len() {
        let Some(rest) = left.checked_sub(wanted(column) + 2) else { break };
        left = rest;
        others.push(wanted(column));
    }
    let taken: usize = others.iter().map(|width| width + 2).sum();
    let mut widths = vec![first.min(width.saturating_sub(taken))];
    widths.extend(others);
    widths
}

/// The first cell is aligned to the left and cut at its beginning if it is too long, because the
/// end of a path says more. The others are aligned to the right.
fn line(row: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
        let (cell, len) = (plain(cell), cell.chars().count());
        match index {
            0 if len > *width => {
                text.push('…');
                text.extend(cell.chars().skip(len + 1 - (*width).max(1)));
            }
            0 => text = format!("{cell:width$}"),
            _ => text.push_str(&format!("  {cell:>width$}")),
        }
    }
    text
}
