//! What a fencing token is for.

use std::fmt;
use std::str::FromStr;

use crate::name::{GroupName, LeaseName};
use crate::parse::{self, ParseError};

/// One shard: the group it belongs to and its number there. Written `<group>/<index>`.
///
/// ```
/// use tenure_fence::ShardRef;
///
/// let shard: ShardRef = "orders/7".parse()?;
/// assert_eq!(shard.index, 7);
/// assert_eq!(shard.to_string(), "orders/7");
/// # Ok::<(), tenure_fence::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardRef {
    /// The group.
    pub group: GroupName,
    /// The number of the shard in its group, counted from zero.
    pub index: u32,
}

impl fmt::Display for ShardRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.group, self.index)
    }
}

impl FromStr for ShardRef {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (group, index) = text.split_once('/').ok_or(ParseError::Shard)?;
        let index = parse::number(index).ok_or(ParseError::Shard)?;
        Ok(Self {
            group: group.parse()?,
            index,
        })
    }
}

/// What a fencing token is for: the thing that has at most one owner.
///
/// Written `shard/<group>/<index>` or `lease/<name>`. A resource has exactly one text, so an adapter
/// may use it as the key of its fence.
///
/// ```
/// use tenure_fence::Resource;
///
/// let resource: Resource = "shard/orders/7".parse()?;
/// assert!(matches!(&resource, Resource::Shard(shard) if shard.index == 7));
/// assert_eq!(resource.to_string(), "shard/orders/7");
/// # Ok::<(), tenure_fence::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// A shard, which the coordinator assigns.
    Shard(ShardRef),
    /// A lease, which a worker asks for.
    Lease(LeaseName),
}

impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shard(shard) => write!(formatter, "shard/{shard}"),
            Self::Lease(name) => write!(formatter, "lease/{name}"),
        }
    }
}

impl FromStr for Resource {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some(("shard", shard)) => Ok(Self::Shard(shard.parse()?)),
            Some(("lease", name)) => Ok(Self::Lease(name.parse()?)),
            _ => Err(ParseError::Resource),
        }
    }
}

impl From<ShardRef> for Resource {
    fn from(shard: ShardRef) -> Self {
        Self::Shard(shard)
    }
}

impl From<LeaseName> for Resource {
    fn from(name: LeaseName) -> Self {
        Self::Lease(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_read_from_the_text_it_is_written_as() {
        for text in [
            "shard/orders/0",
            "shard/a.b/4294967295",
            "lease/compaction",
            "lease/shard",
        ] {
            assert_eq!(text.parse::<Resource>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn text_that_is_not_exactly_a_resource_is_refused() {
        for text in [
            "",
            "shard",
            "shard/",
            "shard/orders",
            "shard/orders/",
            "shard/orders/-1",
            "shard/orders/01",
            "shard/orders/+1",
            "shard/orders/4294967296",
            "shard/orders/1/2",
            "shard//1",
            "shard/Orders/1",
            "Shard/orders/1",
            " shard/orders/1",
            "lease/",
            "lease/a/b",
            "group/orders/1",
            "orders/1",
        ] {
            assert!(text.parse::<Resource>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_bad_name_inside_is_reported_as_a_bad_name() {
        let error = "shard/Orders/1".parse::<Resource>().unwrap_err();
        assert!(matches!(error, ParseError::Name(_)));
        assert!(error.to_string().starts_with("a group name consists of"));
    }
}
