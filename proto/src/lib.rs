//! The wire contract of Tenure: generated code only.
//!
//! The files in `proto/tenure/v1` are the documentation of the messages. They only grow: a test
//! compares them with the committed descriptor.

/// Version 1 of the public services.
#[allow(warnings, clippy::all, reason = "generated; the protocol files are its documentation")]
pub mod v1 {
    tonic::include_proto!("tenure.v1");
}

/// Descriptors of all public files and what they import, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tenure.bin"));
