//! Cost against size.

use super::axis::{Axis, grouped, round_step, round_step_down};
use super::svg::{Anchor, Svg};
use super::{WIDTH, colour};
use std::collections::BTreeSet;

/// What a pair costs with so many live slices.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Live slices.
    pub live: u64,
    /// Nanoseconds per pair.
    pub nanoseconds: f64,
    /// Half the distance between the quartiles, or 0.
    pub spread: f64,
}

/// The points of a subject, by rising number of live slices.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// The subject.
    pub name: &'a str,
    /// Its points.
    pub points: Vec<Point>,
}

const LEFT: f64 = 72.0;
const RIGHT: f64 = WIDTH - 32.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 356.0;
/// Of the numbers below: where the first line stands, and from one to the next.
const TABLE: f64 = BOTTOM + 66.0;
const LINE: f64 = 19.0;
/// Where the columns of numbers begin.
const COLUMNS: f64 = 230.0;

/// The axis of costs is logarithmic if the dearest is this many times the cheapest.
const WIDE: f64 = 12.0;

/// Lines of nanoseconds per pair against the number of live slices, which is drawn logarithmically; so is the cost if it
/// varies much. Below stand the numbers, with the marks of the lines.
///
/// # Panics
/// If there is no point, or a number of slices or a cost is not above 0.
pub fn cost_against_live(title: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    assert!(points().all(|point| point.live > 0 && point.nanoseconds > 0.0), "only what is above 0 can be drawn");
    let live: BTreeSet<_> = points().map(|point| point.live).collect();
    let (fewest, most) = (*live.first().expect("a point") as f64, *live.last().expect("a point") as f64);
    // Some room at either side.
    let x = Axis::logarithmic([fewest / 1.25, most * 1.25], [LEFT, RIGHT]);
    let cheapest = points().map(|point| point.nanoseconds - point.spread).fold(f64::INFINITY, f64::min);
    let dearest = points().map(|point| point.nanoseconds + point.spread).fold(0.0, f64::max);
    let y = cost_axis(cheapest, dearest);
    let mut svg = Svg::new(title, TABLE + LINE * lines.len() as f64 + 14.0);
    grid(&mut svg, x, y, &live);
    for (index, line) in lines.iter().enumerate() {
        draw(&mut svg, x, y, index, line);
    }
    table(&mut svg, lines, &live);
    svg.finish()
}

fn cost_axis(cheapest: f64, dearest: f64) -> Axis {
    if cheapest > 0.0 && dearest / cheapest > WIDE {
        return Axis::logarithmic([round_step_down(cheapest), round_step(dearest)], [BOTTOM, TOP]);
    }
    let step = round_step(dearest / 10.0);
    Axis::linear([0.0, (dearest / step).ceil() * step], [BOTTOM, TOP])
}

fn grid(svg: &mut Svg, x: Axis, y: Axis, live: &BTreeSet<u64>) {
    for tick in y.ticks() {
        let at = y.at(tick);
        svg.line(&[[LEFT, at], [RIGHT, at]], "#dddddd", 1.0);
        svg.text([LEFT - 8.0, at + 4.0], Anchor::End, 11.0, &short(tick));
    }
    let mut ticks: BTreeSet<u64> = x.ticks().into_iter().map(|tick| tick.round() as u64).collect();
    if live.len() <= 6 {
        // Few enough to name each.
        ticks.clone_from(live);
    }
    for tick in ticks {
        let at = x.at(tick as f64);
        svg.line(&[[at, TOP], [at, BOTTOM]], "#eeeeee", 1.0);
        svg.text([at, BOTTOM + 16.0], Anchor::Middle, 11.0, &grouped(tick));
    }
    svg.line(&[[LEFT, TOP], [LEFT, BOTTOM], [RIGHT, BOTTOM]], "#888888", 1.0);
    svg.text([f64::midpoint(LEFT, RIGHT), BOTTOM + 36.0], Anchor::Middle, 12.0, "live slices");
    svg.upward_text([20.0, f64::midpoint(TOP, BOTTOM)], 12.0, "nanoseconds per pair (allocate, free)");
}

fn draw(svg: &mut Svg, x: Axis, y: Axis, index: usize, line: &Line) {
    let at = |point: &Point| [x.at(point.live as f64), y.at(point.nanoseconds)];
    let path: Vec<_> = line.points.iter().map(at).collect();
    svg.line(&path, colour_of(index), 1.8);
    for point in &line.points {
        let ends = [point.nanoseconds - point.spread, point.nanoseconds + point.spread];
        if point.spread > 0.0 && ends[0] > 0.0 {
            let across = x.at(point.live as f64);
            svg.line(&ends.map(|end| [across, y.at(end)]), colour_of(index), 1.0);
        }
        mark(svg, index, at(point));
    }
}

