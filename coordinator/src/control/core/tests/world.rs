//! A leader whose log, quorum, clock and workers are in the hands of the test.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tenure_fence::Epoch;
use tenure_fence::GroupName;
use tenure_fence::Owner;
use tenure_ownership::Command;
use tenure_ownership::Rejection;
use tenure_ownership::State;
use tenure_ownership::apply;
use tenure_ownership::command::CreateGroup;
use tenure_ownership::command::Register;
use tenure_ownership::command::ReleaseCause;
use tenure_ownership::command::Released;
use tenure_ownership::command::Tenure;
use tenure_ownership::ids::ClusterId;
use tenure_ownership::ids::GroupId;
use tenure_ownership::ids::ProcessNonce;
use tenure_ownership::ids::Revision;
use tenure_ownership::ids::SessionId;
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::ids::StoreName;
use tenure_ownership::ids::WorkerName;
use tenure_ownership::invariants;
use tenure_ownership::planner;
use tenure_ownership::planner::Observed;
use tenure_ownership::planner::Plan;
use tenure_ownership::policy::Policy;
use tenure_ownership::shard::Shard;

use super::super::Core;
use super::super::Decision;
use super::super::Input;
use super::super::Output;
use super::super::Ticket;
use crate::clock::Moment;
use crate::consensus::Envelope;
use crate::control::asks::AskId;
use crate::control::message::Close;
use crate::control::message::Down;
use crate::control::message::Open;
use crate::control::message::StreamId;
use crate::control::message::Up;
use crate::watch::Batch;

pub(super) const CLUSTER: u128 = 7;

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The default window W.
pub(super) const W: Duration = ms(750);
/// The default ttl.
pub(super) const TTL: Duration = ms(10_000);

/// What became of a command.
pub(super) type Outcome = Result<apply::Effect, Rejection>;

/// The world around one leader.
pub(super) struct World {
    pub(super) state: State,
    pub(super) core: Core,
    pub(super) now: Moment,
    revision: u64,
    next_stream: u64,
    /// Commands proposed and not decided yet.
    pub(super) proposals: VecDeque<(Ticket, Command)>,
    /// Rounds begun and not ended yet.
    pub(super) rounds: VecDeque<u64>,
    plans: VecDeque<(GroupId, Observed)>,
    /// What plans are made from instead of the state, by a planner that lags behind.
    pub(super) planned_from: Option<State>,
    /// How many plans with moves were made.
    pub(super) plans_with_moves: usize,
    /// Whether proposals are committed as soon as they are made.
    pub(super) commits: bool,
    /// Whether rounds are confirmed as soon as they are begun.
    pub(super) quorum: bool,
    /// Whether workers release what is revoked as soon as they are told.
    pub(super) obedient: bool,
    replies: VecDeque<(StreamId, Up)>,
    /// What each stream was told, in order.
    pub(super) told: BTreeMap<StreamId, Vec<Down>>,
    /// How each closed stream ended.
    pub(super) closed: BTreeMap<StreamId, Close>,
    /// What operators who asked for a plan were answered.
    pub(super) answers: BTreeMap<AskId, Option<Plan>>,
    /// The last plan of each group was asked for with this.
    pub(super) observed: BTreeMap<GroupId, Observed>,
}

impl World {
    /// A cluster with one group `g` and a leader that has just begun.
    pub(super) fn new(shards: u32, policy: Policy) -> Self {
        let mut state = State::new();
        let created = CreateGroup {
            name: group_name(),
            shard_count: shards,
            policy,
        };
        apply(
            &mut state,
            Revision(1),
            Command::InitCluster(ClusterId(CLUSTER)),
        )
        .outcome
        .unwrap();
        apply(&mut state, Revision(2), Command::CreateGroup(created))
            .outcome
            .unwrap();
        let now = Moment::from_boot(Duration::from_secs(1_000));
        let core = Core::new(&state, now);
        let mut world = Self {
            state,
            core,
            now,
            revision: 2,
            next_stream: 1,
            proposals: VecDeque::new(),
            rounds: VecDeque::new(),
            plans: VecDeque::new(),
            planned_from: None,
            plans_with_moves: 0,
            commits: true,
            quorum: true,
            obedient: false,
            replies: VecDeque::new(),
            told: BTreeMap::new(),
            closed: BTreeMap::new(),
            answers: BTreeMap::new(),
            observed: BTreeMap::new(),
        };
        world.input(Input::Tick);
        world
    }

    pub(super) fn group(&self) -> GroupId {
        self.state.group_named(&group_name()).unwrap().header.id
    }

    pub(super) fn shard(&self, index: u32) -> &Shard {
        self.state.shard(self.group(), ShardIndex(index)).unwrap()
    }

    pub(super) fn owner(&self, index: u32) -> Option<SessionId> {
        self.shard(index).owner()
    }

    pub(super) fn epoch(&self, index: u32) -> u64 {
        self.shard(index).epoch.map_or(0, Epoch::get)
    }

