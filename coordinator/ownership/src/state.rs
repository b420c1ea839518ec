//! All records in memory, and questions that change nothing.
//!
//! Only [`crate::apply()`] changes a state. It marks what it touches, so that the records written
//! are exactly the records changed.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tenure_fence::GroupName;

use crate::codec;
use crate::feature::Feature;
use crate::group::{Group, GroupHeader, Tombstone};
use crate::ids::{ClusterId, GroupId, Revision, SessionId, ShardIndex};
use crate::record::{CorruptRecord, Meta, Record, RecordKey, RecordWrite};
use crate::session::Session;
use crate::shard::Shard;

/// The replicated state: equal on every node that has applied the same log (P9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) revision: Revision,
    pub(crate) features: BTreeSet<Feature>,
    pub(crate) groups: BTreeMap<GroupId, Group>,
    pub(crate) tombstones: BTreeMap<GroupName, Tombstone>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// Derived: groups by name.
    pub(crate) names: BTreeMap<GroupName, GroupId>,
    /// Derived: the shards a live session owns; an entry exists for every live session.
    pub(crate) owned: BTreeMap<SessionId, BTreeSet<ShardIndex>>,
    /// Derived: bytes of all checkpoints of a group.
    pub(crate) checkpoint_bytes: BTreeMap<GroupId, u64>,
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

    /// A group by id, also while it is being deleted.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id)
    }

    /// A group by name, also while it is being deleted.
    pub fn group_named(&self, name: &GroupName) -> Option<&Group> {
        self.names.get(name).and_then(|id| self.groups.get(id))
    }

    /// All groups in order of creation.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// What remains of a deleted group of this name.
    pub fn tombstone(&self, name: &GroupName) -> Option<&Tombstone> {
        self.tombstones.get(name)
    }

    /// A live session.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// All live sessions in order of registration.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.iter().map(|(id, session)| (*id, session))
    }

    /// The shards a live session owns, in order; empty for a session that has ended.
    pub fn owned(&self, session: SessionId) -> impl ExactSizeIterator<Item = ShardIndex> + '_ {
        static NONE: BTreeSet<ShardIndex> = BTreeSet::new();
        self.owned.get(&session).unwrap_or(&NONE).iter().copied()
    }

    /// A shard.
    pub fn shard(&self, group: GroupId, index: ShardIndex) -> Option<&Shard> {
        self.groups.get(&group)?.shard(index)
    }

    /// Bytes of all checkpoints of a group in the replicated store.
    pub fn checkpoint_bytes(&self, group: GroupId) -> u64 {
        self.checkpoint_bytes.get(&group).copied().unwrap_or(0)
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
            }),
            RecordKey::Group(id) => codec::to_vec(&self.groups.get(id)?.header),
            RecordKey::Tombstone(name) => codec::to_vec(self.tombstones.get(name)?),
            RecordKey::Worker(group, name) => {
                codec::to_vec(self.groups.get(group)?.workers.get(name)?)
            }
            RecordKey::Session(id) => codec::to_vec(self.sessions.get(id)?),
            RecordKey::Shard(group, index) => codec::to_vec(self.shard(*group, *index)?),
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
            std::iter::once(RecordKey::Group(id))
                .chain(workers)
                .chain(shards)
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
    }

    /// Adds a group with all its shards as they are without a record, and indexes it.
    pub(crate) fn insert_group(&mut self, header: GroupHeader) {
        self.names.insert(header.name.clone(), header.id);
        self.checkpoint_bytes.insert(header.id, 0);
        self.groups.insert(header.id, Group::new(header));
    }

    fn load(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Meta(meta) => self.load_meta(meta),
            Record::Group(header) => self.insert_group(header),
            Record::Tombstone(name, tombstone) => {
                self.tombstones.insert(name, tombstone);
            }
            Record::Session(id, session) => {
                self.owned.entry(id).or_default();
                self.sessions.insert(id, session);
            }
            Record::Worker(group, name, worker) => {
                let group = self.groups.get_mut(&group).ok_or("its group is missing")?;
                group.workers.insert(name, worker);
            }
            Record::Shard(group, index, shard) => self.load_shard(group, index, shard)?,
            Record::Blob => {}
        }
        Ok(())
    }

    fn load_shard(&mut self, id: GroupId, index: ShardIndex, shard: Shard) -> Result<(), String> {
        let group = self.groups.get_mut(&id).ok_or("its group is missing")?;
        let place = group.shard_mut(index).ok_or("its index is out of range")?;
        if let Some(owner) = shard.owner() {
            self.owned.entry(owner).or_default().insert(index);
        }
        *self.checkpoint_bytes.entry(id).or_default() += shard.checkpoint_bytes();
        *place = shard;
        group.index(index);
        Ok(())
    }
}