/// No line is what the others are compared with.
fn colour_of(line: usize) -> &'static str {
    colour(line + 1)
}

/// The mark of a line: shape and colour tell it from others.
fn mark(svg: &mut Svg, index: usize, [x, y]: [f64; 2]) {
    let colour = colour_of(index);
    let shape = |corners: &[[f64; 2]]| -> Vec<_> { corners.iter().map(|[dx, dy]| [x + dx, y + dy]).collect() };
    match index % 4 {
        0 => svg.circle([x, y], 4.0, colour),
        1 => svg.rect([x - 3.7, y - 3.7, 7.4, 7.4], colour),
        2 => svg.polygon(&shape(&[[0.0, -4.8], [4.6, 3.6], [-4.6, 3.6]]), colour),
        _ => svg.polygon(&shape(&[[0.0, -5.2], [5.2, 0.0], [0.0, 5.2], [-5.2, 0.0]]), colour),
    }
}

/// The numbers, and what the marks mean.
fn table(svg: &mut Svg, lines: &[Line], live: &BTreeSet<u64>) {
    let step = (RIGHT - COLUMNS) / live.len() as f64;
    let column = |index: usize| COLUMNS + step * (index + 1) as f64;
    svg.bold_text([24.0, TABLE - 6.0], Anchor::Start, 11.0, "live slices");
    for (index, &live) in live.iter().enumerate() {
        svg.bold_text([column(index), TABLE - 6.0], Anchor::End, 11.0, &grouped(live));
    }
    svg.line(&[[16.0, TABLE], [RIGHT, TABLE]], "#888888", 1.0);
    for (row, line) in lines.iter().enumerate() {
        let y = TABLE + LINE * (row + 1) as f64 - 3.0;
        mark(svg, row, [20.0, y - 4.0]);
        svg.text([32.0, y], Anchor::Start, 12.0, line.name);
        for (index, live) in live.iter().enumerate() {
            if let Some(point) = line.points.iter().find(|point| point.live == *live) {
                svg.text([column(index), y], Anchor::End, 12.0, &short(point.nanoseconds));
            }
        }
    }
}

/// Three digits, or the whole number.
fn short(nanoseconds: f64) -> String {
    match nanoseconds {
        ..9.995 => format!("{nanoseconds:.2}").trim_end_matches('0').trim_end_matches('.').into(),
        ..99.95 => format!("{nanoseconds:.1}").trim_end_matches(".0").into(),
        _ => grouped(nanoseconds.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg::tests::elements;
    use super::*;

    fn line<'a>(name: &'a str, points: &[(u64, f64, f64)]) -> Line<'a> {
        let point = |&(live, nanoseconds, spread): &(u64, f64, f64)| Point { live, nanoseconds, spread };
        Line { name, points: points.iter().map(point).collect() }
    }

    #[test]
    fn every_subject_has_a_line_and_its_numbers() {
        let lines = [
            line("pool <locked>", &[(1_000, 52.0, 1.0), (10_000, 61.04, 2.0), (100_000, 136.0, 0.0)]),
            line("exact best fit", &[(1_000, 583.0, 0.0), (100_000, 1014.0, 0.0)]),
        ];
        let svg = cost_against_live("The churn", &lines);
        elements(&svg);
        for words in ["The churn", "pool &lt;locked&gt;", "1,000", "100,000", "52", "61", "136", "1,014"] {
            assert!(svg.contains(&format!(">{words}</text>")), "{words}");
        }
        assert!(svg.contains("nanoseconds per pair") && svg.contains("live slices"));
        // Both lines and the spread of two points, in the colours of the subjects.
        let strokes = |index| svg.matches(&format!(r#"stroke="{}""#, colour_of(index))).count();
        assert_eq!((strokes(0), strokes(1)), (3, 1));
    }

    #[test]
    fn costs_that_vary_much_are_drawn_logarithmically() {
        let near = cost_axis(50.0, 136.0);
        assert_eq!((near.at(0.0), near.at(140.0)), (BOTTOM, TOP));
        let far = cost_axis(52.0, 2580.0);
        assert_eq!((far.at(50.0).round(), far.at(5000.0).round()), (BOTTOM, TOP));
    }

    #[test]
    fn one_point_is_enough() {
        elements(&cost_against_live("", &[line("one", &[(1_000, 5.0, 0.0)])]));
    }

    #[test]
    #[should_panic(expected = "above 0")]
    fn nothing_costs_nothing() {
        cost_against_live("", &[line("one", &[(1_000, 0.0, 0.0)])]);
    }
}
