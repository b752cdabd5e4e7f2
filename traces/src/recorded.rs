//! Recorded traces: read where they lie, which is nowhere in this project.

use crate::{Event, Trace};
use std::collections::HashMap;
use std::{env, fs, io, path::Path};

/// Names the folder of the recorded traces.
pub const FOLDER: &str = "SLICEPOOL_TRACES";

/// The recorded traces, by name; why there are none otherwise.
pub fn recorded() -> Result<Vec<Trace>, String> {
    let folder = env::var_os(FOLDER).ok_or(format!("{FOLDER} does not say where they are"))?;
    let files = fs::read_dir(&folder).map_err(|error| format!("the folder in {FOLDER}: {error}"))?;
    let mut paths: Vec<_> = files.flatten().map(|file| file.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    paths.sort();
    paths.iter().map(|path| read(path).map_err(|error| format!("{}: {error}", name_of(path)))).collect()
}

fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(path: &Path) -> io::Result<Trace> {
    Ok(Trace { name: name_of(path), events: parse(&fs::read_to_string(path)?)? })
}

/// Lines of `t_us,op,id,size,stream`, below comments and a heading. Events of size 0 are left out, and so is freeing what
/// was never allocated.
fn parse(text: &str) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut live = HashMap::new();
    let mut slices = 0;
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("t_us")) {
        let refused = || io::Error::other(format!("not an event: {line}"));
        let fields: Vec<_> = line.split(',').collect();
        let [_, op, id, size, _] = fields[..] else { return Err(refused()) };
        let size: u64 = size.parse().map_err(|_| refused())?;
        match op {
            "a" if size != 0 => {
                live.insert(id, slices);
                slices += 1;
                events.push(Event::Allocate(size));
            }
            "f" => events.extend(live.remove(id).map(Event::Free)),
            "a" => {}
            _ => return Err(refused()),
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_events_without_those_of_size_0() {
        let text = "# comment\nt_us,op,id,size,stream\n0,a,7,100,0\n1,a,8,0,0\n2,f,8,0,0\n3,a,9,5,1\n4,f,7,100,0\n";
        assert_eq!(parse(text).unwrap(), [Event::Allocate(100), Event::Allocate(5), Event::Free(0)]);
        assert!(parse("0,x,1,1,0").is_err());
        assert!(parse("0,a,1").is_err());
    }
}
