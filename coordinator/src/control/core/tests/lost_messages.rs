//! Each message of a story is lost in turn, with its stream (scenario 28).

use std::collections::BTreeMap;

use tenure_fence::Epoch;
use tenure_ownership::command::ReleaseCause;
use tenure_ownership::command::Released;
use tenure_ownership::command::Tenure;
use tenure_ownership::ids::SessionId;
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::ids::StoreName;
use tenure_ownership::policy::Policy;
use tenure_ownership::shard::ShardState;

use super::super::Input;
use super::world::W;
use super::world::World;
use super::world::ms;
use crate::control::message::Down;
use crate::control::message::Duty;
use crate::control::message::SetShard;
use crate::control::message::StreamId;
use crate::control::message::Up;

/// What carries the messages of all workers, and loses one of them.
struct Wire {
    carried: usize,
    loses: usize,
}

impl Wire {
    /// Whether the next message arrives.
    fn carries(&mut self) -> bool {
        self.carried += 1;
        self.carried - 1 != self.loses
    }

    fn has_lost(&self) -> bool {
        self.carried > self.loses
    }
}

/// A worker by the rules of the protocol, to which a shard is ready as soon as it is open.
struct Worker {
    name: &'static str,
    nonce: u128,
    attempt: u64,
    session: Option<SessionId>,
    stream: Option<StreamId>,
    /// How many messages of the stream it has taken.
    taken: usize,
    held: BTreeMap<ShardIndex, Epoch>,
    closed: BTreeMap<ShardIndex, Epoch>,
}

impl Worker {
    fn new(name: &'static str, nonce: u128) -> Self {
        Self {
            name,
            nonce,
            attempt: 0,
            session: None,
            stream: None,
            taken: 0,
            held: BTreeMap::new(),
            closed: BTreeMap::new(),
        }
    }

    /// Opens a stream or takes one message. Returns whether there was anything to do.
    fn step(&mut self, world: &mut World, wire: &mut Wire) -> bool {
        let Some(stream) = self
            .stream
            .filter(|stream| !world.closed.contains_key(stream))
        else {
            self.open_stream(world, wire);
            return true;
        };
        let Some(down) = world.told(stream).get(self.taken).cloned() else {
            return false;
        };
        self.taken += 1;
        if !wire.carries() {
            self.break_stream(world);
            return true;
        }
        for up in self.answer(down) {
            if !wire.carries() {
                self.break_stream(world);
                return true;
            }
            world.input(Input::Message(stream, up));
        }
        true
    }

    fn open_stream(&mut self, world: &mut World, wire: &mut Wire) {
        self.attempt += 1;
        self.stream = None;
        if !wire.carries() {
            return;
        }
        self.taken = 0;
        let stream = match self.session {
            Some(session) => world.resume(session, self.nonce, self.attempt),
            None => world.register_again(self.name, self.nonce, None, self.attempt),
        };
        self.stream = Some(stream);
    }

    fn break_stream(&mut self, world: &mut World) {
        if let Some(stream) = self.stream.take() {
            world.break_stream(stream);
        }
    }

    fn answer(&mut self, down: Down) -> Vec<Up> {
        match down {
            Down::Registered { session, .. } => {
                self.session = Some(SessionId(session.session));
                Vec::new()
            }
            Down::Set { revision, shards } => {
                let mut ups = self.take_set(&shards);
                let held = self.held.iter();
                let tenures = held.map(|(&shard, &epoch)| Tenure { shard, epoch });
                let tenures = tenures.collect();
                let set = revision;
                ups.push(Up::Holding { set, tenures });
                ups.extend(ready(&self.to_open(&shards)));
                ups
            }
            Down::Granted { grants, .. } => {
                let granted = grants.into_iter().map(|(tenure, _)| tenure);
                let opened: Vec<Tenure> = granted.filter(|tenure| self.open(*tenure)).collect();
                ready(&opened)
            }
            Down::Revoke { tenures, .. } => {
                let held = |tenure: &Tenure| self.held.get(&tenure.shard) == Some(&tenure.epoch);
                let given_back: Vec<Tenure> = tenures.into_iter().filter(held).collect();
                given_back
                    .into_iter()
                    .map(|tenure| self.close(tenure))
                    .collect()
            }
            Down::Dismissed => Vec::new(),
            Down::Lost { tenures, .. } => {
                for tenure in tenures {
                    self.close(tenure);
                }
                Vec::new()
            }
            Down::Ack { .. } => Vec::new(),
        }
    }

