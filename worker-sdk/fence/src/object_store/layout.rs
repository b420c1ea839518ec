//! The names of the objects, and the version of their arrangement.

use std::fmt;
use std::str::FromStr;

use crate::checkpoint::Checkpoint;
use crate::epoch::Epoch;
use crate::owner::Owner;
use crate::resource::Resource;
use crate::sequence::{Sequence, WriteId};
use crate::token::FencingToken;

/// The arrangement that is written. A change takes the next.
pub(super) const LAYOUT: u32 = 1;

/// What the object that names the arrangement says before the number.
const LAYOUT_TEXT: &str = "tenure object store, layout ";

/// Makes names below one prefix.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    prefix: String,
}

impl Layout {
    /// Creates the layout below a prefix: one or more segments of letters, digits, `.`, `_` and `-`.
    /// `None` when it is anything else.
    pub(super) fn new(prefix: &str) -> Option<Self> {
        let right = |segment: &str| {
            !matches!(segment, "" | "." | "..")
                && segment
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        prefix.split('/').all(right).then(|| Self {
            prefix: prefix.to_owned(),
        })
    }

    /// The object that names the arrangement.
    pub(super) fn version(&self) -> String {
        format!("{}/layout", self.prefix)
    }

    pub(super) fn version_text() -> String {
        format!("{LAYOUT_TEXT}{LAYOUT}\n")
    }

    /// Reads what the object that names the arrangement says; `None` when it says anything else.
    pub(super) fn parse_version(bytes: &[u8]) -> Option<u32> {
        let text = std::str::from_utf8(bytes).ok()?;
        text.strip_prefix(LAYOUT_TEXT)?.trim_end().parse().ok()
    }

    /// The object that holds a resource's fence.
    pub(super) fn manifest(&self, resource: &Resource) -> String {
        format!("{}/{resource}", self.manifests())
    }

    /// The folder of all manifests. A policy of the bucket may name it.
    pub(super) fn manifests(&self) -> String {
        format!("{}/manifest", self.prefix)
    }

    /// The folder of all data.
    pub(super) fn data(&self) -> String {
        format!("{}/data", self.prefix)
    }

    /// The folder of a resource's data.
    pub(super) fn data_of(&self, resource: &Resource) -> String {
        format!("{}/{resource}", self.data())
    }

    /// The object that holds a part of a value.
    pub(super) fn part(&self, resource: &Resource, upload: &UploadName, part: u64) -> String {
        format!("{}/{upload}.{part:08}", self.data_of(resource))
    }

    /// An object of a probe.
    pub(super) fn probe(&self, name: u128) -> String {
        format!("{}/probe/{name:032x}", self.prefix)
    }
}

/// What the objects of one upload have in common in their names: which write it was, in which
/// tenure, and which upload of it.
///
/// Written `<epoch>.<sequence>.<cluster>.<session>.<write id>.<upload>`, numbers with all their
/// digits, so that names stand in the order of the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UploadName {
    pub(super) epoch: Epoch,
    pub(super) sequence: Sequence,
    pub(super) owner: Owner,
    pub(super) write_id: WriteId,
    pub(super) upload: u64,
}

impl UploadName {
    pub(super) fn new(
        token: &FencingToken,
        sequence: Sequence,
        write_id: WriteId,
        upload: u64,
    ) -> Self {
        Self {
            epoch: token.epoch,
            sequence,
            owner: token.owner,
            write_id,
            upload,
        }
    }

    /// The token it was uploaded under.
    pub(super) fn token(&self, resource: &Resource) -> FencingToken {
        FencingToken {
            resource: resource.clone(),
            epoch: self.epoch,
            owner: self.owner,
        }
    }

    /// The upload that a checkpoint refers to.
    pub(super) fn of(checkpoint: &Checkpoint, upload: u64) -> Self {
        Self {
            epoch: checkpoint.epoch,
            sequence: checkpoint.sequence,
            owner: checkpoint.owner,
            write_id: checkpoint.write_id,
            upload,
        }
    }

