//! A consumer of one endpoint.
//!
//! Claims and completions take turns: whoever has the turn carries in one statement what the others are waiting to have
//! completed, so that at full speed a claim and the last batch's settlement are one round trip and one commit.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::claim::{self, ClaimKey, Glance, Request, Turn};
use super::doubts::Doubts;
use super::error::{Failure, closed, error, receipt_lost};
use super::fence::{Bound, Term};
use super::pool::{Borrowed, within};
use super::position::Position;
use super::send;
use super::settle::{self, Claims, key};
use super::store::Store;
use super::wake::Topic;
use crate::clock::{BootInstant, Clock};
use crate::contract::{BoxFuture, Consumer, ConsumerSpec, Settlement, fresh_claim, item_by_item};
use crate::error::{ErrorKind, Result};
use crate::message::{Delivery, Receipt, Verdict};
use crate::settings::Order;
use crate::wake::jittered;

/// How long a waiting consumer sleeps at most, whatever it is told.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
/// The shortest sleep: clocks differ, and a claim in vain costs the server something.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);
/// How long a receive that is told to stop waits for the answer to a claim that is under way.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Looking at more of a queue than is known to be little is given this part of a call's time, several times over,
const STEP_SHARE: u32 = 4;
/// up to this part, so that what has to be completed does not wait for long.
const LOOK_SHARE: u32 = 2;
/// How many claims without an answer are remembered. Each of them cost a call's whole time.
const MOST_UNANSWERED: usize = 1024;

pub(super) struct PostgresConsumer {
    store: Arc<Store>,
    clock: Clock,
    spec: ConsumerSpec,
    term: Option<Term>,
    state: Mutex<State>,
    /// Whose turn it is to claim or complete.
    turn: tokio::sync::Mutex<()>,
    /// What waits to be completed.
    waiting: Mutex<Vec<Waiting>>,
    doubts: Doubts,
}

struct State {
    endpoint: i64,
    position: Position,
    /// When the fence row is to be bound to our lock again.
    bind_at: Option<BootInstant>,
    /// Claims that were asked for and whose answers have not come.
    unanswered: VecDeque<Unanswered>,
}

/// A claim that may or may not have been made.
struct Unanswered {
    token: i64,
    /// What it has got lies beyond this.
    after: i64,
}

/// Claims to be completed, and who waits for that.
struct Waiting {
    claims: Vec<ClaimKey>,
    done: oneshot::Sender<Result<HashSet<ClaimKey>>>,
}

/// What a receive gets from its turn.
struct Claimed {
    deliveries: Vec<Delivery>,
    /// When to look again if there was nothing.
    next_change: Option<Duration>,
}

impl PostgresConsumer {
    pub(super) fn new(store: Arc<Store>, clock: Clock, spec: ConsumerSpec, endpoint: i64) -> Self {
        let term = spec.fence.map(|fence| Term { fence, lock_lease: spec.lock_lease.unwrap_or(spec.lease) });
        let state =
            State { endpoint, position: Position::default(), bind_at: None, unanswered: VecDeque::new() };
        PostgresConsumer {
            store,
            clock,
            spec,
            term,
            state: Mutex::new(state),
            turn: tokio::sync::Mutex::default(),
            waiting: Mutex::default(),
            doubts: Doubts::default(),
        }
    }

    fn is_strict(&self) -> bool {
        self.spec.order == Order::Strict
    }

