//! Converts the cloud's load balancers into balancers. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use machinist_instance::{Balancer, BalancerKey, BalancerNote, Ingress};

use super::SERVICE_UID;
use super::settings::Settings;
use crate::id;
use crate::model::{LoadBalancer, TargetKind};
use crate::options::BalancerDefaults;

/// The options that affect how a balancer is reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BalancerView<'a> {
    hostname: Option<&'a str>,
    hides_ipv6: bool,
    hides_private: bool,
    /// `None`: the services of the balancer decide.
    is_proxy: Option<bool>,
}

impl<'a> BalancerView<'a> {
    pub(crate) fn of_settings(settings: &'a Settings) -> Self {
        Self {
            hostname: settings.hostname.as_deref(),
            hides_ipv6: settings.ipv6_disabled,
            hides_private: settings.disable_private_ingress,
            is_proxy: settings.uses_proxyprotocol,
        }
    }

    pub(crate) fn of_defaults(defaults: &BalancerDefaults) -> Self {
        Self {
            hostname: None,
            hides_ipv6: defaults.disable_ipv6,
            hides_private: defaults.disable_private_ingress,
            is_proxy: None,
        }
    }
}

pub(crate) fn balancer(view: BalancerView<'_>, shown: LoadBalancer) -> Balancer {
    let servers = shown.targets.iter().filter(|target| target.kind == TargetKind::Server);
    Balancer {
        id: shown.id.to_string(),
        native_id: None,
        key: key(&shown).map(BalancerKey::new),
        ingress: ingress(view, &shown),
        ports: shown.services.iter().map(|service| service.listen_port).collect(),
        host_ports: BTreeMap::new(),
        room: shown.load_balancer_type.max_targets.map(|most| most.saturating_sub(shown.targets.len())),
        targets: servers.filter_map(|target| target.server).map(|server| id::of(server.id)).collect(),
        created: shown.created,
        is_protected: shown.protection.delete,
        name: shown.name,
    }
}

/// The key that the labels of a balancer store.
pub(crate) fn key(shown: &LoadBalancer) -> Option<&str> {
    shown.labels.get(SERVICE_UID).map(String::as_str).filter(|key| !key.is_empty())
}

/// All addresses of a balancer, whether a Service shows them or not.
pub(crate) fn addresses(shown: &LoadBalancer) -> impl Iterator<Item = IpAddr> {
    let public = [shown.public_net.ipv4.ip, shown.public_net.ipv6.ip];
    public.into_iter().flatten().chain(shown.private_net.iter().filter_map(|net| net.ip))
}

/// A note if the cloud will remove the type of the balancer.
pub(crate) fn deprecation(shown: &LoadBalancer) -> Option<BalancerNote> {
    let since = shown.load_balancer_type.deprecated.as_ref()?;
    let name = &shown.load_balancer_type.name;
    Some(BalancerNote {
        reason: "LoadBalancerTypeDeprecated",
        message: format!("load balancer type {name} is deprecated since {since}; choose another type"),
    })
}

/// The entries of a Service's status, in the order of Hetzner's cloud-controller-manager: IPv4,
/// IPv6, private addresses. A host name replaces them all.
fn ingress(view: BalancerView<'_>, shown: &LoadBalancer) -> Vec<Ingress> {
    if let Some(hostname) = view.hostname {
        return vec![Ingress::Hostname(hostname.to_owned())];
    }
    let is_proxy =
        view.is_proxy.unwrap_or_else(|| shown.services.iter().any(|service| service.proxyprotocol));
    let public = Some(&shown.public_net).filter(|public| public.enabled);
    let v4 = public.and_then(|public| public.ipv4.ip);
    let v6 = public.filter(|_| !view.hides_ipv6).and_then(|public| public.ipv6.ip);
    let private = shown.private_net.iter().filter(|_| !view.hides_private).filter_map(|net| net.ip);
    v4.into_iter().chain(v6).chain(private).map(|address| Ingress::Ip { address, is_proxy }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    fn shown(changes: Value) -> LoadBalancer {
        let mut balancer = json!({
            "id": 5, "name": "a1", "labels": {"hcloud-ccm/service-uid": "uid-1"},
            "public_net": {"enabled": true, "ipv4": {"ip": "192.0.2.1"}, "ipv6": {"ip": "2001:db8::1"}},
            "private_net": [{"network": 1, "ip": "10.0.0.9"}],
            "protection": {"delete": true},
            "services": [{"protocol": "tcp", "listen_port": 80, "proxyprotocol": false}],
            "targets": [{"type": "server", "server": {"id": 7}}, {"type": "ip", "ip": {"ip": "198.51.100.1"}}],
        });
        for (name, value) in changes.as_object().expect("an object") {
            balancer[name] = value.clone();
        }
        serde_json::from_value(balancer).expect("a balancer")
    }

    fn entries(options: &[(&str, &str)], changes: Value) -> Vec<String> {
        let options: BTreeMap<String, String> =
            options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let key = BalancerKey::new("uid-1");
        let settings = Settings::parse(&options, &BalancerDefaults::default(), &key).expect("valid");
        let entry = |entry: &Ingress| match entry {
            Ingress::Ip { address, is_proxy: true } => format!("proxy {address}"),
            Ingress::Ip { address, is_proxy: false } => address.to_string(),
            Ingress::Hostname(name) => name.clone(),
        };
        ingress(BalancerView::of_settings(&settings), &shown(changes)).iter().map(entry).collect()
    }

    #[test]
    fn the_status_depends_on_the_options() {
        let all = ["192.0.2.1", "2001:db8::1", "10.0.0.9"];
        assert_eq!(entries(&[], json!({})), all);
        assert_eq!(entries(&[("ipv6-disabled", "true")], json!({})), ["192.0.2.1", "10.0.0.9"]);
        assert_eq!(entries(&[("disable-private-ingress", "true")], json!({})), all[..2]);
        assert_eq!(entries(&[("hostname", "lb.example")], json!({})), ["lb.example"]);
        let private = json!({"public_net": {"enabled": false, "ipv4": {"ip": "192.0.2.1"}}});
        assert_eq!(entries(&[], private), ["10.0.0.9"]);
        let proxy = all.map(|address| format!("proxy {address}"));
        assert_eq!(entries(&[("uses-proxyprotocol", "true")], json!({})), proxy);
        let by_hand = json!({"services": [{"protocol": "tcp", "listen_port": 80, "proxyprotocol": true}]});
        assert_eq!(entries(&[], by_hand), proxy);
    }

    #[test]
    fn a_balancer_is_converted() {
        let converted = balancer(BalancerView::of_defaults(&BalancerDefaults::default()), shown(json!({})));
        assert_eq!((converted.id.as_str(), converted.name.as_str()), ("5", "a1"));
        assert_eq!(converted.key, Some(BalancerKey::new("uid-1")));
        assert_eq!((converted.ports, converted.targets), (vec![80], vec![id::of(7)]));
        assert!(converted.is_protected);
    }

    #[test]
    fn a_deprecated_type_is_noted() {
        assert_eq!(deprecation(&shown(json!({}))), None);
        let old = json!({"load_balancer_type": {"name": "lb11", "deprecated": "2026-01-01T00:00:00Z"}});
        let note = deprecation(&shown(old)).expect("a note");
        assert_eq!(note.reason, "LoadBalancerTypeDeprecated");
        assert!(note.message.contains("lb11"));
    }
}
