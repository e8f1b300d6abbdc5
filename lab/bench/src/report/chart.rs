//! Figures: a diagram for each panel in two columns, below one legend. Bars and lines have whiskers
//! from the lower to the upper quartile.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::number;
use super::palette::Palette;
use crate::error::{Error, Result};
use crate::results::{Plot, PlotKind, Row, Section};

const COLUMNS: usize = 2;
const WIDTH: i32 = 960;
const PANEL_HEIGHT: i32 = 270;
const MARGIN: i32 = 14;
const LEGEND_LINE: i32 = 22;
const LEFT: i32 = 62;
const TOP: i32 = 30;
const BOTTOM: i32 = 46;
const FONT: &str = "Helvetica, Arial, DejaVu Sans, sans-serif";
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xe2, 0xe2, 0xe2);
const WHISKER: RGBColor = RGBColor(0x33, 0x33, 0x33);

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// One value of a diagram.
struct Point<'a> {
    case: &'a str,
    x: f64,
    system: &'a str,
    value: f64,
    /// Quartiles; only for the metric itself.
    spread: Option<(f64, f64)>,
}

/// A diagram's place and data.
struct Panel<'a> {
    title: &'a str,
    points: Vec<Point<'a>>,
    unit: String,
}

/// The figure as SVG; `None` if it has no rows.
pub fn draw(section: &Section, plot: &Plot, palette: &Palette) -> Result<Option<String>> {
    let panels = panels(section, plot);
    if panels.is_empty() {
        return Ok(None);
    }
    let mut systems: Vec<&str> = Vec::new();
    for point in panels.iter().flat_map(|panel| &panel.points) {
        if !systems.contains(&point.system) {
            systems.push(point.system);
        }
    }
    let legend = legend_places(&systems);
    let legend_height = legend.last().map_or(0, |(_, y)| y + LEGEND_LINE);
    let columns = COLUMNS.min(panels.len());
    let lines = panels.len().div_ceil(columns);
    let height = MARGIN + legend_height + lines as i32 * PANEL_HEIGHT;
    let mut svg = String::new();
    {
        let size = (WIDTH.unsigned_abs(), height.unsigned_abs());
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let painted = paint(&root, plot, &panels, &systems, &legend, legend_height, palette);
        painted
            .and_then(|()| root.present().map_err(|error| error.to_string()))
            .map_err(|error| Error::other(format!("drawing {}: {error}", plot.title)))?;
    }
    Ok(Some(svg))
}

fn panels<'a>(section: &'a Section, plot: &'a Plot) -> Vec<Panel<'a>> {
    let rows: Vec<&Row> = section.rows.iter().filter(|row| row.metric == plot.metric).collect();
    let mut names: Vec<&str> = plot.panels.iter().map(String::as_str).collect();
    if names.is_empty() {
        for row in &rows {
            if !names.contains(&row.panel.as_str()) {
                names.push(&row.panel);
            }
        }
    }
    let panel = |title: &'a str| {
        let rows = rows.iter().filter(|row| row.panel == title);
        let points: Vec<Point<'a>> = rows.clone().filter_map(|row| point(row, plot)).collect();
        let unit = match &plot.count {
            Some(count) => count.clone(),
            None => rows.clone().next().map(|row| row.unit.clone()).unwrap_or_default(),
        };
        Panel { title, points, unit }
    };
    names.into_iter().map(panel).filter(|panel| !panel.points.is_empty()).collect()
}

fn point<'a>(row: &'a Row, plot: &Plot) -> Option<Point<'a>> {
    let (value, spread) = match &plot.count {
        Some(count) => (*row.counts.get(count)?, None),
        None => (row.median, Some((row.low, row.high))),
    };
    let x = row.x.unwrap_or_default();
    Some(Point { case: &row.case, x, system: &row.system, value, spread })
}

/// Upper left corners of the legend's entries.
fn legend_places(systems: &[&str]) -> Vec<(i32, i32)> {
    let (mut x, mut y) = (LEFT, MARGIN);
    let mut places = Vec::new();
    for system in systems {
        let width = 34 + (system.chars().count() as f64 * 6.6) as i32;
        if x + width > WIDTH - MARGIN && x > LEFT {
            (x, y) = (LEFT, y + LEGEND_LINE);
        }
        places.push((x, y));
        x += width;
    }
    places
}

