//! Reasons of errors: what a program reads to decide what to do next.
//!
//! Every error of a Tenure service carries a `google.rpc.ErrorInfo` with [`DOMAIN`], one of the
//! reasons below, and the metadata named there. The gRPC code says how to treat an error that one
//! does not know; the message is for people.

/// The domain of every `ErrorInfo` of a Tenure service.
pub const DOMAIN: &str = "tenure";

/// This node does not lead. Metadata: [`LEADER_ID`], [`LEADER_ADDRESS`], both absent while no leader
/// is known. Next: ask the leader.
pub const NOT_LEADER: &str = "NOT_LEADER";

/// Nothing happened: no quorum was reached, or the node is starting or stopping. Next: repeat.
pub const UNAVAILABLE: &str = "UNAVAILABLE";

/// It may have happened, or may still happen. Next: repeat it if that is safe.
pub const OUTCOME_UNKNOWN: &str = "OUTCOME_UNKNOWN";

/// A field of the request is not acceptable; `BadRequest` names it. Next: correct it.
pub const INVALID_ARGUMENT: &str = "INVALID_ARGUMENT";

/// The session has ended. Next: register anew, naming the first session of the process.
pub const SESSION_ENDED: &str = "SESSION_ENDED";

/// A newer process registered under the worker's name. Next: stop.
pub const REPLACED: &str = "REPLACED";

/// A newer stream of the same session was opened, so this one is over.
pub const STREAM_SUPERSEDED: &str = "STREAM_SUPERSEDED";

/// The session was registered by another process: its number alone does not give it away. Permission denied.
pub const WRONG_NONCE: &str = "WRONG_NONCE";

/// The group does not exist, or is being deleted.
pub const GROUP_NOT_FOUND: &str = "GROUP_NOT_FOUND";

/// The group exists already.
pub const GROUP_EXISTS: &str = "GROUP_EXISTS";

/// The command was made from a state that has changed since. Next: read again.
pub const STALE_EPOCH: &str = "STALE_EPOCH";

/// The tenure is over. Metadata: [`PRESENTED`], [`CURRENT`]. Next: stop working on the resource.
pub const FENCED: &str = "FENCED";

/// The epoch was granted but not sealed. Next: seal.
pub const NOT_SEALED: &str = "NOT_SEALED";

/// The epoch belongs to another owner. Next: stop.
pub const EPOCH_CONFLICT: &str = "EPOCH_CONFLICT";

/// The epoch was never granted to the owner. Next: stop.
pub const NEVER_GRANTED: &str = "NEVER_GRANTED";

/// The sequence belongs to other content or is below the latest. Metadata: [`PRESENTED`],
/// [`LATEST`]. Next: write at a higher sequence.
pub const SEQUENCE_REUSED: &str = "SEQUENCE_REUSED";

/// The value, or all values of the group together, would be too large. Metadata:
/// [`LENGTH_BYTES`], [`MAX_BYTES`]. Next: write less.
pub const TOO_LARGE: &str = "TOO_LARGE";

/// Something is used up: a quota of the cluster, or a limit of the node asked. Next: a person must
/// decide, or another node be asked.
pub const LIMIT_REACHED: &str = "LIMIT_REACHED";

/// All epochs of the shard were granted. Next: a person must look.
pub const EPOCH_EXHAUSTED: &str = "EPOCH_EXHAUSTED";

/// The cluster was initialised before.
pub const CLUSTER_EXISTS: &str = "CLUSTER_EXISTS";

/// The nodes of the cluster cannot be changed like that, or not now; the message says why.
pub const CLUSTER_CHANGE_REFUSED: &str = "CLUSTER_CHANGE_REFUSED";

/// What is stored is damaged. Next: a person must look.
pub const CORRUPT: &str = "CORRUPT";

/// Metadata: Raft id of the leader, decimal.
pub const LEADER_ID: &str = "leader_id";

/// Metadata: address of the leader for clients, "host:port".
pub const LEADER_ADDRESS: &str = "leader_address";

/// Metadata: the epoch or sequence that was presented, decimal.
pub const PRESENTED: &str = "presented";

/// Metadata: the epoch that is current, decimal.
pub const CURRENT: &str = "current";

/// Metadata: the latest sequence of the epoch, decimal.
pub const LATEST: &str = "latest";

/// Metadata: how many bytes were presented, decimal.
pub const LENGTH_BYTES: &str = "length_bytes";

/// Metadata: how many bytes are allowed, decimal.
pub const MAX_BYTES: &str = "max_bytes";
