//! The wire contract of Tenure: the generated messages, and what a protocol file cannot say.
//!
//! The files in `proto/tenure/v1` are the documentation of the messages. They only grow: a test
//! compares them with the committed descriptor. By hand are the reasons of errors ([`reason`]) and
//! the rule that assigns keys to shards ([`keys`]), which both sides must agree on.

pub mod keys;
pub mod reason;

/// Version 1 of the public services.
#[allow(
    warnings,
    clippy::all,
    reason = "generated; the protocol files are its documentation"
)]
pub mod v1 {
    tonic::include_proto!("tenure.v1");
}

/// The peer protocol of coordinator nodes.
pub mod raft {
    /// Version 1 of the peer protocol, and what a node keeps on disk in the same encoding.
    #[allow(
        warnings,
        clippy::all,
        reason = "generated; the protocol file is its documentation"
    )]
    pub mod v1 {
        tonic::include_proto!("tenure.raft.v1");
    }
}

/// Descriptors of all public files and what they import, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tenure.bin"));
