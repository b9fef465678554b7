//! Plays drains of pods with volumes against a small cluster: pods end, volumes are detached and
//! attached elsewhere, each after its own time.

use serde_json::{Value, json};

use super::*;
use crate::mcm::facts::{AttachmentFacts, ClaimFacts, NodeFacts, VolumeFacts};
use crate::testing::at;

/// A pod with volumes, and what happens to it after its eviction.
#[derive(Clone)]
struct Tenant {
    name: String,
    priority: i32,
    /// Names of the PersistentVolumes. The claim of a volume has the same name.
    volumes: Vec<String>,
    /// How the API server answers evictions.
    answer: EvictionAnswer,
    /// Seconds until the pod has left, after its eviction was accepted.
    leaves_after: i64,
    /// Seconds until a volume is detached, after the last pod that uses it has left; absent if it
    /// stays attached.
    detached_after: Option<i64>,
    /// Seconds until a volume is attached to another Node, after it was detached.
    attached_after: Option<i64>,
    /// Whether a pod on another Node uses the claims as soon as this one has left.
    is_replaced: bool,
}

/// A pod with one volume of the same name. It leaves after 5 s, and its volume is on another Node
/// 10 s later.
fn tenant(name: &str) -> Tenant {
    Tenant {
        name: name.to_owned(),
        priority: 0,
        volumes: vec![format!("v-{name}")],
        answer: EvictionAnswer::Accepted,
        leaves_after: 5,
        detached_after: Some(5),
        attached_after: Some(5),
        is_replaced: true,
    }
}

/// A cluster while one Node is drained.
struct Cluster {
    tenants: Vec<Tenant>,
    limits: VolumeLimits,
    deadline: Timestamp,
    manner: Manner,
    /// Claims that are being deleted, or that belong to a pod.
    deleted_claims: Vec<String>,
    ephemeral_claims: Vec<String>,
    missing_claims: Vec<String>,
    /// NodeVolumes that the driver does not know.
    foreign: Vec<String>,
    /// The second at which the process forgets everything.
    restart: Option<i64>,
    second: i64,
    attempts: BTreeMap<String, Eviction>,
    waits: BTreeMap<String, VolumeWait>,
    evicted: BTreeMap<String, i64>,
    /// The names of evicted pods in order, each with the second of the first accepted eviction.
    log: Vec<(String, i64)>,
    /// The largest number of volumes between two Nodes.
    most_moving: usize,
}

fn cluster(tenants: impl IntoIterator<Item = Tenant>) -> Cluster {
    Cluster {
        tenants: tenants.into_iter().collect(),
        limits: VolumeLimits {
            at_once: None,
            detach_timeout: Duration::from_secs(120),
            reattach_timeout: Duration::from_secs(90),
        },
        deadline: at(7200),
        manner: Manner::Polite,
        deleted_claims: Vec::new(),
        ephemeral_claims: Vec::new(),
        missing_claims: Vec::new(),
        foreign: Vec::new(),
        restart: None,
        second: 0,
        attempts: BTreeMap::new(),
        waits: BTreeMap::new(),
        evicted: BTreeMap::new(),
        log: Vec::new(),
        most_moving: 0,
    }
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("test objects are well-formed")
}

