//! Random commands that fit the state more often than not: dice decide what, and the state how.

use std::time::Duration;

use tenure_fence::{Epoch, GroupName, Owner, Sequence, WriteId};
use tenure_ownership::command::{
    Assign, CreateGroup, DeleteCheckpoint, EndPause, Force, Grant, OneShard, PinShard, PinTo,
    Quarantine, Ready, Register, Release, ReleaseCause, Released, Restore, Revoke, Seal, SetFreeze,
    SetPolicy, SetWorkerMode, Tenure, WriteCheckpoint,
};
use tenure_ownership::feature::Feature;
use tenure_ownership::group::Group;
use tenure_ownership::ids::{
    ClusterId, GroupId, ProcessNonce, Revision, SessionId, ShardIndex, StoreName, WorkerName,
};
use tenure_ownership::policy::Policy;
use tenure_ownership::session::WorkerMode;
use tenure_ownership::shard::RevokeReason;
use tenure_ownership::{Command, State};

/// The dice of one command.
pub(crate) type Throw = [u16; 24];

/// The cluster of all random commands.
pub(crate) const CLUSTER: ClusterId = ClusterId(7);

struct Dice<'a> {
    state: &'a State,
    numbers: std::slice::Iter<'a, u16>,
}

/// Makes a command for a state.
pub(crate) fn command(state: &State, throw: &Throw) -> Command {
    let mut dice = Dice {
        state,
        numbers: throw.iter(),
    };
    if state.cluster().is_none() && !dice.one_in(4) {
        return Command::InitCluster(CLUSTER);
    }
    if let Some(restored) = state.restored()
        && dice.one_in(4)
    {
        return Command::Settle(restored.at);
    }
    match dice.roll(41) {
        0 => Command::InitCluster(CLUSTER),
        1..4 => Command::CreateGroup(dice.create()),
        4 => Command::SetPolicy(dice.set_policy()),
        5 => Command::DeleteGroup(dice.name()),
        6..8 => Command::RemoveGroup(dice.group_id()),
        8..13 => Command::Register(Box::new(dice.register())),
        13 => Command::Expire(dice.some(3, Dice::session)),
        14 => Command::Leave(dice.session()),
        15 => Command::SetWorkerMode(dice.mode()),
        16 => dice.pause_or_freeze(),
        17..24 => Command::Assign(dice.assign()),
        24..27 => Command::Ready(dice.ready()),
        27..30 => Command::Release(dice.release()),
        30..32 => Command::Force(dice.force()),
        32..35 => Command::Seal(dice.seal()),
        35..38 => Command::WriteCheckpoint(dice.write()),
        38 => Command::DeleteCheckpoint(dice.delete_checkpoint()),
        39 => match dice.roll(4) {
            0 => Command::Restore(dice.restore()),
            _ => Command::Settle(Revision(dice.roll(60) as u64)),
        },
        _ => dice.placing(),
    }
}

