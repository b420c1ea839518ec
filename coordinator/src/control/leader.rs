//! The task that leads: feeds a [`Core`] with what happens and carries out what it decides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::stream::FuturesUnordered;
use tenure_ownership::Command;
use tenure_ownership::ids::GroupId;
use tenure_ownership::planner;
use tenure_ownership::planner::Observed;
use tenure_ownership::planner::Plan;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;
use tokio_util::task::TaskTracker;

use super::asks::AskId;
use super::asks::PlanAsk;
use super::asks::PlanError;
use super::core::Core;
use super::core::Decision;
use super::core::Input;
use super::core::Output;
use super::core::Ticket;
use super::message::Close;
use super::message::Down;
use super::message::Open;
use super::message::StreamId;
use super::message::Up;
use crate::clock::Clock;
use crate::consensus::Consensus;
use crate::consensus::Leadership;
use crate::consensus::Leading;
use crate::consensus::ProposeError;
use crate::consensus::blocking;
use crate::watch::Cursor;
use crate::watch::Hub;
use crate::watch::Lagged;
use crate::watch::Subscription;

/// Messages from all workers that may wait for the leader. A worker sends a few a second, so this is
/// seconds of ten thousand workers; past it their streams wait, which TCP passes on to them.
const INBOX_MAX: usize = 16_384;

/// Messages to one worker that may wait in its stream. A worker this far behind is told to come back.
const DOWN_MAX: usize = 1_024;

/// How long a proposal may wait for a place in the queue. Nothing else is handled meanwhile.
const QUEUED_MAX: Duration = Duration::from_millis(100);

/// Pause before a leadership is begun again whose first entry was not applied.
const SETTLE_RETRY: Duration = Duration::from_millis(100);

/// How long a round may take. Longer than an election, so that a round ends by its own failure.
const ROUND_MAX: Duration = Duration::from_secs(2);

/// What a worker's stream is told; an error is the last.
pub type Told = Result<Down, Close>;

/// The node is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node is stopping")]
pub struct Stopped;

/// The leader's side of all worker streams, and its timers. Idle on a node that does not lead.
#[derive(Debug)]
pub struct Control {
    inbox: mpsc::Sender<Inbound>,
    next_stream: AtomicU64,
    pumps: TaskTracker,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What a stream brings.
enum Inbound {
    Opened(StreamId, Open, mpsc::Sender<Told>),
    Message(StreamId, Up),
    Broken(StreamId),
    Asked(PlanAsk, oneshot::Sender<Result<Option<Plan>, PlanError>>),
}

impl Control {
    /// Starts the task. It leads whenever this node does.
    pub fn start(consensus: Consensus, hub: Arc<Hub>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (inbox, inbound) = mpsc::channel(INBOX_MAX);
        let stop = CancellationToken::new();
        let leader = Leader {
            leadership: consensus.leadership(),
            consensus,
            hub,
            clock,
            inbound,
            stop: stop.clone(),
        };
        Arc::new(Self {
            inbox,
            next_stream: AtomicU64::new(1),
            pumps: TaskTracker::new(),
            stop,
            task: Mutex::new(Some(tokio::spawn(leader.run()))),
        })
    }

    /// Opens a worker stream. `ups` are the worker's further messages; it ends when the worker does,
    /// and so does the stream. Dropping what is returned breaks the stream.
    ///
    /// # Errors
    ///
    /// [`Stopped`] if the node is stopping.
    pub async fn attach(&self, open: Open, ups: BoxStream<'static, Up>) -> Result<Downs, Stopped> {
        let id = StreamId(self.next_stream.fetch_add(1, Ordering::Relaxed));
        let (down, told) = mpsc::channel(DOWN_MAX);
        self.inbox
            .send(Inbound::Opened(id, open, down))
            .await
            .map_err(|_| Stopped)?;
        let gone = CancellationToken::new();
        let pump = pump(id, ups, gone.clone(), self.inbox.clone(), self.stop.clone());
        self.pumps.spawn(pump);
        Ok(Downs {
            told,
            _gone: gone.drop_guard(),
        })
    }

    /// Asks the leader for a plan, which this node must be. `None` for a group that is gone.
    ///
    /// # Errors
    ///
    /// [`PlanError`] without a leader here, or if it ceased to lead meanwhile.
    pub async fn plan(&self, ask: PlanAsk) -> Result<Option<Plan>, PlanError> {
        let (answer, answered) = oneshot::channel();
        let asked = self.inbox.send(Inbound::Asked(ask, answer)).await;
        if asked.is_err() {
            return Err(PlanError::NotLeader);
        }
        answered.await.unwrap_or(Err(PlanError::Interrupted))
    }

