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
    Fence, Refusal, SealAdmission, SequenceAdmission, admit_seal, admit_sequence, admit_write,
};
use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::{CheckpointError, StoreError};
use crate::layout;
use crate::record::Record;
use crate::resource::Resource;
use crate::sequence::{Sequence, WriteId};
use crate::store::CheckpointStore;
use crate::token::FencingToken;

pub use options::{RedisDurability, RedisReplicas, RedisStoreOptions};

use answer::Answer;
use connections::Connections;
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
/// `Corrupt`, and so is a server that may evict it (`maxmemory-policy allkeys-*`). Epochs and
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
        options.check().map_err(unsupported)?;
        let connections = Connections::new(url, &options).map_err(unsupported)?;
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
                let fence = answer::fence(value).map_err(|error| corrupt(resource, error))?;
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
            let value = value.ok_or_else(|| unavailable(Reason::Missing))?;
            let (next, keys): (u64, Vec<Vec<u8>>) =
                ::redis::from_redis_value(value).map_err(unavailable)?;
            for key in keys {
                let name = key
                    .strip_prefix(begin.as_bytes())
                    .and_then(|rest| rest.strip_suffix(b"}"));
                let Some(name) = name else { continue };
                let resource = layout::resource(name).map_err(unavailable)?;
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
    async fn run(
        &self,
        tokens: &[FencingToken],
        calls: Vec<Cmd>,
    ) -> Vec<Result<Reply, CheckpointError>> {
        let answers = self.connections.run(calls).await;
        let replies = tokens.iter().zip(answers).map(|(token, answered)| {
            let resource = &token.resource;
            let answered = answered.map_err(|failure| failure.into_outcome(resource))?;
            let answer = Answer::read(answered.value);
            Ok(Reply {
                answer: answer.map_err(|error| corrupt(resource, error))?,
                doubt: answered.doubt,
                short: answered.short,
            })
        });
        replies.collect()
    }

    async fn run_one(&self, token: &FencingToken, call: Cmd) -> Result<Reply, CheckpointError> {
        let replies = self.run(std::slice::from_ref(token), vec![call]).await;
        let nothing = || Err(unknown(Reason::Missing));
        replies.into_iter().next().unwrap_or_else(nothing)
    }

    async fn replace(
        &self,
        token: &FencingToken,
        presented: (Sequence, WriteId),
        call: Cmd,
    ) -> Result<(), CheckpointError> {
        let reply = self.run_one(token, call).await?;
        let (answer, doubt) = (reply.answer, reply.doubt);
        let before = answer.before;
        let admission = admit_write(before.as_ref().map(|state| &state.fence), token)
            .and_then(|()| admit_sequence(before.and_then(|state| state.latest), presented))
            .map_err(|refusal| refused(token, refusal, doubt))?;
        agreed(token, answer.changed, admission == SequenceAdmission::New)?;
        reply.short.map_or(Ok(()), |short| Err(unknown(short)))
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
        value.ok_or_else(|| unavailable(Reason::Missing))
    }
}

/// What the script has done, as far as it is known.
struct Reply {
    answer: Answer,
    /// Why the call may have had an effect before it was answered.
    doubt: Option<Reason>,
    /// Why its effect may yet be lost.
    short: Option<Reason>,
}

/// The outcome of a refusal. If the call was sent before, not even that is certain: the write may have
/// landed then, and the fence risen since.
fn refused(token: &FencingToken, refusal: Refusal, doubt: Option<Reason>) -> CheckpointError {
    match doubt {
        Some(reason) => unknown(reason),
        None => CheckpointError::refused(token, refusal),
    }
}

/// Works out what a seal's answer says.
fn sealed(token: &FencingToken, reply: Reply) -> Result<Option<Checkpoint>, CheckpointError> {
    let (answer, doubt) = (reply.answer, reply.doubt);
    let fence = answer.before.map(|state| state.fence);
    let admission =
        admit_seal(fence.as_ref(), token).map_err(|refusal| refused(token, refusal, doubt))?;
    agreed(token, answer.changed, admission == SealAdmission::Raise)?;
    if let Some(short) = reply.short {
        return Err(unknown(short));
    }
    let Some(data) = answer.data else {
        return Ok(None);
    };
    let record = Record::decode(data).map_err(|error| corrupt(&token.resource, error))?;
    if record.fence.epoch > token.epoch {
        return Err(corrupt(&token.resource, answer::AnswerError::AboveFence));
    }
    Ok(record.checkpoint)
}

/// Checks that the script did what the rule says. It repeats the rule in another language; should the
/// two ever differ, nobody may rely on the answer.
fn agreed(token: &FencingToken, changed: bool, admitted: bool) -> Result<(), CheckpointError> {
    if changed == admitted {
        return Ok(());
    }
    Err(corrupt(&token.resource, answer::AnswerError::Disagrees))
}

#[async_trait]
impl CheckpointStore for RedisStore {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        sealed(token, self.run_one(token, self.seal_call(token)).await?)
    }

    async fn seal_many(
        &self,
        tokens: &[FencingToken],
    ) -> Vec<Result<Option<Checkpoint>, CheckpointError>> {
        let mut sealed_all = Vec::with_capacity(tokens.len());
        for tokens in tokens.chunks(SEALS_IN_PIPELINE) {
            let calls = tokens.iter().map(|token| self.seal_call(token)).collect();
            let answers = self.run(tokens, calls).await;
            let answers = tokens.iter().zip(answers);
            sealed_all.extend(answers.map(|(token, answer)| sealed(token, answer?)));
        }
        sealed_all
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        let max_bytes = self.options.max_value_bytes;
        if write.data.len() > max_bytes {
            return Err(CheckpointError::TooLarge {
                length_bytes: write.data.len(),
                max_bytes,
            });
        }
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
        let data = answer::data(value).map_err(|error| corrupt(resource, error))?;
        let record = data.map(Record::decode).transpose();
        let record = record.map_err(|error| corrupt(resource, error))?;
        Ok(record.and_then(|record| record.checkpoint))
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        let command = self.fence_command(resource);
        let value = self.read_one(resource, command).await?;
        answer::fence(value).map_err(|error| corrupt(resource, error))
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

fn unavailable(source: impl Into<StoreError>) -> CheckpointError {
    CheckpointError::Unavailable {
        source: source.into(),
    }
}

fn unknown(source: impl Into<StoreError>) -> CheckpointError {
    CheckpointError::OutcomeUnknown {
        source: source.into(),
    }
}

fn unsupported(source: impl Into<StoreError>) -> CheckpointError {
    CheckpointError::Unsupported {
        source: source.into(),
    }
}

fn corrupt(
    resource: &Resource,
    source: impl std::error::Error + Send + Sync + 'static,
) -> CheckpointError {
    CheckpointError::Corrupt {
        resource: resource.clone(),
        source: source.into(),
    }
}
