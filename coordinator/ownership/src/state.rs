//! All records in memory, and questions that change nothing.
//!
//! Only [`crate::apply()`] changes a state. It marks what it touches, so that the records written
//! are exactly the records changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tenure_fence::GroupName;

use crate::codec;
use crate::feature::Feature;
use crate::group::{Group, GroupHeader, Tombstone};
use crate::ids::{ClusterId, GroupId, Revision, SessionId, ShardIndex};
use crate::record::{CorruptRecord, Meta, Record, RecordKey, RecordWrite};
use crate::restored::Restored;
use crate::session::Session;
use crate::shard::Shard;

/// The replicated state: equal on every node that has applied the same log (P9).
///
/// A clone costs a few pointers, however large the state is: it shares everything with the original,
/// and what a command changes afterwards is copied first, in small parts. So whoever reads for long,
/// as the planner does, reads a clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) revision: Revision,
    pub(crate) features: BTreeSet<Feature>,
    pub(crate) restored: Option<Restored>,
    pub(crate) groups: Arc<BTreeMap<GroupId, Arc<Group>>>,
    pub(crate) tombstones: Arc<BTreeMap<GroupName, Tombstone>>,
    pub(crate) sessions: Arc<BTreeMap<SessionId, Arc<Session>>>,
    /// Derived: groups by name.
    pub(crate) names: Arc<BTreeMap<GroupName, GroupId>>,
    /// Derived: the shards a live session owns; an entry exists for every live session.
    pub(crate) owned: Arc<BTreeMap<SessionId, Arc<BTreeSet<ShardIndex>>>>,
    /// What the command at hand has changed; empty between commands.
    pub(crate) touched: Touched,
}

/// Records to write and blobs to put or delete, collected while one command is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) records: BTreeSet<RecordKey>,
    pub(crate) blobs: BTreeMap<RecordKey, Option<Bytes>>,
}

impl Touched {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.blobs.is_empty()
    }
}

