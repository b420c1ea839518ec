//! What the coordinators say of a tenure to those who would clean up after it.

use std::time::Instant;

use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use tenure::connection::{Connection, ConnectionOptions};
use tenure::{CheckSuperseded, Epoch, FencingToken, Owner, TokenChecker};
use tenure_proto::v1::Policy;

use crate::story::{PATIENCE, Stage, epochs, turn};

#[tokio::test(flavor = "multi_thread")]
async fn a_tenure_is_superseded_from_the_next_grant_on_and_not_before() -> Result<(), Failure> {
    let _turn = turn().await;
    let stage = Stage::set(Cluster::start().await?, 1, Policy::default(), &[]).await?;
    let checker = TokenChecker::new(Connection::new(ConnectionOptions::new(
        stage.cluster.addresses(),
    ))?);
    let a = stage.worker("a")?;
    let held = epochs(&stage.shared_by(&["a"], 1).await?, "a");
    let old = token(&stage).await?;
    assert!(checker.is_current(&old).await?);
    assert!(!superseded(&checker, &old).await?);

    a.kill().await?;
    let b = stage.worker("b")?;
    stage
        .recorder
        .granted_anew(&held, Instant::now(), PATIENCE)
        .await?;
    let new = token(&stage).await?;
    assert!(!checker.is_current(&old).await?);
    assert!(superseded(&checker, &old).await?);
    assert!(checker.is_current(&new).await?);
    assert!(!superseded(&checker, &new).await?);

    // What these coordinators cannot know of may be somebody's: of another cluster, and of a group
    // that is not theirs.
    let foreign = FencingToken {
        owner: Owner {
            cluster: old.owner.cluster ^ 1,
            ..old.owner
        },
        ..old.clone()
    };
    assert!(!superseded(&checker, &foreign).await?);
    let unknown = FencingToken {
        resource: "shard/elsewhere/0".parse()?,
        ..old
    };
    assert!(!superseded(&checker, &unknown).await?);

    b.stop(PATIENCE).await?;
    stage.end().await
}

async fn superseded(checker: &TokenChecker, token: &FencingToken) -> Result<bool, Failure> {
    let answer = checker.is_superseded(token).await;
    answer.map_err(|error| Failure::new(error.to_string()))
}

/// Returns the token of the present tenure of the only shard.
async fn token(stage: &Stage) -> Result<FencingToken, Failure> {
    let token = stage.token(0).await?;
    let owner = token.owner.ok_or_else(|| Failure::new("no owner"))?;
    let cluster: [u8; 16] = owner
        .cluster_id
        .as_ref()
        .try_into()
        .map_err(|_| Failure::new("the id of the cluster has not 16 bytes"))?;
    Ok(FencingToken {
        resource: token.resource.parse()?,
        epoch: Epoch::try_from(token.epoch)?,
        owner: Owner {
            cluster: u128::from_be_bytes(cluster),
            session: owner.number,
        },
    })
}
