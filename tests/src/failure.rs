//! Why a story, or the demo, did not go as it should.

use std::error::Error;
use std::fmt;

/// Why a story did not go as it should: text for a person.
///
/// A story does the same with every failure: it ends and shows it. So there is one type without
/// variants, and every error becomes one with `?`, together with its causes.
pub struct Failure {
    text: String,
}

impl Failure {
    /// Creates a failure from what a person should read.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    /// Puts before the text what was being done.
    #[must_use]
    pub fn during(self, what: impl fmt::Display) -> Self {
        Self {
            text: format!("{what}: {}", self.text),
        }
    }
}

// Failure itself is no std::error::Error, or this would collide with `From<T> for T`.
impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(source) = next {
            text.push_str(": ");
            text.push_str(&source.to_string());
            next = source.source();
        }
        Self { text }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

// A test that returns an error is shown with Debug, and the text may have many lines.
impl fmt::Debug for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn a_failure_shows_the_error_and_its_causes() {
        let failure = Failure::from(Outer("x".parse::<u8>().unwrap_err())).during("reading");
        assert_eq!(
            failure.to_string(),
            "reading: outer: invalid digit found in string"
        );
    }
}
