//! Waiting until nothing moves.

use std::time::Duration;

use tenure_proto::v1::ShardPhase;

use crate::client::Client;
use crate::failure::Failure;
use crate::ownership::Ownership;
use crate::recorder::Recorder;
use crate::wait;

/// Time without a grant after which nothing is moving any more: the planner acts within milliseconds.
const QUIET: Duration = Duration::from_secs(1);

/// Waits until every shard of a group is served and none was granted for a second, and returns who
/// owns what then.
///
/// # Errors
///
/// Says how many shards are served if it takes longer than `within`.
pub async fn at_rest(
    client: &Client,
    recorder: &Recorder,
    group: &str,
    within: Duration,
) -> Result<Ownership, Failure> {
    wait::until("shards to come to rest", within, async || {
        if recorder.look(|history| history.granted_within(QUIET)) {
            return Err("shards were granted a moment ago".to_owned());
        }
        let ownership = client
            .ownership(group)
            .await
            .map_err(|failure| failure.to_string())?;
        let (serving, all) = (ownership.count(ShardPhase::Serving), ownership.len());
        if serving == all && all > 0 {
            Ok(ownership)
        } else {
            Err(format!("{serving} of {all} are served"))
        }
    })
    .await
}
