//! What a fuzzer reaches of this folder: the validation of everything that clients send.

use std::time::Duration;

use prost::Message;
use tenure_proto::v1 as pb;

use super::convert::{self, TtlBounds};
use super::worker;

/// Reads and validates a request, of the kind that `kind` picks. Refusing it is fine, failing is not.
pub fn request(kind: u8, bytes: &[u8]) {
    let ttl = TtlBounds {
        min: Duration::from_secs(1),
        max: Duration::from_secs(600),
    };
    match kind % 18 {
        0 => drop(as_message(bytes, convert::seal)),
        1 => drop(as_message(bytes, convert::write)),
        2 => drop(as_message(bytes, convert::read)),
        3 => drop(as_message(bytes, convert::delete_checkpoint)),
        4 => drop(as_message(bytes, |request| {
            convert::create_group(request, &ttl)
        })),
        5 => drop(as_message(bytes, |request| convert::group_query(&request))),
        6 => drop(as_message(bytes, convert::set_policy)),
        7 => drop(as_message(bytes, |request| {
            convert::set_worker_mode(&request)
        })),
        8 => drop(as_message(bytes, convert::get_shard)),
        9 => drop(as_message(bytes, convert::shard_query)),
        10 => drop(as_message(bytes, |request| convert::lookup_key(&request))),
        11 => drop(as_message(bytes, |request| convert::watch(&request))),
        12 => drop(as_message(bytes, |request: pb::CheckTokenRequest| {
            convert::token(request.token)
        })),
        13 => drop(as_message(bytes, |request| {
            convert::register(request, &ttl)
        })),
        14 => drop(as_message(bytes, |request| convert::resume(&request))),
        15 => drop(as_message(bytes, |request: pb::AddNodeRequest| {
            convert::node(request.node)
        })),
        16 => drop(as_message(bytes, worker::up)),
        _ => drop(as_message(bytes, convert::write_many)),
    }
}

fn as_message<M: Message + Default, T>(bytes: &[u8], then: impl FnOnce(M) -> T) -> Option<T> {
    M::decode(bytes).ok().map(then)
}
