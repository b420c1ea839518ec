//! Whether a node should be sent requests: what its health checks and pages tell.

/// Whether a node should be sent requests, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It has not been made part of a cluster.
    NoCluster,
    /// It knows no leader.
    NoLeader,
    /// It has not applied yet what it had applied before it was stopped.
    CatchingUp,
    /// It was removed from its cluster.
    Removed,
    /// It serves.
    Ready,
}

impl Readiness {
    /// Says it in a few words.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::NoCluster => "not part of a cluster",
            Self::NoLeader => "no leader is known",
            Self::CatchingUp => "catching up",
            Self::Removed => "removed from the cluster",
            Self::Ready => "ready",
        }
    }
}
