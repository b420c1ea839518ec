//! A store on a Redis server.

mod answer;
mod connections;
mod failure;
mod options;
mod server;

use std::collections::BTreeMap;
use std::fmt;

use ::redis::{Cmd, Value};
use async_trait::async_trait;

use crate::admission::{
    Fence, SealAdmission, SequenceAdmission, admit_seal, admit_sequence, admit_write,
};
use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::CheckpointError;
use crate::layout;
use crate::record::Record;
use crate::resource::Resource;
use crate::sequence::{Sequence, WriteId};
use crate::store::CheckpointStore;
use crate::token::FencingToken;

pub use options::{RedisDurability, RedisReplicas, RedisStoreOptions};

use answer::Answer;
use connections::{Answered, Connections, Ran};
use failure::{Failure, Reason};

/// How many resources one pipeline of [`RedisStore::seal_many`] seals.
const SEALS_IN_PIPELINE: usize = 256;

/// How many keys Redis looks at for one step of a listing.
const KEYS_IN_SCAN: usize = 1_000;

/// A store on a Redis server.
///
/// # How it fences
///
/// One Lua script checks the fence and writes, and Redis runs one script at a time. Fence and data are
/// two keys whose names have the resource in braces, so that they stay together wherever keys are
/// spread by their names. The fence never expires: a key that carries an expiry is refused as
/// `Corrupt`, and a server that may evict it (`maxmemory-policy allkeys-*`) as `Unsupported`. Epochs and
/// sequences are compared as texts of equal length, because a number in Lua is a double.
///
/// # What it promises
///
/// On one server that syncs its append-only file with every write (`appendonly yes`,
/// `appendfsync always`, which [`RedisDurability::Synced`], the default, demands), what was
/// acknowledged outlives a crash of the server.
///
/// # What it does not promise
///
/// **Redis replicates after it has answered. A failover to a replica that did not yet have it loses
/// what was acknowledged: writes, and fences too, so that an older owner may be admitted again.**
/// [`RedisStoreOptions::replicas`] lets every call wait until enough replicas have acknowledged it
/// (`WAIT`), and answers `OutcomeUnknown` when they do not. That makes the loss much less likely; it
/// does not rule it out, because nothing makes Sentinel or an operator promote one of those replicas.
/// A store that must not lose a fence in a failover needs consensus: the replicated store or etcd.
///
/// The same holds for a server that is restored from a backup or a snapshot file, for one that runs
/// with [`RedisDurability::AsConfigured`], for `FLUSHALL`, and for anyone who deletes keys by hand.
/// Settings that are changed while the store is open are noticed at the next
/// [`probe`](CheckpointStore::probe) and whenever a connection is made anew.
///
/// A server in cluster mode is refused: this adapter connects to one server.
pub struct RedisStore {
    connections: Connections,
    options: RedisStoreOptions,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RedisStore")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Opens the store on the server at a URL: `redis://[user[:password]@]host[:port][/database]`,
    /// or `rediss://` for TLS.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unsupported`] when the options or the URL make no sense, or the server
    /// cannot keep a fence: it may evict keys, is a replica, is in cluster mode, is too old, does not
    /// sync what it writes, or was laid out by a newer version. `Unavailable` when it was not reached.
    pub async fn open(url: &str, options: RedisStoreOptions) -> Result<Self, CheckpointError> {
        options.check().map_err(CheckpointError::unsupported)?;
        let connections = Connections::new(url, &options).map_err(CheckpointError::unsupported)?;
        let store = Self {
            connections,
            options,
        };
        store.probe().await?;
        store.lay_out().await?;
        Ok(store)
    }

    /// Returns resources and their fences in the order of their names: at most `limit`, of those
    /// after `after`, or from the first.
    ///
    /// Redis keeps keys in no order, so each call looks at every key of the database; it keeps no
    /// more than `limit` of them. A resource that is first sealed meanwhile may be missing.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Corrupt`] when a fence cannot be read, or `Unavailable`.
    pub async fn list(
        &self,
        after: Option<&Resource>,
        limit: usize,
    ) -> Result<Vec<(Resource, Fence)>, CheckpointError> {
        let after = after.map(Resource::to_string);
        let first = self.first_names(after.as_deref(), limit).await?;
        let mut found = Vec::with_capacity(first.len());
        for names in first
            .into_iter()
            .collect::<Vec<_>>()
            .chunks(SEALS_IN_PIPELINE)
        {
            let commands = names.iter();
            let commands = commands.map(|(_, resource)| self.fence_command(resource));
            let values = self.read_values(commands.collect()).await?;
            for ((_, resource), value) in names.iter().zip(values) {
                let fence = answer::fence(value)
                    .map_err(|error| CheckpointError::corrupt(resource, error))?;
                found.extend(fence.map(|fence| (resource.clone(), fence)));
            }
        }
        Ok(found)
    }

