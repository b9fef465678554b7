//! One port of a balancer: the wanted state, the comparison with the cloud's state, and the bodies
//! of requests. Pure.

use machinist_instance::Listener;
use serde_json::{Value, json};

use super::settings::{HttpSettings, Protocol, Settings};
use crate::model::{BalancerService, HealthCheck, HealthCheckHttp, HttpModel};

/// The cloud's own values for a health check, in seconds. A request with a health check must
/// contain all values.
const DEFAULT_INTERVAL: u64 = 15;
const DEFAULT_TIMEOUT: u64 = 10;
const DEFAULT_RETRIES: u32 = 3;

/// One port of a balancer. A part that is `None` stays as it is in the cloud.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WantedService {
    pub(crate) listen_port: u16,
    destination_port: u16,
    protocol: Protocol,
    proxyprotocol: Option<bool>,
    http: Option<WantedHttp>,
    health_check: Option<WantedHealthCheck>,
}

#[derive(Debug, Clone, PartialEq)]
struct WantedHttp {
    options: HttpSettings,
    certificates: Option<Vec<i64>>,
}

#[derive(Debug, Clone, PartialEq)]
struct WantedHealthCheck {
    protocol: Protocol,
    port: u16,
    interval: Option<u64>,
    timeout: Option<u64>,
    retries: Option<u32>,
    http: Option<WantedHealthCheckHttp>,
}

#[derive(Debug, Clone, PartialEq)]
struct WantedHealthCheckHttp {
    domain: Option<String>,
    path: Option<String>,
    tls: Option<bool>,
    status_codes: Option<Vec<String>>,
}

impl WantedService {
    /// The service of a listener. The certificates are the ids of all configured certificates.
    pub(crate) fn new(listener: &Listener, settings: &Settings, certificates: Option<&[i64]>) -> Self {
        let http =
            WantedHttp { options: settings.http.clone(), certificates: certificates.map(<[i64]>::to_vec) };
        let is_set = http.certificates.is_some() || http.options != HttpSettings::default();
        Self {
            listen_port: listener.port,
            destination_port: listener.target_port,
            protocol: settings.protocol,
            proxyprotocol: settings.uses_proxyprotocol,
            http: (is_set && settings.protocol != Protocol::Tcp).then_some(http),
            health_check: WantedHealthCheck::new(listener, settings),
        }
    }

    /// Whether the cloud's service has every wanted value.
    pub(crate) fn matches(&self, shown: &BalancerService) -> bool {
        self.protocol.as_str() == shown.protocol
            && self.destination_port == shown.destination_port
            && self.proxyprotocol.is_none_or(|wanted| wanted == shown.proxyprotocol)
            && self.http.as_ref().is_none_or(|http| http.matches(&shown.http))
            && self.health_check.as_ref().is_none_or(|check| check.matches(&shown.health_check))
    }

    /// The body that creates the service.
    pub(crate) fn body(&self) -> Value {
        let default_check = || {
            json!({
                "protocol": "tcp", "port": self.destination_port, "interval": DEFAULT_INTERVAL,
                "timeout": DEFAULT_TIMEOUT, "retries": DEFAULT_RETRIES,
            })
        };
        let nothing = HealthCheck::default();
        let check = self.health_check.as_ref().map_or_else(default_check, |check| check.body(&nothing));
        self.body_with(Some(check))
    }

    /// The body that changes the cloud's service. Absent members keep their value.
    pub(crate) fn body_of_update(&self, shown: &BalancerService) -> Value {
        // A check without options watches the port of the targets, so it moves with that port.
        let follows = shown.health_check.port == Some(shown.destination_port)
            && shown.destination_port != self.destination_port;
        let check = match &self.health_check {
            Some(check) => Some(check.body(&shown.health_check)),
            None if follows => Some(json!({ "port": self.destination_port })),
            None => None,
        };
        self.body_with(check)
    }

    fn body_with(&self, health_check: Option<Value>) -> Value {
        let mut body = json!({
            "protocol": self.protocol.as_str(),
            "listen_port": self.listen_port,
            "destination_port": self.destination_port,
        });
        if let Some(proxyprotocol) = self.proxyprotocol {
            body["proxyprotocol"] = proxyprotocol.into();
        }
        if let Some(http) = &self.http {
            body["http"] = http.body();
        }
        if let Some(check) = health_check {
            body["health_check"] = check;
        }
        body
    }
}

