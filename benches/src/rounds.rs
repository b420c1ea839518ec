//! Things that write, run in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use cluster_tests::failure::Failure;
use rand::RngCore as _;
use tokio::task::JoinSet;

use crate::spread::Spread;

/// How many different values are written, so that nothing on the way can profit from having seen one.
const VALUES: usize = 256;

/// One way to write.
#[async_trait]
pub trait Writes: Send + Sync {
    /// Writes once, as one of the writers. Each writer has a name of its own to write to, and waits for
    /// the answer before it writes again.
    ///
    /// # Errors
    ///
    /// When the write was not acknowledged: what is measured does not fail.
    async fn write(&self, writer: usize, value: Bytes) -> Result<(), Failure>;
}

/// What is run in turn.
#[derive(Clone, Debug)]
pub struct Load {
    /// How many write at the same time.
    pub writers: usize,
    /// How large each value is, in bytes.
    pub value_bytes: usize,
    /// How many rounds are counted.
    pub rounds: usize,
    /// How long the block of the slowest takes, about. All blocks have equally many writes.
    pub block: Duration,
}

/// The writes per second of each, one row for each round.
#[derive(Clone, Debug)]
pub struct Rates {
    rounds: Vec<Vec<f64>>,
}

impl Rates {
    /// Returns how the rates of one are spread.
    ///
    /// # Errors
    ///
    /// When there is no such one, or no round.
    pub fn of(&self, place: usize) -> Result<Spread, Failure> {
        self.spread(|round| round.get(place).copied())
    }

    /// Returns how the time of one is spread, as a multiple of that of another in the same round.
    ///
    /// # Errors
    ///
    /// When there is no such one, or no round.
    pub fn time_ratio(&self, of: usize, to: usize) -> Result<Spread, Failure> {
        self.spread(|round| Some(round.get(to)? / round.get(of)?))
    }

    fn spread(&self, figure: impl Fn(&[f64]) -> Option<f64>) -> Result<Spread, Failure> {
        let figures: Option<Vec<f64>> = self.rounds.iter().map(|round| figure(round)).collect();
        figures
            .and_then(|figures| Spread::of(&figures))
            .ok_or_else(|| Failure::new("nothing was measured"))
    }
}

/// Random values of one size, handed out in turn.
#[derive(Debug)]
struct Values {
    values: Vec<Bytes>,
    next: AtomicUsize,
}

impl Values {
    fn new(value_bytes: usize) -> Self {
        let mut random = rand::rng();
        let value = |_| {
            let mut value = vec![0; value_bytes];
            random.fill_bytes(&mut value);
            Bytes::from(value)
        };
        Self {
            values: (0..VALUES).map(value).collect(),
            next: AtomicUsize::new(0),
        }
    }

    fn next(&self) -> Bytes {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % VALUES;
        self.values[turn].clone()
    }
}

/// Runs all in turn, each as often as the load says. The order of every other round is reversed.
///
/// Before that they run uncounted: until it is known how many writes make a block, and then a quarter of
/// the rounds, for caches, connections and just-in-time compilers to get warm.
///
/// # Errors
///
/// When a write was not acknowledged.
pub async fn run(all: &[Arc<dyn Writes>], load: &Load) -> Result<Rates, Failure> {
    let values = Arc::new(Values::new(load.value_bytes));
    let each = writes_of_block(all, &values, load).await?;
    let uncounted = load.rounds.div_ceil(4);
    let mut rounds = Vec::with_capacity(load.rounds);
    for number in 0..uncounted + load.rounds {
        let mut rates = vec![0.0; all.len()];
        let mut order: Vec<usize> = (0..all.len()).collect();
        if number % 2 == 1 {
            order.reverse();
        }
        for place in order {
            let took = block(&all[place], &values, load.writers, each).await?;
            rates[place] = (load.writers * each) as f64 / took.as_secs_f64();
        }
        if number >= uncounted {
            rounds.push(rates);
        }
    }
    Ok(Rates { rounds })
}

/// Finds out how many writes of each writer make a block.
async fn writes_of_block(
    all: &[Arc<dyn Writes>],
    values: &Arc<Values>,
    load: &Load,
) -> Result<usize, Failure> {
    let mut each = 1;
    loop {
        let mut slowest = Duration::from_nanos(1);
        for one in all {
            slowest = slowest.max(block(one, values, load.writers, each).await?);
        }
        if slowest >= load.block / 2 {
            let fitting = each as u128 * load.block.as_nanos() / slowest.as_nanos();
            return Ok(usize::try_from(fitting)?.max(1));
        }
        each *= 2;
    }
}

/// Runs one block and returns how long it took.
async fn block(
    one: &Arc<dyn Writes>,
    values: &Arc<Values>,
    writers: usize,
    each: usize,
) -> Result<Duration, Failure> {
    let begin = Instant::now();
    let mut writing = JoinSet::new();
    for writer in 0..writers {
        let (one, values) = (Arc::clone(one), Arc::clone(values));
        writing.spawn(async move {
            for _ in 0..each {
                one.write(writer, values.next()).await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(written) = writing.join_next().await {
        written??;
    }
    Ok(begin.elapsed())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Says who wrote, in the order of the writes.
    struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);

    #[async_trait]
    impl Writes for Named {
        async fn write(&self, _writer: usize, value: Bytes) -> Result<(), Failure> {
            assert_eq!(value.len(), 16);
            self.1.lock().unwrap().push(self.0);
            Ok(())
        }
    }

    #[tokio::test]
    async fn each_has_equally_many_writes_and_the_order_alternates() {
        let wrote = Arc::new(Mutex::new(Vec::new()));
        let one = |name| Arc::new(Named(name, Arc::clone(&wrote))) as Arc<dyn Writes>;
        let load = Load {
            writers: 3,
            value_bytes: 16,
            rounds: 4,
            block: Duration::from_micros(200),
        };
        let rates = run(&[one("a"), one("b")], &load).await.unwrap();
        assert_eq!(rates.rounds.len(), 4);
        let wrote = wrote.lock().unwrap();
        let count = |name| wrote.iter().filter(|&&by| by == name).count();
        assert_eq!(count("a"), count("b"));
        // Five rounds, of which one is not counted: a b, b a, a b, b a, a b.
        assert_eq!(wrote.last(), Some(&"b"));
        let turns = wrote.chunk_by(|left, right| left == right).count();
        assert!(turns >= 6, "{turns}");
    }

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        let rates = Rates {
            rounds: vec![vec![100.0, 50.0], vec![10.0, 5.0], vec![1.0, 1.0]],
        };
        let ratio = rates.time_ratio(1, 0).unwrap();
        assert_eq!(ratio.median, 2.0);
        assert_eq!((ratio.min, ratio.max), (1.0, 2.0));
        assert!(rates.of(2).is_err());
    }
}
