//! What a person sees while the demo runs: on stderr, so that stdout has the result alone.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::pace::WHOLE;

/// Width of the bar, in characters.
const BAR: u32 = 40;

/// Where no terminal redraws a line, one is written after each such part, in hundredths of a per cent.
const LINE_EVERY: u32 = 1_000;

/// A bar that grows, and lines above it. Clones are the same display.
#[derive(Clone, Debug)]
pub(super) struct Display {
    // Never held across an await.
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    begin: Instant,
    terminal: bool,
    part: u32,
    shown: Option<u32>,
}

impl Display {
    pub(super) fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        let state = State {
            begin: Instant::now(),
            terminal,
            part: 0,
            shown: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Writes a line.
    pub(super) fn say(&self, text: &str) {
        let state = self.state();
        let seconds = state.begin.elapsed().as_secs_f64();
        let clear = if state.terminal { "\r\x1b[K" } else { "" };
        write(&format!("{clear}{seconds:6.1} s  {text}\n"));
        if state.terminal && state.shown.is_some() {
            write(&bar(state.part));
        }
    }

    /// Shows how much of the input is in checkpoints, in hundredths of a per cent.
    pub(super) fn progress(&self, part: u32) {
        let mut state = self.state();
        state.part = part;
        if state.terminal {
            state.shown = Some(part);
            write(&format!("\r\x1b[K{}", bar(part)));
        } else if state
            .shown
            .is_none_or(|shown| part / LINE_EVERY > shown / LINE_EVERY)
        {
            state.shown = Some(part);
            let seconds = state.begin.elapsed().as_secs_f64();
            write(&format!("{seconds:6.1} s  {}\n", bar(part)));
        }
    }

    /// Ends the bar.
    pub(super) fn finish(&self) {
        let mut state = self.state();
        if state.terminal && state.shown.take().is_some() {
            write("\n");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bar(part: u32) -> String {
    let full = part * BAR / WHOLE;
    let (full_text, empty_text) = ("#".repeat(full as usize), ".".repeat((BAR - full) as usize));
    format!(
        "[{full_text}{empty_text}] {:3} % of the input in checkpoints",
        part * 100 / WHOLE
    )
}

fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    // Nobody is left to be told that stderr is closed.
    let _closed = stderr
        .write_all(text.as_bytes())
        .and_then(|()| stderr.flush());
}
