//! What happens in a run, one line each, in order: for comparing two runs byte for byte, and for
//! finding out what went wrong.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The true time of a run and whose turn it is: what every line begins with.
#[derive(Debug, Default)]
pub struct Stamp {
    now_ns: AtomicU64,
    turn: Mutex<String>,
}

impl Stamp {
    /// Returns the true time, in nanoseconds since the run began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// Moves the true time.
    pub fn set_now_ns(&self, now_ns: u64) {
        self.now_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Says whose turn it is.
    pub fn set_turn(&self, name: &str) {
        let mut turn = self.turn();
        turn.clear();
        turn.push_str(name);
    }

    fn turn(&self) -> MutexGuard<'_, String> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collects lines. Clones are the same trace.
#[derive(Clone, Debug)]
pub struct Trace {
    lines: Arc<Mutex<String>>,
    stamp: Arc<Stamp>,
}

impl Trace {
    /// Creates an empty trace.
    #[must_use]
    pub fn new(stamp: Arc<Stamp>) -> Self {
        Self {
            lines: Arc::default(),
            stamp,
        }
    }

    /// Returns everything so far.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines().clone()
    }

    /// Returns a digest of everything so far. It is FNV-1a, which is the same in every process.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let text = self.lines();
        let bytes = text.bytes();
        bytes.fold(0xcbf2_9ce4_8422_2325, |digest: u64, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    fn lines(&self) -> MutexGuard<'_, String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_of_interest(metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        let level = *metadata.level();
        if target.starts_with("tenure") || target == "simulation" {
            return level <= Level::DEBUG;
        }
        target.starts_with("openraft") && level <= Level::WARN
    }
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text does not fail.
        let _written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl<S: Subscriber> Layer<S> for Trace {
    fn enabled(&self, metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        metadata.is_event() && Self::is_of_interest(metadata)
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::DEBUG)
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut line = String::new();
        let micros = self.stamp.now_ns() / 1_000;
        let metadata = event.metadata();
        let _written = write!(
            line,
            "{:>4}.{:06} {:<9} {:<5} {}:",
            micros / 1_000_000,
            micros % 1_000_000,
            *self.stamp.turn(),
            metadata.level(),
            metadata.target(),
        );
        event.record(&mut Fields(&mut line));
        line.push('\n');
        self.lines().push_str(&line);
    }
}
