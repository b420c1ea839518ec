//! Runs a script and compares what came of it with what it says.

mod command;
mod show;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use bytes::Bytes;
use tenure_ownership::ids::{Revision, SessionId};
use tenure_ownership::{Applied, Command, Event, State, apply, invariants};

/// A running script.
struct Run {
    state: State,
    /// Index of the last log entry; refused commands take one as well.
    index: u64,
    /// The latest session of each process: scripts and transcripts call it by the process's name.
    sessions: BTreeMap<String, SessionId>,
    /// What was written so far, blobs as well.
    disk: BTreeMap<Vec<u8>, Bytes>,
}

/// Runs one script; with `UPDATE` set in the environment its outcomes are written anew.
pub(crate) fn run(name: &str) {
    let path = folder().join(format!("{name}.txt"));
    let script = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let told = tell(name, &script);
    if update() {
        write(&path, &told);
        return;
    }
    assert!(
        told == script,
        "{name} has another outcome:\n{}",
        difference(&script, &told)
    );
}

/// The names of all scripts.
pub(crate) fn scripts() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .map(|name| name.strip_suffix(".txt").unwrap().to_owned())
        .collect()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

#[allow(
    clippy::disallowed_methods,
    reason = "the rules read no environment; this runner does"
)]
fn update() -> bool {
    std::env::var_os("UPDATE").is_some()
}

#[allow(
    clippy::disallowed_methods,
    reason = "the rules do no I/O; this runner does"
)]
fn write(path: &PathBuf, text: &str) {
    std::fs::write(path, text).unwrap();
}

/// The script with the outcomes of its commands.
fn tell(name: &str, script: &str) -> String {
    let mut run = Run {
        state: State::new(),
        index: 0,
        sessions: BTreeMap::new(),
        disk: BTreeMap::new(),
    };
    let mut told = String::new();
    for block in script
        .split("\n\n")
        .filter(|block| !block.trim().is_empty())
    {
        let (input, _) = block.split_once("\n----").unwrap_or((block, ""));
        let input = input.trim();
        let words = input.lines().filter(|line| !line.starts_with('#'));
        let command = words.collect::<Vec<_>>().join(" ");
        if !told.is_empty() {
            told.push('\n');
        }
        writeln!(told, "{input}").unwrap();
        if command.is_empty() {
            continue;
        }
        let outcome = run.step(&command).unwrap_or_else(|problem| {
            panic!("{name}: {command:?}: {problem}");
        });
        writeln!(told, "----\n{}", outcome.trim_end()).unwrap();
    }
    told
}

impl Run {
    fn step(&mut self, input: &str) -> Result<String, String> {
        if let Some(what) = input.strip_prefix("show") {
            return show::show(self, what.trim());
        }
        let command = command::parse(self, input)?;
        Ok(self.apply(command))
    }

    fn apply(&mut self, command: Command) -> String {
        let before = self.state.clone();
        self.index += 1;
        let applied = apply(&mut self.state, Revision(self.index), command);
        self.keep(&applied);
        self.check(&before, &applied);
        let text = describe(&before, &self.state, &applied);
        self.with_names(&text)
    }

    /// Writes what the command touched, and remembers the sessions it began.
    fn keep(&mut self, applied: &Applied) {
        for write in &applied.writes {
            match &write.value {
                Some(value) => self.disk.insert(write.key.clone(), value.clone()),
                None => self.disk.remove(&write.key),
            };
        }
        for event in applied.outcome.iter().flat_map(|effect| &effect.events) {
            if let Event::Registered {
                worker, session, ..
            } = event
            {
                let nonce = self.state.session(*session).unwrap().nonce.0;
                self.sessions.insert(format!("{worker}{nonce}"), *session);
            }
        }
    }

    fn check(&self, before: &State, applied: &Applied) {
        assert_eq!(invariants::check(&self.state), []);
        if applied.outcome.is_err() {
            assert_eq!(before, &self.state, "a refused command changed the state");
            assert_eq!(applied.writes, [], "a refused command wrote");
        }
        let disk = self
            .disk
            .iter()
            .map(|(key, value)| (key.clone(), value.to_vec()));
        let read = State::from_records(disk).unwrap();
        assert_eq!(read, self.state, "what was written is not the state");
    }

    /// Calls sessions by the names of their processes.
    fn with_names(&self, text: &str) -> String {
        let named = |word: &str, after_session: bool| {
            let (label, number) = match word.split_once('=') {
                Some((label @ ("owner" | "session" | "next"), number)) => {
                    (format!("{label}="), number)
                }
                None if after_session => (String::new(), word),
                _ => return word.to_owned(),
            };
            let digits = number.trim_end_matches(',');
            let id = digits.parse().map(SessionId);
            let name = id
                .ok()
                .and_then(|id| self.sessions.iter().find(|(_, known)| **known == id));
            match name {
                Some((name, _)) => format!("{label}{name}{}", &number[digits.len()..]),
                None => word.to_owned(),
            }
        };
        let mut lines = Vec::new();
        for line in text.lines() {
            let mut words: Vec<String> = Vec::new();
            for word in line.split(' ') {
                let after_session = words.last().is_some_and(|last| last == "session");
                words.push(named(word, after_session));
            }
            lines.push(words.join(" "));
        }
        lines.join("\n")
    }
}

fn describe(before: &State, after: &State, applied: &Applied) -> String {
    let effect = match &applied.outcome {
        Ok(effect) => effect,
        Err(rejection) => return format!("rejected: {rejection}"),
    };
    let events = effect.events.iter().map(ToString::to_string);
    let refused = effect
        .refused
        .iter()
        .map(|(_, rejection)| format!("refused: {rejection}"));
    let lines: Vec<String> = events.chain(refused).collect();
    if !lines.is_empty() {
        return lines.join("\n");
    }
    let unchanged = before.revision() == after.revision();
    if unchanged { "nothing changed" } else { "ok" }.to_owned()
}

/// The first lines that differ, with their surroundings.
fn difference(expected: &str, told: &str) -> String {
    let same = expected
        .lines()
        .zip(told.lines())
        .take_while(|(one, two)| one == two)
        .count();
    let from = same.saturating_sub(6);
    let part = |text: &str| {
        text.lines()
            .skip(from)
            .take(16)
            .collect::<Vec<_>>()
            .join("\n")
    };
    format!(
        "--- line {}, expected\n{}\n--- told\n{}",
        same + 1,
        part(expected),
        part(told)
    )
}
