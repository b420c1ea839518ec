//! What every adapter is put through: the conformance kit, a kill in the middle of 200 writers, and
//! a listing.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use store_tests::server::Crash;
use store_tests::writers;
use tenure_fence::kit::{self, Harness, Holder, LocalGrants, Options};
use tenure_fence::{
    CheckpointError, CheckpointStore, Epoch, Fence, FencingToken, Owner, Resource, Sequence, Write,
    WriteId,
};

/// What a store is in: a server, a folder, a file.
#[async_trait]
pub(crate) trait Place: Crash {
    type Store: CheckpointStore + 'static;

    /// Opens the store that is in this place, and nowhere else.
    ///
    /// Its largest value is within the kit's reach, so that the kit comes to the limit.
    async fn open(&self) -> Result<Self::Store, CheckpointError>;

    /// Closes a store that nobody else could open otherwise.
    async fn close(&self, store: &Self::Store) -> Result<(), CheckpointError> {
        let _ = store;
        Ok(())
    }
}

/// A store that is checked, with the place it is in and the source of its tokens.
pub(crate) struct Case<P: Place> {
    // Before the place: what it still has to do there it does first.
    pub(crate) store: Arc<P::Store>,
    pub(crate) place: P,
    pub(crate) grants: LocalGrants,
}

impl<P: Place> Case<P> {
    pub(crate) async fn new(place: P) -> Result<Self, Failure> {
        Ok(Self {
            store: Arc::new(place.open().await?),
            place,
            grants: LocalGrants::new(),
        })
    }

    /// Makes the token of the first tenure of a new resource.
    pub(crate) fn grant(&mut self) -> FencingToken {
        let resource = self.grants.fresh_resource();
        self.grants.next_tenure(&resource, Holder::New)
    }

    /// Makes the token of the tenure that follows.
    pub(crate) fn hand_over(&mut self, token: &FencingToken) -> FencingToken {
        self.grants.next_tenure(&token.resource, Holder::New)
    }

    /// Runs the whole conformance kit, with its 1,000 races. The place crashes in the middle of it.
    pub(crate) async fn keeps_the_contract(mut self) -> Result<(), Failure> {
        self.check(Options::default().race_rounds).await;
        Ok(())
    }

    /// Runs the kit with a fifth of the races: for an adapter that has run them all elsewhere, in another
    /// of its ways.
    pub(crate) async fn keeps_the_contract_here_too(mut self) -> Result<(), Failure> {
        self.check(Options::default().race_rounds / 5).await;
        Ok(())
    }

    /// Runs the kit, and requires that nothing of it is left out.
    pub(crate) async fn check(&mut self, race_rounds: u32) {
        let options = Options {
            race_rounds,
            ..Options::default()
        };
        let report = kit::run(self, options).await;
        assert!(report.left_out.is_empty(), "{:?}", report.left_out);
        let race = report.race;
        println!("{race:?}");
        assert_eq!(race.rounds, race_rounds);
        // A race that only ever ends one way shows nothing.
        let each_way = u64::from(race_rounds) / 10;
        assert!(race.landed > each_way && race.fenced > each_way, "{race:?}");
    }

    /// Requires of the empty store what [`fences_are_listed_in_the_order_of_their_names`] does.
    pub(crate) async fn lists_fences_in_the_order_of_their_names(
        self,
        list: impl AsyncFn(
            &P::Store,
            Option<Resource>,
            usize,
        ) -> Result<Vec<(Resource, Fence)>, CheckpointError>,
    ) -> Result<(), Failure> {
        let store = &*self.store;
        let list = async |after: Option<Resource>, limit| list(store, after, limit).await;
        fences_are_listed_in_the_order_of_their_names(store, list).await
    }

    /// Kills the place in the middle of 200 writers. The store stays open.
    pub(crate) async fn survives_a_kill(mut self) -> Result<(), Failure> {
        writers::survive_a_crash(self.store, &mut self.place).await?;
        Ok(())
    }
}

#[async_trait]
impl<P: Place> Harness for Case<P> {
    fn store(&self) -> Arc<dyn CheckpointStore> {
        self.store.clone()
    }

    async fn fresh_resource(&mut self) -> Resource {
        self.grants.fresh_resource()
    }

    async fn next_tenure(&mut self, resource: &Resource, holder: Holder) -> FencingToken {
        self.grants.next_tenure(resource, holder)
    }

    async fn conflicting(&mut self, token: &FencingToken) -> Option<FencingToken> {
        Some(self.grants.conflicting(token))
    }

    async fn reopen(&mut self) {
        self.place.close(&self.store).await.unwrap();
        self.place.kill().await.unwrap();
        self.place.restart().await.unwrap();
        self.store = Arc::new(self.place.open().await.unwrap());
    }
}

/// Requires that everything with a fence is listed once, in the order of its name, page by page. The
/// store is empty.
pub(crate) async fn fences_are_listed_in_the_order_of_their_names(
    store: &dyn CheckpointStore,
    list: impl AsyncFn(Option<Resource>, usize) -> Result<Vec<(Resource, Fence)>, CheckpointError>,
) -> Result<(), Failure> {
    assert!(list(None, 10).await?.is_empty());
    let names = [
        "lease/b",
        "lease/a.1",
        "lease/a-1",
        "shard/a/10",
        "shard/a/7",
        "shard/a-b/1",
        "shard/a.b/1",
        "shard/a0/1",
        "shard/b/0",
        "shard/b/4294967295",
        "lease/a",
    ];
    let mut expected = BTreeMap::new();
    for (session, name) in (1..).zip(names) {
        let token = FencingToken {
            resource: name.parse()?,
            epoch: Epoch::MAX,
            owner: Owner {
                cluster: u128::MAX,
                session,
            },
        };
        store.seal(&token).await?;
        expected.insert(name.to_owned(), Fence::from(&token));
    }
    let expected: Vec<_> = expected.into_iter().collect();
    for limit in [1, 3, 5, 11, 100] {
        let mut listed: Vec<(String, Fence)> = Vec::new();
        loop {
            let after = listed.last().map(|(name, _)| name.parse()).transpose()?;
            let page = list(after, limit).await?;
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            let page = page.into_iter();
            listed.extend(page.map(|(resource, fence)| (resource.to_string(), fence)));
        }
        assert_eq!(listed, expected, "{limit} at a time");
    }
    // After something that is not there.
    let page = list(Some("shard/a/5".parse()?), 1).await?;
    let first = page.first().map(|(resource, _)| resource.to_string());
    assert_eq!(first.as_deref(), Some("shard/a/7"));
    Ok(())
}

/// Makes a token of the shard `orders/<index>`.
pub(crate) fn token(index: u32, epoch: u64, session: u64) -> FencingToken {
    format!("shard/orders/{index}@{epoch}:00000000000000000000000000c0ffee/{session}")
        .parse()
        .unwrap()
}

/// Makes a write: the same one whenever it is made of the same.
pub(crate) fn write(number: u64, data: impl Into<Bytes>) -> Write {
    Write {
        sequence: Sequence::new(number).unwrap(),
        write_id: WriteId::new(u128::from(number) << 64 | 0xab),
        data: data.into(),
    }
}
