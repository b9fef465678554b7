//! Tests of elections against the embedded server, over a faulty connection.

use std::sync::Mutex;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};

use super::*;
use crate::clock::TokioClock;
use crate::faulty_server::{FaultyServer, Seen, Verdict};

const NAMESPACE: &str = "/api/v1/namespaces/ns";
const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/mcm";
const SECOND: Duration = Duration::from_secs(1);

struct Candidate {
    leadership: Leadership,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<ElectionEnd>,
}

impl Candidate {
    fn start(server: &FaultyServer, identity: &str) -> Self {
        Self::start_at(server, identity, "2026-01-01T00:00:00Z")
    }

    fn start_at(server: &FaultyServer, identity: &str, wall: &str) -> Self {
        Self::start_with(server, identity, wall, Duration::ZERO, Duration::ZERO)
    }

    /// A process that waits at most `at_most` for its calls, which end `calls_take` after the stop
    /// signal.
    fn with_calls(server: &FaultyServer, identity: &str, calls_take: Duration, at_most: Duration) -> Self {
        Self::start_with(server, identity, "2026-01-01T00:00:00Z", calls_take, at_most)
    }

    fn start_with(
        server: &FaultyServer,
        identity: &str,
        wall: &str,
        calls_take: Duration,
        at_most: Duration,
    ) -> Self {
        let clock = Arc::new(TokioClock::starting_at(wall.parse().expect("a time")));
        Self::start_over(server, identity, clock, calls_take, at_most)
    }

    fn start_over(
        server: &FaultyServer,
        identity: &str,
        clock: SharedClock,
        calls_take: Duration,
        at_most: Duration,
    ) -> Self {
        let options = LeaseOptions::new("ns", "mcm", identity);
        options.validate().expect("the defaults are valid");
        let (elector, leadership) = Elector::new(server.client(), options, clock);
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move {
            if stopped.await.is_err() {
                std::future::pending().await
            }
        };
        let reader = leadership.clone();
        // The sleep is created at the first poll, so its time counts from there.
        let in_flight = async move {
            assert!(reader.is_held() && !reader.may_start(), "no call may start during the drain");
            assert!(reader.may_continue(), "calls in flight continue during the drain");
            sleep(calls_take).await;
        };
        let task = tokio::spawn(elector.run_and_drain(stopped, in_flight, at_most));
        Self { leadership, stop: Some(stop), task }
    }

    fn ask_to_stop(&mut self) {
        self.stop.take().expect("not stopped yet").send(()).expect("the elector still runs");
    }

    fn leads(&self) -> bool {
        self.leadership.is_held()
    }

    /// The process dies: its task ends, and it does not release the Lease.
    fn kill(self) {
        self.task.abort();
    }
}

fn spec(server: &FaultyServer) -> Value {
    server.get(PATH).expect("the Lease")["spec"].clone()
}

fn is_write(seen: &Seen) -> bool {
    seen.method != "GET"
}