    fn claims(&self) -> Claims<'_> {
        Claims { id: self.state.lock().endpoint, endpoint: &self.spec.endpoint, term: self.term }
    }

    fn topic(&self) -> Topic {
        Topic::Messages(self.spec.endpoint.target())
    }

    /// A connection for one call.
    async fn borrow(&self) -> Result<Borrowed, Failure> {
        Ok(self.store.relaxed.borrow().await?)
    }

    /// Ends a call.
    async fn end<T>(&self, session: Borrowed, answer: Result<T, Failure>) -> Result<T> {
        self.store.heeded(session.end(answer)).await.map_err(Failure::of_repeatable)
    }

    fn deadline(&self) -> Duration {
        self.store.config().deadline
    }

    /// Claims once, be it in vain; `None` if `stop` fired before the store was asked.
    async fn claim(&self, max: usize, stop: &CancellationToken) -> Result<Option<Claimed>> {
        let ready = async {
            let turn = self.turn.lock().await;
            (turn, self.borrow().await)
        };
        let (_turn, session) = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(None),
            ready = ready => ready,
        };
        let mut session = session.map_err(Failure::of_repeatable)?;
        let waiting = self.take_waiting();
        let asked = self.clock.now();
        let mut completed = HashSet::new();
        let turn = within(self.deadline(), self.take_turn(&mut session, max, &waiting, &mut completed));
        let last_wait = async {
            stop.cancelled().await;
            tokio::time::sleep(LAST_WAIT).await;
        };
        let answer = tokio::select! {
            biased;
            answer = turn => answer,
            () = last_wait => Err(Failure::Silent(LAST_WAIT)),
        };
        let answer = self.end(session, answer).await;
        answer_waiting(waiting, &answer, &completed);
        let (turn, next_change) = answer?;
        self.doubts.held(turn.ends(self.spec.lease), asked, self.spec.lease);
        let endpoint = &self.spec.endpoint;
        let deliveries = turn.rows.into_iter().map(|row| row.into_delivery(endpoint, asked)).collect();
        Ok(Some(Claimed { deliveries, next_change }))
    }

    /// One turn: completes what waits, and claims until there is something or certainly nothing.
    async fn take_turn(
        &self,
        session: &mut Borrowed,
        max: usize,
        waiting: &[Waiting],
        completed: &mut HashSet<ClaimKey>,
    ) -> Result<(Turn, Option<Duration>), Failure> {
        self.bind(session).await?;
        let complete: Vec<ClaimKey> = waiting.iter().flat_map(|one| one.claims.iter().copied()).collect();
        let mut complete = complete.as_slice();
        let mut look_back = false;
        loop {
            let mut plan = self.state.lock().position.plan(self.clock.now(), look_back);
            if plan.look_back {
                match self.look_back(session).await? {
                    Some(after) => plan.after = after,
                    None => return self.only_complete(session, complete, completed).await,
                }
            }
            let request = self.request(max, plan.after);
            let turn = claim::turn(session, &request, std::mem::take(&mut complete)).await?;
            completed.extend(turn.completed.iter().copied());
            if !turn.expired.is_empty() {
                settle::bury_expired(session, self.claims(), &turn.expired).await?;
            }
            // Only now: had the burial failed, the rest of the claim would be had again with the next one.
            self.answered(&request, plan, turn.last());
            if !turn.rows.is_empty() {
                return Ok((turn, None));
            }
            if !turn.expired.is_empty() {
                // There may be any number of them, and others wait for their turn.
                return Ok((turn, Some(SHORTEST_SLEEP)));
            }
            if !plan.look_back {
                look_back = true;
                continue;
            }
            return match claim::glance(session, &request, &self.spec.endpoint).await? {
                Glance::NextChange(change) => Ok((turn, change)),
                Glance::Gone => {
                    self.find_again().await?;
                    Ok((turn, Some(SHORTEST_SLEEP)))
                }
            };
        }
    }

    /// A turn that claims nothing, because it is not known yet where there is something.
    async fn only_complete(
        &self,
        session: &mut Borrowed,
        complete: &[ClaimKey],
        completed: &mut HashSet<ClaimKey>,
    ) -> Result<(Turn, Option<Duration>), Failure> {
        let mut turn = Turn::default();
        if !complete.is_empty() {
            turn = claim::turn(session, &self.idle_request(), complete).await?;
            completed.extend(turn.completed.iter().copied());
        }
        Ok((turn, Some(SHORTEST_SLEEP)))
    }

    /// Keeps the fence row bound to our lock, a few times in each lease.
    async fn bind(&self, session: &mut Borrowed) -> Result<(), Failure> {
        let Some(term) = self.term else { return Ok(()) };
        let (endpoint, bind_at) = {
            let state = self.state.lock();
            (state.endpoint, state.bind_at)
        };
        let now = self.clock.now();
        if bind_at.is_none_or(|at| now >= at) {
            let pause = match term.bind(session, endpoint).await {
                Ok(Bound::Bound) => term.lock_lease / 5,
                Ok(Bound::Busy) => term.lock_lease / 20,
                // Perhaps the whole endpoint is gone; then that is what is said.
                Err(Failure::NotAsked(lost)) => {
                    term.check(session, &self.spec.endpoint).await?;
                    return Err(lost.into());
                }
                Err(other) => return Err(other),
            };
            self.state.lock().bind_at = Some(now + pause);
        }
        Ok(())
    }

    /// Has what is due made available, and answers where to claim from so that nothing is left out; `None` if there is
    /// so much to look at that it goes on with the next claim.
    async fn look_back(&self, session: &mut Borrowed) -> Result<Option<i64>, Failure> {
        let endpoint = self.state.lock().endpoint;
        let woken = claim::wake_due(session, endpoint).await?;
        woken.iter().for_each(|id| self.state.lock().position.set_back(*id));
        let started = self.clock.now();
        loop {
            let began = self.clock.now();
            if began.since(started) >= self.deadline() / LOOK_SHARE {
                return Ok(None);
            }
            let step = self.state.lock().position.begin_step(began);
            let time = step.may_be_long.then(|| self.deadline() / STEP_SHARE);
            let found = claim::first_within(session, endpoint, (step.after, step.last), time).await?;
            let mut state = self.state.lock();
            match found {
                Some((first, took)) => {
                    // What it cost the server, however far away that is.
                    let now = self.clock.now();
                    let after = state.position.end_step(step, first, now - took, now);
                    if after.is_some() {
                        return Ok(after);
                    }
                }
                None => state.position.cut_short(step, time.unwrap_or_default()),
            }
        }
    }

    /// The next claim, which counts as unanswered from now on.
    fn request(&self, max: usize, after: i64) -> Request {
        let token = fresh_claim();
        let mut state = self.state.lock();
        let lost: Vec<i64> = state.unanswered.iter().map(|one| one.token).collect();
        let after = state.unanswered.iter().map(|one| one.after).fold(after, i64::min);
        if state.unanswered.len() == MOST_UNANSWERED {
            state.unanswered.pop_front();
        }
        state.unanswered.push_back(Unanswered { token, after });
        Request {
            endpoint: state.endpoint,
            max: i64::try_from(max.max(1)).unwrap_or(i64::MAX),
            max_bytes: i64::try_from(self.spec.max_bytes.max(1)).unwrap_or(i64::MAX),
            after,
            token,
            lease: self.spec.lease,
            term: self.term,
            strict: self.is_strict(),
            lost,
        }
    }

    /// A claim was answered. What former ones may have got without our knowing is either in the answer or not ours.
    fn answered(&self, request: &Request, plan: super::position::Plan, last: Option<i64>) {
        let mut state = self.state.lock();
        let more = last.is_some() && !request.lost.is_empty();
        let settled = |token: &i64| *token == request.token || (!more && request.lost.contains(token));
        state.unanswered.retain(|one| !settled(&one.token));
        state.position.claimed(plan, last);
    }

    /// The endpoint was removed, by itself or with the tables: makes it again.
    async fn find_again(&self) -> Result<(), Failure> {
        tracing::warn!(target: "bus::postgres", endpoint = %self.spec.endpoint, "the queue or subscription was removed: making it again");
        self.store.forget_endpoints();
        self.store.ensure_endpoints(std::slice::from_ref(&*self.spec.endpoint)).await?;
        if let Some(id) = self.store.find_endpoint(&self.spec.endpoint).await? {
            let mut state = self.state.lock();
            state.endpoint = id;
            state.position.reset();
        }
        Ok(())
    }

    fn take_waiting(&self) -> Vec<Waiting> {
        let mut waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.retain(|one| !one.done.is_closed());
        waiting
    }

    /// Completes claims, together with whatever else waits for that.
    async fn complete(&self, settlements: &[Settlement]) -> Result<Vec<Result<()>>> {
        let (done, mut answer) = oneshot::channel();
        let claims = settlements.iter().filter_map(|one| key(&one.receipt)).collect();
        self.waiting.lock().push(Waiting { claims, done });
        // A claim that is about to be made carries them.
        tokio::task::yield_now().await;
        let ours = tokio::select! {
            biased;
            answer = &mut answer => answer.unwrap_or_else(|_| Err(settle::cut_off())),
            _turn = self.turn.lock() => match answer.try_recv() {
                // Whoever had the turn before has done it.
                Ok(answer) => answer,
                Err(oneshot::error::TryRecvError::Closed) => Err(settle::cut_off()),
                Err(oneshot::error::TryRecvError::Empty) => {
                    self.complete_waiting().await;
                    answer.await.unwrap_or_else(|_| Err(settle::cut_off()))
                }
            },
        };
        let mut ours = ours?;
        let mut answers: Vec<Result<()>> = settlements
            .iter()
            .map(|one| match key(&one.receipt) {
                // Taken out, so that the same receipt's second settlement is answered as what it is.
                Some(key) if ours.remove(&key) => Ok(()),
                _ => Err(receipt_lost()),
            })
            .collect();
        let in_doubt = |one: &Settlement| key(&one.receipt).is_some_and(|key| self.doubts.is_in_doubt(&key));
        let explained = self.term.is_some() || settlements.iter().any(in_doubt);
        if explained && answers.iter().any(Result::is_err) {
            let mut session = self.borrow().await.map_err(Failure::of_repeatable)?;
            let explaining = self.explain(&mut session, settlements, &mut answers);
            let explained = within(self.deadline(), explaining).await;
            self.end(session, explained).await?;
        }
        Ok(answers)
    }

    /// Why claims are not there any more. Because the term is over: that is another answer. Or because a call without an
    /// answer has ended them: then what was asked for is done.
    async fn explain(
        &self,
        session: &mut Borrowed,
        settlements: &[Settlement],
        answers: &mut [Result<()>],
    ) -> Result<(), Failure> {
        if answers.iter().all(Result::is_ok) {
            return Ok(());
        }
        settle::check_term(session, self.claims()).await?;
        let mut in_doubt: HashMap<ClaimKey, &mut Result<()>> = HashMap::new();
        for (one, answer) in settlements.iter().zip(answers) {
            let is_lost = matches!(answer, Err(error) if error.kind() == ErrorKind::ReceiptLost);
            if let Some(key) = key(&one.receipt).filter(|key| is_lost && self.doubts.is_in_doubt(key)) {
                // The first of several: a second settlement of a claim is answered as what it is.
                in_doubt.entry(key).or_insert(answer);
            }
        }
        if in_doubt.is_empty() {
            return Ok(());
        }
        let server_now = claim::server_now(session).await?;
        let now = self.clock.now();
        for (key, answer) in in_doubt {
            if self.doubts.ended_by_us(&key, now, server_now) {
                *answer = Ok(());
            }
        }
        Ok(())
    }

    /// Keeps in mind which claims are over, and which may be.
    fn note_ended(&self, settlements: &[Settlement], answers: &Result<Vec<Result<()>>>) {
        let keys = settlements.iter().filter_map(|one| key(&one.receipt));
        match answers {
            // Also where it was not even asked for: then it is there when somebody asks again.
            Err(_) => self.doubts.unanswered(keys),
            Ok(answers) => {
                let is_over = |answer: &Result<()>| match answer {
                    Ok(()) => true,
                    Err(error) => error.kind() == ErrorKind::ReceiptLost,
                };
                let over = keys.zip(answers).filter(|(_, answer)| is_over(answer));
                self.doubts.over(over.map(|(key, _)| key));
            }
        }
    }

    /// Completes what waits; called by whoever has the turn.
    async fn complete_waiting(&self) {
        let session = self.borrow().await.map_err(Failure::of_repeatable);
        let waiting = self.take_waiting();
        let mut completed = HashSet::new();
        let answer = match session {
            Err(e) => Err(e),
            Ok(mut session) => {
                let complete: Vec<ClaimKey> =
                    waiting.iter().flat_map(|one| one.claims.iter().copied()).collect();
                let request = Request { max: 0, ..self.idle_request() };
                let turn = within(self.deadline(), claim::turn(&mut session, &request, &complete)).await;
                let turn = self.end(session, turn).await;
                turn.map(|turn| completed.extend(turn.completed))
            }
        };
        answer_waiting(waiting, &answer, &completed);
    }

    /// A request that claims nothing.
    fn idle_request(&self) -> Request {
        Request {
            endpoint: self.state.lock().endpoint,
            max: 0,
            max_bytes: 0,
            after: i64::MAX,
            token: 0,
            lease: self.spec.lease,
            term: self.term,
            strict: self.is_strict(),
            lost: Vec::new(),
        }
    }

    /// Settles whatever it is.
    async fn settle_all(&self, settlements: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        let plain = |one: &Settlement| matches!(one.verdict, Verdict::Complete) && one.outgoing.is_empty();
        let answers = if settlements.iter().all(plain) {
            self.complete(&settlements).await
        } else {
            self.settle_mixed(&settlements).await
        };
        self.note_ended(&settlements, &answers);
        let comes_back = |one: &&Settlement| !matches!(one.verdict, Verdict::Complete);
        let ids = settlements.iter().filter(comes_back).filter_map(|one| key(&one.receipt)).map(|(id, _)| id);
        let first = ids.min();
        if let Some(first) = first {
            self.state.lock().position.set_back(first);
        }
        let sent = settlements.iter().flat_map(|one| send::topics(&one.outgoing));
        let topics: HashSet<Topic> =
            sent.chain((first.is_some() || self.is_strict()).then(|| self.topic())).collect();
        if !topics.is_empty() {
            self.store.wake.tell(topics);
        }
        answers
    }

    async fn settle_mixed(&self, settlements: &[Settlement]) -> Result<Vec<Result<()>>> {
        let outgoing: Vec<_> = settlements.iter().flat_map(|one| one.outgoing.iter().cloned()).collect();
        self.store.ensure_endpoints(&send::queues(&outgoing)).await.map_err(Failure::of_repeatable)?;
        let mut session = self.borrow().await.map_err(Failure::of_repeatable)?;
        let max_body = self.store.config().max_body;
        let settled = within(self.deadline(), async {
            let mut answers = settle::settle(&mut session, self.claims(), settlements, max_body).await?;
            self.explain(&mut session, settlements, &mut answers).await?;
            Ok(answers)
        })
        .await;
        if let Err(failure) = &settled
            && send::is_missing_queue(failure)
        {
            self.store.forget_endpoints();
            let _ = self.end(session, settled).await;
            return Err(error(
                ErrorKind::Unavailable,
                "a queue that is sent to was removed just now: ask again",
            ));
        }
        self.end(session, settled).await
    }

    /// How long to sleep if nobody wakes us.
    fn pause(&self, next_change: Option<Duration>) -> Duration {
        // A waiting singleton keeps its row bound.
        let binding = self.term.map(|term| term.lock_lease / 4);
        let late = self.state.lock().position.look_again(self.clock.now()).map(jittered);
        let sooner = [next_change, binding, late].into_iter().flatten();
        let pause = sooner.fold(jittered(LONGEST_SLEEP), Duration::min);
        pause.max(SHORTEST_SLEEP)
    }

    async fn extend_all(&self, receipts: &[Receipt], lease: Duration) -> Result<Vec<Result<()>>> {
        let mut session = self.borrow().await.map_err(Failure::of_repeatable)?;
        let asked = self.clock.now();
        let extended = within(self.deadline(), async {
            let (answers, ends) = settle::extend(&mut session, self.claims(), receipts, lease).await?;
            self.doubts.held(ends, asked, lease);
            self.bind(&mut session).await?;
            Ok(answers)
        })
        .await;
        if extended.is_err() {
            self.doubts.perhaps_extended(receipts.iter().filter_map(key), asked, lease);
        }
        self.end(session, extended).await
    }
}

