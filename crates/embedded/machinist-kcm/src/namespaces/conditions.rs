//! The five conditions of a namespace that is being deleted, in the words of
//! kube-controller-manager.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DynamicObject, PartialObjectMeta};

/// Result of one pass over a namespace.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The discovery error, if the list of kinds is incomplete.
    pub(super) discovery_failed: Option<String>,
    failures: Vec<String>,
    /// Number of remaining objects by resource.
    remaining: BTreeMap<String, usize>,
    /// Number of remaining objects by finalizer.
    finalizers: BTreeMap<String, usize>,
    /// Whether only the Pods were checked so far. In this case kube-controller-manager reports no
    /// remaining content.
    pub(super) waits_for_pods: bool,
    /// Longest grace period of the remaining objects, if one is known.
    pub(super) estimate: Option<Duration>,
}

impl Found {
    /// Records a kind that could not be deleted or listed.
    pub(super) fn failed(&mut self, what: &str, error: &kube::Error) {
        self.failures.push(format!("{what}: {error}"));
    }

    /// Records the remaining objects of a kind.
    pub(super) fn remains(&mut self, what: &str, objects: &[PartialObjectMeta<DynamicObject>]) {
        if objects.is_empty() {
            return;
        }
        self.remaining.insert(what.to_owned(), objects.len());
        for object in objects {
            for finalizer in object.metadata.finalizers.iter().flatten() {
                *self.finalizers.entry(finalizer.clone()).or_default() += 1;
            }
            let grace =
                object.metadata.deletion_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            if let Some(grace) = grace.filter(|seconds| 0 < *seconds).map(Duration::from_secs) {
                self.estimate = Some(self.estimate.map_or(grace, |longest| longest.max(grace)));
            }
        }
    }

    /// Returns whether nothing is left, as far as is known.
    pub(super) fn is_clear(&self) -> bool {
        self.discovery_failed.is_none() && self.failures.is_empty() && self.remaining.is_empty()
    }

    fn conditions(&self) -> [Said; 5] {
        let failures = self.failures.join(", ");
        let count = |(what, count): (&String, &usize)| format!("{what} has {count} resource instances");
        let told = !self.waits_for_pods;
        let remaining: Vec<String> = self.remaining.iter().filter(|_| told).map(count).collect();
        let held = |(what, count): (&String, &usize)| format!("{what} in {count} resource instances");
        let finalizers: Vec<String> = self.finalizers.iter().filter(|_| told).map(held).collect();
        [
            Said::of(
                "NamespaceDeletionDiscoveryFailure",
                ("ResourcesDiscovered", "All resources successfully discovered"),
                self.discovery_failed.as_ref().map(|why| {
                    let message =
                        format!("Discovery failed for some groups, 1 failing: unable to retrieve the complete list: {why}");
                    ("DiscoveryFailed", message)
                }),
            ),
            // Groups and versions arrive parsed.
            Said::of(
                "NamespaceDeletionGroupVersionParsingFailure",
                ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
                None,
            ),
            Said::of(
                "NamespaceDeletionContentFailure",
                (
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                ),
                (!failures.is_empty()).then(|| {
                    let message = format!(
                        "Failed to delete all resource types, {} remaining: {failures}",
                        self.failures.len()
                    );
                    ("ContentDeletionFailed", message)
                }),
            ),
            Said::of(
                "NamespaceContentRemaining",
                ("ContentRemoved", "All content successfully removed"),
                (!remaining.is_empty()).then(|| {
                    let message = format!("Some resources are remaining: {}", remaining.join(", "));
                    ("SomeResourcesRemain", message)
                }),
            ),
            Said::of(
                "NamespaceFinalizersRemaining",
                ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
                (!finalizers.is_empty()).then(|| {
                    let message =
                        format!("Some content in the namespace has finalizers remaining: {}", finalizers.join(", "));
                    ("SomeFinalizersRemain", message)
                }),
            ),
        ]
    }
}

/// One condition, without its time.
struct Said {
    of: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Said {
    /// Builds the condition from `trouble` if there is any, otherwise from `fine`.
    fn of(of: &'static str, fine: (&'static str, &str), trouble: Option<(&'static str, String)>) -> Self {
        match trouble {
            Some((reason, message)) => Self { of, holds: true, reason, message },
            None => Self { of, holds: false, reason: fine.0, message: fine.1.to_owned() },
        }
    }
}

/// Returns the namespace with these conditions; `None` if it has them already.
pub(super) fn with_conditions(namespace: &Namespace, found: &Found, now: Timestamp) -> Option<Namespace> {
    let mut changed = namespace.clone();
    let conditions = changed.status.get_or_insert_default().conditions.get_or_insert_default();
    let mut is_changed = false;
    for said in found.conditions() {
        let status = if said.holds { "True" } else { "False" };
        let wanted = NamespaceCondition {
            type_: said.of.to_owned(),
            status: status.to_owned(),
            reason: Some(said.reason.to_owned()),
            message: Some(said.message),
            last_transition_time: Some(Time(now)),
        };
        match conditions.iter_mut().find(|condition| condition.type_ == said.of) {
            Some(held) if says_the_same(held, &wanted) => {}
            Some(held) => {
                *held = wanted;
                is_changed = true;
            }
            None => {
                conditions.push(wanted);
                is_changed = true;
            }
        }
    }
    is_changed.then_some(changed)
}

fn says_the_same(one: &NamespaceCondition, other: &NamespaceCondition) -> bool {
    (&one.status, &one.reason, &one.message) == (&other.status, &other.reason, &other.message)
}