impl Cluster {
    fn at_once(mut self, most: usize) -> Self {
        self.limits.at_once = std::num::NonZeroUsize::new(most);
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Plays the drain until nothing is left and nothing is awaited. Returns the second.
    fn drain(&mut self) -> i64 {
        while self.second < 10_000 {
            if self.restart == Some(self.second) {
                self.attempts.clear();
                self.waits.clear();
            }
            if self.step() {
                return self.second;
            }
            self.second += 1;
        }
        panic!("the drain does not end: {:?}", self.log);
    }

    /// One pass. Returns whether the drain has ended.
    fn step(&mut self) -> bool {
        let (pods, node) = (self.pods(), self.node());
        let seen = NodeVolumes { waits: Arc::new(self.waits.clone()), ..self.seen() };
        let moving = seen.volumes.values().filter(|volume| volume.attachments.is_empty()).count();
        self.most_moving = self.most_moving.max(moving);
        let drain = Drain {
            now: at(self.second),
            pods: &pods,
            budgets: &[],
            attempts: &self.attempts,
            deadline: self.deadline,
            manner: self.manner,
            gives_up: false,
            is_silent: false,
            unseen: &Unseen::default(),
            max_evictions: 360,
            volumes: DrainVolumes { node: &node, seen: &seen, limits: self.limits },
        };
        let progress = drain.progress();
        let is_awaiting = self.manner == Manner::Polite && !drain.awaited_volumes().is_empty();
        self.waits = drain.volume_waits();
        match progress {
            DrainProgress::Done | DrainProgress::GivenUp { .. } => !is_awaiting,
            DrainProgress::Leaving { calls, .. } => {
                calls.iter().for_each(|call| self.answer(call));
                false
            }
        }
    }

    fn answer(&mut self, call: &PodCall) {
        let (PodCall::Evict(pod) | PodCall::Delete(pod)) = call;
        let tenant = self.tenants.iter().find(|tenant| tenant.name == pod.name).expect("a known pod");
        let outcome = match call {
            PodCall::Evict(_) => tenant.answer.clone(),
            PodCall::Delete(_) => EvictionAnswer::Deleted,
        };
        if matches!(outcome, EvictionAnswer::Accepted | EvictionAnswer::Deleted) {
            self.evicted.entry(pod.name.clone()).or_insert(self.second);
            self.log.push((pod.name.clone(), self.second));
        }
        let now = at(self.second);
        let after = Eviction::after(self.attempts.get(&pod.uid), call, outcome, now, now);
        self.attempts.insert(pod.uid.clone(), after);
    }

    fn left_at(&self, tenant: &Tenant) -> Option<i64> {
        let left = self.evicted.get(&tenant.name)? + tenant.leaves_after;
        (left <= self.second).then_some(left)
    }

    fn pods(&self) -> Vec<Arc<PodFacts>> {
        let staying = self.tenants.iter().filter(|tenant| self.left_at(tenant).is_none());
        let pod = |tenant: &Tenant| {
            let volumes: Vec<_> = tenant
                .volumes
                .iter()
                .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
                .collect();
            let deleted = self.evicted.get(&tenant.name).map(|second| at(*second).to_string());
            Arc::new(PodFacts::parse(&parse(json!({
                "metadata": {"name": tenant.name, "namespace": "ns", "uid": format!("uid-{}", tenant.name),
                             "deletionTimestamp": deleted},
                "spec": {"nodeName": "n", "containers": [], "priority": tenant.priority,
                         "terminationGracePeriodSeconds": 30, "volumes": volumes},
            }))))
        };
        staying.map(pod).collect()
    }

    fn node(&self) -> NodeFacts {
        NodeFacts::parse(&parse(json!({"metadata": {"name": "n", "uid": "uid-n"}})))
    }

    /// The claims, volumes and attachments at this second.
    fn seen(&self) -> NodeVolumes {
        let mut seen = NodeVolumes::default();
        for name in self.tenants.iter().flat_map(|tenant| &tenant.volumes) {
            let full_name: Box<str> = format!("ns/{name}").into();
            if !self.missing_claims.contains(name) {
                let deleted = self.deleted_claims.contains(name).then(|| at(0).to_string());
                let owner =
                    json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true});
                let owners = if self.ephemeral_claims.contains(name) { json!([owner]) } else { json!([]) };
                let claim = ClaimFacts::parse(&parse(json!({
                    "metadata": {"name": name, "namespace": "ns", "deletionTimestamp": deleted, "ownerReferences": owners},
                    "spec": {"volumeName": name},
                })));
                seen.claims.insert(full_name, Arc::new(claim));
            }
            let volume = VolumeFacts::parse(&parse(json!({
                "metadata": {"name": name},
                "spec": {"claimRef": {"namespace": "ns", "name": name},
                         "csi": {"driver": "csi.example", "volumeHandle": format!("id-{name}")}},
            })));
            let volume = SeenVolume {
                id: (!self.foreign.contains(name)).then(|| format!("id-{name}")),
                attachments: self.attachment(name).into_iter().collect(),
                is_used_elsewhere: self.is_replaced(name),
                facts: Arc::new(volume),
            };
            seen.volumes.insert(name.as_str().into(), volume);
        }
        seen
    }

    fn users(&self, volume: &str) -> impl Iterator<Item = &Tenant> {
        self.tenants.iter().filter(move |tenant| tenant.volumes.iter().any(|name| name == volume))
    }

    fn is_replaced(&self, volume: &str) -> bool {
        self.users(volume).any(|tenant| tenant.is_replaced && self.left_at(tenant).is_some())
    }

    fn attachment(&self, volume: &str) -> Option<Arc<AttachmentFacts>> {
        let last = self
            .users(volume)
            .map(|tenant| Some((self.left_at(tenant)?, tenant)))
            .collect::<Option<Vec<_>>>();
        let last = last.and_then(|all| all.into_iter().max_by_key(|(left, _)| *left));
        let detached = last.and_then(|(left, tenant)| Some((left + tenant.detached_after?, tenant)));
        let node = match detached.filter(|(detached, _)| *detached <= self.second) {
            None => "n",
            Some((detached, tenant)) => {
                let attached = detached + tenant.attached_after?;
                (attached <= self.second).then_some("other")?
            }
        };
        Some(Arc::new(AttachmentFacts::parse(&parse(json!({
            "metadata": {"name": format!("va-{volume}"), "uid": format!("uid-{volume}")},
            "spec": {"attacher": "csi.example", "nodeName": node, "source": {"persistentVolumeName": volume}},
            "status": {"attached": true},
        })))))
    }

    fn evicted_at(&self, name: &str) -> i64 {
        self.evicted[name]
    }
}

