//! One log entry on its way through the rules: the state it changes and what it leaves behind.
//!
//! Rules read through [`Entry::state`] and change through the functions below, which mark what they
//! touch: what is changed is written, and nothing else.

use std::sync::Arc;

use bytes::Bytes;
use tenure_fence::GroupName;

use super::Effect;
use crate::event::Event;
use crate::feature::Feature;
use crate::group::{Group, GroupHeader, GroupPhase, Tombstone};
use crate::ids::{ClusterId, GroupId, Revision, SessionId, ShardIndex, WorkerName};
use crate::placement::Placement;
use crate::record::RecordKey;
use crate::rejection::Rejection;
use crate::restored::Restored;
use crate::session::{Session, Worker, WorkerMode};
use crate::shard::{Shard, ShardState};
use crate::state::State;

pub(super) struct Entry<'a> {
    state: &'a mut State,
    revision: Revision,
    effect: Effect,
}

impl<'a> Entry<'a> {
    pub(super) fn new(state: &'a mut State, revision: Revision) -> Self {
        Self {
            state,
            revision,
            effect: Effect::default(),
        }
    }

    pub(super) fn into_effect(self) -> Effect {
        self.effect
    }

    pub(super) fn state(&self) -> &State {
        self.state
    }

    /// Revision of this entry: the id of what it creates.
    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// Adds a fact.
    pub(super) fn record(&mut self, event: Event) {
        self.effect.events.push(event);
    }

    /// Notes the refusal of one shard of a command.
    pub(super) fn refuse(&mut self, shard: ShardIndex, rejection: Rejection) {
        self.effect.refused.push((shard, rejection));
    }

    pub(super) fn set_cluster(&mut self, cluster: ClusterId) {
        self.state.cluster = Some(cluster);
        self.touch(RecordKey::Meta);
    }

    pub(super) fn set_restored(&mut self, restored: Option<Restored>) {
        self.state.restored = restored;
        self.touch(RecordKey::Meta);
    }

    /// Returns whether the feature was off.
    pub(super) fn insert_feature(&mut self, feature: Feature) -> bool {
        let inserted = self.state.features.insert(feature);
        if inserted {
            self.touch(RecordKey::Meta);
        }
        inserted
    }

    /// Adds a group whose shards all have the floor.
    pub(super) fn insert_group(&mut self, header: GroupHeader, floor: u64) {
        let (id, shard_count) = (header.id, header.shard_count);
        self.state.insert_group(header);
        self.touch(RecordKey::Group(id));
        if floor == 0 {
            // A shard without a record is as `insert_group` made it.
            return;
        }
        for shard in (0..shard_count).map(ShardIndex) {
            self.shard_mut(id, shard).floor = floor;
        }
    }

    /// Takes a group with all its records away. Its sessions must have ended.
    pub(super) fn remove_group(&mut self, id: GroupId) {
        let Some(group) = Arc::make_mut(&mut self.state.groups).remove(&id) else {
            unreachable!("group #{id} is removed without being there");
        };
        Arc::make_mut(&mut self.state.names).remove(&group.header.name);
        self.touch(RecordKey::Group(id));
        for name in group.workers.keys() {
            self.touch(RecordKey::Worker(id, name.clone()));
        }
        for index in group.placements.keys() {
            self.touch(RecordKey::Placement(id, *index));
        }
        for (index, shard) in group.indexed_shards() {
            if !shard.is_new() {
                self.touch(RecordKey::Shard(id, index));
            }
            if shard.content().is_some() {
                self.put_blob(id, index, None);
            }
        }
    }

    pub(super) fn header_mut(&mut self, id: GroupId) -> &mut GroupHeader {
        self.touch(RecordKey::Group(id));
        match self.state.group_mut(id) {
            Some(group) => &mut group.header,
            None => unreachable!("group #{id} is changed without being there"),
        }
    }

    pub(super) fn put_tombstone(&mut self, name: GroupName, tombstone: Tombstone) {
        Arc::make_mut(&mut self.state.tombstones).insert(name.clone(), tombstone);
        self.touch(RecordKey::Tombstone(name));
    }

    /// Removes the tombstone of a name and returns its floor, 0 if there is none.
    pub(super) fn take_tombstone(&mut self, name: &GroupName) -> u64 {
        let Some(tombstone) = self.state.tombstone(name).copied() else {
            return 0;
        };
        Arc::make_mut(&mut self.state.tombstones).remove(name);
        self.touch(RecordKey::Tombstone(name.clone()));
        tombstone.floor
    }

    /// Adds a live session and makes it the session of its worker.
    pub(super) fn insert_session(&mut self, id: SessionId, session: Session) {
        self.change_worker(session.group, session.worker.clone(), |worker| {
            worker.session = Some(id);
        });
        self.state.owned_mut(id);
        Arc::make_mut(&mut self.state.sessions).insert(id, Arc::new(session));
        self.touch(RecordKey::Session(id));
    }

