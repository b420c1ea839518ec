//! Messages of other nodes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_coordinator::consensus::fuzzing;

fuzz_target!(|message: (u8, &[u8])| fuzzing::peer_message(message.0, message.1));