    /// Stops leading: every stream is closed and told that this node does not lead.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.pumps.close();
        self.pumps.wait().await;
        let task = self
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the leading task panicked");
        }
    }
}

/// What a worker is told, in order.
#[derive(Debug)]
pub struct Downs {
    told: mpsc::Receiver<Told>,
    _gone: DropGuard,
}

impl Downs {
    /// Returns the next message, at the end why the stream is over. `None` after that, or without a
    /// reason if the worker fell too far behind.
    pub async fn next(&mut self) -> Option<Told> {
        self.told.recv().await
    }
}

/// Carries a worker's messages to the leader, and the news that its stream broke.
async fn pump(
    id: StreamId,
    mut ups: BoxStream<'static, Up>,
    gone: CancellationToken,
    inbox: mpsc::Sender<Inbound>,
    stop: CancellationToken,
) {
    let carry = async {
        loop {
            let up = tokio::select! {
                // The response is gone: nobody would hear an answer.
                () = gone.cancelled() => break,
                up = ups.next() => up,
            };
            let Some(up) = up else { break };
            if inbox.send(Inbound::Message(id, up)).await.is_err() {
                return;
            }
        }
        // A receiver that is gone means that the node is stopping, and then nobody is to be told.
        let _ = inbox.send(Inbound::Broken(id)).await;
    };
    // At the end of a node its streams end with it.
    let _ = stop.run_until_cancelled(carry).await;
}

/// Why a leadership is over.
enum Over {
    Lost,
    /// Events were missed: begin anew from the state, as a new leader would.
    Behind,
    Stopped,
}

struct Leader {
    consensus: Consensus,
    leadership: watch::Receiver<Leadership>,
    hub: Arc<Hub>,
    clock: Arc<dyn Clock>,
    inbound: mpsc::Receiver<Inbound>,
    stop: CancellationToken,
}