    /// Reads the name of a part, without its folder; `None` when it is none.
    pub(super) fn of_part(name: &str) -> Option<Self> {
        let (upload, part) = name.rsplit_once('.')?;
        let is_part = part.len() >= 8 && part.bytes().all(|byte| byte.is_ascii_digit());
        is_part.then(|| upload.parse().ok()).flatten()
    }
}

impl fmt::Display for UploadName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            epoch,
            sequence,
            owner,
            write_id,
            upload,
        } = self;
        let (epoch, sequence) = (epoch.get(), sequence.get());
        let Owner { cluster, session } = owner;
        write!(
            formatter,
            "{epoch:019}.{sequence:019}.{cluster:032x}.{session:020}.{write_id}.{upload:016x}"
        )
    }
}

/// Text that is not the name of an upload.
#[derive(Debug)]
pub(super) struct NoUploadName;

impl FromStr for UploadName {
    type Err = NoUploadName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let mut fields = text.split('.');
            let name = Self {
                epoch: Epoch::new(fields.next()?.parse().ok()?)?,
                sequence: Sequence::new(fields.next()?.parse().ok()?)?,
                owner: Owner {
                    cluster: u128::from_str_radix(fields.next()?, 16).ok()?,
                    session: fields.next()?.parse().ok()?,
                },
                write_id: WriteId::new(u128::from_str_radix(fields.next()?, 16).ok()?),
                upload: u64::from_str_radix(fields.next()?, 16).ok()?,
            };
            // Only the one text of a name is a name: what looks like one but was written by
            // something else is not to be deleted.
            (name.to_string() == text).then_some(name)
        };
        read().ok_or(NoUploadName)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> UploadName {
        let token = "lease/a@9223372036854775807:0123456789abcdef0123456789abcdef/42"
            .parse()
            .unwrap();
        UploadName::new(&token, Sequence::FIRST, WriteId::new(0xab), 0xcd)
    }

    #[test]
    fn a_part_is_read_from_the_name_it_is_written_with() {
        let layout = Layout::new("tenure").unwrap();
        let resource: Resource = "shard/orders/7".parse().unwrap();
        let part = layout.part(&resource, &name(), 12);
        let zeros = "0".repeat(30);
        assert_eq!(
            part,
            format!(
                "tenure/data/shard/orders/7/9223372036854775807.0000000000000000001.\
                 0123456789abcdef0123456789abcdef.00000000000000000042.{zeros}ab.\
                 00000000000000cd.00000012"
            )
        );
        let last = part.rsplit('/').next().unwrap();
        assert_eq!(UploadName::of_part(last), Some(name()));
    }

    #[test]
    fn what_is_not_exactly_a_part_is_none() {
        let upload = name().to_string();
        for text in [
            String::new(),
            upload.clone(),
            format!("{upload}.7"),
            format!("{upload}.0000000x"),
            format!("0{upload}.00000000"),
            format!("{upload}.00000000.part"),
            upload.to_uppercase() + ".00000000",
        ] {
            assert_eq!(UploadName::of_part(&text), None, "{text:?}");
        }
    }

    #[test]
    fn a_layout_is_read_from_the_text_it_is_written_as() {
        let text = Layout::version_text();
        assert_eq!(Layout::parse_version(text.as_bytes()), Some(LAYOUT));
        assert_eq!(Layout::parse_version(b"something else"), None);
    }

    #[test]
    fn a_prefix_is_one_or_more_plain_segments() {
        for prefix in ["tenure", "a/b-c/d.e_F"] {
            assert!(Layout::new(prefix).is_some(), "{prefix:?}");
        }
        for prefix in ["", "/a", "a/", "a//b", "..", "a/./b", "a b", "ä"] {
            assert!(Layout::new(prefix).is_none(), "{prefix:?}");
        }
    }
}
