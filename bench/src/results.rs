//! Figures as JSON, with what is known of the machine that they are from.

use crate::quartiles::Quartiles;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, io, thread};

/// One figure.
struct Figure {
    workload: String,
    subject: String,
    figure: String,
    unit: String,
    value: Quartiles,
}

/// The figures of one run of a binary.
pub struct Results {
    binary: String,
    figures: Vec<Figure>,
}

impl Results {
    /// None yet, of a binary.
    pub fn new(binary: &str) -> Self {
        Self { binary: binary.into(), figures: Vec::new() }
    }

    /// Adds a figure: of what, doing what, which one, in which unit.
    pub fn add(&mut self, workload: &str, subject: &str, figure: &str, unit: &str, value: f64) {
        self.add_quartiles(workload, subject, figure, unit, Quartiles::exactly(value));
    }

    /// The same of several turns.
    pub fn add_quartiles(&mut self, workload: &str, subject: &str, figure: &str, unit: &str, value: Quartiles) {
        let [workload, subject, figure, unit] = [workload, subject, figure, unit].map(String::from);
        self.figures.push(Figure { workload, subject, figure, unit, value });
    }

    /// One JSON object, with a line for each figure.
    pub fn to_json(&self, date: &str, machine: &Machine) -> String {
        let mut json = format!("{{\n\"binary\": {},\n\"date\": {},\n", text(&self.binary), text(date));
        let _ = writeln!(json, "\"machine\": {},\n\"results\": [", machine.to_json());
        for (index, figure) in self.figures.iter().enumerate() {
            let names = [&figure.workload, &figure.subject, &figure.figure, &figure.unit];
            let [workload, subject, name, unit] = names.map(|name| text(name));
            let Quartiles { lower, median, upper, turns } = figure.value;
            let [lower, median, upper] = [lower, median, upper].map(|value| number(Some(value)));
            let comma = if index + 1 == self.figures.len() { "" } else { "," };
            let _ = writeln!(
                json,
                "  {{\"workload\": {workload}, \"subject\": {subject}, \"figure\": {name}, \"unit\": {unit}, \
                 \"median\": {median}, \"q1\": {lower}, \"q3\": {upper}, \"turns\": {turns}}}{comma}"
            );
        }
        json + "]\n}\n"
    }

    /// Writes the figures of this machine, as of now, to a file named after the binary, and says which.
    ///
    /// # Errors
    /// Those of the folder and the file.
    pub fn save(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let path = folder.join(&self.binary).with_extension("json");
        fs::write(&path, self.to_json(&date(SystemTime::now()), &Machine::this()))?;
        Ok(path)
    }
}

/// What figures of time depend on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Operating system and architecture.
    pub system: String,
    /// What the system calls the CPU, if it does.
    pub cpu: Option<String>,
    /// Threads that run at a time.
    pub cores: Option<usize>,
    /// The Rust compiler that is installed: under `cargo run` the one that has built this.
    pub compiler: Option<String>,
}

impl Machine {
    /// The one that this runs on.
    pub fn this() -> Self {
        Self {
            system: format!("{} {}", env::consts::OS, env::consts::ARCH),
            cpu: fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| cpu_model(&text)),
            cores: thread::available_parallelism().ok().map(Into::into),
            compiler: compiler_version(),
        }
    }

    fn to_json(&self) -> String {
        format!(
            "{{\"system\": {}, \"cpu\": {}, \"cores\": {}, \"compiler\": {}}}",
            text(&self.system),
            text_or_null(self.cpu.as_deref()),
            number(self.cores.map(|cores| cores as f64)),
            text_or_null(self.compiler.as_deref())
        )
    }
}

fn compiler_version() -> Option<String> {
    let compiler = env::var_os("RUSTC").unwrap_or("rustc".into());
    let output = Command::new(compiler).arg("--version").output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// The first model that Linux names.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let models = cpuinfo.lines().filter_map(|line| line.strip_prefix("model name")?.split_once(':'));
    models.map(|(_, model)| model.trim().to_string()).find(|model| !model.is_empty())
}

/// A string of JSON.
fn text(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            '\n' => json.push_str("\\n"),
            '\t' => json.push_str("\\t"),
            ..' ' => {
                let _ = write!(json, "\\u{:04x}", c as u32);
            }
            _ => json.push(c),
        }
    }
    json + "\""
}

