//! The configuration file of a node: what may differ from node to node.
//!
//! What all nodes must agree on about a group is policy and lives in the log. The file is TOML, an
//! unknown key is an error, and all values are checked before anything is opened, alone and against
//! each other. Every key is described in `docs/config.md`; a test compares the two.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tenure_ownership::ids::ClusterId;
use tenure_ownership::policy::bounds;

use crate::history::HistoryOptions;
use crate::telemetry::{self, LogFormat};

/// Settings of one node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Folder of everything that must survive the process. Created if it does not exist.
    pub data_dir: PathBuf,
    /// Who the data folder must belong to; `None` accepts what it says.
    pub identity: Option<ExpectedIdentity>,
    /// For workers, routers and operators: the gRPC services.
    pub client: Port,
    /// For the other nodes.
    pub peer: Port,
    /// For people and scrapers; `None` serves no HTTP.
    pub http: Option<Port>,
    /// Timing of the cluster. The same on every node.
    #[serde(default)]
    pub raft: RaftConfig,
    /// Bounds of what clients may ask for.
    #[serde(default)]
    pub limits: Limits,
    /// How much memory and how many threads the database takes.
    #[serde(default)]
    pub storage: StorageConfig,
    /// What happened, kept for people.
    #[serde(default)]
    pub history: HistoryConfig,
    /// Log lines.
    #[serde(default)]
    pub log: LogConfig,
}

/// Which node of which cluster a data folder must belong to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedIdentity {
    /// The cluster: 32 hexadecimal digits.
    pub cluster_id: String,
    /// The node's id in it, from 1.
    pub node_id: u64,
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// `host:port` under which others reach it; `None` for `listen` itself.
    pub advertise: Option<String>,
    /// Encryption; `None` for plain TCP.
    pub tls: Option<TlsConfig>,
}

/// Files for TLS, all PEM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// Certificate chain of the node, its own certificate first.
    pub cert: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Certificates that sign those of the other side, which must then present one (mutual TLS).
    /// `None` asks for none; a port for peers always needs it.
    pub ca: Option<PathBuf>,
}

/// Timing of elections and heartbeats, and the length of the log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RaftConfig {
    /// How often a leader is heard of.
    #[serde(with = "humantime_serde")]
    pub heartbeat_interval: Duration,
    /// Shortest silence of a leader after which an election begins.
    #[serde(with = "humantime_serde")]
    pub election_timeout_min: Duration,
    /// Longest such silence.
    #[serde(with = "humantime_serde")]
    pub election_timeout_max: Duration,
    /// Log entries after which a snapshot is made.
    pub snapshot_entries: u64,
    /// Log entries kept although a snapshot contains them.
    pub kept_entries: u64,
}

impl Default for RaftConfig {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_millis(100),
            election_timeout_min: Duration::from_millis(600),
            election_timeout_max: Duration::from_millis(1200),
            snapshot_entries: 100_000,
            kept_entries: 20_000,
        }
    }
}

/// Bounds of what clients may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Shortest session ttl that a policy or a worker may ask for.
    #[serde(with = "humantime_serde")]
    pub ttl_min: Duration,
    /// Longest such ttl.
    #[serde(with = "humantime_serde")]
    pub ttl_max: Duration,
    /// Time for a request that names no deadline.
    #[serde(with = "humantime_serde")]
    pub request_timeout: Duration,
    /// Longest time for a request, whatever deadline it names.
    #[serde(with = "humantime_serde")]
    pub request_timeout_max: Duration,
    /// Events kept for watchers that resume.
    pub watch_history_events: usize,
    /// Watchers connected at one time.
    pub watchers_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ttl_min: *bounds::TTL.start(),
            ttl_max: *bounds::TTL.end(),
            request_timeout: Duration::from_secs(10),
            request_timeout_max: Duration::from_secs(60),
            watch_history_events: 100_000,
            watchers_max: 20_000,
        }
    }
}

/// How much memory and how many threads the database takes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageConfig {
    /// Size at which a write buffer goes to disk, in bytes. There are two kinds of them.
    pub write_buffer_bytes: usize,
    /// Threads that flush and compact.
    pub background_jobs: u16,
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            write_buffer_bytes: 16 << 20,
            background_jobs: 2,
        }
    }
}

