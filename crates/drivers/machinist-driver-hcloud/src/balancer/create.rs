//! The request that creates a balancer. Pure.

use machinist_instance::Error;
use serde_json::{Value, json};

use super::SERVICE_UID;
use super::reach::Skips;
use super::settings::{PREFIX, Placement};
use super::wanted::{DEFAULT_TYPE, Wanted, WantedTarget};
use crate::client::call::Call;
use crate::client::failure::{Failure, refuses_part};

/// The targets in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Targets<'a> {
    /// All but those that the cloud would reject.
    Without(&'a Skips),
    /// Later requests add the targets one by one. So a target that the cloud refuses does not
    /// prevent the creation.
    Later,
}

/// One request that creates a balancer with its services, targets and network.
///
/// # Errors
/// `InvalidSpec` if neither a location nor a network zone is configured.
pub(crate) fn create(wanted: &Wanted, targets: Targets<'_>) -> Result<Call, Error> {
    let settings = &wanted.settings;
    let balancer_type = settings.balancer_type.as_deref().unwrap_or(DEFAULT_TYPE);
    let mut body = json!({
        "name": wanted.first_name,
        "load_balancer_type": balancer_type,
        "labels": { SERVICE_UID: wanted.key.as_str() },
        "services": wanted.services.iter().map(|service| service.body()).collect::<Vec<Value>>(),
    });
    match &settings.placement {
        Some(Placement::Location(location)) => body["location"] = json!(location),
        Some(Placement::NetworkZone(zone)) => body["network_zone"] = json!(zone),
        None => {
            let text = format!(
                "{PREFIX}location: expected a location here, in {PREFIX}network-zone, \
                 HCLOUD_LOAD_BALANCERS_LOCATION or HCLOUD_LOAD_BALANCERS_NETWORK_ZONE"
            );
            return Err(Error::by_driver(text));
        }
    }
    if let Some(algorithm) = settings.algorithm {
        body["algorithm"] = json!({ "type": algorithm.as_str() });
    }
    if let Some(is_off) = settings.disable_public_network {
        body["public_interface"] = json!(!is_off);
    }
    // A creation cannot choose the address in the network. A later request attaches with it.
    let attaches = settings.private_ipv4.is_none() && settings.private_subnet_ip_range.is_none();
    if let (Some(network), true) = (wanted.network, attaches) {
        body["network"] = json!(network);
    }
    let are_reachable = attaches || !settings.use_private_ip;
    if let (Targets::Without(skips), true) = (targets, are_reachable) {
        let limit = first_targets(wanted, skips);
        body["targets"] = limit.map(|target| target.body(settings.use_private_ip)).collect();
    }
    Ok(Call::create("/load_balancers", body))
}

/// Every type accepts this number of targets. More are added one by one, because the limit of the
/// type is known only after the creation.
const TARGETS_OF_EVERY_TYPE: usize = 25;

fn first_targets<'a>(wanted: &'a Wanted, skips: &'a Skips) -> impl Iterator<Item = &'a WantedTarget> {
    let possible = wanted.targets.iter().filter(|target| !skips.contains_key(&target.server));
    possible.take(TARGETS_OF_EVERY_TYPE)
}

/// Whether a creation without targets may succeed after this failure.
pub(crate) fn may_be_a_target(wanted: &Wanted, failure: &Failure) -> bool {
    !wanted.targets.is_empty() && refuses_part(failure)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use machinist_instance::{
        BalancerKey, BalancerSpec, BalancerTarget, Listener, ProviderId, SkipCause, TransportProtocol,
    };

    use super::*;
    use crate::balancer::reach::Skip;
    use crate::balancer::settings::Settings;
    use crate::options::{Algorithm, BalancerDefaults};

    fn wanted(options: &[(&str, &str)], defaults: &BalancerDefaults, network: Option<i64>) -> Wanted {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let spec = BalancerSpec {
            key: BalancerKey::new("uid-1"),
            claim: Default::default(),
            id: None,
            native_id: None,
            name: "a1".to_owned(),
            listeners: vec![Listener { protocol: TransportProtocol::Tcp, port: 80, target_port: 30080 }],
            targets: vec![BalancerTarget {
                node: "w-1".to_owned(),
                instance: ProviderId::parse("hcloud://7").expect("not empty"),
                weight: BalancerTarget::FULL_WEIGHT,
            }],
            options: options.collect::<BTreeMap<_, _>>(),
        };
        let settings = Settings::parse(&spec.options, defaults, &spec.key).expect("valid");
        Wanted::new(&spec, settings, network, None).expect("valid")
    }

    fn body(wanted: &Wanted, targets: Targets<'_>) -> Value {
        create(wanted, targets).expect("valid").body.expect("a body")
    }

    #[test]
    fn one_request_creates_services_targets_and_network() {
        let defaults = BalancerDefaults {
            location: Some("fsn1".to_owned()),
            algorithm: Some(Algorithm::RoundRobin),
            ..BalancerDefaults::default()
        };
        let options = [("disable-public-network", "true"), ("use-private-ip", "true")];
        let wanted = wanted(&options, &defaults, Some(1));
        let expected = json!({
            "name": "a1", "load_balancer_type": "lb11", "location": "fsn1", "network": 1,
            "labels": {"hcloud-ccm/service-uid": "uid-1"}, "algorithm": {"type": "round_robin"},
            "public_interface": false,
            "services": [wanted.services[0].body()],
            "targets": [{"type": "server", "server": {"id": 7}, "use_private_ip": true}],
        });
        assert_eq!(body(&wanted, Targets::Without(&Skips::new())), expected);
        assert_eq!(body(&wanted, Targets::Later).get("targets"), None);
        let skip = Skip { cause: SkipCause::Refused, message: String::new() };
        let without = body(&wanted, Targets::Without(&Skips::from([(7, skip)])));
        assert_eq!(without["targets"], json!([]));
    }

    #[test]
    fn a_creation_needs_a_location_or_a_network_zone() {
        let defaults = BalancerDefaults::default();
        let zone = body(
            &wanted(&[("network-zone", "eu-central")], &defaults, None),
            Targets::Without(&Skips::new()),
        );
        assert_eq!((zone.get("location"), &zone["network_zone"]), (None, &json!("eu-central")));
        let Err(error) = create(&wanted(&[], &defaults, None), Targets::Without(&Skips::new())) else {
            panic!("no place")
        };
        assert!(error.is_by_driver());
        assert!(error.message.starts_with("load-balancer.hetzner.cloud/location: expected"), "{error}");
    }

    #[test]
    fn an_address_in_the_network_is_chosen_after_the_creation() {
        let options = [("location", "fsn1"), ("private-ipv4", "10.0.0.9"), ("use-private-ip", "true")];
        let body =
            body(&wanted(&options, &BalancerDefaults::default(), Some(1)), Targets::Without(&Skips::new()));
        assert_eq!((body.get("network"), body.get("targets")), (None, None));
    }
}