type Painted = Result<(), String>;

fn paint(
    root: &Area<'_>,
    plot: &Plot,
    panels: &[Panel<'_>],
    systems: &[&str],
    legend: &[(i32, i32)],
    legend_height: i32,
    palette: &Palette,
) -> Painted {
    root.fill(&WHITE).map_err(text_of)?;
    for (system, (x, y)) in systems.iter().zip(legend) {
        let colour = palette.colour(system).filled();
        rectangle(root, (*x, *y + 2), (*x + 13, *y + 15), colour)?;
        text(root, system, (*x + 19, *y + 9), 13, HPos::Left, VPos::Center, INK)?;
    }
    let columns = COLUMNS.min(panels.len()) as i32;
    let width = (WIDTH - MARGIN) / columns;
    for (index, panel) in panels.iter().enumerate() {
        let (column, line) = (index as i32 % columns, index as i32 / columns);
        let left = column * width;
        let top = MARGIN + legend_height + line * PANEL_HEIGHT;
        let frame = Frame {
            left: left + LEFT,
            right: left + width - MARGIN,
            top: top + TOP,
            bottom: top + PANEL_HEIGHT - BOTTOM,
        };
        let diagram = Diagram { root, frame, panel, plot, systems, palette };
        diagram.paint()?;
    }
    Ok(())
}

/// Size of the diagram itself in pixels.
struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

struct Diagram<'a, 's> {
    root: &'a Area<'s>,
    frame: Frame,
    panel: &'a Panel<'a>,
    plot: &'a Plot,
    systems: &'a [&'a str],
    palette: &'a Palette,
}

impl Diagram<'_, '_> {
    fn paint(&self) -> Painted {
        let tops = self.panel.points.iter().flat_map(|point| {
            let (low, high) = point.spread.unwrap_or((point.value, point.value));
            [point.value, low, high]
        });
        let axis = if self.plot.log_y { Axis::log(tops) } else { Axis::linear(tops) };
        self.paint_y(&axis)?;
        match self.plot.kind {
            PlotKind::Bars => self.paint_bars(&axis)?,
            PlotKind::Lines => self.paint_lines(&axis)?,
        }
        let Frame { left, right, bottom, top } = self.frame;
        line(self.root, &[(left, top), (left, bottom), (right, bottom)], INK, 1)
    }

    fn paint_y(&self, axis: &Axis) -> Painted {
        let Frame { left, right, top, .. } = self.frame;
        let title = format!("{} ({})", self.panel.title, self.panel.unit);
        text(self.root, &title, (left, top - 18), 14, HPos::Left, VPos::Center, INK)?;
        for tick in &axis.ticks {
            let y = self.y(axis, *tick);
            line(self.root, &[(left, y), (right, y)], GRID, 1)?;
            let label = number::tick(*tick);
            text(self.root, &label, (left - 6, y), 12, HPos::Right, VPos::Center, INK)?;
        }
        Ok(())
    }

    fn paint_bars(&self, axis: &Axis) -> Painted {
        let mut cases: Vec<&str> = Vec::new();
        for point in &self.panel.points {
            if !cases.contains(&point.case) {
                cases.push(point.case);
            }
        }
        let here = |system: &&&str| self.panel.points.iter().any(|point| point.system == **system);
        let systems: Vec<&str> = self.systems.iter().filter(here).copied().collect();
        let Frame { left, right, bottom, .. } = self.frame;
        let group = f64::from(right - left) / cases.len() as f64;
        let bar = (group * 0.84 / systems.len() as f64).min(46.0);
        for (index, case) in cases.iter().enumerate() {
            let middle = f64::from(left) + group * (index as f64 + 0.5);
            let first = middle - bar * systems.len() as f64 / 2.0;
            for point in self.panel.points.iter().filter(|point| point.case == *case) {
                let place = systems.iter().position(|system| *system == point.system).unwrap_or(0);
                let start = first + bar * place as f64;
                self.paint_bar(axis, point, start, bar)?;
            }
            let below = (middle as i32, bottom + 8);
            text(self.root, case, below, 12, HPos::Center, VPos::Top, INK)?;
        }
        Ok(())
    }