#[tokio::test(start_paused = true)]
async fn the_lease_has_the_fields_of_client_go() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    assert!(one.leads());
    let first = spec(&server);
    assert_eq!(
        first,
        json!({
            "holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": first["renewTime"], "renewTime": first["renewTime"],
        })
    );
    let micros = first["renewTime"].as_str().expect("a time");
    assert!(micros.starts_with("2026-01-01T00:00:00.") && micros.len() == 27, "{micros}");
    sleep(SECOND * 2).await;
    let later = spec(&server);
    assert_eq!(later["acquireTime"], first["acquireTime"]);
    assert_ne!(later["renewTime"], first["renewTime"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_renews_with_one_write_and_no_read() {
    let server = FaultyServer::new();
    let _one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    server.forget_seen();
    sleep(SECOND * 60).await;
    assert_eq!(server.count(Seen::is_list), 0);
    assert!((29..=30).contains(&server.count(is_write)), "{}", server.count(is_write));
}

#[tokio::test(start_paused = true)]
async fn a_second_process_waits_until_the_lease_expires() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    let two = Candidate::start(&server, "two");
    sleep(SECOND * 60).await;
    assert!(one.leads() && !two.leads());
    let one_until = match one.leadership.state() {
        LeaseState::Held(term) => term.until,
        other => panic!("{other:?}"),
    };
    one.kill();
    let first = spec(&server);
    let acquired = tokio::time::timeout(SECOND * 60, two.leadership.acquired()).await;
    acquired.expect("in time").expect("no other process competes");
    let waited = Instant::now().duration_since(one_until);
    assert!(waited < SECOND * 5, "{waited:?} longer than necessary");
    assert_eq!(spec(&server)["leaseTransitions"], 1);
    assert_eq!(spec(&server)["acquireTime"], spec(&server)["renewTime"]);
    assert_ne!(spec(&server)["acquireTime"], first["acquireTime"]);
    assert_eq!(spec(&server)["holderIdentity"], "two");
}

#[tokio::test(start_paused = true)]
async fn a_clock_an_hour_ahead_does_not_take_the_lease() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    let two = Candidate::start_at(&server, "two", "2026-01-01T01:00:00Z");
    sleep(SECOND * 120).await;
    assert!(one.leads() && !two.leads());
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once() {
    let server = FaultyServer::new();
    let mut one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    let two = Candidate::start(&server, "two");
    sleep(SECOND * 10).await;
    one.ask_to_stop();
    assert_eq!((&mut one.task).await.expect("no panic"), ElectionEnd::Released);
    assert!(!one.leads());
    assert_eq!(spec(&server)["holderIdentity"], "");
    let given_back = Instant::now();
    let acquired = tokio::time::timeout(SECOND * 60, two.leadership.acquired()).await;
    acquired.expect("in time").expect("the Lease is free");
    assert!(given_back.elapsed() < SECOND * 3);
}

/// A user deletes the Lease. The last writes of its holder may still take effect.
#[tokio::test(start_paused = true)]
async fn a_deleted_lease_counts_until_it_would_have_expired() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    let two = Candidate::start(&server, "two");
    sleep(SECOND * 10).await;
    one.kill();
    server.delete(PATH).await;
    sleep(SECOND * 11).await;
    assert!(!two.leads(), "the deletion does not stop the holder");
    sleep(SECOND * 10).await;
    assert!(two.leads());
    assert!(two.leadership.taken_over_since().is_some(), "the holder did not release the Lease");
    assert!(two.leadership.first_since().is_none(), "it knew the Lease");
}

/// A user deletes the Lease of a leader that hangs, and another process starts.
#[tokio::test(start_paused = true)]
async fn a_process_without_a_lease_before_it_knows_no_leader() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    assert!(one.leadership.first_since().is_some() && one.leadership.taken_over_since().is_none());
    one.kill();
    server.delete(PATH).await;
    let two = Candidate::start(&server, "two");
    sleep(SECOND).await;
    assert!(two.leads() && two.leadership.first_since().is_some());
}

/// The Lease was created, and the answer was lost. The next attempt finds its own Lease.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_the_creation_makes_no_known_leader() {
    let server = FaultyServer::new();
    let mut writes = 0;
    server.hook(move |seen| {
        writes += usize::from(is_write(seen));
        if is_write(seen) && writes == 1 { Verdict::ServeThenAnswer(504) } else { Verdict::Pass }
    });
    let one = Candidate::start(&server, "one");
    sleep(SECOND * 10).await;
    assert!(one.leads() && one.leadership.first_since().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_holder_creates_a_deleted_lease_again() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    let two = Candidate::start(&server, "two");
    sleep(SECOND * 10).await;
    server.delete(PATH).await;
    sleep(SECOND * 60).await;
    assert!(one.leads() && !two.leads());
    assert_eq!(spec(&server)["holderIdentity"], "one");
}

#[tokio::test(start_paused = true)]
async fn stopping_without_the_lease_leaves_it_to_its_holder() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    let mut two = Candidate::start(&server, "two");
    sleep(SECOND * 10).await;
    two.ask_to_stop();
    assert_eq!((&mut two.task).await.expect("no panic"), ElectionEnd::Released);
    assert!(one.leads());
    assert_eq!(spec(&server)["holderIdentity"], "one");
}

