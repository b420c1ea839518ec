//! Connections to the server, shared by all calls.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as BlockingMutex, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, RedisResult, Script, TlsCertificates,
    Value,
};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::failure::{Failure, Reason};
use super::options::{RedisDurability, RedisReplicas, RedisStoreOptions};
use super::server::{self, Info};

/// Fence and data of one resource, in one step.
const SCRIPT: &str = include_str!("fence.lua");

/// The longest pause before a call whose connection broke is tried once more, so that those of all
/// workers do not arrive at the same time.
const PAUSE_MS_MAX: u64 = 64;

pub(super) struct Connections {
    client: Client,
    script: Script,
    /// Each is made when it is first needed, and again after it has broken. Locked while it is made:
    /// one call makes it, the others wait for it, each up to its own deadline.
    slots: Vec<Mutex<Option<Shared>>>,
    next: AtomicUsize,
    deadline: Duration,
    durability: RedisDurability,
    replicas: Option<RedisReplicas>,
}

/// A connection that many calls use at the same time.
#[derive(Clone)]
struct Shared {
    connection: MultiplexedConnection,
    /// Set by whoever finds it broken: the next call makes another.
    broken: Arc<AtomicBool>,
}

/// What calls of the script were answered.
pub(super) struct Ran {
    /// One for each.
    pub(super) answers: Vec<Result<Answered, Failure>>,
    /// Whether the calls may have had an effect before they were answered: they were sent twice.
    pub(super) is_doubtful: bool,
}

/// What a call of the script was answered.
pub(super) struct Answered {
    pub(super) value: Value,
    /// Why its effect, if it has one, may yet be lost: too few replicas have it.
    pub(super) short: Option<Reason>,
}

/// How far a call has come: the mark of the connection it was sent on, `None` until it is sent.
#[derive(Default)]
struct Progress {
    sent_on: BlockingMutex<Option<Arc<AtomicBool>>>,
}

impl Progress {
    fn sent_on(&self, shared: &Shared) {
        let mut sent_on = self.sent_on.lock().unwrap_or_else(PoisonError::into_inner);
        *sent_on = Some(shared.broken.clone());
    }

    /// Says what became of a call that has come to its deadline.
    fn late(&self, deadline: Duration) -> Failure {
        let sent_on = self.sent_on.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(broken) = sent_on.as_ref() else {
            return Failure::Nothing(Reason::Late(deadline));
        };
        // A connection whose other end is gone without a word never fails by itself.
        broken.store(true, Ordering::Relaxed);
        Failure::Unknown(Reason::Late(deadline))
    }
}

impl Connections {
    pub(super) fn new(url: &str, options: &RedisStoreOptions) -> Result<Self, RedisError> {
        let client = match &options.root_certificate_pem {
            None => Client::open(url)?,
            Some(root) => {
                let certificates = TlsCertificates {
                    client_tls: None,
                    root_cert: Some(root.clone()),
                };
                Client::build_with_tls(url, certificates)?
            }
        };
        Ok(Self {
            client,
            script: Script::new(SCRIPT),
            slots: (0..options.connections).map(|_| Mutex::default()).collect(),
            next: AtomicUsize::new(0),
            deadline: options.deadline,
            durability: options.durability,
            replicas: options.replicas,
        })
    }

    /// Begins a call of the script.
    pub(super) fn call(&self) -> Cmd {
        let mut call = ::redis::cmd("EVALSHA");
        call.arg(self.script.get_hash());
        call
    }

    /// Runs calls of the script; one answer for each.
    ///
    /// They may be run twice: each says which owner, sequence and write it is for, and the second of
    /// two equal ones changes nothing.
    pub(super) async fn run(&self, calls: Vec<Cmd>) -> Ran {
        let count = calls.len();
        let mut pipeline = Pipeline::with_capacity(count + 1);
        pipeline.ignore_errors();
        for call in calls {
            pipeline.add_command(call);
        }
        if let Some(replicas) = self.replicas {
            let patience_ms = u64::try_from(replicas.patience.as_millis()).unwrap_or(u64::MAX);
            pipeline.cmd("WAIT").arg(replicas.count).arg(patience_ms);
        }
        let progress = Progress::default();
        let mut is_doubtful = false;
        let answers = self.run_twice(&pipeline, &progress, &mut is_doubtful);
        let answers = timeout(self.deadline, answers).await;
        let answers = answers.unwrap_or_else(|_| Err(progress.late(self.deadline)));
        let answers = match answers {
            Ok(values) => self.judge(values, count),
            Err(failure) => (0..count).map(|_| Err(failure.clone())).collect(),
        };
        Ran {
            answers,
            is_doubtful,
        }
    }

