//! What one kind of database supplies.

use std::future::Future;

use sqlx::{Database, Pool};

use super::bound::{Bound, Value, content, identity, presented};
use super::options::SqlOptions;
use super::row::{Change, FenceRow, KeptRow};
use super::statements::Statements;
use crate::resource::Resource;
use crate::token::FencingToken;

/// A connection of a backend's database.
pub(crate) type Connected<B> = <<B as SqlBackend>::Database as Database>::Connection;

pub(crate) mod sealed {
    /// Keeps the statements of a backend an affair of this crate.
    pub trait Sealed {}
}

/// What an error says about what has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server rolled the statement or transaction back because of others. Safe to repeat.
    Contended,
    /// Nothing has happened.
    NotDone,
    /// It may have happened: the connection is gone, or the server does not say.
    Lost,
    /// What is stored cannot be read.
    Unreadable,
    /// The transaction in which the fence was checked has ended before it was committed.
    TransactionGone,
}

/// Judges the errors that are not the database's own words.
pub(crate) fn general_verdict(error: &sqlx::Error) -> Verdict {
    match error {
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::TypeNotFound { .. } => Verdict::Unreadable,
        sqlx::Error::Configuration(_)
        | sqlx::Error::InvalidArgument(_)
        | sqlx::Error::Encode(_)
        | sqlx::Error::InvalidSavePointStatement
        | sqlx::Error::BeginFailed => Verdict::NotDone,
        // A broken connection, and whatever a later version of the driver may say.
        _ => Verdict::Lost,
    }
}

/// One kind of database: its statements, and what its errors mean. Implemented by this crate only.
pub trait SqlBackend: sealed::Sealed + Send + Sync + 'static {
    /// The database of the driver.
    type Database: Database;

    /// What begins a transaction, with the savepoint `tenure_fenced` in it.
    #[doc(hidden)]
    const BEGIN: &'static str;

    /// Opens a connection and sets it up.
    #[doc(hidden)]
    fn connect(&self) -> impl Future<Output = Result<Connected<Self>, sqlx::Error>> + Send;

    /// Returns a pool of connections that are set up alike, for the user's transactions. Not asked for
    /// anything else: see [`Connections`](super::connections).
    #[doc(hidden)]
    fn transactions(&self, options: &SqlOptions) -> Pool<Self::Database>;

    /// Raises the fences that are lower, in one step that commits by itself, and returns the rows of at
    /// least those that it raised, as that step left them. Tokens are in the order of their resources'
    /// names, each resource once.
    #[doc(hidden)]
    fn raise(
        &self,
        connection: &mut Connected<Self>,
        tokens: &[&FencingToken],
    ) -> impl Future<Output = Result<Vec<KeptRow>, sqlx::Error>> + Send;

    /// Returns the rows of some resources, in any order.
    #[doc(hidden)]
    fn kept(
        &self,
        connection: &mut Connected<Self>,
        resources: &[&Resource],
    ) -> impl Future<Output = Result<Vec<KeptRow>, sqlx::Error>> + Send;

    /// Makes a change if the fence is the token's and the sequence is higher than the latest.
    /// Returns whether it did.
    #[doc(hidden)]
    fn put(
        &self,
        connection: &mut Connected<Self>,
        token: &FencingToken,
        change: &Change,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send {
        let mut values = Vec::from(presented(token));
        values.extend(identity(change));
        values.extend(content(change, token));
        let put = self.statements().put.bind(values);
        async move { Ok(self.execute(connection, put).await? == 1) }
    }

    /// Makes sure that a change which was seen is durable. Returns whether it is still the latest.
    ///
    /// Nothing to do where a change is not seen before it is.
    #[doc(hidden)]
    fn confirm(
        &self,
        connection: &mut Connected<Self>,
        token: &FencingToken,
        change: &Change,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send {
        let mut values = Vec::from(presented(token));
        values.extend(identity(change));
        let confirm = self.statements().confirm.as_ref();
        let confirm = confirm.map(|confirm| confirm.bind(values));
        async move {
            match confirm {
                None => Ok(true),
                Some(confirm) => Ok(self.execute(connection, confirm).await? == 1),
            }
        }
    }

    /// Returns the fence of a resource.
    #[doc(hidden)]
    fn fence(
        &self,
        connection: &mut Connected<Self>,
        resource: &Resource,
    ) -> impl Future<Output = Result<Option<FenceRow>, sqlx::Error>> + Send {
        let name = Value::Text(resource.to_string());
        let fence = self.statements().fence.bind([name]);
        async move { Ok(self.select(connection, fence).await?.pop()) }
    }

    /// Returns the fences after a resource, in the order of their names.
    #[doc(hidden)]
    fn fences(
        &self,
        connection: &mut Connected<Self>,
        after: Option<&Resource>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<FenceRow>, sqlx::Error>> + Send {
        let after = Value::Text(after.map(ToString::to_string).unwrap_or_default());
        let limit = Value::Number(i64::try_from(limit).unwrap_or(i64::MAX));
        let fences = self.statements().fences.bind([after, limit]);
        self.select(connection, fences)
    }

    /// Locks the row of a token's resource until the transaction ends, and returns its fence.
    #[doc(hidden)]
    fn lock(
        &self,
        connection: &mut Connected<Self>,
        token: &FencingToken,
    ) -> impl Future<Output = Result<Option<FenceRow>, sqlx::Error>> + Send;

    /// Finds out whether the server can fence. `Ok(Some(..))` says what it lacks.
    #[doc(hidden)]
    fn lacks(
        &self,
        connection: &mut Connected<Self>,
    ) -> impl Future<Output = Result<Option<String>, sqlx::Error>> + Send;

    /// Returns the statements that every database has.
    #[doc(hidden)]
    fn statements(&self) -> &Statements;

    /// Runs a statement that changes rows, and returns how many it matched.
    #[doc(hidden)]
    fn execute(
        &self,
        connection: &mut Connected<Self>,
        bound: Bound<'_>,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Runs a statement that returns fences.
    #[doc(hidden)]
    fn select(
        &self,
        connection: &mut Connected<Self>,
        bound: Bound<'_>,
    ) -> impl Future<Output = Result<Vec<FenceRow>, sqlx::Error>> + Send;

    /// Runs a statement that is the same in every database and returns nothing.
    #[doc(hidden)]
    fn run(
        &self,
        connection: &mut Connected<Self>,
        statement: &'static str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Says what an error means.
    #[doc(hidden)]
    fn verdict(error: &sqlx::Error) -> Verdict;
}
