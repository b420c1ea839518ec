//! The two ends of streams: what is said on them, and how they end.

use crate::few::Few;
use crate::ids::Attempt;
use crate::ids::ProcessId;
use crate::ids::Term;
use crate::network::Close;
use crate::network::Down;
use crate::network::Stream;
use crate::network::Up;
use crate::state::State;

impl State {
    /// Opens a stream with its first message.
    pub fn open_stream(&mut self, process: ProcessId, attempt: Attempt, term: Term, first: Up) {
        let mut stream = Stream {
            process,
            attempt,
            term,
            up: Few::EMPTY,
            down: Few::EMPTY,
            cut: false,
            worker_gone: false,
            leader_gone: false,
        };
        stream.up.push(first);
        self.streams.push(stream);
    }

    /// The present stream of a process.
    pub fn stream_of(&self, id: ProcessId) -> Option<Stream> {
        let process = self.process(id);
        self.streams.find(|stream| {
            stream.process == id && stream.attempt == process.attempt && !stream.worker_gone
        })
    }

    fn stream_mut(&mut self, process: ProcessId, attempt: Attempt) -> Option<&mut Stream> {
        self.streams
            .iter_mut()
            .find(|stream| stream.process == process && stream.attempt == attempt)
    }

    /// Says something on the present stream of a process, if it has one.
    pub fn say(&mut self, id: ProcessId, message: Up) {
        let attempt = self.process(id).attempt;
        if let Some(stream) = self.stream_mut(id, attempt) {
            stream.send_up(message);
        }
    }

    /// Takes the next message for a process.
    pub fn next_down(&mut self, id: ProcessId) -> Option<Down> {
        let attempt = self.process(id).attempt;
        self.stream_mut(id, attempt)?.down.remove(0)
    }

    /// Takes the next message for a leader.
    pub fn next_up(&mut self, at: usize) -> Option<(Stream, Up)> {
        let stream = self.streams.get(at)?;
        let message = self
            .stream_mut(stream.process, stream.attempt)?
            .up
            .remove(0)?;
        Some((stream, message))
    }

    /// Says something to a worker on one of its streams.
    pub fn tell(&mut self, term: Term, process: ProcessId, attempt: Attempt, down: Down) {
        let open = |stream: &&mut Stream| stream.term == term && !stream.leader_gone;
        if let Some(stream) = self.stream_mut(process, attempt).filter(open) {
            stream.send_down(down);
        }
    }

    /// Whether a leader's end of a stream is open.
    pub fn is_open(&self, term: Term, process: ProcessId, attempt: Attempt) -> bool {
        let found = self.streams.find(|stream| {
            stream.term == term && stream.process == process && stream.attempt == attempt
        });
        found.is_some_and(|stream| !stream.leader_gone)
    }

    /// A leader ends a stream, and says why.
    pub fn close(&mut self, term: Term, process: ProcessId, attempt: Attempt, close: Close) {
        self.tell(term, process, attempt, Down::Close(close));
        if let Some(stream) = self.stream_mut(process, attempt) {
            stream.leader_gone = true;
            stream.up.clear();
        }
        self.forget_streams();
    }

    /// The worker's end of its present stream is gone.
    pub fn drop_worker_end(&mut self, id: ProcessId) {
        let attempt = self.process(id).attempt;
        if let Some(stream) = self.stream_mut(id, attempt) {
            stream.cut = true;
            stream.worker_gone = true;
            stream.down.clear();
        }
        self.forget_streams();
    }

    /// The leader's end of a stream is gone. Returns the stream as it was.
    pub fn drop_leader_end(&mut self, at: usize) -> Option<Stream> {
        let found = self.streams.get(at)?;
        if let Some(stream) = self.stream_mut(found.process, found.attempt) {
            stream.leader_gone = true;
            stream.up.clear();
        }
        self.forget_streams();
        Some(found)
    }

    /// Cuts a stream.
    pub fn cut(&mut self, at: usize) {
        if let Some(found) = self.streams.get(at)
            && let Some(stream) = self.stream_mut(found.process, found.attempt)
        {
            stream.cut = true;
        }
    }

    /// Streams that are gone at both ends are no more.
    pub fn forget_streams(&mut self) {
        self.streams
            .retain(|stream| !(stream.worker_gone && stream.leader_gone));
    }
}