/// Tells those who waited what has become of their claims.
fn answer_waiting<T>(waiting: Vec<Waiting>, answer: &Result<T>, completed: &HashSet<ClaimKey>) {
    for one in waiting {
        let mine = |key: &ClaimKey| completed.contains(key);
        let answer = match answer {
            // Completed is completed, whatever failed afterwards.
            _ if one.claims.iter().all(mine) => Ok(one.claims.into_iter().collect()),
            Ok(_) => Ok(one.claims.into_iter().filter(mine).collect()),
            Err(e) => Err(e.clone()),
        };
        // Nobody there: it is done, or comes back when its lease ends.
        let _ = one.done.send(answer);
    }
}

impl Consumer for PostgresConsumer {
    fn receive<'a>(
        &'a self,
        max: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let mut hint = self.store.wake.hints.listen(self.topic());
            loop {
                hint.mark_unchanged();
                if stop.is_cancelled() {
                    return Ok(Vec::new());
                }
                let Some(claimed) = self.claim(max, stop).await? else { return Ok(Vec::new()) };
                if !claimed.deliveries.is_empty() {
                    return Ok(claimed.deliveries);
                }
                let (endpoint, beyond) = {
                    let state = self.state.lock();
                    (state.endpoint, state.position.wait_beyond())
                };
                let _parked = self.store.park(endpoint, beyond, self.spec.endpoint.target());
                let pause = self.pause(claimed.next_change);
                self.spec.pulse.beat(self.clock.now(), pause);
                tokio::select! {
                    () = stop.cancelled() => return Ok(Vec::new()),
                    () = self.store.relaxed.closed().cancelled() => return Err(closed()),
                    Ok(()) = hint.changed() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
        })
    }

    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(async move { item_by_item(receipts.len(), self.extend_all(receipts, lease).await) })
    }

    fn settle(&self, settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(async move {
            let count = settlements.len();
            item_by_item(count, self.settle_all(settlements).await)
        })
    }

    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            // What is recorded has to outlive a crash that the run itself may cause.
            let mut session = self.store.durable.borrow().await?;
            let recorded =
                within(self.deadline(), settle::record_alone(&mut session, self.claims(), receipt)).await;
            self.end(session, recorded).await?
        })
    }
}
