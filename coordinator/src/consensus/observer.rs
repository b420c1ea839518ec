//! Who is told what was applied.

use tenure_ownership::ids::Revision;

use super::Outcome;
use super::envelope::Envelope;

/// Told about every command as it is applied on this node.
///
/// Called by the one task that applies, in the order of the log, after the effect is readable from
/// memory and storage and *before* the proposer is answered: what a proposer learns, observers have
/// been told. Each call must return quickly and must not wait for a proposal: nothing is applied
/// meanwhile.
pub trait Observer: Send + Sync + 'static {
    /// Called once for every command that is applied, accepted or refused. Entries that carry no
    /// command have revisions of their own, so revisions rise but not by one.
    fn applied(&self, revision: Revision, envelope: &Envelope, outcome: &Outcome);

    /// Called when the whole state was replaced by a snapshot: what happened between the last call
    /// and `revision` is not known here.
    fn replaced(&self, revision: Revision);
}
