//! Elements of SVG.

use super::WIDTH;
use std::fmt::Write;

const INK: &str = "#222222";

/// Which end of a text its position is.
#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is being drawn, later things over earlier ones.
pub struct Svg {
    body: String,
    title: String,
    height: f64,
}

impl Svg {
    /// An empty one with a title above.
    pub fn new(title: &str, height: f64) -> Self {
        let mut svg = Self { body: String::new(), title: escape(title), height };
        svg.rect([0.0, 0.0, WIDTH, height], "#ffffff");
        svg.bold_text([16.0, 26.0], Anchor::Start, 15.0, title);
        svg
    }

    /// A filled rectangle: left, top, width, height.
    pub fn rect(&mut self, [x, y, width, height]: [f64; 4], fill: &str) {
        let [x, y, width, height] = [x, y, width, height].map(short);
        self.element(format_args!(r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>"#));
    }

    /// A line through some points.
    pub fn line(&mut self, points: &[[f64; 2]], stroke: &str, width: f64) {
        let (points, width) = (joined(points), short(width));
        self.element(format_args!(
            r#"<polyline points="{points}" fill="none" stroke="{stroke}" stroke-width="{width}"/>"#
        ));
    }

    /// A filled shape.
    pub fn polygon(&mut self, points: &[[f64; 2]], fill: &str) {
        let points = joined(points);
        self.element(format_args!(r#"<polygon points="{points}" fill="{fill}"/>"#));
    }

    /// A filled circle.
    pub fn circle(&mut self, [x, y]: [f64; 2], radius: f64, fill: &str) {
        let [x, y, radius] = [x, y, radius].map(short);
        self.element(format_args!(r#"<circle cx="{x}" cy="{y}" r="{radius}" fill="{fill}"/>"#));
    }

    /// Words on a line of that height, in pixels.
    pub fn text(&mut self, at: [f64; 2], anchor: Anchor, size: f64, words: &str) {
        self.text_with(at, anchor, size, "", words);
    }

    /// The same in bold.
    pub fn bold_text(&mut self, at: [f64; 2], anchor: Anchor, size: f64, words: &str) {
        self.text_with(at, anchor, size, r#" font-weight="bold""#, words);
    }

    /// Words that run upwards, around their middle.
    pub fn upward_text(&mut self, [x, y]: [f64; 2], size: f64, words: &str) {
        let turn = format!(r#" transform="rotate(-90 {} {})""#, short(x), short(y));
        self.text_with([x, y], Anchor::Middle, size, &turn, words);
    }

    fn text_with(&mut self, [x, y]: [f64; 2], anchor: Anchor, size: f64, attributes: &str, words: &str) {
        let [x, y, size] = [x, y, size].map(short);
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let words = escape(words);
        self.element(format_args!(
            r#"<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{INK}"{attributes}>{words}</text>"#
        ));
    }

    fn element(&mut self, element: std::fmt::Arguments) {
        let _ = writeln!(self.body, "{element}");
    }

    /// The whole file.
    pub fn finish(self) -> String {
        let Self { body, title, height } = self;
        let height = short(height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" \
             style=\"font-variant-numeric: tabular-nums\">\n<title>{title}</title>\n{body}</svg>\n"
        )
    }
}

fn joined(points: &[[f64; 2]]) -> String {
    let points: Vec<_> = points.iter().map(|&[x, y]| format!("{},{}", short(x), short(y))).collect();
    points.join(" ")
}

/// A tenth of a pixel is fine enough.
fn short(pixels: f64) -> String {
    ((pixels * 10.0).round() / 10.0).to_string()
}

/// Words that cannot be taken for anything else.
fn escape(words: &str) -> String {
    let mut escaped = String::new();
    for c in words.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // No file of XML may have others.
            ..' ' => escaped.push(' '),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The elements of a file in order, each with its name, after checking that all are closed, in the right order, and
    /// that nothing is unescaped.
    pub fn elements(svg: &str) -> Vec<&str> {
        let (mut open, mut names, mut rest) = (Vec::new(), Vec::new(), svg);
        while let Some(start) = rest.find('<') {
            let (words, tag) = rest.split_at(start);
            let end = tag.find('>').expect("every tag ends");
            for entity in words.split('&').skip(1) {
                assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|name| entity.starts_with(name)), "{words}");
            }
            assert!(!words.contains('>') && !tag[1..end].contains('<'), "{words}{}", &tag[..end]);
            assert_eq!(tag[..end].matches('"').count() % 2, 0, "{}", &tag[..end]);
            let inner = &tag[1..end];
            match inner.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None => {
                    let name = inner.split([' ', '/']).next().expect("split gives one at least");
                    names.push(name);
                    if !inner.ends_with('/') {
                        open.push(name);
                    }
                }
            }
            rest = &tag[end + 1..];
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
        names
    }

    #[test]
    fn every_element_is_closed_and_words_are_escaped() {
        let mut svg = Svg::new("a < b & \"c\"\n", 10.0);
        svg.line(&[[1.0, 2.0], [3.26, 4.0]], "#000000", 1.0);
        svg.upward_text([5.0, 6.0], 12.0, "x > y");
        let file = svg.finish();
        assert_eq!(elements(&file), ["svg", "title", "rect", "text", "polyline", "text"]);
        assert!(file.contains("a &lt; b &amp; &quot;c&quot; </text>") && file.contains(">x &gt; y</text>"), "{file}");
        assert!(file.contains(r#"points="1,2 3.3,4""#), "{file}");
    }
}