    fn paint_bar(&self, axis: &Axis, point: &Point<'_>, start: f64, width: f64) -> Painted {
        let gap = if width > 6.0 { 1 } else { 0 };
        let (left, right) = (start as i32, ((start + width) as i32 - gap).max(start as i32 + 1));
        let (top, bottom) = (self.y(axis, point.value), self.y(axis, axis.bottom()));
        let colour = self.palette.colour(point.system).filled();
        rectangle(self.root, (left, top), (right, bottom), colour)?;
        self.paint_whisker(axis, point, (left + right) / 2)
    }

    fn paint_lines(&self, y_axis: &Axis) -> Painted {
        let mut xs: Vec<f64> = self.panel.points.iter().map(|point| point.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let values = xs.iter().copied();
        let axis = if self.plot.log_x { Axis::log(values) } else { Axis::linear(values) };
        let axis = if xs.len() <= 8 { axis.with_ticks(xs) } else { axis };
        let Frame { left, right, bottom, .. } = self.frame;
        let place = |value: f64| left + (axis.place(value) * f64::from(right - left)) as i32;
        for tick in &axis.ticks {
            let x = place(*tick);
            line(self.root, &[(x, bottom), (x, bottom + 4)], INK, 1)?;
            let label = number::tick(*tick);
            text(self.root, &label, (x, bottom + 8), 12, HPos::Center, VPos::Top, INK)?;
        }
        let middle = ((left + right) / 2, bottom + 25);
        text(self.root, &self.plot.x_label, middle, 12, HPos::Center, VPos::Top, INK)?;
        for system in self.systems {
            let of_system = self.panel.points.iter().filter(|point| point.system == *system);
            let mut points: Vec<&Point<'_>> = of_system.collect();
            points.sort_by(|one, other| one.x.total_cmp(&other.x));
            let colour = self.palette.colour(system);
            let places = points.iter().map(|point| (place(point.x), self.y(y_axis, point.value)));
            let places: Vec<(i32, i32)> = places.collect();
            line(self.root, &places, colour, 2)?;
            for (point, at) in points.iter().zip(&places) {
                self.paint_whisker(y_axis, point, at.0)?;
                self.root.draw(&Circle::new(*at, 4, colour.filled())).map_err(text_of)?;
            }
        }
        Ok(())
    }

    fn paint_whisker(&self, axis: &Axis, point: &Point<'_>, x: i32) -> Painted {
        let Some((low, high)) = point.spread else { return Ok(()) };
        let (low, high) = (self.y(axis, low), self.y(axis, high));
        if low - high < 3 {
            return Ok(());
        }
        line(self.root, &[(x, low), (x, high)], WHISKER, 1)?;
        line(self.root, &[(x - 3, low), (x + 3, low)], WHISKER, 1)?;
        line(self.root, &[(x - 3, high), (x + 3, high)], WHISKER, 1)
    }

    fn y(&self, axis: &Axis, value: f64) -> i32 {
        let height = f64::from(self.frame.bottom - self.frame.top);
        self.frame.bottom - (axis.place(value).clamp(0.0, 1.0) * height).round() as i32
    }
}

fn line(root: &Area<'_>, points: &[(i32, i32)], colour: RGBColor, width: u32) -> Painted {
    let style = colour.stroke_width(width);
    root.draw(&PathElement::new(points.to_vec(), style)).map_err(text_of)
}

fn rectangle(root: &Area<'_>, from: (i32, i32), to: (i32, i32), style: ShapeStyle) -> Painted {
    root.draw(&Rectangle::new([from, to], style)).map_err(text_of)
}

fn text(
    root: &Area<'_>,
    text: &str,
    at: (i32, i32),
    size: i32,
    horizontal: HPos,
    vertical: VPos,
    colour: RGBColor,
) -> Painted {
    let style = (FONT, size).into_font().color(&colour).pos(Pos::new(horizontal, vertical));
    root.draw(&Text::new(text.to_owned(), at, style)).map_err(text_of)
}

fn text_of(error: impl std::fmt::Display) -> String {
    error.to_string()
}
