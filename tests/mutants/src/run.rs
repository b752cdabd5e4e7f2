//! Runs test programs, and says whether they noticed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::build::Program;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All tests passed.
    Passed,
    /// The first that did not, as far as that was printed.
    Failed(String),
    /// It did not come to an end.
    TimedOut,
}

/// Runs `program` with the change of that number, until a test fails or `limit` is over.
pub(crate) fn run(program: &Program, number: usize, limit: Duration, folder: &std::path::Path) -> Ending {
    let begin = Instant::now();
    // A shell, for limits of memory, and of time should nobody be left to end it; in a group of its own, so that what it
    // starts ends with it.
    let limits = format!("ulimit -v 8000000; ulimit -t {}; exec \"$0\" --test-threads=1", limit.as_secs() * 4 + 60);
    let mut command = Command::new("setsid");
    command
        .args(["sh", "-c", &limits])
        .arg(&program.path)
        .current_dir(folder)
        .env(crate::SWITCH, number.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("setsid starts");
    let stdout = child.stdout.take().expect("it was asked for");
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let mut begun = String::from("?");
    loop {
        match lines.recv_timeout(limit.saturating_sub(begin.elapsed())) {
            Ok(line) => {
                if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
                    kill(&mut child);
                    return Ending::Failed(test.to_owned());
                }
                if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
                    begun = test.0.to_owned();
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                kill(&mut child);
                return Ending::TimedOut;
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    match child.wait() {
        Ok(status) if status.success() => Ending::Passed,
        _ => Ending::Failed(format!("after {begun}")),
    }
}

fn kill(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    let _ = child.kill();
    let _ = child.wait();
}
