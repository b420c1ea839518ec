//! A statement with the values it is given, in whichever of the databases.

use sqlx::database::HasStatementCache;
use sqlx::query::Query;
use sqlx::{Database, Encode, SqlStr, Type};

use super::row::{Change, fence_checksum};
#[cfg(any(feature = "mysql", feature = "sqlite"))]
use super::row::{FENCE_COLUMNS, KEPT_COLUMNS};
#[cfg(any(feature = "mysql", feature = "sqlite"))]
use crate::resource::Resource;
use crate::token::FencingToken;

/// A value that a statement is given.
#[derive(Clone, Debug)]
pub(crate) enum Value<'v> {
    Number(i64),
    Text(String),
    /// A number of 128 bits, most significant byte first.
    Id([u8; 16]),
    Data(Option<&'v [u8]>),
}

/// Returns what a statement presents as the fence: the values of [`FENCE_COLUMNS`](super::row::FENCE_COLUMNS).
pub(super) fn presented<'v>(token: &FencingToken) -> [Value<'v>; 5] {
    [
        Value::Text(token.resource.to_string()),
        Value::Number(token.epoch.get().cast_signed()),
        Value::Id(token.owner.cluster.to_be_bytes()),
        Value::Number(token.owner.session.cast_signed()),
        Value::Number(fence_checksum(token)),
    ]
}

/// Returns which change it is, to go behind the fence.
pub(super) fn identity<'v>(change: &Change) -> [Value<'v>; 2] {
    [
        Value::Number(change.sequence.get().cast_signed()),
        Value::Id(change.write_id.get().to_be_bytes()),
    ]
}

/// Returns what a change leaves in a row, to go behind its identity.
pub(super) fn content<'v>(change: &'v Change, token: &FencingToken) -> [Value<'v>; 2] {
    [
        Value::Data(change.data.as_deref()),
        Value::Number(change.checksum(token)),
    ]
}

/// A statement with its values, in the order in which the database wants them.
#[derive(Debug)]
pub struct Bound<'v> {
    statement: SqlStr,
    values: Vec<Value<'v>>,
    is_kept_prepared: bool,
}

impl<'v> Bound<'v> {
    /// A statement that is always the same.
    pub(super) fn new(statement: SqlStr, values: Vec<Value<'v>>) -> Self {
        Self {
            statement,
            values,
            is_kept_prepared: true,
        }
    }

    /// Inserts fences into a table; `otherwise` says what happens to those that are there already.
    #[cfg(any(feature = "mysql", feature = "sqlite"))]
    pub(crate) fn insert_fences(table: &str, tokens: &[&FencingToken], otherwise: &str) -> Self {
        let rows = vec!["(?, ?, ?, ?, ?)"; tokens.len()].join(", ");
        let text = format!("INSERT INTO {table} ({FENCE_COLUMNS}) VALUES {rows} {otherwise}");
        let values = tokens.iter().flat_map(|token| presented(token));
        Self::about(tokens.len(), text, values.collect())
    }

    /// Selects the rows of some resources from a table.
    #[cfg(any(feature = "mysql", feature = "sqlite"))]
    pub(crate) fn select_kept(table: &str, resources: &[&Resource]) -> Self {
        let names = vec!["?"; resources.len()].join(", ");
        let text = format!("SELECT {KEPT_COLUMNS} FROM {table} WHERE resource IN ({names})");
        let values = resources.iter().map(|name| Value::Text(name.to_string()));
        Self::about(resources.len(), text, values.collect())
    }

    /// A statement whose text depends on how many resources it is about. The usual one, about one of
    /// them, stays prepared.
    #[cfg(any(feature = "mysql", feature = "sqlite"))]
    fn about(resources: usize, text: String, values: Vec<Value<'v>>) -> Self {
        Self {
            statement: super::statement(text),
            values,
            is_kept_prepared: resources == 1,
        }
    }

    /// Makes it the driver's.
    pub(crate) fn query<D: Database + HasStatementCache>(self) -> Query<'static, D, D::Arguments>
    where
        i64: for<'e> Encode<'e, D> + Type<D>,
        String: for<'e> Encode<'e, D> + Type<D>,
        for<'e> Option<&'e [u8]>: Encode<'e, D> + Type<D>,
    {
        let mut query = sqlx::query(self.statement);
        for value in self.values {
            query = match value {
                Value::Number(number) => query.bind(number),
                Value::Text(text) => query.bind(text),
                Value::Id(id) => query.bind(Some(id.as_slice())),
                Value::Data(data) => query.bind(data),
            };
        }
        query.persistent(self.is_kept_prepared)
    }
}