/// What happened, kept for people.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistoryConfig {
    /// How long it is kept; zero keeps none.
    #[serde(with = "humantime_serde")]
    pub keep: Duration,
    /// Events kept, at most.
    pub events_max: u64,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        let HistoryOptions { keep, events_max } = HistoryOptions::default();
        Self { keep, events_max }
    }
}

/// Log lines.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// A level, or levels per module, such as `info,tenure_coordinator::watch=debug`.
    pub level: String,
    /// For people or for programs.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::default(),
        }
    }
}

/// Why a configuration cannot be used. One line, naming the file or the key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("config {} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is not TOML, or has an unknown key, a missing one or one of the wrong type.
    #[error("config line {line}{}: {message}", shown(.text))]
    Syntax {
        /// Line of the problem, from 1.
        line: usize,
        /// The line, which names the key; may be empty.
        text: String,
        /// What is wrong with it.
        message: String,
    },
    /// A value is out of bounds or contradicts another one.
    #[error("config {key}: {problem}")]
    Value {
        /// Name of the key with its section.
        key: &'static str,
        /// What is wrong with the value.
        problem: String,
    },
}

fn shown(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(" ({text})")
    }
}

fn value(key: &'static str, problem: impl Into<String>) -> ConfigError {
    ConfigError::Value {
        key,
        problem: problem.into(),
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first problem found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text)
    }

    /// Reads and checks the text of a file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first problem found.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        config.validate()?;
        Ok(config)
    }

    /// Returns the settings of a node for trying things out: it listens on this machine only.
    #[must_use]
    pub fn local(data_dir: PathBuf, ports: LocalPorts) -> Self {
        let port = |listen| Port {
            listen,
            advertise: None,
            tls: None,
        };
        Self {
            data_dir,
            identity: None,
            client: port(ports.client),
            peer: port(ports.peer),
            http: Some(port(ports.http)),
            raft: RaftConfig::default(),
            limits: Limits::default(),
            storage: StorageConfig::default(),
            history: HistoryConfig::default(),
            log: LogConfig::default(),
        }
    }

    /// Checks every value, alone and against the others.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Value`] for the first problem found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.data_dir.as_os_str().is_empty() {
            return Err(value("data_dir", "must not be empty"));
        }
        if let Some(identity) = &self.identity {
            identity.validate()?;
        }
        self.client.validate("client.advertise")?;
        self.peer.validate("peer.advertise")?;
        if self.peer.tls.as_ref().is_some_and(|tls| tls.ca.is_none()) {
            return Err(value(
                "peer.tls.ca",
                "is required: nodes always check each other",
            ));
        }
        if let Some(http) = &self.http {
            http.validate("http.advertise")?;
        }
        self.raft.validate()?;
        self.limits.validate()?;
        self.storage.validate()?;
        self.history.validate()?;
        telemetry::parse_filter(&self.log.level)
            .map_err(|error| value("log.level", error.to_string()))?;
        Ok(())
    }
}

/// Where [`Config::local`] listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalPorts {
    /// For clients.
    pub client: SocketAddr,
    /// For peers, of which there are none.
    pub peer: SocketAddr,
    /// For HTTP.
    pub http: SocketAddr,
}

impl ExpectedIdentity {
    fn validate(&self) -> Result<(), ConfigError> {
        if self.node_id == 0 {
            return Err(value("identity.node_id", "is 0, ids begin with 1"));
        }
        self.cluster().map(|_| ())
    }

    /// Returns the cluster.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Value`] if it is not 32 hexadecimal digits.
    pub fn cluster(&self) -> Result<ClusterId, ConfigError> {
        let digits = self.cluster_id.len() == 32
            && self.cluster_id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(&self.cluster_id, 16)
            .ok()
            .filter(|_| digits);
        number
            .map(ClusterId)
            .ok_or_else(|| value("identity.cluster_id", "is not 32 hexadecimal digits"))
    }
}

impl Port {
    fn validate(&self, key: &'static str) -> Result<(), ConfigError> {
        match &self.advertise {
            Some(address) if !is_host_and_port(address) => {
                Err(value(key, format!("{address:?} is not host:port")))
            }
            None if self.listen.ip().is_unspecified() => Err(value(
                key,
                format!("is required: nobody can connect to {}", self.listen),
            )),
            _ => Ok(()),
        }
    }
}

