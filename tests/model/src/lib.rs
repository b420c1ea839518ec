//! A model of Tenure's protocol, small enough that a machine looks at every state it can get into.
//!
//! The protocol is in `docs/architecture.md`: §3 sessions and leases, §4 shards, §5 the fence. Here it
//! is written down a second time, as a set of steps that may follow on a state, without sockets, disks
//! or tasks. The checker ([stateright](https://docs.rs/stateright)) takes every step in every order
//! from a start, breadth first, and looks in every state whether the promises hold. If one does not, it
//! has the shortest way there, step by step.
//!
//! ```text
//!   workers            streams            leaders                  consensus            store
//!   belief, handle ──▶ in order, ──────▶ leases, rounds, ──────▶ proposals commit ──┐  fence, latest
//!   (`worker`)         or cut            drains, plans           or are lost        │  write, requests
//!        │             (`network`)       (`leader`)              (`state`)          │  under way
//!        │                 ▲                 ▲                                      ▼  (`store`)
//!        │                 └─────────────────┴──────────── events ────── `ownership`     ▲
//!        └───────────────────────────── seal, read, write ───────────────────────────────┘
//! ```
//!
//! # What is checked
//!
//! * P1, P2, P3, P4 and P11 of `docs/architecture.md` §8, in every state; and what they rest on or
//!   imply: an epoch has one writer, who serves has sealed, no old token is called current, a process
//!   that was replaced does not come back, a leader that stood still ends nobody for that
//!   (`properties`).
//! * Every shard is served in the end. From each state one fair course is followed in which no more
//!   faults happen: every message arrives, every process acts (`recovery`). It must lead, within a
//!   bounded time, to a shard that is served by an owner who may believe it. So there is no state from
//!   which the protocol cannot get out, whatever happened before, and this one course does get out.
//!   That *every* fair course does is not shown: a livelock that needs a certain order of steps would
//!   not be seen.
//! * That the rules are needed. Each is a switch (`rules`), and names the code that keeps it. Without
//!   it the checker must find a violation, and with it none within as many steps (`removals`, and
//!   `tests/rules.rs`). Some rules have no violation of their own because another prevents the same;
//!   then both are taken away.
//!
//! # What is in the model
//!
//! * Two or three worker processes under two or three names, so also an old and a new process under
//!   one. They register, resume, send heartbeats, open, seal, write, give back, crash, and are
//!   restarted in place.
//! * Streams that are cut at any time: what is under way may arrive or not, each side notices when it
//!   likes. Between streams messages overtake each other. A `Register`, `Resume`, `Ready` or `Released`
//!   that was lost, or whose answer was, is said again on the next stream.
//! * A leader in office, and one that was deposed and goes on. Elections at any time. What a deposed
//!   leader had proposed commits or is lost until its successor has settled.
//! * Pauses. A worker that does not act for a while *is* paused, at any step, while its clock goes on;
//!   the order of steps is free, so that needs nothing of its own. Only of a leader it is said that it
//!   stands still, because it has to notice.
//! * Plans that grant or revoke whenever there is something to grant or revoke, to any live session:
//!   more than the planner would do. A drain is such a revocation. Deletion of the group, and its
//!   re-creation at once.
//! * One shard, and one store with requests that arrive late, in any order, also after their sender is
//!   gone, and whose answers are lost.
//!
//! # What is simpler than in the code, and why that hides nothing
//!
//! * **Time** goes by ticks, for all alike, and between two ticks anything may happen in any order.
//!   Windows and ttls are one to three ticks. What matters is which of two deadlines is first, and both
//!   orders occur. Rates do not differ: the 5 % that workers give up for them are left out on both
//!   sides.
//! * **Time is relative**: a state holds ages, and ages that are past their deadline are no longer told
//!   apart. So time need not be bounded.
//! * **Raft** is what it promises: one log; a round is answered only for the leader in office, at one
//!   moment; a proposal of an old term commits in its order, or never, once an entry of a newer term is
//!   applied. That a deposed leader may still *add* proposals until then is more than Raft allows.
//! * **A round** begins and is answered in one step, and its outcome reaches the leader any time later,
//!   also when it leads no longer. What a round shows is that the leader was in office when it began.
//! * **Commit, apply and the leader's taking note** are one step. In the code they are three; what ends a
//!   tenure stays undecided until the last, and what an earlier leader left is applied before the first
//!   stream is accepted: both are rules here.
//! * **Heartbeats** are prompt where the bounds say so: see [`Heartbeats`](bounds::Heartbeats), which
//!   argues it. Some scopes have them slow.
//! * **One heartbeat at a time** for each stream, and only if it can add to belief. A second one is
//!   like the first, sent later.
//! * **`Registered` and `Set`** are one message, because nothing comes between them.
//! * **The end of the lease** takes effect in a worker at once: whatever it does on waking, it does
//!   that first.
//! * **A worker's name** is known by every process from the start; a **nonce** is the process.
//!
//! # What is not covered
//!
//! * More than one shard, one store, one group: what rules say of several shards at once (one entry
//!   with many moves, the mass-failure guard, caps, placement) is for the tests of
//!   `coordinator/ownership` and `coordinator/src/control`.
//! * Clocks whose rates differ, or that stop during a suspend (scenario 40); changes of policy (half of
//!   37); lock delay and restart grace, which are 0 here; opening deadlines and shards that cannot be
//!   opened (41); restore from a backup (42); an orderly `Leave`; sequences and write ids within an
//!   epoch (38, which the conformance kit of stores checks).
//! * How Raft, the log and the disk keep their promises, and whether the code does what the model does:
//!   that is for the simulation and for the stories on real processes.
//! * Beyond the bounds of the scopes: more faults at once than `scopes` says. Reads that are
//!   linearizable by a quorum are so by construction here; that without the quorum a token is called
//!   current that is not, is shown.
//!
//! # How to run it
//!
//! `cargo run -- check` looks at every state of the short scopes, `cargo run -- deep` at those of the
//! long ones, `cargo run -- rules` takes every rule away, and `cargo run -- trace RULE` tells the story
//! of one. `cargo test` is the rules again, as tests.

pub mod action;
pub mod bounds;
pub mod consensus;
pub mod few;
pub mod ids;
pub mod leader;
pub mod model;
pub mod network;
pub mod ownership;
pub mod properties;
pub mod recovery;
pub mod removals;
pub mod rules;
pub mod scopes;
pub mod state;
pub mod store;
pub mod worker;