impl Leader {
    async fn run(mut self) {
        let stop = self.stop.clone();
        loop {
            let term = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                term = self.turn_away() => term,
            };
            let Some(term) = term else { return };
            tracing::info!(term, "leading");
            match self.lead(term).await {
                Over::Lost => tracing::info!(term, "no longer leading"),
                Over::Behind => tracing::warn!(
                    term,
                    "the leader missed events and begins anew from the state"
                ),
                Over::Stopped => return,
            }
        }
    }

    /// Sends streams elsewhere until this node leads. Returns its term.
    async fn turn_away(&mut self) -> Option<u64> {
        loop {
            let leading = self.leadership.borrow_and_update().clone();
            if leading.is_leader {
                return Some(leading.term);
            }
            tokio::select! {
                changed = self.leadership.changed() => changed.ok()?,
                inbound = self.inbound.recv() => {
                    match inbound? {
                        // A worker that is gone already needs no answer.
                        Inbound::Opened(_, _, down) => drop(down.try_send(Err(Close::NotLeader))),
                        // Nor does an operator.
                        Inbound::Asked(_, answer) => drop(answer.send(Err(PlanError::NotLeader))),
                        Inbound::Message(..) | Inbound::Broken(_) => {}
                    }
                }
            }
        }
    }

    async fn lead(&mut self, term: u64) -> Over {
        let leading = self.consensus.leading(term);
        if let Err(over) = self.settle(&leading).await {
            return over;
        }
        let (core, revision) = self
            .consensus
            .read(|state| (Core::new(state, self.clock.now()), state.revision()));
        // What the state does not contain yet is published after it was read.
        let Ok(mut events) = self.hub.subscribe(Some(Cursor::end_of(revision))) else {
            return Over::Behind;
        };
        let mut term = Term {
            core,
            leading,
            term,
            clock: Arc::clone(&self.clock),
            consensus: self.consensus.clone(),
            downs: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_ask: 0,
            pending: FuturesUnordered::new(),
            previews: FuturesUnordered::new(),
        };
        let over = self.serve(&mut term, &mut events).await;
        term.close_all();
        over
    }

    /// Waits until everything this node has proposed in the term is decided. A core that begins anew
    /// within a term knows nothing of what the one before it decided on, so nothing may be open.
    async fn settle(&mut self, leading: &Leading) -> Result<(), Over> {
        let stop = self.stop.clone();
        let settled = async {
            // It changes nothing, and whatever was proposed before it lies before it in the log.
            let nothing = Command::Expire(Vec::new());
            match leading.submit(&nothing, QUEUED_MAX).await {
                Ok(proposal) => proposal.applied().await.is_ok(),
                Err(_) => false,
            }
        };
        let settled = tokio::select! {
            () = stop.cancelled() => return Err(Over::Stopped),
            changed = self.leadership.changed() => match changed {
                Ok(()) => return Err(Over::Lost),
                Err(_) => return Err(Over::Stopped),
            },
            settled = settled => settled,
        };
        if settled {
            return Ok(());
        }
        let pause = self.clock.sleep_until(self.clock.now() + SETTLE_RETRY);
        tokio::select! {
            () = stop.cancelled() => Err(Over::Stopped),
            () = pause => Err(Over::Lost),
        }
    }

    async fn serve(&mut self, term: &mut Term, events: &mut Subscription) -> Over {
        let stop = self.stop.clone();
        loop {
            // A task that always finds something ready never gives its thread away by itself, and what it
            // has just woken, such as Raft by a proposal, may wait for that very thread.
            tokio::task::consume_budget().await;
            let next_tick = term.core.next_tick(self.clock.now());
            let tick = self.clock.sleep_until(next_tick);
            // Events come last, and what was published is handled before anything else that happens: an
            // answer or a decision may rest on it. So their order is kept, and however fast they follow each other,
            // heartbeats are acknowledged, decisions noted and deadlines kept meanwhile.
            let happened = tokio::select! {
                biased;
                () = stop.cancelled() => return Over::Stopped,
                changed = self.leadership.changed() => {
                    if changed.is_err() {
                        return Over::Stopped;
                    }
                    let now = self.leadership.borrow_and_update();
                    if !now.is_leader || now.term != term.term {
                        return Over::Lost;
                    }
                    continue;
                }
                () = tick => Happened::Tick,
                Some(input) = term.pending.next() => Happened::Answer(input),
                Some(()) = term.previews.next() => continue,
                inbound = self.inbound.recv() => match inbound {
                    Some(inbound) => Happened::Inbound(inbound),
                    None => return Over::Stopped,
                },
                batch = events.next() => match batch {
                    Ok(batch) => {
                        term.handle(Input::Committed(batch)).await;
                        continue;
                    }
                    Err(_) => return Over::Behind,
                },
            };
            if term.catch_up(events).await.is_err() {
                return Over::Behind;
            }
            match happened {
                Happened::Tick => {
                    // What waits in the inbox is heard before anybody is expired. Only what waits now:
                    // a tick must come even if the inbox is never empty.
                    for _ in 0..self.inbound.len() {
                        if let Ok(inbound) = self.inbound.try_recv() {
                            term.inbound(inbound).await;
                        }
                    }
                    term.handle(Input::Tick).await;
                }
                Happened::Answer(input) => term.handle(input).await,
                Happened::Inbound(inbound) => term.inbound(inbound).await,
            }
        }
    }
}

/// What happened beside an event.
enum Happened {
    Tick,
    /// A decision, the end of a round or a plan.
    Answer(Input),
    Inbound(Inbound),
}