    /// Takes a session out of the live ones. Its tenures are to be ended in this entry, and then
    /// [`Entry::forget_owned`] called.
    pub(super) fn remove_session(&mut self, id: SessionId) -> Option<Arc<Session>> {
        self.state.session(id)?;
        let session = Arc::make_mut(&mut self.state.sessions).remove(&id)?;
        self.change_worker(session.group, session.worker.clone(), |worker| {
            worker.session = None;
        });
        self.touch(RecordKey::Session(id));
        Some(session)
    }

    /// Drops the index entry of a session whose tenures have ended.
    pub(super) fn forget_owned(&mut self, id: SessionId) {
        let owned = Arc::make_mut(&mut self.state.owned).remove(&id);
        let left = owned.unwrap_or_default();
        assert!(
            left.is_empty(),
            "session {id} ended and still owns {left:?}"
        );
    }

    /// Changes what is known of a worker; the record comes and goes as needed.
    pub(super) fn change_worker(
        &mut self,
        id: GroupId,
        name: WorkerName,
        change: impl FnOnce(&mut Worker),
    ) {
        let Some(group) = self.state.group_mut(id) else {
            unreachable!("worker {name} is changed without its group #{id}");
        };
        let workers = Arc::make_mut(&mut group.workers);
        let worker = workers.entry(name.clone()).or_default();
        change(worker);
        if worker.session.is_none() && worker.mode == WorkerMode::Active {
            workers.remove(&name);
        }
        self.touch(RecordKey::Worker(id, name));
    }

    /// Changes what is said of the place of a shard; the record comes and goes as needed.
    pub(super) fn change_placement(
        &mut self,
        id: GroupId,
        index: ShardIndex,
        change: impl FnOnce(&mut Placement),
    ) {
        let Some(group) = self.state.group_mut(id) else {
            unreachable!("the place of shard {index} is changed without its group #{id}");
        };
        let placements = Arc::make_mut(&mut group.placements);
        let placement = placements.entry(index).or_default();
        change(placement);
        if placement.is_empty() {
            placements.remove(&index);
        }
        self.touch(RecordKey::Placement(id, index));
    }

    /// A shard to be changed in anything but its state, which is for [`Entry::set_shard_state`].
    pub(super) fn shard_mut(&mut self, group: GroupId, index: ShardIndex) -> &mut Shard {
        self.touch(RecordKey::Shard(group, index));
        let group_found = self.state.group_mut(group);
        match group_found.and_then(|group| group.shard_mut(index)) {
            Some(shard) => shard,
            None => unreachable!("shard {index} of group #{group} is changed without being there"),
        }
    }

    /// Changes which stores of a shard were ready at which epochs.
    pub(super) fn change_stores(
        &mut self,
        group: GroupId,
        index: ShardIndex,
        change: impl FnOnce(&mut Shard),
    ) {
        change(self.shard_mut(group, index));
        if let Some(group) = self.state.group_mut(group) {
            group.share_names(index);
        }
    }

    /// Moves a shard to another state and keeps the indices in step.
    pub(super) fn set_shard_state(&mut self, group: GroupId, index: ShardIndex, state: ShardState) {
        let shard = self.shard_mut(group, index);
        let before = shard.owner();
        shard.state = state;
        let after = shard.owner();
        if let Some(group) = self.state.group_mut(group) {
            group.index(index);
        }
        if before == after {
            return;
        }
        if let Some(owner) = before {
            let owned = Arc::make_mut(&mut self.state.owned).get_mut(&owner);
            owned.map(|owned| Arc::make_mut(owned).remove(&index));
        }
        if let Some(owner) = after {
            self.state.owned_mut(owner).insert(index);
        }
    }

    /// Puts or deletes the bytes of a checkpoint.
    pub(super) fn put_blob(&mut self, group: GroupId, index: ShardIndex, data: Option<Bytes>) {
        let key = RecordKey::Blob(group, index);
        self.state.touched.blobs.insert(key, data);
    }

    /// Accounts for a checkpoint that changed its size.
    pub(super) fn set_checkpoint_bytes(&mut self, group: GroupId, bytes: u64) {
        if let Some(group) = self.state.group_mut(group) {
            group.checkpoint_bytes = bytes;
        }
    }

    fn touch(&mut self, key: RecordKey) {
        self.state.touched.records.insert(key);
    }
}

/// A group by name, if it takes part in ordinary life.
pub(super) fn active_group<'a>(state: &'a State, name: &GroupName) -> Result<&'a Group, Rejection> {
    let Some(group) = state.group_named(name) else {
        return Err(Rejection::UnknownGroup { name: name.clone() });
    };
    if group.header.phase == GroupPhase::Deleting {
        return Err(Rejection::GroupDeleting { name: name.clone() });
    }
    Ok(group)
}
