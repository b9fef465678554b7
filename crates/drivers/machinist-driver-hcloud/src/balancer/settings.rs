//! The options of one balancer: the annotations of a Service, completed with the defaults of the
//! account. Pure.
//!
//! The caller removes the prefix `load-balancer.hetzner.cloud/` from the names. An empty value
//! counts as absent, except for `location` and `network-zone`, where it removes the default.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use machinist_instance::{BalancerKey, Error};

use crate::options::{Algorithm, BalancerDefaults};
use crate::{cidr, go_syntax};

/// The prefix of the annotations, for messages.
pub(crate) const PREFIX: &str = "load-balancer.hetzner.cloud/";

/// The options of one balancer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) name: Option<String>,
    /// `None` leaves the type of an existing balancer unchanged.
    pub(crate) balancer_type: Option<String>,
    pub(crate) placement: Option<Placement>,
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) disable_public_network: Option<bool>,
    pub(crate) disable_private_ingress: bool,
    pub(crate) use_private_ip: bool,
    pub(crate) private_ipv4: Option<Ipv4Addr>,
    pub(crate) private_subnet_ip_range: Option<String>,
    pub(crate) ipv6_disabled: bool,
    pub(crate) hostname: Option<String>,
    pub(crate) ipv4_rdns: Option<String>,
    pub(crate) ipv6_rdns: Option<String>,
    pub(crate) protocol: Protocol,
    pub(crate) uses_proxyprotocol: Option<bool>,
    pub(crate) http: HttpSettings,
    pub(crate) certificates: Certificates,
    pub(crate) health_check: HealthSettings,
    /// Names that the driver does not know, without the prefix.
    pub(crate) unknown: Vec<String>,
}

/// Where a new balancer is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Placement {
    Location(String),
    NetworkZone(String),
}

/// The protocol of a service or of a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tcp,
    Http,
    Https,
}

impl Protocol {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "tcp" => Some(Self::Tcp),
            "http" => Some(Self::Http),
            "https" => Some(Self::Https),
            _ => None,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// HTTP options of all services. `None` leaves a value unchanged.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct HttpSettings {
    pub(crate) cookie_name: Option<String>,
    pub(crate) cookie_lifetime: Option<Duration>,
    pub(crate) timeout_idle: Option<Duration>,
    pub(crate) sticky_sessions: Option<bool>,
    pub(crate) redirect_http: Option<bool>,
}

/// The certificates of HTTPS services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Certificates {
    /// None are configured.
    Unset,
    /// Certificates that a user uploaded, by name or id.
    Uploaded(Vec<String>),
    /// One certificate that the cloud issues.
    Managed { name: String, domains: Vec<String>, is_staging: bool },
}

/// Health check of all services. `None` leaves a value unchanged.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct HealthSettings {
    pub(crate) protocol: Option<Protocol>,
    pub(crate) port: Option<u16>,
    pub(crate) interval: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retries: Option<u32>,
    pub(crate) http_domain: Option<String>,
    pub(crate) http_path: Option<String>,
    pub(crate) http_validate_certificate: Option<bool>,
    pub(crate) http_status_codes: Option<Vec<String>>,
}

impl HealthSettings {
    /// Whether an option asks for a health check other than the cloud's default. The HTTP options
    /// only refine a check.
    pub(crate) fn is_set(&self) -> bool {
        self.protocol.is_some()
            || self.port.is_some()
            || self.interval.is_some()
            || self.timeout.is_some()
            || self.retries.is_some()
    }
}

/// Options that have no effect on the cloud: the controller handles `node-selector`, and other
/// programs write the rest for users to read.
const WITHOUT_EFFECT: &[&str] = &["id", "ipv4", "ipv6", "node-selector"];

impl Settings {
    /// Parses the options of one balancer.
    ///
    /// # Errors
    /// `InvalidSpec` names every invalid option and the expected value.
    pub(crate) fn parse(
        options: &BTreeMap<String, String>,
        defaults: &BalancerDefaults,
        key: &BalancerKey,
    ) -> Result<Self, Error> {
        let mut reader = OptionReader { options, known: WITHOUT_EFFECT.to_vec(), problems: Vec::new() };
        let mut settings = reader.settings(defaults, key);
        if !reader.problems.is_empty() {
            return Err(Error::by_driver(reader.problems.join("; ")));
        }
        let is_unknown = |name: &&String| !reader.known.contains(&name.as_str());
        settings.unknown = options.keys().filter(is_unknown).cloned().collect();
        Ok(settings)
    }
}

