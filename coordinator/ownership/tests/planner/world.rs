//! A group that lives through commands, and the worker processes that answer what it decides.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_ownership::command::{
    Command, CreateGroup, OneShard, PinShard, PinTo, Quarantine, Ready, Register, Release,
    ReleaseCause, Released, SetPolicy, SetWorkerMode, Tenure,
};
use tenure_ownership::ids::{
    ClusterId, GroupId, ProcessNonce, Revision, SessionId, ShardIndex, WorkerName,
};
use tenure_ownership::planner::{self, Observed, Plan};
use tenure_ownership::policy::Policy;
use tenure_ownership::session::WorkerMode;
use tenure_ownership::shard::{Shard, ShardState};
use tenure_ownership::{State, apply, invariants};

const GROUP: &str = "orders";

/// Rounds in which any layout must have settled: one per tenth of the shards, and some for what a
/// round sets free.
const ROUNDS_MAX: usize = 200;

pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) group: GroupId,
}

impl World {
    pub(crate) fn new(shards: u32, policy: Policy) -> Self {
        let mut world = Self {
            state: State::new(),
            group: GroupId(2),
        };
        world.apply(Command::InitCluster(ClusterId(1)));
        let name = GROUP.try_into().unwrap();
        world.apply(Command::CreateGroup(CreateGroup {
            name,
            shard_count: shards,
            policy,
        }));
        world
    }

    /// A group on workers of equal weight, all of whose shards are served.
    pub(crate) fn settled(shards: u32, workers: &[&str]) -> Self {
        Self::settled_under(Policy::default(), shards, workers)
    }

    /// The same under another policy.
    pub(crate) fn settled_under(policy: Policy, shards: u32, workers: &[&str]) -> Self {
        let mut world = Self::new(shards, policy);
        for worker in workers {
            world.join(worker, 1);
        }
        world.settle(&Observed::default());
        world
    }

    /// Applies a command that must be accepted whole.
    pub(crate) fn apply(&mut self, command: Command) -> Revision {
        let revision = Revision(self.state.revision().0 + 1);
        let effect = apply(&mut self.state, revision, command).outcome.unwrap();
        assert_eq!(effect.refused, [], "a plan was made from this very state");
        assert_eq!(invariants::check(&self.state), []);
        revision
    }

    pub(crate) fn join(&mut self, worker: &str, weight: u32) -> SessionId {
        self.join_labelled(worker, weight, &[])
    }

    /// Registers a worker with labels.
    pub(crate) fn join_labelled(
        &mut self,
        worker: &str,
        weight: u32,
        labels: &[(&str, &str)],
    ) -> SessionId {
        let labels = labels.iter();
        let nonce = ProcessNonce(u128::from(self.state.revision().0));
        let revision = self.apply(Command::Register(Box::new(Register {
            group: GROUP.try_into().unwrap(),
            worker: name(worker),
            nonce,
            first: None,
            replaces: self.session(worker),
            ttl: None,
            weight,
            labels: labels
                .map(|(key, value)| (String::from(*key), String::from(*value)))
                .collect(),
            address: String::new(),
        })));
        SessionId(revision.0)
    }

    /// Says where a shard belongs.
    pub(crate) fn pin(&mut self, shard: u32, to: PinTo) {
        let (group, shard) = (GROUP.try_into().unwrap(), ShardIndex(shard));
        self.apply(Command::PinShard(PinShard { group, shard, to }));
    }

    /// Pins a shard to a worker.
    pub(crate) fn pin_to(&mut self, shard: u32, worker: &str) {
        self.pin(shard, PinTo::Worker(name(worker)));
    }

    /// Keeps a shard off some workers.
    pub(crate) fn keep_off(&mut self, shard: u32, workers: &[&str]) {
        let workers = workers.iter().map(|worker| name(worker)).collect();
        self.pin(shard, PinTo::AnyBut(workers));
    }

    pub(crate) fn unpin(&mut self, shard: u32) {
        let (group, shard) = (GROUP.try_into().unwrap(), ShardIndex(shard));
        self.apply(Command::UnpinShard(OneShard { group, shard }));
    }

    pub(crate) fn quarantine(&mut self, shard: u32, crashes: u32) {
        let Tenure { shard, epoch } = self.tenure(ShardIndex(shard));
        self.apply(Command::Quarantine(Quarantine {
            group: self.group,
            shard,
            seen: epoch,
            crashes,
        }));
    }

    pub(crate) fn retry(&mut self, shard: u32) {
        let (group, shard) = (GROUP.try_into().unwrap(), ShardIndex(shard));
        self.apply(Command::RetryShard(OneShard { group, shard }));
    }

