//! Asking the coordinators about a token.

use async_trait::async_trait;
use tenure_fence::{CheckSuperseded, FencingToken, StoreError};
use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;
use tenure_proto::v1::{CheckTokenRequest, CheckTokenResponse};

use crate::connection::{CallError, Connection, Repeat};
use crate::convert;

/// Asks the coordinators whether a token is current, after a round that a quorum answered.
///
/// For what cannot check a token in the same step as its effect, and for collectors of what ended
/// tenures have left in a store. An answer is true of a moment between the call and its return.
///
/// ```
/// use tenure::TokenChecker;
/// use tenure::connection::{Connection, ConnectionOptions};
///
/// let connection = Connection::new(ConnectionOptions::new(["127.0.0.1:7001"]))?;
/// let checker = TokenChecker::new(connection);
/// # Ok::<(), tenure::connection::ConnectionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokenChecker {
    connection: Connection,
}

impl TokenChecker {
    /// Creates a checker. Nothing is sent before the first call.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// Returns whether the resource is owned by the token's owner at the token's epoch.
    ///
    /// # Errors
    ///
    /// When no leader with a quorum answers within the connection's call timeout.
    pub async fn is_current(&self, token: &FencingToken) -> Result<bool, CallError> {
        Ok(check(&self.connection, token).await?.current)
    }
}

#[async_trait]
impl CheckSuperseded for TokenChecker {
    /// Returns whether the coordinators have granted the resource at a higher epoch. It is not
    /// superseded as long as nobody else was granted it, nor when its group or its cluster is not
    /// known there.
    async fn is_superseded(&self, token: &FencingToken) -> Result<bool, StoreError> {
        let answer = check(&self.connection, token).await?;
        Ok(answer.current_epoch > token.epoch.get())
    }
}

pub(crate) async fn check(
    connection: &Connection,
    token: &FencingToken,
) -> Result<CheckTokenResponse, CallError> {
    let request = CheckTokenRequest {
        token: Some(convert::token(token)),
    };
    connection
        .leader(Repeat::Always, |service| {
            let request = request.clone();
            async move {
                OwnershipServiceClient::new(service)
                    .check_token(request)
                    .await
            }
        })
        .await
}