    /// Takes the shards of a `Set`. Returns what is given back.
    fn take_set(&mut self, shards: &[SetShard]) -> Vec<Up> {
        let named = |shard: &ShardIndex, epoch: &Epoch| {
            shards
                .iter()
                .any(|of| of.tenure.shard == *shard && of.tenure.epoch == *epoch)
        };
        self.held.retain(|shard, epoch| named(shard, epoch));
        let mut given_back = Vec::new();
        for shard in shards {
            let is_closed = self.closed.get(&shard.tenure.shard) >= Some(&shard.tenure.epoch);
            if is_closed || matches!(shard.duty, Duty::Drain(_)) {
                given_back.push(self.close(shard.tenure));
            } else {
                self.open(shard.tenure);
            }
        }
        given_back
    }

    /// What is held and not known to be ready.
    fn to_open(&self, shards: &[SetShard]) -> Vec<Tenure> {
        let opening = shards
            .iter()
            .filter(|shard| matches!(shard.duty, Duty::Open));
        opening
            .map(|shard| shard.tenure)
            .filter(|tenure| self.held.get(&tenure.shard) == Some(&tenure.epoch))
            .collect()
    }

    fn open(&mut self, tenure: Tenure) -> bool {
        if self.closed.get(&tenure.shard) >= Some(&tenure.epoch) {
            return false;
        }
        self.held.insert(tenure.shard, tenure.epoch);
        true
    }

    fn close(&mut self, tenure: Tenure) -> Up {
        self.held.remove(&tenure.shard);
        self.closed.insert(tenure.shard, tenure.epoch);
        let cause = ReleaseCause::Finished;
        Up::Released(vec![Released { tenure, cause }])
    }
}

fn ready(tenures: &[Tenure]) -> Vec<Up> {
    if tenures.is_empty() {
        return Vec::new();
    }
    let stores = vec![StoreName::new("replicated").unwrap()];
    let tenures = tenures.to_vec();
    vec![Up::Ready { tenures, stores }]
}

fn exchange(world: &mut World, wire: &mut Wire, workers: &mut [Worker]) {
    loop {
        let mut busy = false;
        for worker in workers.iter_mut() {
            busy |= worker.step(world, wire);
        }
        if !busy {
            return;
        }
    }
}

/// A worker opens all shards, then gives half of them to another. Returns whether a message was lost.
fn tell(loses: usize) -> bool {
    let mut world = World::new(4, Policy::default());
    let mut wire = Wire { carried: 0, loses };
    let mut workers = vec![Worker::new("a", 1)];
    let begin = world.now;
    exchange(&mut world, &mut wire, &mut workers);
    // The group forms.
    world.advance(ms(200));
    exchange(&mut world, &mut wire, &mut workers);
    let a = world.session_of("a").unwrap();
    workers.push(Worker::new("b", 2));
    exchange(&mut world, &mut wire, &mut workers);
    let b = world.session_of("b").unwrap();

    // No deadline of anything has come near, so none has helped.
    assert!(world.now.since(begin) < W / 2, "message {loses}");
    let mut owners = BTreeMap::new();
    for index in 0..4 {
        let ShardState::Serving(owner) = world.shard(index).state else {
            panic!(
                "message {loses}: shard {index} is {:?}",
                world.shard(index).state
            );
        };
        *owners.entry(owner).or_insert(0) += 1;
    }
    assert_eq!(owners, BTreeMap::from([(a, 2), (b, 2)]), "message {loses}");
    for worker in &workers {
        let session = worker.session.unwrap();
        let held: Vec<Tenure> = world.tenures(session);
        let believed = worker.held.iter();
        let believed: Vec<Tenure> = believed
            .map(|(&shard, &epoch)| Tenure { shard, epoch })
            .collect();
        assert_eq!(held, believed, "message {loses}: {}", worker.name);
    }
    wire.has_lost()
}

#[test]
fn whichever_message_is_lost_with_its_stream_all_shards_are_served_without_waiting() {
    let mut loses = 0;
    while tell(loses) {
        loses += 1;
    }
    // Two registrations with all that follows: none was left out.
    assert!(loses >= 19, "{loses} messages in all");
}
