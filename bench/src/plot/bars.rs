//! Bars of several subjects in each of many rows.

use super::axis::Axis;
use super::svg::{Anchor, Svg};
use super::{WIDTH, colour};

/// The figures of one row, one for each subject.
pub struct BarRow {
    name: String,
    figures: Vec<f64>,
}

impl BarRow {
    /// A row.
    pub fn new(name: &str, figures: impl Into<Vec<f64>>) -> Self {
        Self { name: name.into(), figures: figures.into() }
    }
}

/// Where names end, and bars begin.
const LEFT: f64 = 194.0;
/// Pixels of a column of numbers.
const COLUMN: f64 = 48.0;
const BAR: f64 = 5.0;
/// Between the bars of two rows.
const GAP: f64 = 8.0;
/// Of the title, the legend and the heads of the columns.
const TOP: f64 = 92.0;
/// Of the axis and its label.
const BOTTOM: f64 = 48.0;
const HEADING: f64 = 30.0;
/// A figure of 0 shows, too.
const THIN: f64 = 1.0;

/// A bar for each subject in each row of some groups, and the numbers in columns beside them. The axis ends at `end`: bars
/// that would go on are broken there. A group with a name has it above.
///
/// # Panics
/// If a row has not one figure for each subject.
pub fn grouped_bars(
    title: &str,
    axis_label: &str,
    end: f64,
    subjects: &[&str],
    groups: &[(&str, Vec<BarRow>)],
) -> String {
    let row_height = BAR * subjects.len() as f64 + GAP;
    let rows: usize = groups.iter().map(|(_, rows)| rows.len()).sum();
    let headings = groups.iter().filter(|(name, rows)| has_heading(name, rows)).count();
    let bottom = TOP + row_height * rows as f64 + HEADING * headings as f64;
    let mut svg = Svg::new(title, bottom + BOTTOM);
    let right = WIDTH - 12.0 - COLUMN * subjects.len() as f64;
    let chart = Chart { axis: Axis::linear([0.0, end], [LEFT, right]), end, right, row_height };
    chart.legend(&mut svg, subjects);
    chart.grid(&mut svg, axis_label, bottom);
    let mut top = TOP;
    for (name, rows) in groups {
        if has_heading(name, rows) {
            svg.rect([LEFT - 2.0, top + 1.0, right - LEFT + 4.0, HEADING - 2.0], "#ffffff");
            svg.bold_text([16.0, top + HEADING - 10.0], Anchor::Start, 11.0, name);
            top += HEADING;
        }
        for row in rows {
            assert_eq!(row.figures.len(), subjects.len(), "{}", row.name);
            chart.row(&mut svg, row, top);
            top += row_height;
        }
    }
    svg.finish()
}

fn has_heading(name: &str, rows: &[BarRow]) -> bool {
    !name.is_empty() && !rows.is_empty()
}

struct Chart {
    axis: Axis,
    end: f64,
    right: f64,
    row_height: f64,
}

impl Chart {
    /// Where the numbers of a subject end.
    fn column(&self, subject: usize) -> f64 {
        self.right + COLUMN * (subject + 1) as f64
    }

    /// Colours with their names above everything, and again above the columns of numbers.
    fn legend(&self, svg: &mut Svg, subjects: &[&str]) {
        let step = (WIDTH - 32.0) / subjects.len() as f64;
        for (index, subject) in subjects.iter().enumerate() {
            let x = 16.0 + step * index as f64;
            svg.rect([x, 42.0, 11.0, 11.0], colour(index));
            svg.text([x + 16.0, 52.0], Anchor::Start, 12.0, subject);
            svg.rect([self.column(index) - 24.0, 74.0, 24.0, 6.0], colour(index));
        }
    }