impl WantedHttp {
    fn matches(&self, shown: &HttpModel) -> bool {
        let HttpSettings { cookie_name, cookie_lifetime, timeout_idle, sticky_sessions, redirect_http } =
            &self.options;
        let has_all = |wanted: &Vec<i64>| {
            let sorted = |ids: &[i64]| {
                let mut ids = ids.to_vec();
                ids.sort_unstable();
                ids
            };
            sorted(wanted) == sorted(&shown.certificates)
        };
        is_unset_or(cookie_name.as_ref(), shown.cookie_name.as_ref())
            && is_unset_or(cookie_lifetime.map(|lifetime| lifetime.as_secs()), shown.cookie_lifetime)
            && is_unset_or(timeout_idle.map(|timeout| timeout.as_secs()), shown.timeout_idle)
            && sticky_sessions.is_none_or(|wanted| wanted == shown.sticky_sessions.unwrap_or(false))
            && redirect_http.is_none_or(|wanted| wanted == shown.redirect_http.unwrap_or(false))
            && self.certificates.as_ref().is_none_or(has_all)
    }

    fn body(&self) -> Value {
        let HttpSettings { cookie_name, cookie_lifetime, timeout_idle, sticky_sessions, redirect_http } =
            &self.options;
        without_nulls(json!({
            "cookie_name": cookie_name,
            "cookie_lifetime": cookie_lifetime.map(|lifetime| lifetime.as_secs()),
            "timeout_idle": timeout_idle.map(|timeout| timeout.as_secs()),
            "sticky_sessions": sticky_sessions,
            "redirect_http": redirect_http,
            "certificates": self.certificates,
        }))
    }
}

impl WantedHealthCheck {
    fn new(listener: &Listener, settings: &Settings) -> Option<Self> {
        let wanted = &settings.health_check;
        if !wanted.is_set() {
            return None;
        }
        let protocol = wanted.protocol.unwrap_or(settings.protocol);
        let http = WantedHealthCheckHttp {
            domain: wanted.http_domain.clone(),
            path: wanted.http_path.clone(),
            tls: wanted.http_validate_certificate,
            status_codes: wanted.http_status_codes.clone(),
        };
        Some(Self {
            protocol,
            port: wanted.port.unwrap_or(listener.target_port),
            interval: wanted.interval.map(|interval| interval.as_secs()),
            timeout: wanted.timeout.map(|timeout| timeout.as_secs()),
            retries: wanted.retries,
            http: (protocol != Protocol::Tcp).then_some(http),
        })
    }

    fn matches(&self, shown: &HealthCheck) -> bool {
        let nothing = HealthCheckHttp::default();
        let shown_http = shown.http.as_ref().unwrap_or(&nothing);
        self.protocol.as_str() == shown.protocol
            && shown.port == Some(self.port)
            && is_unset_or(self.interval, shown.interval)
            && is_unset_or(self.timeout, shown.timeout)
            && is_unset_or(self.retries, shown.retries)
            && self.http.as_ref().is_none_or(|http| {
                is_unset_or(http.domain.as_ref(), shown_http.domain.as_ref())
                    && is_unset_or(http.path.as_ref(), shown_http.path.as_ref())
                    && http.tls.is_none_or(|wanted| wanted == shown_http.tls.unwrap_or(false))
                    && http.status_codes.as_ref().is_none_or(|wanted| *wanted == shown_http.status_codes)
            })
    }

    /// The body with the shown values, or the cloud's own, where nothing is wanted.
    fn body(&self, shown: &HealthCheck) -> Value {
        let mut body = json!({
            "protocol": self.protocol.as_str(),
            "port": self.port,
            "interval": self.interval.or(shown.interval).unwrap_or(DEFAULT_INTERVAL),
            "timeout": self.timeout.or(shown.timeout).unwrap_or(DEFAULT_TIMEOUT),
            "retries": self.retries.or(shown.retries).unwrap_or(DEFAULT_RETRIES),
        });
        if let Some(http) = &self.http {
            body["http"] = without_nulls(json!({
                "domain": http.domain, "path": http.path, "tls": http.tls, "status_codes": http.status_codes,
            }));
        }
        body
    }
}

