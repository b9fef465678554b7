//! Breaks the driver between its client and the API server. A named rule of the contract must
//! notice each mutant, so the contract can fail.

use machinist_driver::contract::run;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::pipe::Change;

#[derive(Debug, Clone, Copy)]
enum Mutant {
    /// A refused read counts as an absence.
    RefusedIsAbsent,
    /// A list ends after its first object.
    FirstOnly,
    /// A failed write counts as a refused write.
    FailedIsRefused,
    /// The wait that the server asks for is ignored.
    NoWait,
    /// Every object looks as if it had no key.
    NoOwners,
    /// The deletion of a pod is never sent.
    NoDeletion,
    /// The deletion of a Secret or Service is never sent.
    NoDeletionOfParts,
    /// The Secret is never created.
    NoSecret,
}

impl Mutant {
    fn change(self) -> Option<Change> {
        match self {
            Self::RefusedIsAbsent => Some(|sort, code, body| match (sort.starts_with("GET"), code) {
                (true, 401) => {
                    (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}))
                }
                _ => (code, body),
            }),
            Self::FirstOnly => Some(|_, code, mut body| {
                if let Some(items) = body["items"].as_array_mut() {
                    items.truncate(1);
                }
                (code, body)
            }),
            Self::FailedIsRefused => Some(|_, code, mut body| {
                if code != 500 {
                    return (code, body);
                }
                body["code"] = json!(403);
                (403, body)
            }),
            Self::NoWait => Some(|_, code, mut body| {
                if let Some(details) = body["details"].as_object_mut() {
                    details.remove("retryAfterSeconds");
                }
                (code, body)
            }),
            Self::NoOwners => Some(|_, code, mut body| {
                forget_key(&mut body);
                body["items"].as_array_mut().into_iter().flatten().for_each(forget_key);
                (code, body)
            }),
            Self::NoDeletion | Self::NoDeletionOfParts | Self::NoSecret => None,
        }
    }

    fn swallowed(self) -> &'static [&'static str] {
        match self {
            Self::NoDeletion => &["DELETE pods"],
            Self::NoDeletionOfParts => &["DELETE secrets", "DELETE services"],
            Self::NoSecret => &["POST secrets"],
            _ => &[],
        }
    }
}

fn forget_key(object: &mut Value) {
    if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        labels.remove("machinist.dev/key");
    }
}

/// The rules that a mutant breaks.
async fn broken_rules(mutant: Mutant) -> Vec<&'static str> {
    let cluster = Cluster::new().await;
    if let Some(change) = mutant.change() {
        cluster.pipe.change(change);
    }
    mutant.swallowed().iter().for_each(|sort| cluster.pipe.swallow(sort));
    run(&cluster).await.failed().map(|(rule, _)| rule).collect()
}

#[tokio::test(start_paused = true)]
async fn the_contract_notices_each_mutant() {
    let cases = [
        (Mutant::RefusedIsAbsent, "a_revoked_credential_is_denied"),
        (Mutant::FirstOnly, "list_is_complete_and_filters_by_cluster"),
        (Mutant::FailedIsRefused, "ensure_failing_after_its_effect_is_ambiguous_and_repeatable"),
        (Mutant::NoWait, "throttling_returns_retry_after"),
        (Mutant::NoOwners, "find_reports_an_instance_of_another_key_as_foreign"),
        (Mutant::NoDeletion, "a_deleted_instance_becomes_absent"),
        (Mutant::NoDeletionOfParts, "delete_finds_a_visible_instance_by_key"),
        (Mutant::NoSecret, "find_works_by_id_key_and_name"),
    ];
    for (mutant, rule) in cases {
        let broken = broken_rules(mutant).await;
        assert!(broken.contains(&rule), "{mutant:?} must break {rule}, and breaks {broken:?}");
    }
}
