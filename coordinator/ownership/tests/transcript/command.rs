//! The words of scripts.
//!
//! ```text
//! init [cluster=7]                          create shards=4 [ttl=10s ...policy]
//! policy [seen=2] [ttl=10s ...policy]       delete            remove
//! register a1 [first=a1] [replaces=b1] [ttl=5s] [weight=2] [label=k:v] [address=x]
//! expire a1 b1      leave a1                drain a           activate a
//! grant a1 0@none 1@3                       revoke 0@1 [next=b1] [reason=draining|rebalance|opening]
//! ready a1 0@1 [stores=x,y]                 release a1 0@1 [lost] [failed="why"] [ahead=9]
//! force 0@1                                 seal a1 0@1 [cluster=8]
//! write a1 0@1 seq=1 id=1 data=text         erase a1 0@1 seq=1 id=1
//! feature baseline                          restore to=8 [from=7] [floor=9] [quiet=5s]    settle 12
//! pin 0 to=a | pin 0 off=a,b                unpin 0
//! quarantine 0@1 crashes=3                  retry 0
//! show [sessions|workers|shards|groups|placements]
//! ```
//!
//! `a1` is process 1 of worker `a`, and its latest session; `#3` is session 3. `0@1` is shard 0 at
//! epoch 1. Every command but `init` and `feature` takes `group=`, by default `orders`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_fence::{Epoch, GroupName, Owner, Sequence, WriteId};
use tenure_ownership::Command;
use tenure_ownership::command::{
    Assign, CreateGroup, DeleteCheckpoint, EndPause, Force, Grant, OneShard, PinShard, PinTo,
    Quarantine, Ready, Register, Release, ReleaseCause, Released, Restore, Revoke, Seal, SetFreeze,
    SetPolicy, SetWorkerMode, Tenure, WriteCheckpoint,
};
use tenure_ownership::feature::Feature;
use tenure_ownership::ids::{
    ClusterId, GroupId, ProcessNonce, Revision, SessionId, ShardIndex, StoreName, WorkerName,
};
use tenure_ownership::policy::Policy;
use tenure_ownership::session::WorkerMode;
use tenure_ownership::shard::RevokeReason;

use super::Run;

type Parsed<T> = Result<T, String>;

/// The words after the verb, each to be taken once.
struct Words<'a> {
    plain: Vec<String>,
    settings: BTreeMap<String, String>,
    run: &'a Run,
}

/// Reads one command.
pub(super) fn parse(run: &Run, input: &str) -> Parsed<Command> {
    let mut words = split(input)?.into_iter();
    let verb = words.next().ok_or("no command")?;
    let mut plain = Vec::new();
    let mut settings = BTreeMap::new();
    for word in words {
        match word.split_once('=') {
            Some((key, value)) => {
                if settings.insert(key.to_owned(), value.to_owned()).is_some() {
                    return Err(format!("{key} is given twice"));
                }
            }
            None => plain.push(word),
        }
    }
    let mut words = Words {
        plain,
        settings,
        run,
    };
    let command = words.command(&verb)?;
    words.finish()?;
    Ok(command)
}

/// Splits at spaces outside quotes.
fn split(input: &str) -> Parsed<Vec<String>> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in input.chars() {
        match character {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(character),
        }
    }
    if quoted {
        return Err("an open quote".to_owned());
    }
    words.retain(|word| !word.is_empty());
    Ok(words)
}

