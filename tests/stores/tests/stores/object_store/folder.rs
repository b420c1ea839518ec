//! A local folder between processes, and the list of what it holds.

use std::process::Stdio;
use std::time::Duration;

use cluster_tests::failure::Failure;
use store_tests::azurite::Azurite;
use store_tests::fake_gcs::FakeGcs;
use store_tests::moto::Moto;
use store_tests::seaweedfs::Seaweedfs;
use tenure_fence::kit::{Holder, LocalGrants};
use tenure_fence::{CheckpointStore, FencingToken, Resource};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::places::{Bucketed, TestFolder, open};
use crate::case::fences_are_listed_in_the_order_of_their_names;

/// A process that writes to the folder as one owner.
struct Writer {
    token: FencingToken,
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

/// How long a process may take to say something, on a machine that is busy with other tests.
const TIME: Duration = Duration::from_secs(60);

impl Writer {
    fn start(place: &TestFolder, token: FencingToken) -> Result<Self, Failure> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_folder-writer"))
            .arg(place.path())
            .arg(token.to_string())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take();
        let output = output.ok_or_else(|| Failure::new("the process has no output"))?;
        let output = BufReader::new(output).lines();
        Ok(Self {
            token,
            child,
            output,
        })
    }

    /// Waits until it says something; `None` once it has ended.
    async fn says(&mut self) -> Result<Option<String>, Failure> {
        Ok(tokio::time::timeout(TIME, self.output.next_line()).await??)
    }

    /// Waits until it has had this many writes acknowledged.
    async fn has_written(&mut self, number: u64) -> Result<(), Failure> {
        let wanted = number.to_string();
        while let Some(said) = self.says().await? {
            if said == wanted {
                return Ok(());
            }
        }
        Err(Failure::new(format!(
            "{} has ended before {wanted}",
            self.token
        )))
    }

    /// Returns everything it still says, when it is killed or ends.
    async fn ends(&mut self) -> Result<Vec<String>, Failure> {
        let mut said = Vec::new();
        while let Some(line) = self.says().await? {
            said.push(line);
        }
        self.child.wait().await?;
        Ok(said)
    }
}

/// Again and again a process that writes is killed, or another one seals beside it: what was
/// acknowledged is found, and what was replaced is fenced.
#[tokio::test]
async fn processes_that_are_killed_or_replaced_lose_and_break_nothing() -> Result<(), Failure> {
    let place = TestFolder::new()?;
    let store = open(&place).await?;
    let mut grants = LocalGrants::new();
    let resource = grants.fresh_resource();
    for round in 0..20 {
        let mut writer = Writer::start(&place, grants.next_tenure(&resource, Holder::New))?;
        writer.has_written(3).await?;
        let next = grants.next_tenure(&resource, Holder::New);
        let is_killed = round % 2 == 0;
        if is_killed {
            writer.child.start_kill()?;
        }
        let found = store.seal(&next).await?;
        let said = writer.ends().await?;
        let found = found.ok_or_else(|| Failure::new("everything is lost"))?;
        assert_eq!(found.epoch, writer.token.epoch);
        let expected = format!("{} wrote {}", writer.token, found.sequence);
        assert_eq!(found.data, expected.as_bytes());

        let acknowledged = said
            .iter()
            .filter_map(|line| line.parse::<u64>().ok())
            .max();
        let acknowledged = acknowledged.unwrap_or(3);
        // One more may have landed without its answer.
        let landed = acknowledged..=acknowledged + 1;
        assert!(
            landed.contains(&found.sequence.get()),
            "{found:?}, {said:?}"
        );
        if !is_killed {
            assert_eq!(said.last().map(String::as_str), Some("fenced"));
            assert_eq!(found.sequence.get(), acknowledged);
        }
        assert_eq!(store.read(&resource).await?, Some(found));
    }
    Ok(())
}

async fn lists_in_order(place: &dyn Bucketed) -> Result<(), Failure> {
    let store = open(place).await?;
    let list = async |after: Option<Resource>, limit| store.list(after.as_ref(), limit).await;
    fences_are_listed_in_the_order_of_their_names(&store, list).await
}

#[tokio::test]
async fn a_local_folder_lists_in_order() -> Result<(), Failure> {
    lists_in_order(&TestFolder::new()?).await
}

#[tokio::test]
async fn seaweedfs_lists_in_order() -> Result<(), Failure> {
    lists_in_order(&Seaweedfs::start().await?).await
}

#[tokio::test]
async fn moto_lists_in_order() -> Result<(), Failure> {
    lists_in_order(&Moto::start().await?).await
}

#[tokio::test]
async fn azurite_lists_in_order() -> Result<(), Failure> {
    lists_in_order(&Azurite::start().await?).await
}

#[tokio::test]
async fn fake_gcs_lists_in_order() -> Result<(), Failure> {
    lists_in_order(&FakeGcs::start().await?).await
}
