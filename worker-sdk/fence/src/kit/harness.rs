//! What an adapter supplies to be checked.

use std::sync::Arc;

use async_trait::async_trait;

use crate::resource::Resource;
use crate::store::CheckpointStore;
use crate::token::FencingToken;

/// Who the next tenure of a resource goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// An owner that has never held the resource.
    New,
    /// The owner of the latest tenure again.
    Same,
}

/// A store to be checked, and the source of its tokens.
///
/// A harness that cannot do what it is asked to panics with the reason.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Returns the store. Called again after [`reopen`](Self::reopen).
    fn store(&self) -> Arc<dyn CheckpointStore>;

    /// Returns a resource that was never granted nor sealed, in this run or an earlier one.
    ///
    /// Called at most [`RESOURCES_MAX`](super::RESOURCES_MAX) times in a run.
    async fn fresh_resource(&mut self) -> Resource;

    /// Ends the tenure of a resource, if it has one, and begins the next: a higher epoch.
    ///
    /// The first tenure is asked for with [`Holder::New`]. The old owner knows nothing of it: it is
    /// the kit that goes on writing in its name. Nothing is sealed.
    async fn next_tenure(&mut self, resource: &Resource, holder: Holder) -> FencingToken;

    /// Returns a token of the same resource and epoch with another owner, which no coordinator
    /// would hand out; `None`, the default, when this source cannot make one. Asked several times:
    /// a source that can be wrong in several ways takes turns.
    async fn conflicting(&mut self, token: &FencingToken) -> Option<FencingToken> {
        let _ = token;
        None
    }

    /// Says whether the store raises the fence in one step and reads what the seal returns in a later one,
    /// as the contract allows: that may hold what the same owner has written meanwhile.
    ///
    /// The default is `false`: a seal happens at one moment.
    fn seals_in_two_steps(&self) -> bool {
        false
    }

    /// Closes the store and opens it again over what it has made durable, as a crash of the process
    /// or machine that keeps it would. Tenures go on.
    ///
    /// The default does nothing: for a store that is meant to outlive nothing.
    async fn reopen(&mut self) {}
}
