//! The object store, on every server that has its interface.

mod conformance;
mod faults;
mod folder;
mod large;
mod places;
mod probes;
