//! A local folder between processes, and the list of what it holds.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use cluster_tests::failure::Failure;
use store_tests::azurite::Azurite;
use store_tests::fake_gcs::FakeGcs;
use store_tests::moto::Moto;
use store_tests::seaweedfs::Seaweedfs;
use tenure_fence::kit::{Holder, LocalGrants};
use tenure_fence::{CheckpointStore, Epoch, FencingToken, Owner, Resource};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::places::{Place, TestFolder, open};

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

/// Everything that has a fence is listed once, in the order of its text, page by page.
async fn lists_in_order(place: &dyn Place) -> Result<(), Failure> {
    let store = open(place).await?;
    assert!(store.list(None, 10).await?.is_empty());
    let names = [
        "lease/b",
        "lease/a.1",
        "lease/a-1",
        "shard/a/10",
        "shard/a/7",
        "shard/a-b/1",
        "shard/a.b/1",
        "shard/a0/1",
        "shard/b/0",
        "shard/b/4294967295",
        "lease/a",
    ];
    let mut expected = BTreeMap::new();
    for (session, name) in (1..).zip(names) {
        let token = FencingToken {
            resource: name.parse::<Resource>()?,
            epoch: Epoch::MAX,
            owner: Owner {
                cluster: u128::MAX,
                session,
            },
        };
        store.seal(&token).await?;
        expected.insert(name.to_owned(), (Epoch::MAX, token.owner));
    }
    let expected: Vec<_> = expected.into_iter().collect();
    for limit in [1, 2, 3, 4, 5, 11, 100] {
        let mut listed: Vec<(String, (Epoch, Owner))> = Vec::new();
        loop {
            let after = listed.last().map(|(name, _)| name.parse()).transpose()?;
            let page = store.list(after.as_ref(), limit).await?;
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            let page = page.into_iter();
            listed.extend(page.map(|(name, fence)| (name.to_string(), (fence.epoch, fence.owner))));
        }
        assert_eq!(listed, expected, "{limit} at a time");
    }
    // After something that is not there.
    let after: Resource = "shard/a/5".parse()?;
    let page = store.list(Some(&after), 1).await?;
    assert_eq!(
        page.first().map(|(name, _)| name.to_string()),
        Some("shard/a/7".to_owned())
    );
    Ok(())
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
