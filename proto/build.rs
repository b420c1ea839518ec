//! Compiles the protocol files without a system `protoc`.

use std::env;
use std::fs;
use std::path::PathBuf;

use prost::Message;

const FILES: [&str; 7] = [
    "tenure/v1/common.proto",
    "tenure/v1/worker.proto",
    "tenure/v1/ownership.proto",
    "tenure/v1/checkpoint.proto",
    "tenure/v1/admin.proto",
    "tenure/v1/cluster.proto",
    "tenure/v1/history.proto",
];

/// What coordinator nodes say to each other: not public, so neither in the descriptor nor reflected.
const PEER_FILE: &str = "tenure/raft/v1/raft.proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in FILES.into_iter().chain([PEER_FILE]) {
        println!("cargo::rerun-if-changed={file}");
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let descriptors = protox::compile(FILES, ["."])?;
    // With source information the descriptor would change whenever a comment does.
    let mut bare = descriptors.clone();
    for file in &mut bare.file {
        file.source_code_info = None;
    }
    fs::write(out.join("tenure.bin"), bare.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(descriptors)?;
    let peer = protox::compile([PEER_FILE], ["."])?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(peer)?;
    Ok(())
}
