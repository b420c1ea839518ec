//! A tenure and how it ends, in the words of the protocol.

use tenure_fence::Epoch;
use tenure_proto::v1;

/// A tenure: one shard at one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TenureId {
    pub(crate) shard: u32,
    pub(crate) epoch: Epoch,
}

impl TenureId {
    /// Reads a tenure; `None` when it is absent or its epoch is none.
    pub(crate) fn read(tenure: Option<&v1::Tenure>) -> Option<Self> {
        let tenure = tenure?;
        Some(Self {
            shard: tenure.shard,
            epoch: Epoch::new(tenure.epoch)?,
        })
    }

    /// Writes it for the wire.
    pub(crate) fn wire(self) -> v1::Tenure {
        v1::Tenure {
            shard: self.shard,
            epoch: self.epoch.get(),
        }
    }
}

/// Why a tenure was given up, in the words of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The work is done, or was asked to stop.
    Finished,
    /// The shard could not be opened or worked on.
    Failed(String),
    /// A store has a fence above the epoch.
    StoreAhead(Epoch),
    /// The handle died.
    Lost,
}

/// Longest detail of a failure, in bytes, as the wire allows.
const DETAIL_BYTES_MAX: usize = 256;

impl Closing {
    /// Writes the release of a tenure for the wire.
    pub(crate) fn wire(&self, tenure: TenureId) -> v1::Release {
        let mut release = v1::Release {
            tenure: Some(tenure.wire()),
            ..v1::Release::default()
        };
        match self {
            Self::Finished => release.set_cause(v1::ReleaseCause::Finished),
            Self::Lost => release.set_cause(v1::ReleaseCause::Lost),
            Self::StoreAhead(fence) => {
                release.set_cause(v1::ReleaseCause::StoreAhead);
                release.store_fence = fence.get();
            }
            Self::Failed(detail) => {
                release.set_cause(v1::ReleaseCause::OpenFailed);
                release.detail = cut(detail);
            }
        }
        release
    }
}

/// Cuts a text to the longest detail, between characters.
fn cut(text: &str) -> String {
    let mut end = text.len().min(DETAIL_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_failure_is_cut_between_characters() {
        let epoch = Epoch::FIRST;
        let tenure = TenureId { shard: 1, epoch };
        let detail = "ü".repeat(200);
        let release = Closing::Failed(detail).wire(tenure);
        assert_eq!(release.detail, "ü".repeat(128));
        assert_eq!(release.cause(), v1::ReleaseCause::OpenFailed);
    }
}
