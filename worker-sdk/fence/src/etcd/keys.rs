//! The keys, and the transactions over them.
//!
//! ```text
//!   <prefix>layout              version of this layout: four bytes, big-endian
//!   <prefix>fence/<resource>    the fence; replaced by seals
//!   <prefix>data/<resource>     the latest write or deletion, with the fence it was admitted by
//! ```

use bytes::Bytes;

use crate::admission::Fence;
use crate::layout::{self, ForeignKey};
use crate::parts;
use crate::record::Record;
use crate::resource::Resource;

use super::known::KnownFence;
use super::proto::compare::{CompareTarget, TargetUnion};
use super::proto::request_op::Request;
use super::proto::{Compare, PutRequest, RangeRequest, RequestOp, TxnRequest};

#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    pub(super) fn fence(&self, resource: &Resource) -> Bytes {
        format!("{}fence/{resource}", self.prefix).into()
    }

    pub(super) fn data(&self, resource: &Resource) -> Bytes {
        format!("{}data/{resource}", self.prefix).into()
    }

    /// Reads the resource that the key of a fence names.
    pub(super) fn resource(&self, key: &[u8]) -> Result<Resource, ForeignKey> {
        let begin = format!("{}fence/", self.prefix);
        layout::resource(key.strip_prefix(begin.as_bytes()).unwrap_or(key))
    }

    /// Asks for fences in the order of the names, after one or from the first.
    pub(super) fn fences_after(&self, after: Option<&Resource>, limit: usize) -> TxnRequest {
        let mut key = match after {
            Some(after) => self.fence(after).to_vec(),
            None => format!("{}fence/", self.prefix).into_bytes(),
        };
        if after.is_some() {
            // The least key that is greater.
            key.push(0);
        }
        read(RangeRequest {
            key: key.into(),
            // The character after the slash: the least key that is no fence.
            range_end: format!("{}fence0", self.prefix).into(),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
        })
    }

    /// Puts the version of the layout if there is none, or reads it.
    pub(super) fn lay_out(&self, version: u32) -> TxnRequest {
        let key = Bytes::from(format!("{}layout", self.prefix));
        TxnRequest {
            compare: vec![absent(key.clone())],
            success: vec![put(
                key.clone(),
                Bytes::copy_from_slice(&layout::encode(version)),
            )],
            failure: vec![get(key)],
        }
    }

    /// Reads fence and data.
    pub(super) fn look(&self, resource: &Resource) -> TxnRequest {
        TxnRequest {
            compare: Vec::new(),
            success: vec![get(self.fence(resource)), get(self.data(resource))],
            failure: Vec::new(),
        }
    }

    /// If the fence is still the known one, raises it to `raised` if given and reads the data it
    /// guards; otherwise reads the fence.
    pub(super) fn seal(
        &self,
        resource: &Resource,
        known: Option<&KnownFence>,
        raised: Option<Fence>,
    ) -> TxnRequest {
        let key = self.fence(resource);
        let raise = raised.map(|fence| put(key.clone(), parts::encode_fence(fence)));
        TxnRequest {
            compare: match known {
                Some(known) => vec![has_value(key.clone(), known), has_no_lease(key.clone())],
                None => vec![absent(key.clone())],
            },
            success: raise
                .into_iter()
                .chain([get(self.data(resource))])
                .collect(),
            failure: vec![get(key)],
        }
    }

    /// If fence and data are still the known ones, puts new data; otherwise reads both.
    pub(super) fn put_data(
        &self,
        resource: &Resource,
        fence: &KnownFence,
        data_revision: i64,
        next: &Record,
    ) -> TxnRequest {
        let (fence_key, data_key) = (self.fence(resource), self.data(resource));
        let unchanged = Compare {
            target: CompareTarget::Mod.into(),
            key: data_key.clone(),
            target_union: Some(TargetUnion::ModRevision(data_revision)),
            ..Compare::default()
        };
        TxnRequest {
            compare: vec![
                has_value(fence_key.clone(), fence),
                has_no_lease(fence_key.clone()),
                unchanged,
            ],
            success: vec![put(data_key.clone(), next.encode())],
            failure: vec![get(fence_key), get(data_key)],
        }
    }
}

/// Reads one key.
pub(super) fn read_one(key: Bytes) -> TxnRequest {
    read(one(key))
}

fn read(range: RangeRequest) -> TxnRequest {
    let request = Some(Request::RequestRange(range));
    TxnRequest {
        success: vec![RequestOp { request }],
        ..TxnRequest::default()
    }
}

fn one(key: Bytes) -> RangeRequest {
    RangeRequest {
        key,
        ..RangeRequest::default()
    }
}

/// Returns how many bytes a transaction puts.
pub(super) fn put_bytes(request: &TxnRequest) -> usize {
    let puts = request
        .success
        .iter()
        .map(|operation| match &operation.request {
            Some(Request::RequestPut(put)) => put.value.len(),
            _ => 0,
        });
    puts.sum()
}

fn absent(key: Bytes) -> Compare {
    Compare {
        target: CompareTarget::Create.into(),
        key,
        target_union: Some(TargetUnion::CreateRevision(0)),
        ..Compare::default()
    }
}

fn has_value(key: Bytes, known: &KnownFence) -> Compare {
    Compare {
        target: CompareTarget::Value.into(),
        key,
        target_union: Some(TargetUnion::Value(known.value.clone())),
        ..Compare::default()
    }
}

/// The end of a lease would remove the fence. Then the fence is read, and refused.
fn has_no_lease(key: Bytes) -> Compare {
    Compare {
        target: CompareTarget::Lease.into(),
        key,
        target_union: Some(TargetUnion::Lease(0)),
        ..Compare::default()
    }
}

fn get(key: Bytes) -> RequestOp {
    RequestOp {
        request: Some(Request::RequestRange(one(key))),
    }
}

fn put(key: Bytes, value: Bytes) -> RequestOp {
    RequestOp {
        request: Some(Request::RequestPut(PutRequest { key, value })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_asks_for_fences_alone() {
        let keys = Keys::new("tenure/");
        let seven: Resource = "shard/orders/7".parse().unwrap();
        let request = keys.fences_after(Some(&seven), 10);
        let Some(Request::RequestRange(range)) = request.success[0].request.clone() else {
            panic!("{request:?}");
        };
        assert!(range.key > keys.fence(&seven));
        let seventy: Resource = "shard/orders/70".parse().unwrap();
        assert!(range.key < keys.fence(&seventy));
        assert!(range.range_end > keys.fence(&seventy));
        assert!(keys.data(&seven) < b"tenure/fence/"[..]);
        assert!(range.range_end < b"tenure/layout"[..]);
        assert_eq!(keys.resource(&keys.fence(&seven)), Ok(seven));
    }
}