/// Tells whether a text is `host:port` with a port others can connect to.
pub(crate) fn is_host_and_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && !host.contains(|c: char| c.is_whitespace() || c == '/')
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

fn within<T: PartialOrd + std::fmt::Debug>(
    key: &'static str,
    given: T,
    allowed: &RangeInclusive<T>,
) -> Result<(), ConfigError> {
    if allowed.contains(&given) {
        return Ok(());
    }
    let (min, max) = (allowed.start(), allowed.end());
    Err(value(
        key,
        format!("is {given:?}, allowed is {min:?} to {max:?}"),
    ))
}

impl RaftConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let (ms, minute) = (Duration::from_millis, Duration::from_secs(60));
        within(
            "raft.heartbeat_interval",
            self.heartbeat_interval,
            &(ms(10)..=minute),
        )?;
        within(
            "raft.election_timeout_min",
            self.election_timeout_min,
            &(ms(50)..=minute),
        )?;
        within(
            "raft.election_timeout_max",
            self.election_timeout_max,
            &(ms(75)..=2 * minute),
        )?;
        if self.election_timeout_min <= 2 * self.heartbeat_interval {
            let least = 2 * self.heartbeat_interval;
            let problem = format!(
                "is {:?}, must be above twice raft.heartbeat_interval ({least:?}), so that one \
                 lost heartbeat elects nobody",
                self.election_timeout_min
            );
            return Err(value("raft.election_timeout_min", problem));
        }
        if self.election_timeout_max < self.election_timeout_min * 3 / 2 {
            let least = self.election_timeout_min * 3 / 2;
            let problem = format!(
                "is {:?}, must be at least 1.5 times raft.election_timeout_min ({least:?}), so \
                 that two nodes rarely stand at once",
                self.election_timeout_max
            );
            return Err(value("raft.election_timeout_max", problem));
        }
        within(
            "raft.snapshot_entries",
            self.snapshot_entries,
            &(100..=100_000_000),
        )?;
        within("raft.kept_entries", self.kept_entries, &(0..=100_000_000))
    }
}

impl Limits {
    fn validate(&self) -> Result<(), ConfigError> {
        within("limits.ttl_min", self.ttl_min, &bounds::TTL)?;
        within("limits.ttl_max", self.ttl_max, &bounds::TTL)?;
        if self.ttl_max < self.ttl_min {
            let problem = format!(
                "is {:?}, below limits.ttl_min ({:?})",
                self.ttl_max, self.ttl_min
            );
            return Err(value("limits.ttl_max", problem));
        }
        let timeouts = Duration::from_millis(100)..=Duration::from_secs(600);
        within("limits.request_timeout", self.request_timeout, &timeouts)?;
        within(
            "limits.request_timeout_max",
            self.request_timeout_max,
            &timeouts,
        )?;
        if self.request_timeout_max < self.request_timeout {
            let problem = format!(
                "is {:?}, below limits.request_timeout ({:?})",
                self.request_timeout_max, self.request_timeout
            );
            return Err(value("limits.request_timeout_max", problem));
        }
        within(
            "limits.watch_history_events",
            self.watch_history_events,
            &(1_000..=10_000_000),
        )?;
        within("limits.watchers_max", self.watchers_max, &(1..=1_000_000))
    }
}

impl StorageConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let buffers = 1 << 20..=4 << 30;
        within(
            "storage.write_buffer_bytes",
            self.write_buffer_bytes,
            &buffers,
        )?;
        within("storage.background_jobs", self.background_jobs, &(1..=64))
    }
}

impl HistoryConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let day = Duration::from_secs(24 * 3600);
        if !self.keep.is_zero() {
            within(
                "history.keep",
                self.keep,
                &(Duration::from_secs(60)..=3650 * day),
            )?;
        }
        within(
            "history.events_max",
            self.events_max,
            &(1_000..=10_000_000_000),
        )
    }
}

/// Puts a parser's error into one line.
fn syntax(text: &str, error: &toml::de::Error) -> ConfigError {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let before = text.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let shown = text.lines().nth(line - 1).unwrap_or_default().trim();
    ConfigError::Syntax {
        line,
        text: shown.chars().take(80).collect(),
        message: error.message().replace('\n', ", "),
    }
}

#[cfg(test)]
mod tests;