impl Words<'_> {
    fn command(&mut self, verb: &str) -> Parsed<Command> {
        Ok(match verb {
            "init" => Command::InitCluster(ClusterId(self.number("cluster", 7)?)),
            "feature" => {
                self.plain.retain(|word| word != "baseline");
                Command::EnableFeature(Feature::Baseline)
            }
            "restore" => Command::Restore(Restore {
                from: ClusterId(self.number("from", 7)?),
                to: ClusterId(self.number("to", 8)?),
                floor_min: self.number("floor", 0)?,
                quiet_min: self.duration("quiet")?.unwrap_or_default(),
            }),
            "settle" => Command::Settle(Revision(number(&self.word()?)?)),
            "create" => self.create()?,
            "policy" => self.policy_command()?,
            "delete" => Command::DeleteGroup(self.group()?),
            "remove" => Command::RemoveGroup(self.group_id()?),
            "register" => self.register()?,
            "expire" => Command::Expire(self.sessions()?),
            "leave" => Command::Leave(self.session()?),
            "drain" => self.mode(WorkerMode::Draining)?,
            "activate" => self.mode(WorkerMode::Active)?,
            "cordon" => self.mode(WorkerMode::Cordoned)?,
            "pause" => self.mode(WorkerMode::Paused)?,
            "end-pause" => Command::EndPause(EndPause {
                worker: worker_name(&self.word()?)?,
                since: Revision(self.number("since", 0)?),
                group: self.group_id()?,
            }),
            "freeze" => Command::SetFreeze(SetFreeze {
                reason: Some(self.settings.remove("reason").unwrap_or_default()),
                group: self.group()?,
            }),
            "unfreeze" => Command::SetFreeze(SetFreeze {
                reason: None,
                group: self.group()?,
            }),
            "grant" => self.grant()?,
            "revoke" => self.revoke()?,
            "ready" => self.ready()?,
            "release" => self.release()?,
            "force" => Command::Force(Force {
                group: self.group_id()?,
                tenures: self.tenures()?,
            }),
            "seal" => Command::Seal(Seal {
                group: self.group()?,
                owner: self.owner()?,
                tenures: self.tenures()?,
            }),
            "write" => self.write()?,
            "erase" => Command::DeleteCheckpoint(DeleteCheckpoint {
                group: self.group()?,
                owner: self.owner()?,
                tenure: self.tenure()?,
                sequence: self.sequence()?,
                write_id: self.write_id()?,
            }),
            "pin" => self.pin()?,
            "unpin" => Command::UnpinShard(self.one_shard()?),
            "retry" => Command::RetryShard(self.one_shard()?),
            "quarantine" => self.quarantine()?,
            _ => return Err("an unknown command".to_owned()),
        })
    }

    fn pin(&mut self) -> Parsed<Command> {
        let OneShard { group, shard } = self.one_shard()?;
        let to = match (self.settings.remove("to"), self.settings.remove("off")) {
            (Some(to), None) => PinTo::Worker(worker_name(&to)?),
            (None, Some(off)) => {
                let names = off.split(',').filter(|name| !name.is_empty());
                PinTo::AnyBut(names.map(worker_name).collect::<Parsed<BTreeSet<_>>>()?)
            }
            _ => return Err("either to= or off=".to_owned()),
        };
        Ok(Command::PinShard(PinShard { group, shard, to }))
    }

    fn one_shard(&mut self) -> Parsed<OneShard> {
        Ok(OneShard {
            group: self.group()?,
            shard: ShardIndex(number(&self.word()?)?),
        })
    }

    fn quarantine(&mut self) -> Parsed<Command> {
        let Tenure { shard, epoch } = self.tenure()?;
        Ok(Command::Quarantine(Quarantine {
            group: self.group_id()?,
            shard,
            seen: epoch,
            crashes: self.number("crashes", 3)?,
        }))
    }

    fn create(&mut self) -> Parsed<Command> {
        Ok(Command::CreateGroup(CreateGroup {
            name: self.group()?,
            shard_count: self.number("shards", 4)?,
            policy: self.policy()?,
        }))
    }

    fn policy_command(&mut self) -> Parsed<Command> {
        Ok(Command::SetPolicy(SetPolicy {
            group: self.group()?,
            seen: self
                .settings
                .remove("seen")
                .map(|text| number(&text))
                .transpose()?
                .map(Revision),
            policy: self.policy()?,
        }))
    }

    fn policy(&mut self) -> Parsed<Policy> {
        let usual = Policy::default();
        Ok(Policy {
            ttl: self.duration("ttl")?.unwrap_or(usual.ttl),
            disconnect_grace: self.duration("grace")?.unwrap_or(usual.disconnect_grace),
            restart_grace: self
                .duration("restart_grace")?
                .unwrap_or(usual.restart_grace),
            lock_delay: self.duration("lock_delay")?.unwrap_or(usual.lock_delay),
            drain_timeout: self
                .duration("drain_timeout")?
                .unwrap_or(usual.drain_timeout),
            opening_deadline: self.duration("opening")?.unwrap_or(usual.opening_deadline),
            checkpoint_bytes_max: self.number("bytes_max", usual.checkpoint_bytes_max)?,
            checkpoint_total_bytes_max: self
                .number("total_max", usual.checkpoint_total_bytes_max)?,
            worker_shards_max: self
                .settings
                .remove("worker_max")
                .map(|text| number(&text))
                .transpose()?,
            required_labels: self.labels("required")?,
            zone_label: self.settings.remove("zone").unwrap_or_default(),
            imbalance_tolerated_permille: self
                .number("tolerated", usual.imbalance_tolerated_permille)?,
            moves_per_minute_max: self
                .settings
                .remove("churn")
                .map(|text| number(&text))
                .transpose()?,
            crashes_max: self.number("crashes_max", usual.crashes_max)?,
            ..usual
        })
    }

    /// `k:v,k:v`
    fn labels(&mut self, key: &str) -> Parsed<BTreeMap<String, String>> {
        let text = self.settings.remove(key).unwrap_or_default();
        let pairs = text.split(',').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once(':').ok_or("a label without a value"));
        let pairs = pairs.map(|pair| pair.map(|(key, value)| (key.to_owned(), value.to_owned())));
        Ok(pairs.collect::<Result<_, _>>()?)
    }

    fn register(&mut self) -> Parsed<Command> {
        let process = self.word()?;
        let (worker, nonce) = process.split_at(process.len() - 1);
        let label = self.settings.remove("label");
        let labels = label.iter().filter_map(|label| label.split_once(':'));
        Ok(Command::Register(Box::new(Register {
            group: self.group()?,
            worker: worker_name(worker)?,
            nonce: ProcessNonce(number(nonce)?),
            first: self.session_setting("first")?,
            replaces: self.session_setting("replaces")?,
            ttl: self.duration("ttl")?,
            weight: self.number("weight", 1)?,
            labels: labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            address: self.settings.remove("address").unwrap_or_default(),
        })))
    }

    fn mode(&mut self, mode: WorkerMode) -> Parsed<Command> {
        let worker = worker_name(&self.word()?)?;
        let group = self.group()?;
        Ok(Command::SetWorkerMode(SetWorkerMode {
            group,
            worker,
            mode,
            pause_timeout: self.duration("for")?,
        }))
    }

    fn grant(&mut self) -> Parsed<Command> {
        let to = self.session()?;
        let group = self.group_id()?;
        let mut grants = Vec::new();
        for word in self.plain.drain(..) {
            let (shard, seen) = word.split_once('@').ok_or("a shard without an epoch")?;
            let seen = if seen == "none" {
                None
            } else {
                Some(epoch(seen)?)
            };
            grants.push(Grant {
                shard: ShardIndex(number(shard)?),
                seen,
                to,
            });
        }
        Ok(Command::Assign(Assign {
            group,
            grants,
            revokes: Vec::new(),
        }))
    }

    fn revoke(&mut self) -> Parsed<Command> {
        let next = self.session_setting("next")?;
        let reason = match self.settings.remove("reason").as_deref() {
            None | Some("rebalance") => RevokeReason::Rebalance,
            Some("draining") => RevokeReason::Draining,
            Some("opening") => RevokeReason::OpeningDeadline,
            Some("stopping") => RevokeReason::Stopping,
            Some(other) => return Err(format!("no reason is called {other}")),
        };
        let group = self.group_id()?;
        let revokes = self.tenures()?.into_iter().map(|tenure| Revoke {
            shard: tenure.shard,
            seen: tenure.epoch,
            next,
            reason,
        });
        Ok(Command::Assign(Assign {
            group,
            grants: Vec::new(),
            revokes: revokes.collect(),
        }))
    }

    fn ready(&mut self) -> Parsed<Command> {
        let stores = self.settings.remove("stores").unwrap_or_default();
        let names = stores.split(',').filter(|name| !name.is_empty());
        let stores = names.map(|name| StoreName::new(name).map_err(|error| error.to_string()));
        Ok(Command::Ready(Ready {
            stores: stores.collect::<Parsed<_>>()?,
            session: self.session()?,
            tenures: self.tenures()?,
        }))
    }

    fn release(&mut self) -> Parsed<Command> {
        let session = self.session()?;
        let failed = self.settings.remove("failed");
        let ahead = self.settings.remove("ahead");
        let lost = self.plain.iter().position(|word| word == "lost");
        let cause = match (failed, ahead, lost) {
            (None, None, None) => ReleaseCause::Finished,
            (Some(reason), None, None) => ReleaseCause::OpenFailed(reason),
            (None, Some(fence), None) => ReleaseCause::StoreAhead(epoch(&fence)?),
            (None, None, Some(position)) => {
                self.plain.remove(position);
                ReleaseCause::Lost
            }
            _ => return Err("more than one cause".to_owned()),
        };
        let released = |tenure| Released {
            tenure,
            cause: cause.clone(),
        };
        let releases = self.tenures()?.into_iter().map(released).collect();
        Ok(Command::Release(Release { session, releases }))
    }

    fn write(&mut self) -> Parsed<Command> {
        let data = self.settings.remove("data").unwrap_or_default();
        Ok(Command::WriteCheckpoint(WriteCheckpoint {
            group: self.group()?,
            owner: self.owner()?,
            tenure: self.tenure()?,
            sequence: self.sequence()?,
            write_id: self.write_id()?,
            crc32c: self.number("crc", 0xc5c5)?,
            data: data.into_bytes().into(),
        }))
    }

    fn sequence(&mut self) -> Parsed<Sequence> {
        Ok(Sequence::new(self.number("seq", 1)?).ok_or("no sequence")?)
    }

    fn write_id(&mut self) -> Parsed<WriteId> {
        Ok(WriteId::new(self.number("id", 1)?))
    }

    fn group(&self) -> Parsed<GroupName> {
        let name = self.settings.get("group").map_or("orders", String::as_str);
        name.parse().map_err(|error| format!("{error}"))
    }

    /// The id of the group of the name, or the number itself after a `#`.
    fn group_id(&self) -> Parsed<GroupId> {
        let name = self.settings.get("group").map_or("orders", String::as_str);
        if let Some(id) = name.strip_prefix('#') {
            return number(id).map(GroupId);
        }
        let group = self.run.state.group_named(&self.group()?);
        group
            .map(|group| group.header.id)
            .ok_or_else(|| format!("no group is called {name}"))
    }

    fn owner(&mut self) -> Parsed<Owner> {
        Ok(Owner {
            cluster: self.number("cluster", 7)?,
            session: self.session()?.0,
        })
    }

    fn tenure(&mut self) -> Parsed<Tenure> {
        tenure(&self.word()?)
    }

    fn tenures(&mut self) -> Parsed<Vec<Tenure>> {
        self.plain.drain(..).map(|word| tenure(&word)).collect()
    }

    fn session(&mut self) -> Parsed<SessionId> {
        let word = self.word()?;
        self.session_named(&word)
    }

    fn sessions(&mut self) -> Parsed<Vec<SessionId>> {
        let names = std::mem::take(&mut self.plain);
        names.iter().map(|name| self.session_named(name)).collect()
    }

    fn session_setting(&mut self, key: &str) -> Parsed<Option<SessionId>> {
        let name = self.settings.remove(key);
        name.map(|name| self.session_named(&name)).transpose()
    }

    fn session_named(&self, name: &str) -> Parsed<SessionId> {
        if let Some(id) = name.strip_prefix('#') {
            return number(id).map(SessionId);
        }
        let found = self.run.sessions.get(name).copied();
        found.ok_or_else(|| format!("process {name} had no session"))
    }

    fn duration(&mut self, key: &str) -> Parsed<Option<Duration>> {
        let Some(text) = self.settings.remove(key) else {
            return Ok(None);
        };
        if let Some(millis) = text.strip_suffix("ms") {
            return number(millis).map(Duration::from_millis).map(Some);
        }
        let seconds = text.strip_suffix('s').ok_or("a duration without a unit")?;
        number(seconds).map(Duration::from_secs).map(Some)
    }

    fn number<N: std::str::FromStr>(&mut self, key: &str, usual: N) -> Parsed<N> {
        self.settings
            .remove(key)
            .map_or(Ok(usual), |text| number(&text))
    }

    fn word(&mut self) -> Parsed<String> {
        if self.plain.is_empty() {
            return Err("a word is missing".to_owned());
        }
        Ok(self.plain.remove(0))
    }

    /// A word that nothing has taken is a mistake in the script.
    fn finish(mut self) -> Parsed<()> {
        self.settings.remove("group");
        if self.plain.is_empty() && self.settings.is_empty() {
            return Ok(());
        }
        Err(format!(
            "not understood: {:?} {:?}",
            self.plain, self.settings
        ))
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Parsed<N> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn epoch(text: &str) -> Parsed<Epoch> {
    Epoch::new(number(text)?).ok_or_else(|| format!("{text:?} is no epoch"))
}

fn worker_name(text: &str) -> Parsed<WorkerName> {
    WorkerName::new(text).map_err(|error| error.to_string())
}

fn tenure(word: &str) -> Parsed<Tenure> {
    let (shard, number_of_epoch) = word.split_once('@').ok_or("a shard without an epoch")?;
    Ok(Tenure {
        shard: ShardIndex(number(shard)?),
        epoch: epoch(number_of_epoch)?,
    })
}
