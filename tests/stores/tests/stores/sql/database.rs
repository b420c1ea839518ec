//! A database with the store in it, and a table of the user's beside.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use store_tests::server::Crash;
use tenure_fence::{
    CheckpointError, FencedTransaction, Isolation, SqlBackend, SqlOptions, SqlStore,
};

use crate::case::Place;
use crate::lost_answers::Remote;

/// A database, with a table `delivered` of the user's in it.
#[async_trait]
pub(crate) trait Database: Crash {
    /// The store's backend.
    type Backend: SqlBackend;

    /// Opens the store, which is in this database and nowhere else.
    async fn open_with(
        &self,
        options: SqlOptions,
    ) -> Result<SqlStore<Self::Backend>, CheckpointError>;

    /// Runs statements as an operator would.
    async fn operate(&self, statements: &str);

    /// Returns the rows of `delivered`, in order.
    async fn delivered(&self) -> Vec<String>;

    /// Returns how many statements wait for a lock.
    async fn waiting(&self) -> i64;

    /// Delivers a row in a transaction.
    async fn deliver(
        transaction: &mut FencedTransaction<Self::Backend>,
        row: &str,
    ) -> Result<(), sqlx::Error>;

    /// Runs a statement in a transaction.
    async fn execute(
        transaction: &mut FencedTransaction<Self::Backend>,
        statement: &'static str,
    ) -> Result<(), sqlx::Error>;
}

/// A database that is reached over the network.
#[async_trait]
pub(crate) trait RemoteDatabase: Database {
    /// Where its server listens.
    fn address(&self) -> SocketAddr;

    /// Opens the store as if its server listened elsewhere.
    async fn open_at(
        &self,
        address: SocketAddr,
        options: SqlOptions,
    ) -> Result<SqlStore<Self::Backend>, CheckpointError>;
}

/// A store in a database.
pub(crate) struct InDatabase<D> {
    pub(crate) database: D,
    pub(crate) isolation: Isolation,
}

impl<D> InDatabase<D> {
    pub(crate) fn new(database: D) -> Self {
        let isolation = SqlOptions::default().isolation;
        Self {
            database,
            isolation,
        }
    }
}

#[async_trait]
impl<D: Database> Place for InDatabase<D> {
    type Store = SqlStore<D::Backend>;

    async fn open(&self) -> Result<Self::Store, CheckpointError> {
        let options = SqlOptions {
            max_value_bytes: 1024 * 1024,
            ..options(self.isolation)
        };
        self.database.open_with(options).await
    }
}

#[async_trait]
impl<D: Database> Crash for InDatabase<D> {
    async fn kill(&mut self) -> Result<(), Failure> {
        self.database.kill().await
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.database.restart().await
    }
}

#[async_trait]
impl<D: RemoteDatabase> Remote for InDatabase<D> {
    fn address(&self) -> SocketAddr {
        self.database.address()
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Self::Store, CheckpointError> {
        let options = SqlOptions {
            deadline: Duration::from_secs(5),
            ..options(self.isolation)
        };
        self.database.open_at(address, options).await
    }
}

/// The default options, but for the isolation.
pub(super) fn options(isolation: Isolation) -> SqlOptions {
    SqlOptions {
        isolation,
        ..SqlOptions::default()
    }
}
