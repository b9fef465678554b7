//! The configuration of HAProxy. Pure.
//!
//! The first lines of a configuration are comments that name the targets. So a later call can read
//! the targets back, also from a configuration that a user's template rendered.

use std::fmt::Write as _;
use std::net::IpAddr;

use machinist_instance::{Error, ErrorKind, Listener};

use super::template;
use crate::spec::IpFamily;

/// Begins a comment with a target: name, address and weight.
const TARGET: &str = "# machinist target ";

/// Bounds the memory of HAProxy, which otherwise derives it from the limit of open files. Without
/// strict limits, HAProxy also starts where that limit is lower.
const MAX_CONNECTIONS: u32 = 100_000;

/// The values of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProxyConfig {
    pub(super) listeners: Vec<Listener>,
    /// The servers, sorted by name.
    pub(super) servers: Vec<Server>,
    pub(super) ip_family: IpFamily,
}

/// A container behind the balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) weight: u8,
}

impl ProxyConfig {
    /// Renders the configuration: the built-in one, or one from the user's template.
    ///
    /// # Errors
    /// `InvalidSpec` with the place in the template.
    pub(super) fn render(&self, template: Option<&str>) -> Result<String, Error> {
        let body = match template {
            None => self.built_in(),
            Some(template) => template::render(template, self).map_err(|problem| {
                Error::new(ErrorKind::InvalidSpec, format!("option haproxy-template: {problem}"))
            })?,
        };
        let targets = self.servers.iter().fold(String::new(), |mut text, server| {
            let _ = writeln!(text, "{TARGET}{} {} {}", server.name, server.address, server.weight);
            text
        });
        Ok(targets + &body)
    }

    fn built_in(&self) -> String {
        let mut text = format!(
            "global\n  log stdout format raw local0 notice\n  no strict-limits\n  maxconn {MAX_CONNECTIONS}\n\n\
             defaults\n  log global\n  mode tcp\n  option dontlognull\n  timeout connect 5000\n  \
             timeout client 50000\n  timeout server 50000\n  default-server init-addr none\n\n\
             frontend stats\n  mode http\n  bind 127.0.0.1:8404\n  stats enable\n  stats uri /stats\n"
        );
        for listener in &self.listeners {
            let port = listener.port;
            let _ = write!(text, "\nfrontend port-{port}\n  bind *:{port}\n");
            if self.ip_family.has_ipv6() {
                let _ = writeln!(text, "  bind :::{port}");
            }
            let _ = write!(
                text,
                "  default_backend servers-{port}\n\nbackend servers-{port}\n  option httpchk GET /healthz\n"
            );
            for server in &self.servers {
                let address =
                    template::join_host_port(&server.address.to_string(), &listener.target_port.to_string());
                let _ = writeln!(
                    text,
                    "  server {} {address} weight {} check check-ssl verify none",
                    server.name, server.weight
                );
            }
        }
        text
    }

    /// The port of the first listener, and the port of its targets.
    pub(super) fn control_plane_ports(&self) -> (u16, u16) {
        self.listeners.first().map_or((0, 0), |listener| (listener.port, listener.target_port))
    }
}

/// The names of the targets of a configuration.
pub(super) fn targets(config: &str) -> Vec<String> {
    let targets = config.lines().map_while(|line| line.strip_prefix(TARGET));
    targets.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use expect_test::expect;
    use machinist_instance::TransportProtocol;

    use super::*;

    pub(in crate::balancer) fn config(ip_family: IpFamily, servers: &[(&str, &str, u8)]) -> ProxyConfig {
        let server = |(name, address, weight): &(&str, &str, u8)| Server {
            name: (*name).to_owned(),
            address: address.parse().expect("an address"),
            weight: *weight,
        };
        ProxyConfig {
            listeners: vec![Listener { protocol: TransportProtocol::Tcp, port: 443, target_port: 6443 }],
            servers: servers.iter().map(server).collect(),
            ip_family,
        }
    }

    #[test]
    fn the_built_in_configuration_names_every_server() {
        let config = config(IpFamily::Dual, &[("c1-a", "172.18.0.3", 100), ("c1-b", "fc00::4", 0)]);
        let text = config.render(None).expect("built in");
        assert_eq!(targets(&text), ["c1-a", "c1-b"]);
        expect![[r#"
            # machinist target c1-a 172.18.0.3 100
            # machinist target c1-b fc00::4 0
            global
              log stdout format raw local0 notice
              no strict-limits
              maxconn 100000

            defaults
              log global
              mode tcp
              option dontlognull
              timeout connect 5000
              timeout client 50000
              timeout server 50000
              default-server init-addr none

            frontend stats
              mode http
              bind 127.0.0.1:8404
              stats enable
              stats uri /stats

            frontend port-443
              bind *:443
              bind :::443
              default_backend servers-443

            backend servers-443
              option httpchk GET /healthz
              server c1-a 172.18.0.3:6443 weight 100 check check-ssl verify none
              server c1-b [fc00::4]:6443 weight 0 check check-ssl verify none
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn targets_are_read_back_from_a_rendered_template() {
        let config = config(IpFamily::Ipv4, &[("c1-a", "172.18.0.3", 100)]);
        let text =
            config.render(Some("frontend x\n  bind *:{{ .FrontendControlPlanePort }}\n")).expect("valid");
        assert_eq!(text, "# machinist target c1-a 172.18.0.3 100\nfrontend x\n  bind *:443\n");
        assert_eq!(targets(&text), ["c1-a"]);
        assert_eq!(targets("global\n# machinist target c1-a 1.1.1.1 1\n"), [""; 0]);
        let error = config.render(Some("{{ .Missing }}")).expect_err("a template of the user");
        assert!(error.message.starts_with("option haproxy-template: "), "{error}");
    }
}