/// The second pod is evicted when the volume of the first one is attached to another Node. The
/// order is the priority.
#[test]
fn t_63_with_one_at_a_time_pods_with_volumes_leave_in_order() {
    let low = Tenant { priority: 1, ..tenant("low") };
    let high = Tenant { priority: 5, ..tenant("high") };
    let bare = Tenant { volumes: Vec::new(), ..tenant("bare") };
    let mut cluster = cluster([low, bare, high]).at_once(1);
    let ended = cluster.drain();
    assert_eq!((cluster.evicted_at("high"), cluster.evicted_at("bare")), (0, 0), "a pod without volumes");
    assert_eq!(cluster.evicted_at("low"), 15, "after the volume of the first pod was attached again");
    assert_eq!((ended, cluster.most_moving), (30, 1));
}

/// The drain takes as long as the slowest pod and its volume.
#[test]
fn without_a_limit_forty_pods_with_volumes_leave_together() {
    let mut tenants: Vec<_> = (0..40).map(|number| tenant(&format!("p{number}"))).collect();
    tenants[7].detached_after = Some(60);
    let mut cluster = cluster(tenants);
    let ended = cluster.drain();
    assert!(cluster.evicted.values().all(|second| *second <= 1), "{:?}", cluster.log);
    assert!((70..=71).contains(&ended), "{ended}");
}

#[test]
fn a_limit_bounds_the_pods_whose_volumes_move() {
    let tenants: Vec<_> = (0..9).map(|number| tenant(&format!("p{number}"))).collect();
    let mut cluster = cluster(tenants).at_once(3);
    assert_eq!(cluster.drain(), 45, "three rounds of 15 s");
    let first: Vec<_> = cluster.evicted.values().filter(|second| **second == 0).collect();
    assert_eq!((first.len(), cluster.most_moving), (3, 3));
}

#[test]
fn t_64_shared_volumes_are_not_waited_for() {
    let shared =
        |name: &str| Tenant { volumes: vec!["shared".to_owned()], detached_after: None, ..tenant(name) };
    let mut cluster = cluster([shared("a"), shared("b")]).at_once(1);
    assert_eq!(cluster.drain(), 5, "both leave at once, and their volume stays");
}

#[test]
fn t_65_a_forced_drain_needs_no_turn() {
    let held = |name: &str| Tenant { answer: EvictionAnswer::Held("no".to_owned()), ..tenant(name) };
    let mut cluster = cluster([held("a"), held("b")]).at_once(1);
    cluster.manner = Manner::Forced { since: at(0) };
    cluster.deadline = at(60);
    assert!(cluster.drain() <= 1, "no pod and no volume is waited for");
    assert_eq!((cluster.evicted_at("a"), cluster.evicted_at("b")), (0, 0));
}