#[tokio::test(start_paused = true)]
async fn stopping_never_releases_the_lease_of_another_process() {
    let server = FaultyServer::new();
    let mut one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    server.hook(|seen| if is_write(seen) { Verdict::Hang } else { Verdict::Pass });
    sleep(SECOND * 2).await;
    let mut lease = server.get(PATH).expect("the Lease");
    lease["spec"]["holderIdentity"] = "two".into();
    server.put(PATH, lease).await;
    server.hook(|_| Verdict::Pass);
    assert!(one.leads(), "the process has not noticed the other holder yet");
    one.ask_to_stop();
    assert_eq!((&mut one.task).await.expect("no panic"), ElectionEnd::Released);
    assert_eq!(spec(&server)["holderIdentity"], "two");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_until_calls_in_flight_have_ended() {
    let server = FaultyServer::new();
    let mut one = Candidate::with_calls(&server, "one", SECOND * 40, SECOND * 60);
    sleep(SECOND).await;
    let two = Candidate::start(&server, "two");
    sleep(SECOND * 5).await;
    assert!(one.leadership.may_start());
    one.ask_to_stop();
    for _ in 0..39 {
        sleep(SECOND).await;
        assert!(one.leads() && !one.leadership.may_start() && !two.leads());
        assert!(SECOND * 12 < one.leadership.remaining(), "the process continues to renew");
        assert!(matches!(one.leadership.state(), LeaseState::Draining(_)));
        assert_eq!(
            one.leadership.acquired().await,
            Err(LeadershipLost),
            "a draining process does not start to lead"
        );
    }
    let asked_for = Instant::now();
    assert_eq!((&mut one.task).await.expect("no panic"), ElectionEnd::Released);
    assert!(asked_for.elapsed() <= SECOND * 2, "released when the last call ended");
    assert!(!one.leads());
    two.leadership.acquired().await.expect("the Lease is free");
    assert!(asked_for.elapsed() < SECOND * 5);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_calls_up_to_its_limit() {
    let server = FaultyServer::new();
    let mut one = Candidate::with_calls(&server, "one", SECOND * 3600, SECOND * 60);
    sleep(SECOND).await;
    one.ask_to_stop();
    let asked = Instant::now();
    assert_eq!((&mut one.task).await.expect("no panic"), ElectionEnd::Released);
    assert_eq!(asked.elapsed().as_secs(), 60);
    assert_eq!(spec(&server)["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_in_a_drain_ends_the_drain() {
    let server = FaultyServer::new();
    let mut one = Candidate::with_calls(&server, "one", SECOND * 3600, SECOND * 3600);
    sleep(SECOND * 3).await;
    one.ask_to_stop();
    server.hook(|_| Verdict::Refuse);
    let asked = Instant::now();
    let end = (&mut one.task).await.expect("no panic");
    assert!(matches!(end, ElectionEnd::Lost { .. }), "{end:?}");
    assert!(asked.elapsed() <= SECOND * 10 && !one.leads());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_lead_has_nothing_to_drain() {
    let server = FaultyServer::new();
    let _one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    let mut two = Candidate::with_calls(&server, "two", SECOND * 40, SECOND * 60);
    sleep(SECOND * 5).await;
    two.ask_to_stop();
    let asked = Instant::now();
    assert_eq!((&mut two.task).await.expect("no panic"), ElectionEnd::Released);
    assert_eq!(asked.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_call_longer_than_the_lease_may_start() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    assert!(!one.leadership.may_start(), "no call before the process leads");
    for _ in 0..600 {
        sleep(SECOND / 10).await;
        assert!(one.leadership.may_start(), "the Lease is always renewed within the deadline");
        assert!(one.leadership.remaining() <= SECOND * 15);
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_starts_after_the_renew_deadline() {
    let now = Instant::now();
    let clock: SharedClock = Arc::new(TokioClock::starting_at(Timestamp::UNIX_EPOCH));
    let renewed = Sent::now(&clock);
    let (start_until, until) = (now + SECOND * 10, now + SECOND * 15);
    let term = Term { since: now, start_until, until, ran_out: false, is_first: false, renewed };
    // No elector runs, as in a process that has just continued after a SIGSTOP.
    let (_elector, state) = channel(LeaseState::Held(term));
    let leadership =
        Leadership { state, clock, is_theirs: Arc::default(), annotation: Arc::default(), _permanent: None };
    advance(SECOND * 10 - Duration::from_millis(1)).await;
    assert!(leadership.may_start() && leadership.may_continue());
    advance(Duration::from_millis(1)).await;
    assert!(
        leadership.is_held() && !leadership.may_start() && !leadership.may_continue(),
        "no other process leads yet, but no call starts or continues"
    );
    assert_eq!(leadership.remaining(), SECOND * 5);
    advance(SECOND * 5).await;
    assert!(!leadership.is_held() && leadership.state() == LeaseState::Lost);
}

#[tokio::test(start_paused = true)]
async fn without_a_server_leadership_ends_at_the_renew_deadline() {
    for verdict in [|| Verdict::Refuse, || Verdict::Hang, || Verdict::Answer(503)] {
        let server = FaultyServer::new();
        let mut one = Candidate::start(&server, "one");
        sleep(SECOND * 3).await;
        let last_renewal = server.seen().iter().rev().find(|seen| is_write(seen)).map(|seen| seen.at);
        server.hook(move |_| verdict());
        one.leadership.lost().await;
        let lasted = last_renewal.expect("the process has renewed the Lease").elapsed();
        assert!(lasted <= SECOND * 10 + SECOND / 10, "{lasted:?}");
        assert_eq!(one.leadership.remaining(), Duration::ZERO);
        let end = (&mut one.task).await.expect("no panic");
        assert!(matches!(end, ElectionEnd::Lost { .. }), "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_with_lost_answers_keep_leadership() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    let mut n = 0;
    server.hook(move |seen| {
        n += usize::from(is_write(seen));
        if is_write(seen) && n % 2 == 0 { Verdict::ServeThenAnswer(504) } else { Verdict::Pass }
    });
    for _ in 0..600 {
        sleep(SECOND / 5).await;
        assert!(one.leads());
    }
}

#[tokio::test(start_paused = true)]
async fn labelling_the_lease_does_not_end_leadership() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    for _ in 0..20 {
        let mut lease = server.get(PATH).expect("the Lease");
        lease["metadata"]["labels"] = json!({ "a": "b" });
        server.put(PATH, lease).await;
        sleep(SECOND * 3).await;
        assert!(one.leads());
    }
    assert_eq!(server.get(PATH).expect("the Lease")["metadata"]["labels"]["a"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_another_holder_ends_leadership() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    sleep(SECOND).await;
    let mut lease = server.get(PATH).expect("the Lease");
    lease["spec"]["holderIdentity"] = "thief".into();
    server.put(PATH, lease).await;
    sleep(SECOND * 3).await;
    assert!(!one.leads());
    assert_eq!(spec(&server)["holderIdentity"], "thief");
}

#[tokio::test(start_paused = true)]
async fn a_paused_process_does_not_lead_when_it_continues() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    sleep(SECOND * 3).await;
    assert!(SECOND * 12 < one.leadership.remaining());
    server.forget_seen();
    // All timers fire at once, as after a SIGCONT.
    advance(SECOND * 20).await;
    assert!(!one.leads());
    assert_eq!(one.leadership.remaining(), Duration::ZERO);
    one.leadership.lost().await;
    assert_eq!(server.count(is_write), 0, "a process with an expired Lease must not renew");
}

/// The wall clock of a machine that may be suspended: the monotonic clock stands still meanwhile.
struct Suspended {
    running: TokioClock,
    slept: Mutex<Duration>,
}

impl Suspended {
    fn new() -> Arc<Self> {
        let running = TokioClock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
        Arc::new(Self { running, slept: Mutex::default() })
    }

    fn sleep(&self, duration: Duration) {
        *self.slept.lock().expect("no panic") += duration;
    }
}

impl crate::clock::Clock for Suspended {
    fn now(&self) -> Timestamp {
        self.running.now() + *self.slept.lock().expect("no panic")
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_machine_does_not_lead_when_it_resumes() {
    let (server, clock) = (FaultyServer::new(), Suspended::new());
    let one = Candidate::start_over(&server, "one", clock.clone(), Duration::ZERO, Duration::ZERO);
    sleep(SECOND * 3).await;
    clock.sleep(SECOND * 11);
    assert!(one.leads() && !one.leadership.may_start() && !one.leadership.may_continue());
    clock.sleep(SECOND * 4);
    assert!(!one.leads());
    assert_eq!(one.leadership.remaining(), Duration::ZERO);
    // No other process has taken the Lease, so a renewal succeeds.
    sleep(SECOND * 3).await;
    assert!(one.leads() && one.leadership.may_start());
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_and_released_meanwhile_is_lost() {
    let (server, clock) = (FaultyServer::new(), Suspended::new());
    let mut one = Candidate::start_over(&server, "one", clock.clone(), Duration::ZERO, Duration::ZERO);
    sleep(SECOND * 3).await;
    clock.sleep(SECOND * 60);
    let mut lease = server.get(PATH).expect("the Lease");
    lease["spec"]["holderIdentity"] = "".into();
    lease["spec"]["leaseTransitions"] = 1.into();
    server.put(PATH, lease).await;
    let end = (&mut one.task).await.expect("no panic");
    assert!(matches!(end, ElectionEnd::Lost { .. }), "{end:?}");
    assert_eq!(spec(&server)["holderIdentity"], "", "the process does not take the Lease again");
}

#[tokio::test(start_paused = true)]
async fn two_processes_never_lead_at_the_same_time() {
    for seed in 0..20_u64 {
        let server = FaultyServer::new();
        let mut random = Jitter::new(seed);
        let trouble = Arc::new(Mutex::new(false));
        let troubled = trouble.clone();
        let mut coin = Jitter::new(seed + 1_000);
        server.hook(move |_| {
            let one_of_four = (coin.stretch(SECOND * 4, 1.0).as_secs_f64() - 4.0) as u64;
            match (*troubled.lock().expect("unpoisoned"), one_of_four) {
                (false, _) | (true, 0) => Verdict::Pass,
                (true, 1) => Verdict::ServeThenAnswer(500),
                (true, 2) => Verdict::Hang,
                (true, _) => Verdict::Refuse,
            }
        });
        let mut born = 0;
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut led = 0;
        let mut drained = 0;
        for step in 0..3_000 {
            while candidates.len() < 3 {
                born += 1;
                let name = format!("c{born}");
                candidates.push(Candidate::with_calls(&server, &name, SECOND * 20, SECOND * 60));
            }
            let leaders = candidates.iter().filter(|candidate| candidate.leads()).count();
            assert!(leaders <= 1, "seed {seed}, step {step}: {leaders} processes lead");
            led += leaders;
            let starters = candidates.iter().filter(|candidate| candidate.leadership.may_start()).count();
            assert!(starters <= leaders, "seed {seed}, step {step}: only a leader may start calls");
            // Sometimes the leader is told to stop while its calls take longer than its Lease
            // lasts.
            if step % 700 == 350
                && let Some(leader) = candidates.iter_mut().find(|candidate| candidate.leads())
                && leader.stop.is_some()
            {
                leader.ask_to_stop();
                drained += 1;
            }
            if step % 100 == 0 {
                let is_troubled = SECOND.mul_f64(1.5) < random.stretch(SECOND, 1.0);
                *trouble.lock().expect("unpoisoned") = is_troubled;
            }
            candidates.retain(|candidate| !candidate.task.is_finished());
            sleep(SECOND / 10).await;
        }
        assert!(500 < led, "seed {seed}: a process led in only {led} of 3000 steps");
        assert!(0 < drained, "seed {seed}: no leader was told to stop");
    }
}

#[tokio::test(start_paused = true)]
async fn leadership_without_an_election_never_ends() {
    let leadership = Leadership::unopposed();
    advance(Duration::from_secs(86_400 * 365)).await;
    assert!(leadership.is_held());
    assert!(leadership.may_start());
    assert!(SECOND * 3600 < leadership.remaining());
    assert_eq!(leadership.acquired().await, Ok(()));
}

#[test]
fn the_error_names_the_invalid_option() {
    let options = || LeaseOptions::new("ns", "mcm", "one");
    let wrong = |options: LeaseOptions| options.validate().expect_err("the option is invalid").to_string();
    let too_long = LeaseOptions { renew_deadline: SECOND * 15, ..options() };
    assert!(wrong(too_long).contains("renew deadline"));
    let too_rare = LeaseOptions { retry_period: SECOND * 9, ..options() };
    assert!(wrong(too_rare).contains("retry period"));
    assert!(wrong(LeaseOptions { identity: String::new(), ..options() }).contains("identity"));
}

#[tokio::test(start_paused = true)]
async fn in_a_deleted_namespace_only_the_last_leader_leads() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    sleep(SECOND * 3).await;
    let two = Candidate::start(&server, "two");
    sleep(SECOND * 3).await;
    server.delete(NAMESPACE).await;
    server.delete(PATH).await;
    for _ in 0..600 {
        sleep(SECOND).await;
        assert!(one.leads() && !two.leads());
    }
    // No process begins to lead after the last leader has died.
    one.kill();
    sleep(SECOND * 120).await;
    assert!(!two.leads());
    let three = Candidate::start(&server, "three");
    sleep(SECOND * 120).await;
    assert!(!three.leads() && server.get(PATH).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_term_without_a_lease_ends_with_the_namespace() {
    let server = FaultyServer::new();
    let mut one = Candidate::start(&server, "one");
    sleep(SECOND * 3).await;
    server.delete(NAMESPACE).await;
    server.delete(PATH).await;
    sleep(SECOND * 60).await;
    assert!(one.leads());
    server.hook(|seen| if seen.method == "POST" { Verdict::Answer(404) } else { Verdict::Pass });
    let ElectionEnd::Lost { reason } = (&mut one.task).await.expect("no panic") else { panic!("it leads") };
    assert!(reason.contains("failure requested by the test"), "it names the answer of the server: {reason}");
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_learns_of_unseen_time() {
    let server = FaultyServer::new();
    let one = Candidate::start(&server, "one");
    assert_eq!(one.leadership.inherited(), None, "unknown before it leads");
    sleep(SECOND).await;
    assert_eq!(one.leadership.inherited(), Some(Inherited::default()), "there was no Lease");
    server.forget_seen();
    one.leadership.write_unseen("a/b".to_owned());
    assert_eq!(server.count(is_write), 0, "the annotation costs no request");
    sleep(SECOND * 3).await;
    assert_eq!(server.get(PATH).expect("the Lease")["metadata"]["annotations"][UNSEEN], "a/b");
    let renewed: Timestamp = spec(&server)["renewTime"].as_str().expect("a time").parse().expect("a time");
    // A process that dies leaves its last renewal.
    let unseen = Some("a/b".to_owned());
    one.task.abort();
    let mut two = Candidate::start(&server, "two");
    two.leadership.acquired().await.expect("the Lease expired");
    let inherited = Inherited { renewed: Some(renewed), unseen: unseen.clone() };
    assert_eq!(two.leadership.inherited(), Some(inherited));
    sleep(SECOND * 10).await;
    two.ask_to_stop();
    assert_eq!((&mut two.task).await.expect("no panic"), ElectionEnd::Released);
    let mut three = Candidate::start(&server, "three");
    three.leadership.acquired().await.expect("the Lease is free");
    let inherited = three.leadership.inherited().expect("it leads");
    assert_eq!(inherited.unseen, unseen, "a leader that knows nothing keeps the annotation");
    assert!(inherited.renewed.is_some_and(|at| renewed < at), "the release is the last renewal");
    three.leadership.write_unseen(String::new());
    sleep(SECOND * 3).await;
    assert_eq!(server.get(PATH).expect("the Lease")["metadata"]["annotations"], Value::Null);
    three.ask_to_stop();
}
