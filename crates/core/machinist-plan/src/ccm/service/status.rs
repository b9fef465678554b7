//! The status of a Service: where clients reach its load balancer.

use k8s_openapi::api::core::v1::LoadBalancerIngress;
use machinist_instance::Ingress;

use crate::ccm::facts::ServiceFacts;

/// Returns the entries to write, if they differ from the status in content or order.
pub(super) fn needed(service: &ServiceFacts, wanted: &[Ingress]) -> Option<Vec<Ingress>> {
    let current = service.ingress();
    let is_equal = current.len() == wanted.len()
        && current.iter().zip(wanted).all(|(current, wanted)| *current == entry(wanted));
    (!is_equal).then(|| wanted.to_vec())
}

/// Returns an entry as the API spells it.
pub fn entry(ingress: &Ingress) -> LoadBalancerIngress {
    match ingress {
        Ingress::Ip { address, is_proxy } => LoadBalancerIngress {
            ip: Some(address.to_string()),
            ip_mode: Some(if *is_proxy { "Proxy" } else { "VIP" }.to_owned()),
            ..LoadBalancerIngress::default()
        },
        Ingress::Hostname(name) => {
            LoadBalancerIngress { hostname: Some(name.clone()), ..LoadBalancerIngress::default() }
        }
    }
}
