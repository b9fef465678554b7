//! Every reason renders a phrase, and has a page name of its own.

use std::collections::BTreeSet;

use super::*;

/// Lists one example of each reason. The compiler reports a reason without an example.
fn examples() -> Vec<CcmReason> {
    use CcmReason as R;
    let text = |text: &str| text.to_owned();
    let (instance, node) = (text("hcloud://42"), text("worker-1"));
    let all = vec![
        R::NoAccount,
        R::CallsSaved { remaining: 100, limit: 3600 },
        R::CloudUnknown,
        R::InstanceNotFound { instance: instance.clone() },
        R::LookupBatched,
        R::NodeOfAnotherCloud { id: text("k3s://worker-1"), expected: text("hcloud://NUMBER") },
        R::NodeIdMalformed { id: text("hcloud://x"), expected: text("hcloud://NUMBER") },
        R::NodeWithoutId,
        R::NodeIpMismatch { message: text("--node-ip 10.0.0.2 is not an address of the instance") },
        R::InstanceClaimed { instance: instance.clone(), node: node.clone() },
        R::NodeNotReady { instance: instance.clone() },
        R::ReadyWithoutInstance { instance: instance.clone() },
        R::InstanceStopped { instance: instance.clone() },
        R::InstanceMissing { instance: instance.clone() },
        R::NodeRemovable { instance: instance.clone() },
        R::NodeAccountUnproven { instance: instance.clone() },
        R::NodeTooYoung { instance: instance.clone() },
        R::LeaderTooYoung,
        R::NodeDeletionSkipped { instance: instance.clone() },
        R::NodeOwned { instance, machine: text("default/worker-1") },
        R::NodeDeletionSuspended { missing: 30, nodes: 100, held_by: BrakeRule::Limit { most: 20 } },
        R::NodeDeletionRefused { node: node.clone() },
        R::OtherBalancerClass { class: text("example.com/balancer") },
        R::NodeSelectorInvalid { message: text("annotation example.com/node-selector \"(\": expected") },
        R::BalancerNameTaken { holder: text("default/web") },
        R::BalancerNameKept { first_name: text("a0a1b"), name: text("edge") },
        R::BalancerElsewhere { balancer: Some(text("42")), service: text("default/web") },
        R::BalancerInvalid { message: text("example.com/location: expected a location") },
        R::BalancerWorking { change: text("attach_to_network") },
        R::AccountUnproven,
        R::NoBackends,
        R::TargetsSkipped { nodes: 2, messages: text("Node a: not attached; Node b: not attached") },
        R::NoPorts,
        R::NoNodes,
        R::RouteWorking { change: text("add_route") },
        R::RouteFailed { change: text("create the route"), message: text("locked"), failing: 2 },
        R::RouteDestinationTaken { destination: text("10.244.1.0/24"), node },
    ];
    for reason in &all {
        match reason {
            R::NoAccount
            | R::AccountUnproven
            | R::CallsSaved { .. }
            | R::CloudUnknown
            | R::InstanceNotFound { .. }
            | R::LookupBatched
            | R::NodeOfAnotherCloud { .. }
            | R::NodeIdMalformed { .. }
            | R::NodeWithoutId
            | R::NodeIpMismatch { .. }
            | R::InstanceClaimed { .. }
            | R::NodeNotReady { .. }
            | R::ReadyWithoutInstance { .. }
            | R::InstanceStopped { .. }
            | R::InstanceMissing { .. }
            | R::NodeRemovable { .. }
            | R::NodeAccountUnproven { .. }
            | R::NodeTooYoung { .. }
            | R::LeaderTooYoung
            | R::NodeDeletionSkipped { .. }
            | R::NodeOwned { .. }
            | R::NodeDeletionSuspended { .. }
            | R::NodeDeletionRefused { .. }
            | R::OtherBalancerClass { .. }
            | R::NodeSelectorInvalid { .. }
            | R::BalancerNameTaken { .. }
            | R::BalancerNameKept { .. }
            | R::BalancerElsewhere { .. }
            | R::BalancerInvalid { .. }
            | R::BalancerWorking { .. }
            | R::NoBackends
            | R::TargetsSkipped { .. }
            | R::NoPorts
            | R::NoNodes
            | R::RouteWorking { .. }
            | R::RouteFailed { .. }
            | R::RouteDestinationTaken { .. } => {}
        }
    }
    all
}

#[test]
fn every_reason_has_an_anchor_of_its_own() {
    let examples = examples();
    let pages: BTreeSet<String> =
        examples.iter().map(|example| Reason::from(example.clone()).page()).collect();
    assert_eq!(pages.len(), examples.len());
    assert!(pages.iter().all(|page| page.starts_with("ccm/stuck.md#")), "{pages:?}");
    assert_eq!(Reason::Settled.page(), "stuck.md#settled", "other contracts have this reason, too");
}

#[test]
fn every_reason_is_a_phrase() {
    for reason in examples() {
        let text = reason.to_string();
        assert!(!text.is_empty() && !text.ends_with('.') && !text.contains("{}"), "{text}");
    }
}