    /// Replaces the policy.
    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.apply(Command::SetPolicy(SetPolicy {
            group: GROUP.try_into().unwrap(),
            seen: None,
            policy,
        }));
    }

    /// The worker that owns a shard.
    pub(crate) fn owner(&self, shard: u32) -> Option<WorkerName> {
        let owner = self.shard(shard).owner()?;
        Some(self.state.session(owner)?.worker.clone())
    }

    /// The session of a worker, if it is registered.
    pub(crate) fn session(&self, worker: &str) -> Option<SessionId> {
        self.state
            .group(self.group)?
            .workers
            .get(&name(worker))?
            .session
    }

    pub(crate) fn leave(&mut self, worker: &str) -> Revision {
        let session = self.session(worker).unwrap();
        self.apply(Command::Leave(session))
    }

    pub(crate) fn expire(&mut self, worker: &str) -> Revision {
        let session = self.session(worker).unwrap();
        self.apply(Command::Expire(vec![session]))
    }

    pub(crate) fn set_mode(&mut self, worker: &str, mode: WorkerMode) {
        let group = GROUP.try_into().unwrap();
        let worker = name(worker);
        self.apply(Command::SetWorkerMode(SetWorkerMode {
            group,
            worker,
            mode,
            pause_timeout: (mode == WorkerMode::Paused).then_some(Duration::from_secs(60)),
        }));
    }

    pub(crate) fn plan(&self, observed: &Observed) -> Plan {
        planner::plan(&self.state, self.group, observed)
    }

    /// Applies a plan in pieces. Whoever made it promised that it is accepted as a whole.
    pub(crate) fn carry_out(&mut self, plan: Plan) {
        // A quarantine asks a shard back beside any plan.
        let most = self.handoffs_in_flight_max().max(self.revoking().count());
        for command in plan.into_commands(7) {
            self.apply(command);
        }
        assert!(self.revoking().count() <= most);
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = (ShardIndex, &Shard)> {
        self.state.group(self.group).unwrap().indexed_shards()
    }

    pub(crate) fn shard(&self, index: u32) -> &Shard {
        self.state.shard(self.group, ShardIndex(index)).unwrap()
    }

    pub(crate) fn tenure(&self, shard: ShardIndex) -> Tenure {
        Tenure {
            shard,
            epoch: self.shard(shard.0).epoch.unwrap(),
        }
    }

    pub(crate) fn revoking(&self) -> impl Iterator<Item = ShardIndex> + '_ {
        let revoking = |shard: &Shard| matches!(shard.state, ShardState::Revoking(_));
        self.shards()
            .filter(move |(_, shard)| revoking(shard))
            .map(|(index, _)| index)
    }

    pub(crate) fn handoffs_in_flight_max(&self) -> usize {
        let header = &self.state.group(self.group).unwrap().header;
        usize::try_from(header.policy.handoffs_in_flight(header.shard_count)).unwrap()
    }

    /// Every worker gives back what it is asked for.
    pub(crate) fn release_all(&mut self) {
        let revoking: Vec<ShardIndex> = self.revoking().collect();
        for shard in revoking {
            self.release(shard, ReleaseCause::Finished);
        }
    }

    /// The owner of a shard gives it back.
    pub(crate) fn release(&mut self, shard: ShardIndex, cause: ReleaseCause) -> Revision {
        let session = self.shard(shard.0).owner().unwrap();
        let releases = vec![Released {
            tenure: self.tenure(shard),
            cause,
        }];
        self.apply(Command::Release(Release { session, releases }))
    }

    /// Every worker opens what it was granted.
    pub(crate) fn open_all(&mut self) {
        let mut opening: BTreeMap<SessionId, Vec<Tenure>> = BTreeMap::new();
        for (index, shard) in self.shards() {
            if let ShardState::Opening(owner) = shard.state {
                opening.entry(owner).or_default().push(self.tenure(index));
            }
        }
        for (session, tenures) in opening {
            self.apply(Command::Ready(Ready {
                session,
                stores: Vec::new(),
                tenures,
            }));
        }
    }

    /// Plans and carries out, with obedient workers, until there is nothing left to plan.
    pub(crate) fn settle(&mut self, observed: &Observed) {
        for _ in 0..ROUNDS_MAX {
            self.open_all();
            self.release_all();
            let plan = self.plan(observed);
            if plan.is_empty() && self.revoking().next().is_none() {
                self.open_all();
                return;
            }
            self.carry_out(plan);
        }
        panic!(
            "not settled after {ROUNDS_MAX} rounds: {}",
            self.plan(observed).report
        );
    }

    /// Per shard the name of the owner.
    pub(crate) fn owners(&self) -> Vec<Option<WorkerName>> {
        let worker = |session| self.state.session(session).unwrap().worker.clone();
        self.shards()
            .map(|(_, shard)| shard.owner().map(worker))
            .collect()
    }

    /// How many shards each registered worker owns.
    pub(crate) fn loads(&self) -> BTreeMap<WorkerName, usize> {
        let sessions = self.state.sessions();
        sessions
            .map(|(id, session)| (session.worker.clone(), self.state.owned(id).len()))
            .collect()
    }

    /// The shards whose owner is another one than before.
    pub(crate) fn moved_since(&self, before: &[Option<WorkerName>]) -> BTreeSet<ShardIndex> {
        let after = self.owners();
        let moved = (0..).map(ShardIndex).zip(before.iter().zip(after));
        moved
            .filter(|(_, (before, after))| *before != after)
            .map(|(index, _)| index)
            .collect()
    }
}

pub(crate) fn name(worker: &str) -> WorkerName {
    WorkerName::new(worker).unwrap()
}