/// One leadership of this node.
struct Term {
    core: Core,
    leading: Leading,
    term: u64,
    clock: Arc<dyn Clock>,
    consensus: Consensus,
    downs: BTreeMap<StreamId, mpsc::Sender<Told>>,
    /// Operators who wait for a plan.
    asked: BTreeMap<AskId, oneshot::Sender<Result<Option<Plan>, PlanError>>>,
    next_ask: u64,
    /// Proposals, rounds and plans under way. They end with the leadership.
    pending: FuturesUnordered<BoxFuture<'static, Input>>,
    /// Plans for operators that are being made.
    previews: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl Term {
    /// Handles what is published by now, and nothing that is published meanwhile.
    async fn catch_up(&mut self, events: &mut Subscription) -> Result<(), Lagged> {
        for _ in 0..events.backlog() {
            // Batches that the state contained already count as well, and do not come.
            let Some(batch) = events.next().now_or_never() else {
                break;
            };
            self.handle(Input::Committed(batch?)).await;
        }
        Ok(())
    }

    async fn inbound(&mut self, inbound: Inbound) {
        match inbound {
            Inbound::Opened(stream, open, down) => {
                self.downs.insert(stream, down);
                self.handle(Input::Opened(stream, open)).await;
            }
            Inbound::Message(stream, up) => self.handle(Input::Message(stream, up)).await,
            Inbound::Asked(ask, answer) => {
                // Those who gave up are forgotten, so that no more are kept than wait.
                self.asked.retain(|_, answer| !answer.is_closed());
                let id = AskId(self.next_ask);
                self.next_ask += 1;
                self.asked.insert(id, answer);
                self.handle(Input::Asked(id, ask)).await;
            }
            Inbound::Broken(stream) => {
                self.downs.remove(&stream);
                self.handle(Input::Broken(stream)).await;
            }
        }
    }

    async fn handle(&mut self, input: Input) {
        let mut inputs = vec![input];
        // Where one has waited in vain, those after it do not: nothing else is handled meanwhile.
        let mut queued_max = QUEUED_MAX;
        while let Some(input) = inputs.pop() {
            let now = self.clock.now();
            let core = &mut self.core;
            let outputs = self.consensus.read(|state| core.handle(now, input, state));
            for output in outputs {
                match output {
                    Output::Send(stream, down) => inputs.extend(self.send(stream, down)),
                    Output::Close(stream, close) => self.close(stream, close),
                    Output::Propose(ticket, command) => {
                        if !self.propose(ticket, command, queued_max).await {
                            queued_max = Duration::ZERO;
                        }
                    }
                    Output::Round(number) => self.round(number),
                    Output::Plan(group, observed) => self.plan(group, observed),
                    Output::Preview(id, group, observed) => self.preview(id, group, observed),
                    Output::Answer(id, plan) => {
                        if let Some(answer) = self.asked.remove(&id) {
                            // Who is gone needs no answer.
                            let _ = answer.send(Ok(plan));
                        }
                    }
                }
            }
        }
    }

    /// Sends a message. A worker that does not read its stream is treated as one whose stream broke.
    fn send(&mut self, stream: StreamId, down: Down) -> Option<Input> {
        let sender = self.downs.get(&stream)?;
        if sender.try_send(Ok(down)).is_ok() {
            return None;
        }
        self.downs.remove(&stream);
        Some(Input::Broken(stream))
    }

    fn close(&mut self, stream: StreamId, close: Close) {
        if let Some(sender) = self.downs.remove(&stream) {
            // Without room for the reason the stream still ends, and the worker comes back to ask.
            let _ = sender.try_send(Err(close));
        }
    }

    fn close_all(&mut self) {
        let streams: Vec<StreamId> = self.downs.keys().copied().collect();
        for stream in streams {
            self.close(stream, Close::NotLeader);
        }
    }

    /// Queues a command now, so that commands are applied in the order they were decided on. Returns
    /// whether it was queued.
    async fn propose(&mut self, ticket: Ticket, command: Command, queued_max: Duration) -> bool {
        let decided = match self.leading.submit(&command, queued_max).await {
            Ok(proposal) => {
                async move {
                    let decision = match proposal.applied().await {
                        Ok(applied) => Decision::Applied(applied.revision, applied.outcome),
                        Err(error) => decision_on(&error),
                    };
                    Input::Decided(ticket, decision)
                }
            }
            Err(error) => {
                let decision = decision_on(&error);
                self.pending
                    .push(Box::pin(async move { Input::Decided(ticket, decision) }));
                return false;
            }
        };
        self.pending.push(Box::pin(decided));
        true
    }

    fn round(&mut self, number: u64) {
        let leading = self.leading.clone();
        self.pending.push(Box::pin(async move {
            Input::RoundEnded(number, leading.round(ROUND_MAX).await.is_ok())
        }));
    }

    /// Plans for an operator. Nothing of it comes back here but that it is done.
    fn preview(&mut self, id: AskId, group: GroupId, observed: Observed) {
        let Some(answer) = self.asked.remove(&id) else {
            return;
        };
        let state = self.consensus.state();
        let planned = blocking(move || planner::plan(&state, group, &observed));
        self.previews.push(Box::pin(async move {
            let plan = planned.await.map_err(|error| {
                tracing::error!(%error, "the planner panicked");
                PlanError::Interrupted
            });
            // Who is gone needs no answer.
            let _ = answer.send(plan.map(Some));
        }));
    }

    fn plan(&mut self, group: GroupId, observed: Observed) {
        // Of a clone: a large plan takes a second, in which commands go on to be applied.
        let state = self.consensus.state();
        let planned = blocking(move || planner::plan(&state, group, &observed));
        self.pending.push(Box::pin(async move {
            match planned.await {
                Ok(plan) => Input::Planned(plan),
                Err(error) => {
                    tracing::error!(%error, "the planner panicked");
                    Input::Unplanned(group)
                }
            }
        }));
    }
}

fn decision_on(error: &ProposeError) -> Decision {
    match error {
        ProposeError::OutcomeUnknown => Decision::Unknown,
        ProposeError::NotLeader { .. }
        | ProposeError::Unavailable { .. }
        | ProposeError::TooLarge { .. }
        | ProposeError::Stopped => Decision::NotProposed,
    }
}