    /// Looks through all keys for the `limit` first resources after a name.
    async fn first_names(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<BTreeMap<String, Resource>, CheckpointError> {
        let begin = format!("{}fence:{{", self.options.prefix);
        let mut first = BTreeMap::new();
        let mut cursor = 0_u64;
        loop {
            let mut scan = ::redis::cmd("SCAN");
            scan.arg(cursor)
                .arg("MATCH")
                .arg(format!("{begin}*}}"))
                .arg("COUNT")
                .arg(KEYS_IN_SCAN);
            let value = self.read_values(vec![scan]).await?.pop();
            let value = value.ok_or_else(|| CheckpointError::unavailable(Reason::Missing))?;
            let (next, keys): (u64, Vec<Vec<u8>>) =
                ::redis::from_redis_value(value).map_err(CheckpointError::unavailable)?;
            for key in keys {
                let name = key
                    .strip_prefix(begin.as_bytes())
                    .and_then(|rest| rest.strip_suffix(b"}"));
                let Some(name) = name else { continue };
                let resource = layout::resource(name).map_err(CheckpointError::unavailable)?;
                let name = resource.to_string();
                if after.is_none_or(|after| name.as_str() > after) {
                    first.insert(name, resource);
                }
                if first.len() > limit {
                    first.pop_last();
                }
            }
            if next == 0 {
                return Ok(first);
            }
            cursor = next;
        }
    }

    /// Writes the version of the layout, or refuses that of a newer version.
    async fn lay_out(&self) -> Result<(), CheckpointError> {
        let key = format!("{}layout", self.options.prefix);
        let mut set = ::redis::cmd("SET");
        set.arg(&key)
            .arg(&layout::encode(options::LAYOUT))
            .arg("NX");
        let mut get = ::redis::cmd("GET");
        get.arg(&key);
        let found = self.read_values(vec![set, get]).await?.pop();
        let Some(Value::BulkString(found)) = found else {
            return Err(layout::refuse(layout::LayoutError::Unreadable));
        };
        layout::check(&found, options::LAYOUT).map_err(layout::refuse)
    }

    fn fence_key(&self, resource: &Resource) -> String {
        format!("{}fence:{{{resource}}}", self.options.prefix)
    }

    fn data_key(&self, resource: &Resource) -> String {
        format!("{}data:{{{resource}}}", self.options.prefix)
    }

    fn fence_command(&self, resource: &Resource) -> Cmd {
        let mut command = ::redis::cmd("HMGET");
        command
            .arg(self.fence_key(resource))
            .arg(&["epoch", "owner", "sequence", "write_id"]);
        command
    }

    /// Creates the call of the script, to which the rest of its arguments is added.
    fn call(&self, action: &str, token: &FencingToken) -> Cmd {
        let mut command = self.connections.call();
        command
            .arg(2)
            .arg(self.fence_key(&token.resource))
            .arg(self.data_key(&token.resource))
            .arg(action)
            .arg(answer::digits(token.epoch.get()))
            .arg(token.owner.to_string());
        command
    }

    fn seal_call(&self, token: &FencingToken) -> Cmd {
        self.call("seal", token)
    }

    /// Runs calls of the script; one answer for each.
    async fn run(&self, tokens: &[FencingToken], calls: Vec<Cmd>) -> Vec<Reply> {
        let Ran {
            answers,
            is_doubtful,
        } = self.connections.run(calls).await;
        let replies = tokens.iter().zip(answers).map(|(token, answered)| Reply {
            answer: answered
                .map_err(|failure| failure.into_outcome(&token.resource))
                .and_then(|answered| read(&token.resource, answered)),
            is_doubtful,
        });
        replies.collect()
    }

    async fn run_one(&self, token: &FencingToken, call: Cmd) -> Reply {
        let replies = self.run(std::slice::from_ref(token), vec![call]).await;
        replies.into_iter().next().unwrap_or_else(|| Reply {
            answer: Err(CheckpointError::unknown(Reason::Missing)),
            is_doubtful: true,
        })
    }

    async fn replace(
        &self,
        token: &FencingToken,
        presented: (Sequence, WriteId),
        call: Cmd,
    ) -> Result<(), CheckpointError> {
        replaced(token, presented, self.run_one(token, call).await)
    }

    async fn read_values(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, CheckpointError> {
        self.connections
            .read(commands)
            .await
            .map_err(Failure::into_unavailable)
    }

    /// Reads what belongs to a resource.
    async fn read_one(&self, resource: &Resource, command: Cmd) -> Result<Value, CheckpointError> {
        let values = self.connections.read(vec![command]).await;
        let value = values
            .map_err(|failure| failure.into_read_outcome(resource))?
            .pop();
        value.ok_or_else(|| CheckpointError::unavailable(Reason::Missing))
    }
}

/// What the script has done, as far as it is known.
struct Reply {
    /// Beside it, why its effect may yet be lost.
    answer: Result<(Answer, Option<Reason>), CheckpointError>,
    /// Whether the call may have had an effect before it was answered.
    is_doubtful: bool,
}

impl Reply {
    /// Judges what the script has found, as long as nothing is in doubt: the write may have landed when
    /// the call was sent first, and the fence have risen since.
    fn admitted(
        self,
        admit: impl FnOnce(&Answer) -> Result<(), CheckpointError>,
    ) -> Result<Answer, CheckpointError> {
        let admitted = self.answer.and_then(|(answer, short)| {
            admit(&answer)?;
            short.map_or(Ok(answer), |short| Err(CheckpointError::unknown(short)))
        });
        if self.is_doubtful {
            return admitted.map_err(CheckpointError::in_doubt);
        }
        admitted
    }
}

fn read(
    resource: &Resource,
    answered: Answered,
) -> Result<(Answer, Option<Reason>), CheckpointError> {
    let answer =
        Answer::read(answered.value).map_err(|error| CheckpointError::corrupt(resource, error))?;
    Ok((answer, answered.short))
}

/// Works out what the answer to a write or deletion says.
fn replaced(
    token: &FencingToken,
    presented: (Sequence, WriteId),
    reply: Reply,
) -> Result<(), CheckpointError> {
    reply.admitted(|answer| {
        let before = answer.before;
        let admission = admit_write(before.as_ref().map(|state| &state.fence), token)
            .and_then(|()| admit_sequence(before.and_then(|state| state.latest), presented))
            .map_err(|refusal| CheckpointError::refused(token, refusal))?;
        agreed(token, answer.changed, admission == SequenceAdmission::New)
    })?;
    Ok(())
}

/// Works out what a seal's answer says.
fn sealed(token: &FencingToken, reply: Reply) -> Result<Option<Checkpoint>, CheckpointError> {
    let answer = reply.admitted(|answer| {
        let fence = answer.before.map(|state| state.fence);
        let admission = admit_seal(fence.as_ref(), token)
            .map_err(|refusal| CheckpointError::refused(token, refusal))?;
        agreed(token, answer.changed, admission == SealAdmission::Raise)
    })?;
    let Some(data) = answer.data else {
        return Ok(None);
    };
    let record =
        Record::decode(data).map_err(|error| CheckpointError::corrupt(&token.resource, error))?;
    if record.fence.epoch > token.epoch {
        return Err(CheckpointError::corrupt(
            &token.resource,
            answer::AnswerError::AboveFence,
        ));
    }
    Ok(record.checkpoint)
}

/// Checks that the script did what the rule says. It repeats the rule in another language; should the
/// two ever differ, nobody may rely on the answer.
fn agreed(token: &FencingToken, changed: bool, admitted: bool) -> Result<(), CheckpointError> {
    if changed == admitted {
        return Ok(());
    }
    Err(CheckpointError::corrupt(
        &token.resource,
        answer::AnswerError::Disagrees,
    ))
}

#[async_trait]
impl CheckpointStore for RedisStore {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        sealed(token, self.run_one(token, self.seal_call(token)).await)
    }

    async fn seal_many(
        &self,
        tokens: &[FencingToken],
    ) -> Vec<Result<Option<Checkpoint>, CheckpointError>> {
        let mut sealed_all = Vec::with_capacity(tokens.len());
        for tokens in tokens.chunks(SEALS_IN_PIPELINE) {
            let calls = tokens.iter().map(|token| self.seal_call(token)).collect();
            let replies = tokens.iter().zip(self.run(tokens, calls).await);
            sealed_all.extend(replies.map(|(token, reply)| sealed(token, reply)));
        }
        sealed_all
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        write.check_size(self.max_value_bytes())?;
        let presented = (write.sequence, write.write_id);
        let record = Record {
            fence: Fence::from(token),
            latest: Some(presented),
            checkpoint: Some(Checkpoint::of(token, write)),
        };
        let mut call = self.call("write", token);
        call.arg(answer::digits(presented.0.get()))
            .arg(presented.1.to_string())
            .arg(&record.encode()[..]);
        self.replace(token, presented, call).await
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        let mut command = ::redis::cmd("GET");
        command.arg(self.data_key(resource));
        let value = self.read_one(resource, command).await?;
        let data =
            answer::data(value).map_err(|error| CheckpointError::corrupt(resource, error))?;
        let record = data.map(Record::decode).transpose();
        let record = record.map_err(|error| CheckpointError::corrupt(resource, error))?;
        Ok(record.and_then(|record| record.checkpoint))
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        let command = self.fence_command(resource);
        let value = self.read_one(resource, command).await?;
        answer::fence(value).map_err(|error| CheckpointError::corrupt(resource, error))
    }

    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        let presented = (deletion.sequence, deletion.write_id);
        let mut call = self.call("delete", token);
        call.arg(answer::digits(presented.0.get()))
            .arg(presented.1.to_string());
        self.replace(token, presented, call).await
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        self.connections
            .probe()
            .await
            .map_err(Failure::into_unavailable)
    }

