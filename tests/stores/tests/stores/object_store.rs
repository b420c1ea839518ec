//! The object store, on every server that has its interface.

mod conformance;
mod fake_gcs;
mod faults;
mod folder;
mod large;
mod places;
mod probes;