    /// The session that holds a worker's name.
    pub(super) fn session_of(&self, worker: &str) -> Option<SessionId> {
        let group = self.state.group(self.group()).unwrap();
        group
            .workers
            .get(&WorkerName::new(worker).unwrap())?
            .session
    }

    /// Lets a new leadership of this node, or of another with the same log, begin.
    pub(super) fn new_leader(&mut self) {
        self.proposals.clear();
        self.rounds.clear();
        self.plans.clear();
        self.core = Core::new(&self.state, self.now);
        self.input(Input::Tick);
    }

    pub(super) fn input(&mut self, input: Input) {
        let outputs = self.core.handle(self.now, input, &self.state);
        for output in outputs {
            match output {
                Output::Send(stream, down) => {
                    if self.obedient {
                        self.replies.extend(reply(&down).map(|up| (stream, up)));
                    }
                    self.told.entry(stream).or_default().push(down);
                }
                Output::Close(stream, close) => {
                    self.closed.insert(stream, close);
                }
                Output::Propose(ticket, command) => self.proposals.push_back((ticket, command)),
                Output::Round(number) => self.rounds.push_back(number),
                Output::Preview(id, group, observed) => {
                    let plan = planner::plan(&self.state, group, &observed);
                    self.answers.insert(id, Some(plan));
                }
                Output::Answer(id, plan) => {
                    self.answers.insert(id, plan);
                }
                Output::Plan(group, observed) => {
                    self.observed.insert(group, observed.clone());
                    self.plans.push_back((group, observed));
                }
            }
        }
        self.settle();
    }

    /// Makes plans, and as far as the world allows commits proposals and confirms rounds.
    fn settle(&mut self) {
        if let Some((group, observed)) = self.plans.pop_front() {
            let state = self.planned_from.as_ref().unwrap_or(&self.state);
            let plan = planner::plan(state, group, &observed);
            self.plans_with_moves += usize::from(!plan.is_empty());
            self.input(Input::Planned(plan));
        }
        if let Some((stream, up)) = self.replies.pop_front() {
            self.input(Input::Message(stream, up));
        }
        if self.commits && !self.proposals.is_empty() {
            self.commit();
        }
        if self.quorum
            && let Some(number) = self.rounds.pop_front()
        {
            self.input(Input::RoundEnded(number, true));
        }
    }

    /// Commits the oldest proposal.
    pub(super) fn commit(&mut self) {
        let (ticket, command) = self.proposals.pop_front().expect("nothing was proposed");
        let (revision, outcome) = self.apply(command);
        self.input(Input::Decided(ticket, Decision::Applied(revision, outcome)));
    }

    /// Commits a command that this leader did not propose.
    pub(super) fn apply(&mut self, command: Command) -> (Revision, Outcome) {
        let (revision, outcome) = self.apply_unseen(command);
        self.see(revision, &outcome);
        (revision, outcome)
    }

    /// Commits a command of which the leader does not know yet: the state may be ahead of it.
    pub(super) fn apply_unseen(&mut self, command: Command) -> (Revision, Outcome) {
        self.revision += 1;
        let revision = Revision(self.revision);
        let applied = apply(&mut self.state, revision, command);
        let violations = invariants::check(&self.state);
        assert_eq!(violations, vec![], "after revision {revision}");
        (revision, applied.outcome)
    }

    /// Lets the leader take note of a committed command.
    pub(super) fn see(&mut self, revision: Revision, outcome: &Outcome) {
        if let Ok(effect) = outcome
            && !effect.events.is_empty()
        {
            let batch = Arc::new(Batch::new(
                revision,
                Envelope::default(),
                effect.events.clone(),
            ));
            self.input(Input::Committed(batch));
        }
    }

    /// Answers the oldest proposal as one that was never proposed.
    pub(super) fn turn_down(&mut self) {
        let (ticket, _) = self.proposals.pop_front().expect("nothing was proposed");
        self.input(Input::Decided(ticket, Decision::NotProposed));
    }

    /// Ends the oldest round.
    pub(super) fn end_round(&mut self, confirmed: bool) {
        let number = self.rounds.pop_front().expect("no round is under way");
        self.input(Input::RoundEnded(number, confirmed));
    }

    /// Lets time go on with every tick the leader asks for.
    pub(super) fn advance(&mut self, by: Duration) {
        let until = self.now + by;
        while self.now < until {
            let next = self.core.next_tick(self.now).min(until);
            // A due tick that changes nothing must not stop the clock.
            self.now = next.max(self.now + ms(1)).min(until);
            self.input(Input::Tick);
        }
    }

    /// Stops this process: time goes on, nothing is handled.
    pub(super) fn stop_process(&mut self, by: Duration) {
        self.now = self.now + by;
    }

    fn open(&mut self, open: Open) -> StreamId {
        let stream = StreamId(self.next_stream);
        self.next_stream += 1;
        self.input(Input::Opened(stream, open));
        stream
    }

    /// Opens a stream on which a process without a session registers.
    pub(super) fn register(&mut self, worker: &str, nonce: u128) -> StreamId {
        self.register_again(worker, nonce, None, 1)
    }