    fn max_value_bytes(&self) -> usize {
        self.options.max_value_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(epoch: u64) -> FencingToken {
        format!("shard/orders/7@{epoch}:00000000000000000000000000c0ffee/{epoch}")
            .parse()
            .unwrap()
    }

    /// What the script finds where the fence is of `epoch`, with a latest write, and changes nothing.
    fn kept(epoch: u64, sequence: u64, data: Option<&'static str>) -> Answer {
        Answer {
            changed: false,
            before: Some(answer::State {
                fence: Fence::from(&token(epoch)),
                latest: Some((Sequence::new(sequence).unwrap(), WriteId::new(1))),
            }),
            data: data.map(Into::into),
        }
    }

    fn reply(answer: Result<Answer, CheckpointError>, is_doubtful: bool) -> Reply {
        Reply {
            answer: answer.map(|answer| (answer, None)),
            is_doubtful,
        }
    }

    #[test]
    fn a_call_that_was_sent_twice_is_never_said_to_have_changed_nothing() {
        let presented = (Sequence::FIRST, WriteId::new(1));
        let resource = &token(7).resource;
        // The fence has risen since, the owner has gone on, the key was damaged, the second was
        // refused, the server is another by now.
        let wrong = || {
            [
                Ok(kept(8, 1, None)),
                Ok(kept(7, 2, None)),
                Err(CheckpointError::corrupt(
                    resource,
                    answer::AnswerError::Expiring,
                )),
                Err(CheckpointError::unavailable("OOM")),
                Err(CheckpointError::unsupported("it is a replica")),
            ]
        };
        for answer in wrong() {
            let shown = format!("{answer:?}");
            let outcome = replaced(&token(7), presented, reply(answer, true)).unwrap_err();
            assert!(outcome.may_have_happened(), "{shown}: {outcome:?}");
        }
        for answer in wrong() {
            let shown = format!("{answer:?}");
            let outcome = replaced(&token(7), presented, reply(answer, false)).unwrap_err();
            assert!(!outcome.may_have_happened(), "{shown}: {outcome:?}");
        }
        // What is there is no less there.
        let there = reply(Ok(kept(7, 1, None)), true);
        replaced(&token(7), presented, there).unwrap();
    }

    #[test]
    fn data_that_cannot_be_read_is_corrupt_when_the_fence_is_known_to_be_up() {
        for is_doubtful in [false, true] {
            let reply = reply(Ok(kept(7, 1, Some("nonsense"))), is_doubtful);
            let outcome = sealed(&token(7), reply).unwrap_err();
            assert!(
                matches!(outcome, CheckpointError::Corrupt { .. }),
                "{outcome:?}"
            );
        }
    }
}
