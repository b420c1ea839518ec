//! How a SQL store is opened.

use std::time::Duration;

use super::name::SqlName;

/// The layout that this version creates and knows. A change of a table takes the next.
pub(crate) const LAYOUT_VERSION: i64 = 1;

/// How a SQL store is opened.
#[derive(Clone, Debug)]
pub struct SqlOptions {
    /// Where the tables are. PostgreSQL: the schema, created if it is not there. MySQL and SQLite:
    /// what the names of the tables begin with. `tenure` unless set.
    pub name: SqlName,
    /// How many connections are held at most; SQLite reads with so many and writes with one. At
    /// least one; 16 unless set.
    pub connections_max: u32,
    /// How long a call may take, until a connection is free and retries included. In a transaction:
    /// each step of the store's own. Waiting for a lock ends a little earlier, so that a call which
    /// only waited is known not to have happened. 10 s unless set.
    pub deadline: Duration,
    /// How long an open transaction may do nothing before the server ends it: a worker that was
    /// paused in one keeps the next owner's seal waiting for no longer. PostgreSQL and MySQL, which
    /// counts whole seconds. 10 s unless set.
    pub transaction_idle_max: Duration,
    /// The largest value, in bytes, inclusive. MySQL takes no more than its `max_allowed_packet`
    /// lets through. 4 MiB unless set: larger state belongs into an object store.
    pub max_value_bytes: usize,
    /// The isolation of transactions, the store's own and the user's. SQLite knows only one.
    pub isolation: Isolation,
}

impl Default for SqlOptions {
    fn default() -> Self {
        Self {
            name: SqlName::default(),
            connections_max: 16,
            deadline: Duration::from_secs(10),
            transaction_idle_max: Duration::from_secs(10),
            max_value_bytes: 4 * 1024 * 1024,
            isolation: Isolation::ReadCommitted,
        }
    }
}

impl SqlOptions {
    /// How long to wait for a lock: somewhat less than the deadline, so that the server's answer
    /// arrives while somebody listens.
    pub(crate) fn lock_wait_max(&self) -> Duration {
        self.deadline.mul_f64(0.8).max(Duration::from_millis(1))
    }
}

/// The isolation of transactions. The fence holds under each: it is checked under a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Every statement sees what was committed before it.
    #[default]
    ReadCommitted,
    /// Every statement sees what was committed before the first.
    RepeatableRead,
    /// As if one transaction ran after the other.
    Serializable,
}

impl Isolation {
    /// Returns the words of the SQL standard.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

/// Why a layout that is there cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A newer version of this crate has changed the tables. Update this process.
    #[error("the tables have layout {found}, this version knows layouts up to {known}")]
    Newer {
        /// What the tables say.
        found: i64,
        /// The newest that this version knows.
        known: i64,
    },
    /// The table with the version holds none: something else made or emptied it.
    #[error("the table of the layout's version is empty")]
    Unmarked,
}
