//! What the SQL stores share: the logic, once; a [backend](SqlBackend) supplies the statements.
//!
//! ```text
//!   seal    INSERT .. ON CONFLICT UPDATE .. WHERE epoch < $new     the fence rises in one statement
//!   write   UPDATE .. WHERE resource = $r AND epoch = $e AND owner = $o AND sequence < $n
//!              1 row   accepted: check and write were one statement, one round trip
//!              0 rows  the row is read and the rule of this crate names the refusal, or recognises
//!                      the retry of a write that landed
//! ```
//!
//! One row for each resource: the fence, and what was written last. A write that belongs to the
//! fence's epoch is the latest of that epoch, so the two need no columns of their own, and a seal
//! touches nothing but the fence.
//!
//! The fence carries a checksum of its own, and a write presents it: a fence that was lowered by
//! hand is refused as corrupt instead of letting an old owner in.

mod backend;
pub(crate) mod bound;
mod call;
mod connections;
mod name;
mod options;
mod prepare;
pub(crate) mod row;
pub(crate) mod statements;
mod store;
mod transaction;

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

pub use backend::SqlBackend;
pub use name::{SqlName, SqlNameError};
pub use options::{Isolation, LayoutError, SqlOptions};
pub use store::SqlStore;
pub use transaction::FencedTransaction;

pub(crate) use backend::{Connected, Verdict, general_verdict, sealed};
pub(crate) use options::LAYOUT_VERSION;
pub(crate) use prepare::{PrepareError, known, prepared};

/// Marks a statement as made of constants and a [`SqlName`].
pub(crate) fn statement(text: String) -> SqlStr {
    AssertSqlSafe(Arc::<str>::from(text)).into_sql_str()
}