/// Reads options and collects the problems.
struct OptionReader<'a> {
    options: &'a BTreeMap<String, String>,
    known: Vec<&'static str>,
    problems: Vec<String>,
}

impl OptionReader<'_> {
    fn settings(&mut self, defaults: &BalancerDefaults, key: &BalancerKey) -> Settings {
        let protocol = self.parsed("protocol", "tcp, http or https", Protocol::parse);
        let algorithm = self.parsed("algorithm-type", Algorithm::EXPECTED, Algorithm::parse);
        let subnet = self.parsed("private-subnet-ip-range", cidr::EXPECTED, |text| {
            cidr::parse(text).map(|_| text.to_owned())
        });
        Settings {
            name: self.text("name"),
            balancer_type: self.text("type").or_else(|| defaults.balancer_type.clone()),
            placement: self.placement(defaults),
            algorithm: algorithm.or(defaults.algorithm),
            disable_public_network: self
                .boolean("disable-public-network")
                .or(defaults.disable_public_network),
            disable_private_ingress: self
                .boolean("disable-private-ingress")
                .unwrap_or(defaults.disable_private_ingress),
            use_private_ip: self.boolean("use-private-ip").unwrap_or(defaults.use_private_ip),
            private_ipv4: self.parsed("private-ipv4", "an IPv4 address", |text| text.parse().ok()),
            private_subnet_ip_range: subnet.or_else(|| defaults.private_subnet_ip_range.clone()),
            ipv6_disabled: self.boolean("ipv6-disabled").unwrap_or(defaults.disable_ipv6),
            hostname: self.text("hostname"),
            ipv4_rdns: self.text("ipv4-rdns"),
            ipv6_rdns: self.text("ipv6-rdns"),
            protocol: protocol.unwrap_or(Protocol::Tcp),
            uses_proxyprotocol: self.boolean("uses-proxyprotocol").or(defaults.uses_proxyprotocol),
            http: self.http(),
            certificates: self.certificates(key, protocol),
            health_check: self.health_check(defaults),
            unknown: Vec::new(),
        }
    }

    /// The location or the network zone. The location wins over the zone.
    fn placement(&mut self, defaults: &BalancerDefaults) -> Option<Placement> {
        let location = self.resettable("location", defaults.location.as_ref());
        let zone = self.resettable("network-zone", defaults.network_zone.as_ref());
        location.map(Placement::Location).or_else(|| zone.map(Placement::NetworkZone))
    }

    fn http(&mut self) -> HttpSettings {
        let expected = "a duration from 30s to 300s";
        let idle = |text: &str| go_syntax::duration(text).filter(|idle| (30..=300).contains(&idle.as_secs()));
        HttpSettings {
            cookie_name: self.text("http-cookie-name"),
            cookie_lifetime: self.duration("http-cookie-lifetime"),
            timeout_idle: self.parsed("http-timeout-idle", expected, idle),
            sticky_sessions: self.boolean("http-sticky-sessions"),
            redirect_http: self.boolean("http-redirect-http"),
        }
    }

    fn certificates(&mut self, key: &BalancerKey, protocol: Option<Protocol>) -> Certificates {
        let is_managed = self.parsed("certificate-type", "uploaded or managed", |text| match text {
            "uploaded" => Some(false),
            "managed" => Some(true),
            _ => None,
        });
        let uploaded = self.list("http-certificates");
        let name = self.text("http-managed-certificate-name");
        let domains = self.list("http-managed-certificate-domains");
        let is_staging = self.boolean("http-managed-certificate-acme-staging").unwrap_or(false);
        let is_needed = protocol == Some(Protocol::Https);
        match (is_managed, uploaded, domains) {
            (Some(true), _, Some(domains)) => {
                let name = name.unwrap_or_else(|| format!("ccm-managed-certificate-{key}"));
                Certificates::Managed { name, domains, is_staging }
            }
            (Some(true), _, None) => {
                self.problem("http-managed-certificate-domains", "the domains of the managed certificate");
                Certificates::Unset
            }
            (_, Some(certificates), _) => Certificates::Uploaded(certificates),
            (_, None, _) if is_needed => {
                self.problem(
                    "http-certificates",
                    "names or ids of certificates, because the protocol is https",
                );
                Certificates::Unset
            }
            (_, None, _) => Certificates::Unset,
        }
    }

    fn health_check(&mut self, defaults: &BalancerDefaults) -> HealthSettings {
        HealthSettings {
            protocol: self.parsed("health-check-protocol", "tcp, http or https", Protocol::parse),
            port: self.parsed("health-check-port", "a port from 1 to 65535", |text| {
                u16::from_str(text).ok().filter(|port| *port != 0)
            }),
            interval: self.duration("health-check-interval").or(defaults.health_check_interval),
            timeout: self.duration("health-check-timeout").or(defaults.health_check_timeout),
            retries: self
                .parsed("health-check-retries", "a whole number", |text| text.parse().ok())
                .or(defaults.health_check_retries),
            http_domain: self.text("health-check-http-domain"),
            http_path: self.text("health-check-http-path"),
            http_validate_certificate: self.boolean("health-check-http-validate-certificate"),
            http_status_codes: self.list("http-status-codes"),
        }
    }

    fn raw(&mut self, name: &'static str) -> Option<&str> {
        self.known.push(name);
        self.options.get(name).map(|text| text.trim())
    }

    fn text(&mut self, name: &'static str) -> Option<String> {
        self.raw(name).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// A default that an empty value removes.
    fn resettable(&mut self, name: &'static str, default: Option<&String>) -> Option<String> {
        match self.raw(name) {
            None => default.cloned(),
            Some("") => None,
            Some(text) => Some(text.to_owned()),
        }
    }

    fn list(&mut self, name: &'static str) -> Option<Vec<String>> {
        let text = self.text(name)?;
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let entries: Vec<String> = entries.map(str::to_owned).collect();
        (!entries.is_empty()).then_some(entries)
    }

    fn boolean(&mut self, name: &'static str) -> Option<bool> {
        self.parsed(name, "true or false", go_syntax::boolean)
    }

    fn duration(&mut self, name: &'static str) -> Option<Duration> {
        self.parsed(name, "a duration, for example 15s", go_syntax::duration)
    }

    fn parsed<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(name)?;
        let parsed = parse(&text);
        if parsed.is_none() {
            self.problem(name, expected);
        }
        parsed
    }

    fn problem(&mut self, name: &str, expected: &str) {
        self.problems.push(format!("{PREFIX}{name}: expected {expected}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[(&str, &str)], defaults: &BalancerDefaults) -> Result<Settings, Error> {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Settings::parse(&options.iter().map(pair).collect(), defaults, &BalancerKey::new("uid-1"))
    }

    fn settings(options: &[(&str, &str)]) -> Settings {
        parse(options, &BalancerDefaults::default()).expect("valid options")
    }

    /// Defaults, annotations, and the expected place.
    type Case<'a> = (&'a BalancerDefaults, &'a [(&'a str, &'a str)], Option<Placement>);

    #[test]
    fn annotations_override_and_reset_the_default_place() {
        let location = |name: &str| Some(Placement::Location(name.to_owned()));
        let zone = |name: &str| Some(Placement::NetworkZone(name.to_owned()));
        let in_nbg1 = BalancerDefaults { location: Some("nbg1".to_owned()), ..BalancerDefaults::default() };
        let in_zone =
            BalancerDefaults { network_zone: Some("eu-central".to_owned()), ..BalancerDefaults::default() };
        let none = BalancerDefaults::default();
        let cases: &[Case<'_>] = &[
            (&none, &[("location", "fsn1")], location("fsn1")),
            (&none, &[("network-zone", "us-east")], zone("us-east")),
            (&in_nbg1, &[], location("nbg1")),
            (&in_zone, &[], zone("eu-central")),
            (&in_nbg1, &[("location", "fsn1")], location("fsn1")),
            (&in_nbg1, &[("location", ""), ("network-zone", "us-east")], zone("us-east")),
            (&in_nbg1, &[("network-zone", "us-east")], location("nbg1")),
            (&none, &[("location", "fsn1"), ("network-zone", "us-east")], location("fsn1")),
            (&in_nbg1, &[("location", "")], None),
            (&in_zone, &[("network-zone", "")], None),
            (&none, &[], None),
        ];
        for (defaults, options, expected) in cases {
            assert_eq!(parse(options, defaults).expect("valid").placement, *expected, "{options:?}");
        }
    }

    #[test]
    fn annotations_win_over_defaults() {
        let defaults = BalancerDefaults {
            balancer_type: Some("lb21".to_owned()),
            algorithm: Some(Algorithm::LeastConnections),
            disable_public_network: Some(true),
            use_private_ip: true,
            uses_proxyprotocol: Some(true),
            health_check_retries: Some(5),
            ..BalancerDefaults::default()
        };
        let inherited = parse(&[], &defaults).expect("valid");
        assert_eq!(inherited.balancer_type.as_deref(), Some("lb21"));
        assert_eq!(inherited.algorithm, Some(Algorithm::LeastConnections));
        assert_eq!((inherited.disable_public_network, inherited.use_private_ip), (Some(true), true));
        assert_eq!((inherited.uses_proxyprotocol, inherited.health_check.retries), (Some(true), Some(5)));
        let own = [
            ("type", "lb11"),
            ("algorithm-type", "round_robin"),
            ("disable-public-network", "f"),
            ("use-private-ip", "0"),
            ("uses-proxyprotocol", "False"),
            ("health-check-retries", "2"),
        ];
        let own = parse(&own, &defaults).expect("valid");
        assert_eq!(
            (own.balancer_type.as_deref(), own.algorithm),
            (Some("lb11"), Some(Algorithm::RoundRobin))
        );
        assert_eq!((own.disable_public_network, own.use_private_ip), (Some(false), false));
        assert_eq!((own.uses_proxyprotocol, own.health_check.retries), (Some(false), Some(2)));
    }

    #[test]
    fn durations_accept_go_syntax_and_seconds() {
        let read = settings(&[("health-check-interval", "1m30s"), ("health-check-timeout", "5")]);
        assert_eq!(read.health_check.interval, Some(Duration::from_secs(90)));
        assert_eq!(read.health_check.timeout, Some(Duration::from_secs(5)));
    }

    #[test]
    fn one_error_names_every_wrong_annotation() {
        let wrong = [
            ("algorithm-type", "random"),
            ("disable-public-network", "yes"),
            ("private-ipv4", "::1"),
            ("private-subnet-ip-range", "10.0.0.0"),
            ("protocol", "udp"),
            ("http-timeout-idle", "5m1s"),
            ("certificate-type", "self-signed"),
            ("health-check-port", "0"),
            ("health-check-interval", "soon"),
            ("health-check-retries", "-1"),
        ];
        let error = parse(&wrong, &BalancerDefaults::default()).expect_err("all are wrong");
        assert!(error.is_by_driver(), "the cloud did not see it");
        for (name, _) in wrong {
            let expected = format!("load-balancer.hetzner.cloud/{name}: expected ");
            assert_eq!(error.message.matches(&expected).count(), 1, "{name} in {error}");
        }
    }

    #[test]
    fn certificates_are_uploaded_or_managed() {
        let by_name = settings(&[("protocol", "https"), ("http-certificates", "a, 7 ,")]);
        assert_eq!(by_name.certificates, Certificates::Uploaded(vec!["a".to_owned(), "7".to_owned()]));
        let managed = [("certificate-type", "managed"), ("http-managed-certificate-domains", "example.com")];
        let expected = Certificates::Managed {
            name: "ccm-managed-certificate-uid-1".to_owned(),
            domains: vec!["example.com".to_owned()],
            is_staging: false,
        };
        assert_eq!(settings(&managed).certificates, expected);
        let incomplete: [&[(&str, &str)]; 2] = [&[("certificate-type", "managed")], &[("protocol", "https")]];
        for options in incomplete {
            assert!(parse(options, &BalancerDefaults::default()).is_err(), "{options:?}");
        }
    }

    #[test]
    fn unknown_annotations_are_listed() {
        let read =
            settings(&[("nmae", "a"), ("node-selector", "a=b"), ("ipv4", "192.0.2.1"), ("name", "lb")]);
        assert_eq!(read.unknown, ["nmae"]);
    }
}