    /// Runs commands that change nothing; one value for each.
    pub(super) async fn read(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, Failure> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        pipeline.ignore_errors();
        for command in commands {
            pipeline.add_command(command);
        }
        let progress = Progress::default();
        // What changes nothing leaves nothing in doubt.
        let mut is_doubtful = false;
        let values = self.run_twice(&pipeline, &progress, &mut is_doubtful);
        let values = timeout(self.deadline, values).await;
        let values = values.unwrap_or_else(|_| Err(progress.late(self.deadline)))?;
        let values = values.into_iter();
        values
            .map(|value| value.map_err(Failure::of_request))
            .collect()
    }

    /// Checks that the server can keep a fence.
    pub(super) async fn probe(&self) -> Result<(), Failure> {
        let progress = Progress::default();
        let probed = timeout(self.deadline, async {
            let mut shared = self.take().await?;
            progress.sent_on(&shared);
            let checked = self.check(&mut shared.connection).await;
            if checked.is_err() {
                shared.broken.store(true, Ordering::Relaxed);
            }
            checked
        });
        probed
            .await
            .unwrap_or_else(|_| Err(progress.late(self.deadline)))
    }

    /// Runs a pipeline, and once more if its connection broke: then the first time may have had an
    /// effect.
    async fn run_twice(
        &self,
        pipeline: &Pipeline,
        progress: &Progress,
        is_doubtful: &mut bool,
    ) -> Result<Vec<RedisResult<Value>>, Failure> {
        match self.run_once(pipeline, progress).await {
            Err(failure) if failure.is_broken_connection() => *is_doubtful = true,
            settled => return settled,
        }
        tokio::time::sleep(pause()).await;
        self.run_once(pipeline, progress).await
    }

    async fn run_once(
        &self,
        pipeline: &Pipeline,
        progress: &Progress,
    ) -> Result<Vec<RedisResult<Value>>, Failure> {
        let values = self.exchange(pipeline, progress).await?;
        if !values.iter().any(|value| has_code(value, "NOSCRIPT")) {
            return Ok(values);
        }
        // A server that was restarted, or whose scripts were flushed. What had it done nothing.
        let mut load = Pipeline::with_capacity(1);
        load.cmd("SCRIPT").arg("LOAD").arg(SCRIPT);
        load.ignore_errors();
        self.exchange(&load, progress).await?;
        self.exchange(pipeline, progress).await
    }

    /// Sends commands; one value or error for each.
    async fn exchange(
        &self,
        pipeline: &Pipeline,
        progress: &Progress,
    ) -> Result<Vec<RedisResult<Value>>, Failure> {
        let mut shared = self.take().await.map_err(Failure::for_a_call)?;
        progress.sent_on(&shared);
        let values: RedisResult<Vec<RedisResult<Value>>> =
            pipeline.query_async(&mut shared.connection).await;
        let broken = match &values {
            // Behind the same name there may be another server by now, which takes writes.
            Ok(values) => values.iter().any(|value| has_code(value, "READONLY")),
            Err(error) => error.is_io_error() || error.is_unrecoverable_error(),
        };
        if broken {
            shared.broken.store(true, Ordering::Relaxed);
        }
        values.map_err(Failure::of_request)
    }