    fn grid(&self, svg: &mut Svg, label: &str, bottom: f64) {
        for tick in self.axis.ticks() {
            let x = self.axis.at(tick);
            svg.line(&[[x, TOP - 6.0], [x, bottom]], "#dddddd", 1.0);
            for y in [TOP - 10.0, bottom + 14.0] {
                svg.text([x, y], Anchor::Middle, 11.0, &tick.to_string());
            }
        }
        svg.text([f64::midpoint(LEFT, self.right), bottom + 34.0], Anchor::Middle, 12.0, label);
    }

    fn row(&self, svg: &mut Svg, row: &BarRow, top: f64) {
        let middle = top + self.row_height / 2.0 + 4.0;
        svg.line(&[[16.0, top], [WIDTH - 12.0, top]], "#eeeeee", 1.0);
        svg.text([LEFT - 8.0, middle], Anchor::End, 11.0, &row.name);
        for (index, &figure) in row.figures.iter().enumerate() {
            let y = top + GAP / 2.0 + BAR * index as f64;
            let width = (self.axis.at(figure.min(self.end)) - LEFT).max(THIN);
            svg.rect([LEFT, y, width, BAR - 0.6], colour(index));
            if figure > self.end {
                // A cut through the bar: it goes on.
                let x = self.right - 14.0;
                svg.polygon(&[[x, y + BAR], [x + 4.0, y + BAR], [x + 8.0, y - 0.6], [x + 4.0, y - 0.6]], "#ffffff");
            }
            svg.text([self.column(index), middle], Anchor::End, 11.0, &number(figure));
        }
    }
}

/// A figure in a narrow column.
fn number(figure: f64) -> String {
    match figure.abs() {
        ..999.95 => format!("{figure:.2}"),
        ..9_999.5 => format!("{figure:.0}"),
        ..99_950.0 => format!("{:.1} k", figure / 1e3),
        ..999_500.0 => format!("{:.0} k", figure / 1e3),
        _ => format!("{:.1} M", figure / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg::tests::elements;
    use super::*;

    fn count(svg: &str, name: &str) -> usize {
        elements(svg).into_iter().filter(|element| *element == name).count()
    }

    #[test]
    fn each_figure_has_a_bar_and_a_number_and_long_bars_are_broken() {
        let rows = vec![BarRow::new("first", [0.0, 30.0]), BarRow::new("a & b", [60.0, 25_500.0])];
        let groups = [("", rows), ("small ones", vec![BarRow::new("third", [1.5, 9.0])]), ("none", Vec::new())];
        let svg = grouped_bars("Waste", "percent", 60.0, &["one", "two"], &groups);
        // The background, the legend twice, six bars, the heading's.
        assert_eq!(count(&svg, "rect"), 1 + 4 + 6 + 1);
        assert_eq!(count(&svg, "polygon"), 1);
        for words in ["Waste", "percent", "one", "two", "small ones", "a &amp; b", "0.00", "30.00", "25.5 k", "1.50"] {
            assert!(svg.contains(&format!(">{words}</text>")), "{words}");
        }
        assert!(!svg.contains(">none<"));
    }

    #[test]
    fn bars_are_as_long_as_their_figures() {
        let rows = vec![BarRow::new("row", [60.0, 15.0, 0.0, 600.0])];
        let svg = grouped_bars("", "", 60.0, &["a", "b", "c", "d"], &[("", rows)]);
        let bars = svg.lines().filter(|line| line.contains(r#"height="4.4""#));
        let width = |line: &str| line.split("width=\"").nth(1).and_then(|rest| rest.split('"').next()?.parse().ok());
        let widths: Vec<f64> = bars.filter_map(width).collect();
        let whole = WIDTH - 12.0 - COLUMN * 4.0 - LEFT;
        assert_eq!(widths, [whole, whole / 4.0, THIN, whole]);
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [0.374, 999.9, 6300.0, 25_500.0, 569_778.26, 9_117_952.17].map(number);
        assert_eq!(numbers, ["0.37", "999.90", "6300", "25.5 k", "570 k", "9.1 M"]);
    }
}