fn text_or_null(words: Option<&str>) -> String {
    words.map_or("null".into(), text)
}

/// A number with as many digits as tell it from its neighbours; null for what is none.
fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or("null".into(), |value| value.to_string())
}

/// A moment in UTC.
fn date(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{:02}Z", days + 1, second % 60)
}

/// Where a run writes to: what its arguments say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folders {
    /// For results: `--save FOLDER`, otherwise `bench` in the folder of build outputs.
    pub results: PathBuf,
    /// For plots: `--plots FOLDER`, otherwise there are none.
    pub plots: Option<PathBuf>,
}

impl Folders {
    /// Of the arguments of this process, which ends if they mean nothing.
    pub fn from_arguments() -> Self {
        Self::parse(env::args().skip(1)).unwrap_or_else(|refused| {
            eprintln!("{refused}\narguments: [--save FOLDER] [--plots FOLDER]");
            process::exit(2);
        })
    }

    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut folders = Self { results: build_outputs().join("bench"), plots: None };
        while let Some(argument) = arguments.next() {
            let folder = arguments.next().map(PathBuf::from);
            match (argument.as_str(), folder) {
                ("--save", Some(folder)) => folders.results = folder,
                ("--plots", Some(folder)) => folders.plots = Some(folder),
                _ => return Err(format!("{argument}: not an argument, or one without a folder")),
            }
        }
        Ok(folders)
    }
}

/// The folder above the one that this binary was built into.
fn build_outputs() -> PathBuf {
    let binary = env::current_exe().unwrap_or_default();
    binary.parent().and_then(Path::parent).map_or("target".into(), Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_figure_is_one_line_of_an_object() {
        let mut results = Results::new("table");
        results.add("churn", "a \"b\" \\ c\n\u{1}", "pair", "ns", 52.25);
        let quartiles = Quartiles { lower: 0.25, median: 1.0 / 3.0, upper: 0.5, turns: 41 };
        results.add_quartiles("churn", "best fit", "pair", "ns", quartiles);
        let compiler = Some("rustc 1".into());
        let machine = Machine { system: "linux x86_64".into(), cpu: None, cores: Some(2), compiler };
        let expected = r#"{
"binary": "table",
"date": "2026-01-02T03:04:05Z",
"machine": {"system": "linux x86_64", "cpu": null, "cores": 2, "compiler": "rustc 1"},
"results": [
  {"workload": "churn", "subject": "a \"b\" \\ c\n\u0001", "figure": "pair", "unit": "ns", "median": 52.25, "q1": 52.25, "q3": 52.25, "turns": 1},
  {"workload": "churn", "subject": "best fit", "figure": "pair", "unit": "ns", "median": 0.3333333333333333, "q1": 0.25, "q3": 0.5, "turns": 41}
]
}
"#;
        assert_eq!(results.to_json("2026-01-02T03:04:05Z", &machine), expected);
    }

    #[test]
    fn numbers_keep_their_digits_and_what_is_none_is_null() {
        let numbers = [0.0, -1.5, 41_727_800_000.0, 0.1, f64::NAN, f64::INFINITY].map(|value| number(Some(value)));
        assert_eq!(numbers, ["0", "-1.5", "41727800000", "0.1", "null", "null"]);
        assert_eq!(number(None), "null");
    }

    #[test]
    fn dates_know_leap_years() {
        let at = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn the_cpu_is_the_first_that_has_a_model() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: Another\n";
        assert_eq!(cpu_model(cpuinfo).as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(cpu_model("processor\t: 0\nCPU part\t: 0xd0c\n"), None);
    }

    #[test]
    fn arguments_name_folders() {
        let parse = |arguments: &[&str]| Folders::parse(arguments.iter().map(ToString::to_string));
        let folders = parse(&["--plots", "docs", "--save", "here"]).unwrap();
        assert_eq!(folders, Folders { results: "here".into(), plots: Some("docs".into()) });
        let folders = parse(&[]).unwrap();
        assert!(folders.results.ends_with("bench") && folders.plots.is_none());
        assert!(parse(&["--save"]).is_err());
        assert!(parse(&["--faster", "yes"]).is_err());
    }
}