impl State {
    /// The state before the first command.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a state back from its records; blobs among them are passed over.
    ///
    /// A group comes before its workers and shards, as it does in the order of keys and in that of
    /// [`State::records`].
    ///
    /// # Errors
    /// [`CorruptRecord`] for a record that cannot be decoded, and for one that refers to a group or a
    /// session without a record.
    pub fn from_records<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        records: impl Iterator<Item = (K, V)>,
    ) -> Result<Self, CorruptRecord> {
        let mut state = Self::new();
        for (key, value) in records {
            let key = key.as_ref();
            let loaded = Record::decode(key, value.as_ref()).and_then(|record| state.load(record));
            loaded.map_err(|problem| CorruptRecord {
                key: key.to_vec(),
                problem,
            })?;
        }
        let is_dead = |owner: &&SessionId| !state.sessions.contains_key(*owner);
        if let Some(owner) = state.owned.keys().find(is_dead) {
            return Err(CorruptRecord {
                key: RecordKey::Session(*owner).encode(),
                problem: "it is missing, and owns shards".to_owned(),
            });
        }
        Ok(state)
    }

    /// All records, without blobs: what [`State::from_records`] reads.
    pub fn records(&self) -> impl Iterator<Item = (Vec<u8>, Bytes)> + '_ {
        self.record_keys()
            .filter_map(|key| Some((key.encode(), self.value(&key)?)))
    }

    /// Identity of the cluster; `None` before it is initialised.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// Log index of the command that last changed the state.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Whether a behaviour is on.
    pub fn enabled(&self, feature: Feature) -> bool {
        feature == Feature::Baseline || self.features.contains(&feature)
    }

    /// The restore that made this cluster, while nothing is granted for its sake; `None` in ordinary
    /// life.
    pub fn restored(&self) -> Option<Restored> {
        self.restored
    }

    /// Behaviours that were switched on, in order.
    pub fn features(&self) -> impl Iterator<Item = Feature> + '_ {
        self.features.iter().copied()
    }

    /// A group by id, also while it is being deleted.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id).map(|group| &**group)
    }

    /// A group by name, also while it is being deleted.
    pub fn group_named(&self, name: &GroupName) -> Option<&Group> {
        self.names.get(name).and_then(|id| self.group(*id))
    }

    /// All groups in order of creation.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values().map(|group| &**group)
    }

    /// What remains of a deleted group of this name.
    pub fn tombstone(&self, name: &GroupName) -> Option<&Tombstone> {
        self.tombstones.get(name)
    }

    /// A live session.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id).map(|session| &**session)
    }

    /// All live sessions in order of registration.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.iter().map(|(id, session)| (*id, &**session))
    }

    /// The shards a live session owns, in order; empty for a session that has ended.
    pub fn owned(&self, session: SessionId) -> impl ExactSizeIterator<Item = ShardIndex> + '_ {
        static NONE: BTreeSet<ShardIndex> = BTreeSet::new();
        let owned = self.owned.get(&session);
        owned.map_or(&NONE, |owned| &**owned).iter().copied()
    }

    /// A shard.
    pub fn shard(&self, group: GroupId, index: ShardIndex) -> Option<&Shard> {
        self.groups.get(&group)?.shard(index)
    }

    /// Bytes of all checkpoints of a group in the replicated store.
    pub fn checkpoint_bytes(&self, group: GroupId) -> u64 {
        self.group(group).map_or(0, |group| group.checkpoint_bytes)
    }

    /// A group to be changed. Copies, of what a clone of the state shares, what does not grow with the
    /// shards, and the pointers to their pages.
    pub(crate) fn group_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        Arc::make_mut(&mut self.groups)
            .get_mut(&id)
            .map(Arc::make_mut)
    }

    /// The shards of a session to be changed, from now on of a live one.
    pub(crate) fn owned_mut(&mut self, id: SessionId) -> &mut BTreeSet<ShardIndex> {
        Arc::make_mut(Arc::make_mut(&mut self.owned).entry(id).or_default())
    }

    /// Notes that the command at `revision` changed the state.
    pub(crate) fn advance(&mut self, revision: Revision) {
        self.revision = revision;
        self.touched.records.insert(RecordKey::Meta);
    }

    /// Turns what was touched into record writes and forgets it.
    pub(crate) fn take_writes(&mut self) -> Vec<RecordWrite> {
        let touched = std::mem::take(&mut self.touched);
        let records = touched.records.iter().map(|key| RecordWrite {
            key: key.encode(),
            value: self.value(key),
        });
        let blobs = touched.blobs.iter().map(|(key, value)| RecordWrite {
            key: key.encode(),
            value: value.clone(),
        });
        records.chain(blobs).collect()
    }

    /// The value of a record as it is now; `None` if there is none any more.
    fn value(&self, key: &RecordKey) -> Option<Bytes> {
        let bytes = match key {
            RecordKey::Meta => codec::to_vec(&Meta {
                cluster: self.cluster,
                revision: self.revision,
                features: self.features.iter().copied().collect(),
                restored: self.restored,
            }),
            RecordKey::Group(id) => codec::to_vec(&self.groups.get(id)?.header),
            RecordKey::Tombstone(name) => codec::to_vec(self.tombstones.get(name)?),
            RecordKey::Worker(group, name) => {
                codec::to_vec(self.groups.get(group)?.workers.get(name)?)
            }
            RecordKey::Session(id) => codec::to_vec(self.session(*id)?),
            RecordKey::Shard(group, index) => codec::to_vec(self.shard(*group, *index)?),
            RecordKey::Placement(group, index) => {
                codec::to_vec(self.groups.get(group)?.placements.get(index)?)
            }
            RecordKey::Blob(..) => return None,
        };
        Some(bytes.into())
    }

    fn record_keys(&self) -> impl Iterator<Item = RecordKey> + '_ {
        let groups = self.groups.values().flat_map(|group| {
            let id = group.header.id;
            let workers = group
                .workers
                .keys()
                .map(move |name| RecordKey::Worker(id, name.clone()));
            let shards = group
                .indexed_shards()
                .filter(|(_, shard)| !shard.is_new())
                .map(move |(index, _)| RecordKey::Shard(id, index));
            let placements = group
                .placements
                .keys()
                .map(move |index| RecordKey::Placement(id, *index));
            std::iter::once(RecordKey::Group(id))
                .chain(workers)
                .chain(shards)
                .chain(placements)
        });
        // Nothing was written before the first change.
        let meta = (self.revision > Revision::default()).then_some(RecordKey::Meta);
        meta.into_iter()
            .chain(self.tombstones.keys().cloned().map(RecordKey::Tombstone))
            .chain(self.sessions.keys().copied().map(RecordKey::Session))
            .chain(groups)
    }

    fn load_meta(&mut self, meta: Meta) {
        self.cluster = meta.cluster;
        self.revision = meta.revision;
        self.features = meta.features.into_iter().collect();
        self.restored = meta.restored;
    }

    /// Adds a group with all its shards as they are without a record, and indexes it.
    pub(crate) fn insert_group(&mut self, header: GroupHeader) {
        Arc::make_mut(&mut self.names).insert(header.name.clone(), header.id);
        Arc::make_mut(&mut self.groups).insert(header.id, Arc::new(Group::new(header)));
    }

    fn load(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Meta(meta) => self.load_meta(meta),
            Record::Group(header) => self.insert_group(header),
            Record::Tombstone(name, tombstone) => {
                Arc::make_mut(&mut self.tombstones).insert(name, tombstone);
            }
            Record::Session(id, session) => {
                self.owned_mut(id);
                Arc::make_mut(&mut self.sessions).insert(id, Arc::new(session));
            }
            Record::Worker(group, name, worker) => {
                let group = self.group_mut(group).ok_or("its group is missing")?;
                Arc::make_mut(&mut group.workers).insert(name, worker);
            }
            Record::Shard(group, index, shard) => self.load_shard(group, index, shard)?,
            Record::Placement(group, index, placement) => {
                let group = self.group_mut(group).ok_or("its group is missing")?;
                group.shard(index).ok_or("its index is out of range")?;
                Arc::make_mut(&mut group.placements).insert(index, placement);
            }
            Record::Blob => {}
        }
        Ok(())
    }

    fn load_shard(&mut self, id: GroupId, index: ShardIndex, shard: Shard) -> Result<(), String> {
        let group = self.group_mut(id).ok_or("its group is missing")?;
        let owner = shard.owner();
        let bytes = shard.checkpoint_bytes();
        *group.shard_mut(index).ok_or("its index is out of range")? = shard;
        group.checkpoint_bytes += bytes;
        group.share_names(index);
        group.index(index);
        if let Some(owner) = owner {
            self.owned_mut(owner).insert(index);
        }
        Ok(())
    }
}