    /// Judges the answers to calls, and whether enough replicas have them.
    fn judge(
        &self,
        values: Vec<RedisResult<Value>>,
        count: usize,
    ) -> Vec<Result<Answered, Failure>> {
        let mut values = values.into_iter();
        let answers: Vec<RedisResult<Value>> = values.by_ref().take(count).collect();
        let short = self
            .replicas
            .and_then(|replicas| acknowledged(values.next(), replicas).err());
        let answered = |value: RedisResult<Value>| match value {
            Ok(value) => Ok(Answered {
                value,
                short: short.clone(),
            }),
            Err(error) => Err(Failure::of_request(error)),
        };
        let mut answers: Vec<Result<Answered, Failure>> =
            answers.into_iter().map(answered).collect();
        // The library matches answers with requests by their number, so none is missing.
        answers.resize_with(count, || Err(Failure::Unknown(Reason::Missing)));
        answers
    }

    /// Takes a connection, in turn. Fails only before anything was sent on it.
    async fn take(&self) -> Result<Shared, Failure> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        let mut slot = self.slots[turn].lock().await;
        if let Some(shared) = &*slot
            && !shared.broken.load(Ordering::Relaxed)
        {
            return Ok(shared.clone());
        }
        let made = self.connect().await;
        // What the check of a new connection did not learn does not make the call's outcome unknown.
        let shared = made.map_err(|failure| match failure {
            Failure::Unknown(reason) => Failure::Nothing(reason),
            failure => failure,
        })?;
        *slot = Some(shared.clone());
        Ok(shared)
    }

    async fn connect(&self) -> Result<Shared, Failure> {
        // The deadline is that of the call.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let connecting = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting
            .await
            .map_err(|error| Failure::Nothing(error.into()))?;
        // Also later: it may be another server, or have been started with another configuration.
        self.check(&mut connection).await?;
        Ok(Shared {
            connection,
            broken: Arc::default(),
        })
    }

    async fn check(&self, connection: &mut MultiplexedConnection) -> Result<(), Failure> {
        let info: RedisResult<String> = ::redis::cmd("INFO").query_async(connection).await;
        let info = info.map_err(Failure::of_request)?;
        Info::read(&info)
            .check(self.durability)
            .map_err(Failure::of_server)?;
        if self.durability == RedisDurability::AsConfigured {
            return Ok(());
        }
        let mut setting = ::redis::cmd("CONFIG");
        setting.arg("GET").arg("appendfsync");
        let answer: RedisResult<Value> = setting.query_async(connection).await;
        let answer = match answer {
            Ok(answer) => Some(answer),
            Err(error) if error.is_io_error() => return Err(Failure::of_request(error)),
            // Servers that belong to somebody else do not let themselves be asked.
            Err(_) => None,
        };
        server::check_sync(answer).map_err(Failure::of_server)
    }
}

fn has_code(value: &RedisResult<Value>, code: &str) -> bool {
    value
        .as_ref()
        .is_err_and(|error| error.code() == Some(code))
}

/// Reads the answer to `WAIT`: the error says why too few replicas have what was done before it.
fn acknowledged(answer: Option<RedisResult<Value>>, replicas: RedisReplicas) -> Result<(), Reason> {
    let needed = replicas.count;
    let acknowledged = match answer {
        Some(Ok(Value::Int(count))) => u64::try_from(count).unwrap_or(0),
        Some(Ok(_)) | None => return Err(Reason::Missing),
        Some(Err(error)) => return Err(error.into()),
    };
    if acknowledged >= u64::from(needed) {
        return Ok(());
    }
    Err(Reason::Replicas {
        acknowledged,
        needed,
    })
}

/// Chooses a pause. The standard library's source of hash keys is random enough for that.
fn pause() -> Duration {
    Duration::from_millis(RandomState::new().hash_one(()) % PAUSE_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_replicas_are_noticed() {
        let replicas = RedisReplicas {
            count: 2,
            patience: Duration::from_secs(1),
        };
        assert!(acknowledged(Some(Ok(Value::Int(2))), replicas).is_ok());
        assert!(acknowledged(Some(Ok(Value::Int(3))), replicas).is_ok());
        for answer in [Some(Ok(Value::Int(1))), Some(Ok(Value::Nil)), None] {
            assert!(acknowledged(answer, replicas).is_err());
        }
    }

    #[test]
    fn a_call_is_late_without_effect_until_it_is_sent() {
        let late = Progress::default().late(Duration::from_secs(1));
        assert!(matches!(late, Failure::Nothing(Reason::Late(_))));
    }
}