#[test]
fn t_69_unknown_claims_and_foreign_volumes_are_ignored() {
    let stuck = |name: &str| Tenant { detached_after: None, ..tenant(name) };
    let missing = |c: &mut Cluster| c.missing_claims = vec!["v-a".to_owned(), "v-b".to_owned()];
    let foreign = |c: &mut Cluster| c.foreign = vec!["v-a".to_owned(), "v-b".to_owned()];
    let ends = |change: fn(&mut Cluster)| cluster([stuck("a"), stuck("b")]).at_once(1).with(change).drain();
    assert_eq!(ends(foreign), 5, "no volume of this cloud");
    assert_eq!(cluster([stuck("a")]).with(|c| c.missing_claims = vec!["v-a".to_owned()]).evictions(), 1);
    let mut both = cluster([stuck("a"), stuck("b")]).at_once(2).with(missing);
    both.step();
    assert_eq!(both.log.len(), 2, "pods whose claims are missing need no turn");
}

#[test]
fn a_volume_is_waited_for_until_its_timeouts() {
    let never_detached = Tenant { detached_after: None, ..tenant("a") };
    // The grace period is 30 s, the detach timeout 120 s; a deadline is past in the next second.
    assert_eq!(cluster([never_detached]).drain(), 151);
    let never_attached = Tenant { attached_after: None, ..tenant("a") };
    assert_eq!(cluster([never_attached.clone()]).drain(), 10 + 91, "the reattach timeout");
    let not_replaced = Tenant { is_replaced: false, ..never_attached };
    assert_eq!(cluster([not_replaced.clone()]).drain(), 10 + 21, "no pod needs the volume");
    let mut none = cluster([not_replaced]);
    none.limits.reattach_timeout = Duration::ZERO;
    assert_eq!(none.drain(), 10 + 1);
}

#[test]
fn volumes_that_are_deleted_are_not_expected_elsewhere() {
    let never_attached = || cluster([Tenant { attached_after: None, ..tenant("a") }]);
    let claim = || vec!["v-a".to_owned()];
    assert_eq!(never_attached().with(|c| c.ephemeral_claims = claim()).drain(), 10, "it is only detached");
    assert_eq!(never_attached().with(|c| c.deleted_claims = claim()).drain(), 10);
}

/// Otherwise a pod that a budget protects would stop all others.
#[test]
fn a_blocked_pod_keeps_no_turn() {
    let held = Tenant { priority: 9, answer: EvictionAnswer::Held("no".to_owned()), ..tenant("held") };
    let mut cluster = cluster([held, tenant("a"), tenant("b")]).at_once(1);
    for _ in 0..40 {
        cluster.step();
        cluster.second += 1;
    }
    assert!(cluster.evicted_at("a") <= 1, "{:?}", cluster.log);
    assert!(cluster.evicted_at("b") <= 21, "{:?}", cluster.log);
}

/// Each pod must be evicted before a drain may end by force.
#[test]
fn after_the_drain_timeout_every_pod_has_a_turn() {
    let stuck = |name: &str| Tenant { detached_after: None, leaves_after: 1_000, ..tenant(name) };
    let mut cluster = cluster([stuck("a"), stuck("b"), stuck("c")]).at_once(1);
    cluster.deadline = at(60);
    for _ in 0..70 {
        cluster.step();
        cluster.second += 1;
    }
    assert_eq!((cluster.evicted_at("a"), cluster.evicted_at("b"), cluster.evicted_at("c")), (0, 61, 61));
}

/// The volume of a pod that has left is still attached, so it is waited for.
#[test]
fn a_restart_forgets_no_attached_volume() {
    let slow = Tenant { detached_after: Some(60), priority: 1, ..tenant("slow") };
    let mut cluster = cluster([slow, tenant("next")]).at_once(1).with(|c| c.restart = Some(20));
    cluster.drain();
    assert_eq!(cluster.evicted_at("next"), 70, "after the first volume was attached again");
}

impl Cluster {
    /// The number of evictions of the whole drain.
    fn evictions(mut self) -> usize {
        self.drain();
        self.log.len()
    }
}
