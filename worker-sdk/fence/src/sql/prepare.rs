//! How the tables are made ready before a store is opened.

use std::future::Future;

use tokio::time;

use super::options::{LAYOUT_VERSION, LayoutError, SqlOptions};
use crate::error::CheckpointError;

/// Why the tables could not be made ready.
pub(crate) enum PrepareError {
    Sql(sqlx::Error),
    Layout(LayoutError),
}

impl From<sqlx::Error> for PrepareError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

/// Runs what makes the tables ready, within the deadline of a call.
pub(crate) async fn prepared<T>(
    options: &SqlOptions,
    work: impl Future<Output = Result<T, PrepareError>>,
) -> Result<T, CheckpointError> {
    match time::timeout(options.deadline, work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(PrepareError::Layout(error))) => Err(CheckpointError::Unsupported {
            source: error.into(),
        }),
        Ok(Err(PrepareError::Sql(error))) => Err(CheckpointError::Unavailable {
            source: error.into(),
        }),
        Err(elapsed) => Err(CheckpointError::Unavailable {
            source: elapsed.into(),
        }),
    }
}

/// Refuses a layout that a newer version has made.
pub(crate) fn known(found: i64) -> Result<i64, PrepareError> {
    if found > LAYOUT_VERSION {
        return Err(PrepareError::Layout(LayoutError::Newer {
            found,
            known: LAYOUT_VERSION,
        }));
    }
    Ok(found)
}
