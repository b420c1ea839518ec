//! The numbers of the model. They are small and few: a state holds hundreds, and millions of states are kept.

/// The number of a tenure; 0 before the first grant.
pub type Epoch = u8;

/// A session, in the order in which sessions were registered; 0 is none. Stands for the log index.
pub type SessionId = u8;

/// The place of a worker process in [`Bounds::names`](crate::bounds::Bounds::names).
pub type ProcessId = u8;

/// The number of a process's stream; 0 before the first.
pub type Attempt = u8;

/// The number of a leadership.
pub type Term = u8;

/// How many commands have changed the ownership.
pub type Revision = u8;

/// A length of time, in ticks.
pub type Ticks = u8;

/// One accepted or attempted write to the store; 0 is none.
pub type WriteId = u8;

/// One tick further, and no further than `end`: what is over stays over, however long ago it ended.
pub fn aged(age: Ticks, end: Ticks) -> Ticks {
    age.saturating_add(1).min(end)
}
