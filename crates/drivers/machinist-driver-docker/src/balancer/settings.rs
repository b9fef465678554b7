//! The options of a balancer. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use machinist_instance::{BalancerSpec, Error, ErrorKind, TransportProtocol};

use crate::label::{self, Labels};
use crate::options::DockerOptions;
use crate::spec::IpFamily;

/// The name of the Kubernetes cluster.
pub(super) const CLUSTER: &str = "cluster";
/// The host port of one port: `host-port.6443`.
const HOST_PORT: &str = "host-port.";
/// A further label of the container: `label.NAME`.
const LABEL: &str = "label.";
/// The largest template of a user: the size of a ConfigMap.
const MAX_TEMPLATE_LEN: usize = 1024 * 1024;

/// The parsed options. The documentation of the crate lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BalancerSettings {
    pub(super) image: String,
    pub(super) network: String,
    pub(super) ip_family: IpFamily,
    pub(super) ip: Option<IpAddr>,
    pub(super) listen_address: String,
    pub(super) host_ports: BTreeMap<u16, u16>,
    pub(super) template: Option<String>,
    pub(super) labels: Labels,
    /// Options that this driver does not know.
    pub(super) unknown: Vec<String>,
}

impl BalancerSettings {
    /// # Errors
    /// `InvalidSpec` names the option and the expected value.
    pub(super) fn parse(spec: &BalancerSpec, options: &DockerOptions) -> Result<Self, Error> {
        let mut settings = Self {
            image: options.balancer_image.clone(),
            network: options.network.clone(),
            ip_family: IpFamily::Ipv4,
            ip: None,
            listen_address: String::new(),
            host_ports: BTreeMap::new(),
            template: None,
            labels: Labels::new(),
            unknown: Vec::new(),
        };
        for (name, value) in spec.options.iter().filter(|(_, value)| !value.is_empty()) {
            let invalid = |expected: &str| invalid(name, expected);
            match name.as_str() {
                "image" => settings.image = value.clone(),
                "network" => settings.network = value.clone(),
                "ip-family" => {
                    settings.ip_family =
                        IpFamily::parse(value).ok_or_else(|| invalid("ipv4, ipv6 or dual"))?;
                }
                "ip" => settings.ip = Some(value.parse().map_err(|_| invalid("an IP address"))?),
                CLUSTER => {
                    settings.labels.insert(label::KIND_CLUSTER.to_owned(), value.clone());
                }
                "listen-address" => {
                    let address: IpAddr = value.parse().map_err(|_| invalid("an IP address"))?;
                    settings.listen_address = address.to_string();
                }
                "haproxy-template" if MAX_TEMPLATE_LEN < value.len() => {
                    return Err(invalid("at most 1 MiB"));
                }
                "haproxy-template" => settings.template = Some(value.clone()),
                other => match (other.strip_prefix(HOST_PORT), other.strip_prefix(LABEL)) {
                    (Some(port), _) => {
                        let port = port.parse().map_err(|_| invalid("a port in the name of the option"))?;
                        let host_port = value.parse().map_err(|_| invalid("a port of the host"))?;
                        settings.host_ports.insert(port, host_port);
                    }
                    (None, Some(label)) => {
                        settings.labels.insert(label.to_owned(), value.clone());
                    }
                    (None, None) => settings.unknown.push(other.to_owned()),
                },
            }
        }
        check_listeners(spec)?;
        settings.labels.extend(
            [
                (label::OWNER, spec.key.as_str().to_owned()),
                (label::KIND_ROLE, label::BALANCER_ROLE.to_owned()),
                (label::PORTS, ports_text(spec)),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        if settings.listen_address.is_empty() {
            let all = if settings.ip_family == IpFamily::Ipv6 { "::" } else { "0.0.0.0" };
            settings.listen_address = all.to_owned();
        }
        Ok(settings)
    }
}

fn check_listeners(spec: &BalancerSpec) -> Result<(), Error> {
    match spec.listeners.iter().find(|listener| listener.protocol != TransportProtocol::Tcp) {
        Some(other) => {
            let text = format!("port {}: expected TCP, got {}", other.port, other.protocol);
            Err(Error::new(ErrorKind::InvalidSpec, text))
        }
        None if spec.listeners.is_empty() => {
            Err(Error::new(ErrorKind::InvalidSpec, "ports: expected at least one port"))
        }
        None => Ok(()),
    }
}

/// The ports of a balancer as the value of a label: `443,6443`.
pub(super) fn ports_text(spec: &BalancerSpec) -> String {
    let mut ports: Vec<u16> = spec.listeners.iter().map(|listener| listener.port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The ports from the value of the label.
pub(super) fn ports(labels: &Labels) -> Vec<u16> {
    let text = label::get(labels, label::PORTS).unwrap_or_default();
    text.split(',').filter_map(|port| port.parse().ok()).collect()
}

fn invalid(option: &str, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("option {option}: expected {expected}"))
}

#[cfg(test)]
pub(super) mod tests {
    use machinist_instance::{BalancerKey, Listener};

    use super::*;

    pub(in crate::balancer) fn spec(options: &[(&str, &str)]) -> BalancerSpec {
        BalancerSpec {
            key: BalancerKey::new("uid-1"),
            claim: Default::default(),
            id: None,
            native_id: None,
            name: "c1-lb".to_owned(),
            listeners: vec![Listener { protocol: TransportProtocol::Tcp, port: 6443, target_port: 6443 }],
            targets: Vec::new(),
            options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        }
    }

    fn parse(options: &[(&str, &str)]) -> Result<BalancerSettings, Error> {
        BalancerSettings::parse(&spec(options), &DockerOptions::default())
    }

    #[test]
    fn options_are_parsed() {
        let settings = parse(&[
            ("image", "haproxy:2.8"),
            ("ip", "172.18.0.9"),
            ("host-port.6443", "32000"),
            ("cluster", "c1"),
            ("label.machinist.dev/namespace", "default"),
            ("colour", "blue"),
            ("network", ""),
        ])
        .expect("valid");
        assert_eq!((settings.image.as_str(), settings.network.as_str()), ("haproxy:2.8", "kind"));
        assert_eq!(settings.host_ports, BTreeMap::from([(6443, 32000)]));
        assert_eq!(settings.unknown, ["colour"]);
        let labels: Vec<(&str, &str)> =
            settings.labels.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(
            labels,
            [
                ("io.x-k8s.kind.cluster", "c1"),
                ("io.x-k8s.kind.role", "external-load-balancer"),
                ("machinist.dev/namespace", "default"),
                ("machinist.dev/owner-uid", "uid-1"),
                ("machinist.dev/ports", "6443"),
            ]
        );
        assert_eq!(ports(&settings.labels), [6443]);
    }

    #[test]
    fn wrong_options_are_named() {
        for (name, value) in [
            ("ip", "localhost"),
            ("ip-family", "IPv4"),
            ("host-port.6443", "0x1"),
            ("host-port.", "1"),
            ("listen-address", "eth0"),
        ] {
            let error = parse(&[(name, value)]).expect_err(name);
            assert!(error.message.starts_with(&format!("option {name}: expected")), "{error}");
        }
        let mut udp = spec(&[]);
        udp.listeners[0].protocol = TransportProtocol::Udp;
        let error = BalancerSettings::parse(&udp, &DockerOptions::default()).expect_err("UDP");
        assert_eq!(error.message, "port 6443: expected TCP, got UDP");
    }
}
