//! Where log lines go: to stderr, so that stdout is left to data.

use std::io::{self, IsTerminal as _};

use serde::Deserialize;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, ParseError};
use tracing_subscriber::fmt;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Name of the Raft library in filters.
const RAFT: &str = "openraft";

/// What is wrong with a filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// A word that stands alone is a level. Taken for the name of a module, it would silence all others.
    #[error("{word:?} is no level: off, error, warn, info, debug and trace are, and MODULE=LEVEL")]
    NoLevel {
        /// The word.
        word: String,
    },
    /// Anything else.
    #[error(transparent)]
    Malformed(#[from] ParseError),
}

/// Reads a filter such as `info` or `info,tenure_coordinator::watch=debug`.
///
/// The library that carries Raft tells every step at level `info`; unless the filter speaks of it, only
/// its errors are kept: what an operator must know of leadership and membership the coordinator tells itself.
///
/// # Errors
///
/// What is wrong with it.
pub fn parse_filter(level: &str) -> Result<EnvFilter, FilterError> {
    let alone = |word: &&str| !word.is_empty() && !word.contains(['=', '[']);
    let mut words = level.split(',').map(str::trim).filter(alone);
    if let Some(word) = words.find(|word| word.parse::<LevelFilter>().is_err()) {
        return Err(FilterError::NoLevel {
            word: word.to_owned(),
        });
    }
    let level = if level.contains(RAFT) {
        level.to_owned()
    } else {
        format!("{RAFT}=error,{level}")
    };
    Ok(EnvFilter::builder().parse(level)?)
}

/// Starts logging in this process. A second call changes nothing: the first one decides.
pub fn install(filter: EnvFilter, format: LogFormat) {
    let colours = io::stderr().is_terminal();
    let lines = fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(colours);
    // Fails only if a subscriber is there already.
    let _ = match format {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_levels_and_modules_and_nothing_else() {
        assert!(parse_filter("info").is_ok());
        assert!(parse_filter("info,tenure_coordinator::watch=debug").is_ok());
        assert!(parse_filter("off").is_ok());
        assert!(parse_filter("loud=very").is_err());
        for typo in ["inof", "info,wran", "tenure_coordinator"] {
            let refused = parse_filter(typo);
            assert!(
                matches!(refused, Err(FilterError::NoLevel { .. })),
                "{typo}"
            );
        }
    }
}
