//! What `doctor` says.

use serde::Serialize;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// It works, and will not for ever, or not as well as it could.
    Warning,
    /// Something does not work, or the next failure takes it down.
    Problem,
}

impl Severity {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Which check.
    pub(super) check: &'static str,
    /// The node, the group, or `cluster`.
    #[serde(rename = "where")]
    pub(super) place: String,
    /// The judgement.
    pub(super) severity: Severity,
    /// What was found, and what it means.
    pub(super) found: String,
    /// What to do; `-` where nothing is to be done.
    pub(super) advice: String,
}

/// Findings of one kind and place.
pub(super) struct Findings<'a> {
    list: &'a mut Vec<Finding>,
    check: &'static str,
    place: String,
}

impl<'a> Findings<'a> {
    pub(super) fn of(
        list: &'a mut Vec<Finding>,
        check: &'static str,
        place: impl Into<String>,
    ) -> Self {
        Self {
            list,
            check,
            place: place.into(),
        }
    }

    pub(super) fn ok(&mut self, found: impl Into<String>) {
        self.add(Severity::Ok, found.into(), "-");
    }

    pub(super) fn warning(&mut self, found: impl Into<String>, advice: &str) {
        self.add(Severity::Warning, found.into(), advice);
    }

    pub(super) fn problem(&mut self, found: impl Into<String>, advice: &str) {
        self.add(Severity::Problem, found.into(), advice);
    }

    fn add(&mut self, severity: Severity, found: String, advice: &str) {
        self.list.push(Finding {
            check: self.check,
            place: self.place.clone(),
            severity,
            found,
            advice: advice.to_owned(),
        });
    }
}
