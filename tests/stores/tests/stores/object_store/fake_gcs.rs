//! Why fake-gcs-server is not killed in the middle of writers: it loses what it has acknowledged, by
//! itself and without any adapter.
//!
//! It keeps an object in a file, and the object's generation in an attribute of that file. A replacement
//! first moves a new file over the old one and then sets the attribute, and a file without it is no
//! object. Killed between the two, it has neither the new object nor the old one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cluster_tests::failure::Failure;
use cluster_tests::wait;
use store_tests::fake_gcs::FakeGcs;
use store_tests::http;
use tokio::task::JoinSet;

/// Objects that are replaced at the same time: one of them is being replaced at any moment.
const OBJECTS: usize = 8;

/// How often it is killed, at most. About one kill in ten meets the moment.
const KILLS_MAX: usize = 300;

/// How long a few objects may take to be replaced, on a machine that is busy with other tests.
const TIME: Duration = Duration::from_secs(60);

/// Puts an object, and returns once that is acknowledged.
async fn put(server: SocketAddr, object: usize) -> Result<(), String> {
    let path = format!("/upload/storage/v1/b/tenure/o?uploadType=media&name=object-{object}");
    let header = ("Content-Type", "text/plain");
    http::request("POST", server, &path, &[header], "content").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn fake_gcs_loses_what_it_is_replacing_when_it_is_killed() -> Result<(), Failure> {
    let mut server = FakeGcs::start().await?;
    let address = server.address();
    for object in 0..OBJECTS {
        put(address, object).await.map_err(Failure::new)?;
    }
    for kill in 1..=KILLS_MAX {
        let replaced = Arc::new(AtomicUsize::new(0));
        let mut writers = JoinSet::new();
        for object in 0..OBJECTS {
            let replaced = Arc::clone(&replaced);
            writers.spawn(async move {
                // Until the server is killed.
                while put(address, object).await.is_ok() {
                    replaced.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait::until("objects to be replaced", TIME, async || {
            match replaced.load(Ordering::Relaxed) {
                enough if enough >= OBJECTS => Ok(()),
                few => Err(format!("{few} of {OBJECTS}")),
            }
        })
        .await?;
        server.kill().await?;
        while writers.join_next().await.is_some() {}
        server.restart().await?;
        for object in 0..OBJECTS {
            // Each was acknowledged at least once, and none was ever deleted.
            let path = format!("/storage/v1/b/tenure/o/object-{object}");
            if let Err(answer) = http::get(address, &path).await {
                assert!(answer.contains("404"), "{answer}");
                println!("lost by kill {kill}: {answer}");
                return Ok(());
            }
        }
    }
    panic!(
        "nothing was lost by {KILLS_MAX} kills: it may be held to the rule that others are held to"
    );
}
