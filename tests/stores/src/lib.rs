//! Real servers for the tests of the store adapters.
//!
//! ```text
//!   test ──▶ Server<Postgres>, Server<Redis>, …: started in a folder of their own, killed with SIGKILL,
//!            started again over what they had made durable
//!        ──▶ writers: 200 owners that write while their server is killed, and what must be true then
//! ```
//!
//! What differs between servers is a [`server::Program`] each; what is the same for all is
//! [`server::Server`]. Invariants:
//!
//! 1. No process outlives the test that started it, also when the test panics or is killed.
//! 2. A server that cannot be started fails the test. Nothing is skipped.
//! 3. No two servers share a port or a folder.

pub mod azurite;
pub mod dynalite;
pub mod etcd;
pub mod fake_gcs;
pub mod gcp_storage_emulator;
pub mod http;
pub mod http_faults;
pub mod installed;
pub mod mariadb;
pub mod moto;
pub mod postgres;
pub mod redis;
pub mod seaweedfs;
pub mod server;
pub mod site;
pub mod wire;
pub mod writers;