    /// Opens a stream on which a process registers.
    pub(super) fn register_again(
        &mut self,
        worker: &str,
        nonce: u128,
        first: Option<SessionId>,
        attempt: u64,
    ) -> StreamId {
        let register = Register {
            group: group_name(),
            worker: WorkerName::new(worker).unwrap(),
            nonce: ProcessNonce(nonce),
            first: None,
            replaces: None,
            ttl: None,
            weight: 1,
            labels: BTreeMap::new(),
            address: String::new(),
        };
        let first = first.map(owner);
        self.open(Open::Register {
            register: Box::new(register),
            first,
            attempt,
        })
    }

    pub(super) fn resume(&mut self, session: SessionId, nonce: u128, attempt: u64) -> StreamId {
        self.open(Open::Resume {
            session: owner(session),
            nonce: ProcessNonce(nonce),
            attempt,
        })
    }

    pub(super) fn heartbeat(&mut self, stream: StreamId, sequence: u64) {
        self.heartbeat_with(stream, sequence, Vec::new());
    }

    /// A heartbeat with loads of shards.
    pub(super) fn heartbeat_with(
        &mut self,
        stream: StreamId,
        sequence: u64,
        loads: Vec<(ShardIndex, u64)>,
    ) {
        self.input(Input::Message(stream, Up::Heartbeat { sequence, loads }));
    }

    pub(super) fn break_stream(&mut self, stream: StreamId) {
        self.input(Input::Broken(stream));
    }

    /// The stream a session was told of last.
    pub(super) fn stream_of(&self, session: SessionId) -> StreamId {
        let told_of = |downs: &[Down]| {
            downs.iter().any(
                |down| matches!(down, Down::Registered { session: told, .. } if *told == owner(session)),
            )
        };
        let mut streams = self.told.iter().rev();
        let found = streams.find(|(_, downs)| told_of(downs));
        *found.expect("the session has no stream").0
    }

    /// Gives everything back that a session holds.
    pub(super) fn give_back(&mut self, stream: StreamId, session: SessionId) {
        let finished = |tenure| Released {
            tenure,
            cause: ReleaseCause::Finished,
        };
        let releases = self.tenures(session).into_iter().map(finished).collect();
        self.input(Input::Message(stream, Up::Released(releases)));
    }

    /// Reports everything ready that the session is to open.
    pub(super) fn all_ready(&mut self, stream: StreamId, session: SessionId) {
        let tenures = self.tenures(session);
        let stores = vec![StoreName::new("replicated").unwrap()];
        self.input(Input::Message(stream, Up::Ready { tenures, stores }));
    }

    pub(super) fn tenures(&self, session: SessionId) -> Vec<Tenure> {
        self.state
            .owned(session)
            .map(|shard| Tenure {
                shard,
                epoch: self.epoch_of(shard),
            })
            .collect()
    }

    fn epoch_of(&self, shard: ShardIndex) -> Epoch {
        self.state
            .shard(self.group(), shard)
            .unwrap()
            .epoch
            .unwrap()
    }

    /// A registered worker that serves what it was given: its stream and session.
    pub(super) fn serving(&mut self, worker: &str, nonce: u128) -> (StreamId, SessionId) {
        let stream = self.register(worker, nonce);
        let session = self.session_of(worker).unwrap();
        self.advance(ms(300));
        self.all_ready(stream, session);
        (stream, session)
    }

    /// The heartbeats acknowledged on a stream, in order.
    pub(super) fn acks(&self, stream: StreamId) -> Vec<u64> {
        let told = self.told.get(&stream).map_or(&[][..], Vec::as_slice);
        told.iter()
            .filter_map(|down| match down {
                Down::Ack { sequence } => Some(*sequence),
                _ => None,
            })
            .collect()
    }

    pub(super) fn told(&self, stream: StreamId) -> &[Down] {
        self.told.get(&stream).map_or(&[], Vec::as_slice)
    }

    /// Whether a command of a kind is proposed and not decided.
    pub(super) fn proposed(&self, is: impl Fn(&Command) -> bool) -> bool {
        self.proposals.iter().any(|(_, command)| is(command))
    }
}

/// What an obedient worker answers.
fn reply(down: &Down) -> Option<Up> {
    let Down::Revoke { tenures, .. } = down else {
        return None;
    };
    let finished = |tenure: &Tenure| Released {
        tenure: *tenure,
        cause: ReleaseCause::Finished,
    };
    Some(Up::Released(tenures.iter().map(finished).collect()))
}

pub(super) fn owner(session: SessionId) -> Owner {
    Owner {
        cluster: CLUSTER,
        session: session.0,
    }
}

pub(super) fn group_name() -> GroupName {
    GroupName::try_from("g").unwrap()
}

pub(super) fn is_expire(command: &Command) -> bool {
    matches!(command, Command::Expire(_))
}

pub(super) fn is_register(command: &Command) -> bool {
    matches!(command, Command::Register(_))
}

pub(super) fn is_force(command: &Command) -> bool {
    matches!(command, Command::Force(_))
}
