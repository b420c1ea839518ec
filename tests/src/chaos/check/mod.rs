//! Whether what happened may have happened: checks of the histories of a run.
//!
//! ```text
//!   worker-*.jsonl    calls on stores, belief ──┬──▶ writers   one writer in an epoch, epochs rise
//!   reader.jsonl      reads of this process ────┤──▶ seals     nothing accepted below a seal
//!                                               ├──▶ register  each shard of each store is linear
//!                                               └──▶ belief    nobody believes beside another (P11)
//!   watcher-*.jsonl   messages of each node ───────▶ watches   every event once, in order, the same
//! ```
//!
//! All moments are of `CLOCK_BOOTTIME` of one machine, so they compare across processes.

mod belief;
mod calls;
mod model;
mod register;
mod seals;
mod watches;
mod writers;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

pub use calls::{Call, Calls, Register};
pub use watches::{Watched, Watches};

use super::lines;
use super::news::News;
use crate::failure::Failure;
use crate::worker::{Answer, Asked, Believed, Report};

/// What file names of workers begin with.
pub const WORKER: &str = "worker-";

/// The name of the file of this process's own reads.
pub const READER: &str = "reader";

/// What file names of watchers begin with.
pub const WATCHER: &str = "watcher-";

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule is broken.
    pub rule: &'static str,
    /// What was seen.
    pub seen: String,
}

impl Violation {
    /// Creates a violation.
    pub fn new(rule: &'static str, seen: impl Into<String>) -> Self {
        let seen = seen.into();
        Self { rule, seen }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.rule, self.seen)
    }
}

/// Everything that was put down in a run.
#[derive(Debug, Default)]
pub struct Histories {
    /// All calls on stores.
    pub calls: Calls,
    /// All spans of belief.
    pub believed: Vec<Believed>,
    /// What each watcher was told.
    pub watches: Watches,
}

/// How much a history holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Grants that were seen.
    pub grants: usize,
    /// Seals that were accepted.
    pub seals: usize,
    /// Writes that were accepted.
    pub accepted: usize,
    /// Writes and seals that were refused because the tenure was over.
    pub refused: usize,
    /// Writes and seals whose outcome nobody knows.
    pub unknown: usize,
    /// Reads.
    pub reads: usize,
    /// Spans of belief.
    pub beliefs: usize,
    /// Events that were told.
    pub events: usize,
}

impl Histories {
    /// Reads the histories in a folder.
    ///
    /// # Errors
    ///
    /// When a file is damaged.
    pub fn read(folder: &Path) -> Result<Self, Failure> {
        let mut histories = Self::default();
        let mut callers = lines::files(folder, WORKER)?;
        callers.extend(lines::files(folder, READER)?);
        for (name, path) in callers {
            histories.add_reports(&name, lines::read::<Report>(&path)?)?;
        }
        for (name, path) in lines::files(folder, WATCHER)? {
            let watched = Watched::of(lines::read::<News>(&path)?);
            histories.watches.add(name, watched);
        }
        Ok(histories)
    }

    /// Checks everything against every rule.
    #[must_use]
    pub fn check(&self) -> Vec<Violation> {
        let grants = self.watches.grants();
        let mut violations = self.watches.check();
        violations.extend(writers::check(&self.calls, &grants));
        violations.extend(seals::check(&self.calls));
        violations.extend(register::check(&self.calls));
        violations.extend(belief::check(&self.believed));
        violations
    }

    /// Returns how much there is.
    #[must_use]
    pub fn extent(&self) -> Extent {
        let mut extent = Extent {
            grants: self.watches.grants().len(),
            beliefs: self.believed.len(),
            events: self.watches.events(),
            ..Extent::default()
        };
        for call in self.calls.all() {
            match (&call.asked, &call.answer) {
                (Asked::Read, _) => extent.reads += 1,
                (_, None | Some(Answer::Unknown)) => extent.unknown += 1,
                (Asked::Seal, Some(Answer::Found { .. })) => extent.seals += 1,
                (_, Some(Answer::Done)) => extent.accepted += 1,
                (_, Some(Answer::Fenced)) => extent.refused += 1,
                _ => {}
            }
        }
        extent
    }

    fn add_reports(&mut self, name: &str, reports: Vec<Report>) -> Result<(), Failure> {
        let mut open: BTreeMap<u64, Call> = BTreeMap::new();
        for report in reports {
            match report {
                Report::Called {
                    call,
                    store,
                    shard,
                    token,
                    at_ns,
                    asked,
                } => {
                    let token = token.map(|token| token.parse()).transpose()?;
                    let register = Register { store, shard };
                    let caller = name.to_owned();
                    open.insert(call, Call::new(caller, register, token, asked, at_ns));
                }
                Report::Answered {
                    call,
                    at_ns,
                    answer,
                } => {
                    let call = open.remove(&call);
                    let mut call = call.ok_or_else(|| {
                        Failure::new(format!("{name} has an answer to no call: {answer:?}"))
                    })?;
                    call.answer = Some(answer);
                    call.ended = at_ns;
                    self.calls.add(call);
                }
                Report::Believed {
                    shard,
                    epoch,
                    from_ns,
                    until_ns,
                } => self.believed.push(Believed {
                    worker: name.to_owned(),
                    shard,
                    epoch,
                    from_ns,
                    until_ns,
                }),
                _ => {}
            }
        }
        // The process was killed in the middle of these, or gave up waiting.
        open.into_values().for_each(|call| self.calls.add(call));
        Ok(())
    }
}