fn is_unset_or<T: PartialEq>(wanted: Option<T>, shown: Option<T>) -> bool {
    wanted.is_none() || wanted == shown
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(members) = value.as_object_mut() {
        members.retain(|_, member| !member.is_null());
    }
    value
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use machinist_instance::{BalancerKey, TransportProtocol};

    use super::*;
    use crate::options::BalancerDefaults;

    fn service(options: &[(&str, &str)], certificates: Option<&[i64]>) -> WantedService {
        let options: BTreeMap<String, String> =
            options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let settings = Settings::parse(&options, &BalancerDefaults::default(), &BalancerKey::new("uid-1"));
        let listener = Listener { protocol: TransportProtocol::Tcp, port: 80, target_port: 30080 };
        WantedService::new(&listener, &settings.expect("valid options"), certificates)
    }

    fn shown(value: Value) -> BalancerService {
        let mut service = json!({
            "protocol": "tcp", "listen_port": 80, "destination_port": 30080, "proxyprotocol": false,
            "health_check": {"protocol": "tcp", "port": 30080, "interval": 15, "timeout": 10, "retries": 3},
        });
        for (name, member) in value.as_object().expect("an object") {
            service[name] = member.clone();
        }
        serde_json::from_value(service).expect("a service")
    }

    /// An option that is not configured is neither compared nor sent.
    #[test]
    fn a_service_without_options_has_the_default_health_check() {
        let wanted = service(&[], None);
        let expected = json!({
            "protocol": "tcp", "listen_port": 80, "destination_port": 30080,
            "health_check": {"protocol": "tcp", "port": 30080, "interval": 15, "timeout": 10, "retries": 3},
        });
        assert_eq!(wanted.body(), expected);
        assert!(wanted.matches(&shown(json!({}))));
        let by_hand = json!({"protocol": "http", "port": 8080, "interval": 60});
        assert!(wanted.matches(&shown(json!({"proxyprotocol": true, "health_check": by_hand}))));
        assert!(!wanted.matches(&shown(json!({"destination_port": 30081}))));
        assert!(!wanted.matches(&shown(json!({"protocol": "http"}))));
    }

    #[test]
    fn the_default_health_check_follows_the_destination_port() {
        let wanted = service(&[], None);
        let moved = shown(json!({
            "destination_port": 31000,
            "health_check": {"protocol": "tcp", "port": 31000},
        }));
        assert_eq!(wanted.body_of_update(&moved)["health_check"], json!({"port": 30080}));
        let by_hand =
            shown(json!({"destination_port": 31000, "health_check": {"protocol": "tcp", "port": 9}}));
        assert_eq!(wanted.body_of_update(&by_hand).get("health_check"), None);
    }

    /// The service uses HTTPS with certificates.
    #[test]
    fn http_options_are_sent_and_compared() {
        let options = [
            ("protocol", "https"),
            ("http-certificates", "1"),
            ("http-cookie-name", "session"),
            ("http-cookie-lifetime", "5m"),
            ("http-timeout-idle", "60s"),
            ("http-sticky-sessions", "true"),
            ("http-redirect-http", "true"),
        ];
        let wanted = service(&options, Some(&[2, 1]));
        let http = json!({
            "cookie_name": "session", "cookie_lifetime": 300, "timeout_idle": 60, "sticky_sessions": true,
            "redirect_http": true, "certificates": [2, 1],
        });
        assert_eq!(wanted.body()["http"], http);
        let mut same = http.clone();
        same["certificates"] = json!([1, 2]);
        assert!(wanted.matches(&shown(json!({"protocol": "https", "http": same}))));
        for (name, value) in [
            ("cookie_name", json!("other")),
            ("cookie_lifetime", json!(301)),
            ("timeout_idle", json!(null)),
            ("sticky_sessions", json!(false)),
            ("redirect_http", json!(null)),
            ("certificates", json!([1])),
        ] {
            let mut changed = http.clone();
            changed[name] = value;
            assert!(!wanted.matches(&shown(json!({"protocol": "https", "http": changed}))), "{name}");
        }
    }

    #[test]
    fn http_options_have_no_effect_on_tcp() {
        let wanted = service(&[("http-sticky-sessions", "true")], None);
        assert_eq!(wanted.body().get("http"), None);
        assert!(wanted.matches(&shown(json!({}))));
    }

    #[test]
    fn a_configured_health_check_is_complete() {
        let options = [
            ("protocol", "http"),
            ("health-check-interval", "20s"),
            ("health-check-http-path", "/healthz"),
            ("http-status-codes", "2??,301"),
        ];
        let wanted = service(&options, None);
        let check = json!({
            "protocol": "http", "port": 30080, "interval": 20, "timeout": 10, "retries": 3,
            "http": {"path": "/healthz", "status_codes": ["2??", "301"]},
        });
        assert_eq!(wanted.body()["health_check"], check);
        let same = shown(json!({"protocol": "http", "health_check": check}));
        assert!(wanted.matches(&same));
        let mut other = check.clone();
        other["timeout"] = json!(7);
        other["interval"] = json!(5);
        let other = shown(json!({"protocol": "http", "health_check": other}));
        assert!(!wanted.matches(&other));
        assert_eq!(wanted.body_of_update(&other)["health_check"]["timeout"], 7, "the shown value is kept");
    }
}