impl Dice<'_> {
    /// A number below `sides`; 0 when the dice are used up.
    fn roll(&mut self, sides: usize) -> usize {
        self.numbers
            .next()
            .map_or(0, |number| usize::from(*number) % sides)
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == sides - 1
    }

    fn some<T>(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..=self.roll(most)).map(|_| make(self)).collect()
    }

    fn name(&mut self) -> GroupName {
        let name = if self.one_in(4) { "other" } else { "orders" };
        name.parse().unwrap()
    }

    fn group(&mut self) -> Option<&Group> {
        let name = self.name();
        self.state.group_named(&name)
    }

    fn group_id(&mut self) -> GroupId {
        let any = self.roll(30) as u64;
        self.group().map_or(GroupId(any), |group| group.header.id)
    }

    fn worker(&mut self) -> WorkerName {
        WorkerName::new(["a", "b", "c"][self.roll(3)]).unwrap()
    }

    /// Mostly a live session.
    fn session(&mut self) -> SessionId {
        let live: Vec<_> = self.state.sessions().map(|(id, _)| id).collect();
        if live.is_empty() || self.one_in(10) {
            return SessionId(self.roll(60) as u64);
        }
        live[self.roll(live.len())]
    }

    fn optional_session(&mut self) -> Option<SessionId> {
        (!self.one_in(3)).then(|| self.session())
    }

    fn group_of(&self, session: SessionId) -> GroupId {
        self.state
            .session(session)
            .map_or(GroupId(0), |session| session.group)
    }

    /// Mostly a shard of the session at its epoch.
    fn tenure(&mut self, group: GroupId, session: Option<SessionId>) -> Tenure {
        let owned: Vec<_> = session
            .into_iter()
            .flat_map(|id| self.state.owned(id))
            .collect();
        let shard = if owned.is_empty() || self.one_in(8) {
            ShardIndex(self.roll(6) as u32)
        } else {
            owned[self.roll(owned.len())]
        };
        let current = self.state.shard(group, shard).and_then(|shard| shard.epoch);
        let any = Epoch::new(1 + self.roll(8) as u64).unwrap();
        let epoch = if self.one_in(10) {
            any
        } else {
            current.unwrap_or(any)
        };
        Tenure { shard, epoch }
    }

    /// Mostly of the state's own cluster.
    fn restore(&mut self) -> Restore {
        let own = self.state.cluster().unwrap_or(CLUSTER);
        let from = if self.one_in(8) { ClusterId(99) } else { own };
        Restore {
            from,
            to: ClusterId(if self.one_in(8) { own.0 } else { own.0 + 1 }),
            floor_min: match self.roll(4) {
                0 => self.fence().get(),
                other => other as u64 * (1 << 33),
            },
            quiet_min: Duration::from_secs(self.roll(3) as u64),
        }
    }

    fn create(&mut self) -> CreateGroup {
        CreateGroup {
            name: self.name(),
            shard_count: self.roll(6) as u32,
            policy: self.policy(),
        }
    }

    fn policy(&mut self) -> Policy {
        let usual = Policy::default();
        Policy {
            lock_delay: Duration::from_secs(self.roll(5) as u64 / 4),
            ttl: Duration::from_secs(self.roll(20) as u64),
            checkpoint_bytes_max: if self.one_in(4) {
                2
            } else {
                usual.checkpoint_bytes_max
            },
            checkpoint_total_bytes_max: if self.one_in(4) { 8 } else { 1_000 },
            worker_shards_max: self.one_in(8).then(|| self.roll(3) as u32),
            ..usual
        }
    }

    fn set_policy(&mut self) -> SetPolicy {
        let seen = Revision(self.roll(50) as u64);
        SetPolicy {
            group: self.name(),
            seen: self.one_in(3).then_some(seen),
            policy: self.policy(),
        }
    }

    fn register(&mut self) -> Register {
        let (group, worker) = (self.name(), self.worker());
        let known = self
            .state
            .group_named(&group)
            .and_then(|group| group.workers.get(&worker));
        let holder = known.and_then(|worker| worker.session);
        let any = self.optional_session();
        Register {
            group,
            worker,
            nonce: ProcessNonce(self.roll(6) as u128),
            first: self.one_in(6).then(|| self.session()),
            replaces: if self.one_in(8) { any } else { holder },
            ttl: self
                .one_in(4)
                .then(|| Duration::from_secs(self.roll(8) as u64)),
            weight: 1 + self.roll(3) as u32,
            labels: [("zone".to_owned(), "south".to_owned())].into(),
            address: "worker:9000".to_owned(),
        }
    }

    fn mode(&mut self) -> SetWorkerMode {
        let mode = match self.roll(6) {
            0 => WorkerMode::Draining,
            1 => WorkerMode::Cordoned,
            2 => WorkerMode::Paused,
            _ => WorkerMode::Active,
        };
        let pause = (mode == WorkerMode::Paused) != self.one_in(12);
        let timeout = Duration::from_secs(self.roll(40) as u64);
        SetWorkerMode {
            group: self.name(),
            worker: self.worker(),
            mode,
            pause_timeout: pause.then_some(timeout),
        }
    }

    /// Mostly the end of a pause that there is.
    fn pause_or_freeze(&mut self) -> Command {
        if self.one_in(3) {
            let reasons = ["release", "", "x"];
            let reason = reasons[self.roll(3)].to_owned();
            return Command::SetFreeze(SetFreeze {
                group: self.name(),
                reason: (!self.one_in(3)).then_some(reason),
            });
        }
        let (group, worker) = (self.group_id(), self.worker());
        let known = self.state.group(group);
        let known = known.and_then(|group| group.workers.get(&worker)?.pause);
        let any = Revision(self.roll(50) as u64);
        Command::EndPause(EndPause {
            group,
            worker,
            since: known.map_or(any, |pause| pause.since),
        })
    }

    fn assign(&mut self) -> Assign {
        let session = self.session();
        let group = if self.one_in(12) {
            self.group_id()
        } else {
            self.group_of(session)
        };
        let granted = self.roll(3);
        let revoked = self.roll(3);
        Assign {
            group,
            grants: (0..granted).map(|_| self.grant(group, session)).collect(),
            revokes: (0..revoked).map(|_| self.revoke(group)).collect(),
        }
    }

    fn grant(&mut self, group: GroupId, to: SessionId) -> Grant {
        let shard = ShardIndex(self.roll(6) as u32);
        let current = self.state.shard(group, shard).and_then(|shard| shard.epoch);
        let seen = if self.one_in(10) {
            Epoch::new(self.roll(4) as u64)
        } else {
            current
        };
        Grant { shard, seen, to }
    }

    fn revoke(&mut self, group: GroupId) -> Revoke {
        let owner = self.optional_session();
        let Tenure { shard, epoch: seen } = self.tenure(group, owner);
        let reasons = [
            RevokeReason::Rebalance,
            RevokeReason::Draining,
            RevokeReason::OpeningDeadline,
            RevokeReason::Stopping,
            RevokeReason::Placement,
        ];
        let reason = reasons[self.roll(4)];
        Revoke {
            shard,
            seen,
            next: self.optional_session(),
            reason,
        }
    }

    fn placing(&mut self) -> Command {
        match self.roll(6) {
            0 => Command::PinShard(self.pin()),
            1 => Command::UnpinShard(self.one_shard()),
            2 | 3 => Command::Quarantine(self.quarantine()),
            4 => Command::RetryShard(self.quarantined()),
            _ => Command::EnableFeature(Feature::Baseline),
        }
    }

    fn one_shard(&mut self) -> OneShard {
        OneShard {
            group: self.name(),
            shard: ShardIndex(self.roll(6) as u32),
        }
    }

    /// A shard in quarantine, if there is one.
    fn quarantined(&mut self) -> OneShard {
        let any = self.one_shard();
        let group = self.state.group_named(&any.group);
        let mut said = group.into_iter().flat_map(|group| group.placements.iter());
        let found = said.find(|(_, placement)| placement.quarantine.is_some());
        OneShard {
            shard: found.map_or(any.shard, |(index, _)| *index),
            ..any
        }
    }

    fn pin(&mut self) -> PinShard {
        let OneShard { group, shard } = self.one_shard();
        let to = if self.one_in(2) {
            PinTo::Worker(self.worker())
        } else {
            PinTo::AnyBut(self.some(2, Self::worker).into_iter().collect())
        };
        PinShard { group, shard, to }
    }

    fn quarantine(&mut self) -> Quarantine {
        let group = self.group_id();
        let owner = self.optional_session();
        let Tenure { shard, epoch } = self.tenure(group, owner);
        Quarantine {
            group,
            shard,
            seen: epoch,
            crashes: self.roll(5) as u32,
        }
    }

    fn ready(&mut self) -> Ready {
        let session = self.session();
        let group = self.group_of(session);
        let store = |dice: &mut Self| StoreName::new(["main", "side"][dice.roll(2)]).unwrap();
        Ready {
            session,
            stores: self.some(2, store),
            tenures: self.some(2, |dice| dice.tenure(group, Some(session))),
        }
    }

    fn release(&mut self) -> Release {
        let session = self.session();
        let group = self.group_of(session);
        let released = |dice: &mut Self| Released {
            tenure: dice.tenure(group, Some(session)),
            cause: dice.cause(),
        };
        Release {
            session,
            releases: self.some(2, released),
        }
    }

    fn cause(&mut self) -> ReleaseCause {
        match self.roll(8) {
            0 => ReleaseCause::Lost,
            1 => ReleaseCause::OpenFailed("x".repeat(300)),
            2 => ReleaseCause::StoreAhead(self.fence()),
            _ => ReleaseCause::Finished,
        }
    }

    /// Sometimes so high that the epochs of the shard are soon used up.
    fn fence(&mut self) -> Epoch {
        let small = 1 + self.roll(20) as u64;
        let number = if self.one_in(6) {
            Epoch::MAX.get() - small + 1
        } else {
            small
        };
        Epoch::new(number).unwrap()
    }

    fn force(&mut self) -> Force {
        let session = self.session();
        let group = self.group_of(session);
        Force {
            group,
            tenures: self.some(3, |dice| dice.tenure(group, Some(session))),
        }
    }

    /// Mostly the session's own name and group.
    fn writer(&mut self) -> (GroupName, Owner, GroupId, SessionId) {
        let session = self.session();
        let group = self.group_of(session);
        let name = self
            .state
            .group(group)
            .map(|group| group.header.name.clone());
        let any = self.name();
        let own = self.state.cluster().unwrap_or(CLUSTER).0;
        let cluster = if self.one_in(30) { own + 1 } else { own };
        let owner = Owner {
            cluster,
            session: session.0,
        };
        (name.unwrap_or(any), owner, group, session)
    }

    fn seal(&mut self) -> Seal {
        let (name, owner, group, session) = self.writer();
        let tenures = self.some(3, |dice| dice.tenure(group, Some(session)));
        Seal {
            group: name,
            owner,
            tenures,
        }
    }

    fn write(&mut self) -> WriteCheckpoint {
        let (name, owner, group, session) = self.writer();
        let tenure = self.tenure(group, Some(session));
        let length = self.roll(6);
        let letter = b'a' + self.roll(26) as u8;
        WriteCheckpoint {
            group: name,
            owner,
            tenure,
            sequence: self.sequence(),
            write_id: self.write_id(),
            crc32c: u32::from(letter),
            data: vec![letter; length].into(),
        }
    }

    fn delete_checkpoint(&mut self) -> DeleteCheckpoint {
        let (name, owner, group, session) = self.writer();
        let tenure = self.tenure(group, Some(session));
        DeleteCheckpoint {
            group: name,
            owner,
            tenure,
            sequence: self.sequence(),
            write_id: self.write_id(),
        }
    }

    /// Few, so that retries, reuse and late arrivals are frequent.
    fn sequence(&mut self) -> Sequence {
        Sequence::new(1 + self.roll(4) as u64).unwrap()
    }

    fn write_id(&mut self) -> WriteId {
        WriteId::new(self.roll(3) as u128)
    }
}
