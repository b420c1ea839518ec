//! Requests of clients and workers.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_coordinator::rpc::fuzzing;

fuzz_target!(|request: (u8, &[u8])| fuzzing::request(request.0, request.1));
