//! The services of load balancers.

use super::body::RequestBody;
use crate::model::{HealthCheck, HealthCheckHttp, Protocol, Service, ServiceHttp};

const SECONDS_OF_A_COOKIE: u32 = 300;
const SECONDS_OF_IDLE: u32 = 30;
const CHECK_INTERVAL_SECONDS: u32 = 15;
const CHECK_TIMEOUT_SECONDS: u32 = 10;
const CHECK_RETRIES: u32 = 3;

/// Reads a service; problems are in the body. Absent fields keep the values of the service before,
/// or get the API's defaults.
pub(super) fn read_service(body: &mut RequestBody, before: Option<&Service>) -> Option<Service> {
    let protocol = protocol_of(body).or(before.map(|before| before.protocol));
    if protocol.is_none() {
        body.problem("protocol", "missing data for a required field");
    }
    let protocol = protocol?;
    let default_port = match protocol {
        Protocol::Tcp => None,
        Protocol::Http => Some(80),
        Protocol::Https => Some(443),
    };
    let listen_port =
        port_of(body, "listen_port").or(before.map(|before| before.listen_port)).or(default_port);
    let default_destination = match protocol {
        Protocol::Tcp => None,
        Protocol::Http | Protocol::Https => Some(80),
    };
    let destination_port = port_of(body, "destination_port")
        .or(before.map(|before| before.destination_port))
        .or(default_destination);
    for (name, port) in [("listen_port", listen_port), ("destination_port", destination_port)] {
        if port.is_none() && body.fields().get(name).is_none_or(serde_json::Value::is_null) {
            body.problem(name, "missing data for a required field");
        }
    }
    let (listen_port, destination_port) = (listen_port?, destination_port?);
    let proxyprotocol =
        body.flag("proxyprotocol").unwrap_or_else(|| before.is_some_and(|before| before.proxyprotocol));
    let http = match protocol {
        Protocol::Tcp => None,
        Protocol::Http | Protocol::Https => {
            Some(read_http(body, protocol, before.and_then(|before| before.http.as_ref())))
        }
    };
    let health_check =
        read_health_check(body, before.map(|before| &before.health_check), (protocol, destination_port));
    Some(Service { protocol, listen_port, destination_port, proxyprotocol, http, health_check })
}

fn protocol_of(body: &mut RequestBody) -> Option<Protocol> {
    match body.text("protocol")?.as_str() {
        "tcp" => Some(Protocol::Tcp),
        "http" => Some(Protocol::Http),
        "https" => Some(Protocol::Https),
        _ => {
            body.problem("protocol", "expected tcp, http or https");
            None
        }
    }
}

fn port_of(body: &mut RequestBody, name: &str) -> Option<u16> {
    let number = body.integer(name)?;
    let port = u16::try_from(number).ok().filter(|port| *port != 0);
    if port.is_none() {
        body.problem(name, "expected a port from 1 to 65535");
    }
    port
}

fn seconds_of(body: &mut RequestBody, name: &str) -> Option<u32> {
    let number = body.integer(name)?;
    let seconds = u32::try_from(number).ok();
    if seconds.is_none() {
        body.problem(name, "expected zero or more");
    }
    seconds
}

fn read_http(body: &mut RequestBody, protocol: Protocol, before: Option<&ServiceHttp>) -> ServiceHttp {
    let mut http = before.cloned().unwrap_or_else(|| ServiceHttp {
        cookie_name: "HCLBSTICKY".to_owned(),
        cookie_lifetime: SECONDS_OF_A_COOKIE,
        certificates: Vec::new(),
        redirect_http: false,
        sticky_sessions: false,
        timeout_idle: SECONDS_OF_IDLE,
    });
    if let Some(mut wanted) = body.object("http") {
        http.cookie_name = wanted.text("cookie_name").unwrap_or(http.cookie_name);
        http.cookie_lifetime = seconds_of(&mut wanted, "cookie_lifetime").unwrap_or(http.cookie_lifetime);
        if wanted.fields().contains_key("certificates") {
            http.certificates = wanted.ids("certificates");
        }
        http.redirect_http = wanted.flag("redirect_http").unwrap_or(http.redirect_http);
        http.sticky_sessions = wanted.flag("sticky_sessions").unwrap_or(http.sticky_sessions);
        http.timeout_idle = seconds_of(&mut wanted, "timeout_idle").unwrap_or(http.timeout_idle);
        body.take_problems(wanted);
    }
    if protocol == Protocol::Https && http.certificates.is_empty() {
        body.problem("http.certificates", "expected a certificate for https");
    }
    if protocol == Protocol::Http && http.redirect_http {
        body.problem("http.redirect_http", "expected false for http");
    }
    http
}

fn read_health_check(
    body: &mut RequestBody,
    before: Option<&HealthCheck>,
    (protocol, port): (Protocol, u16),
) -> HealthCheck {
    let mut check = before.cloned().unwrap_or_else(|| HealthCheck {
        protocol: if protocol == Protocol::Tcp { Protocol::Tcp } else { Protocol::Http },
        port,
        interval: CHECK_INTERVAL_SECONDS,
        timeout: CHECK_TIMEOUT_SECONDS,
        retries: CHECK_RETRIES,
        http: None,
    });
    if let Some(mut wanted) = body.object("health_check") {
        check.protocol = protocol_of(&mut wanted).unwrap_or(check.protocol);
        check.port = port_of(&mut wanted, "port").unwrap_or(check.port);
        check.interval = seconds_of(&mut wanted, "interval").unwrap_or(check.interval);
        check.timeout = seconds_of(&mut wanted, "timeout").unwrap_or(check.timeout);
        check.retries = seconds_of(&mut wanted, "retries").unwrap_or(check.retries);
        if let Some(http) = wanted.object("http") {
            check.http = Some(read_check_http(&mut wanted, http, check.http.take()));
        }
        body.take_problems(wanted);
    }
    check.http = match check.protocol {
        Protocol::Tcp => None,
        Protocol::Http | Protocol::Https => Some(check.http.unwrap_or_else(default_check_http)),
    };
    check
}

fn default_check_http() -> HealthCheckHttp {
    HealthCheckHttp {
        domain: String::new(),
        path: "/".to_owned(),
        response: String::new(),
        status_codes: vec!["2??".to_owned(), "3??".to_owned()],
        tls: false,
    }
}

fn read_check_http(
    outer: &mut RequestBody,
    mut wanted: RequestBody,
    before: Option<HealthCheckHttp>,
) -> HealthCheckHttp {
    let before = before.unwrap_or_else(default_check_http);
    let http = HealthCheckHttp {
        domain: wanted.text("domain").unwrap_or(before.domain),
        path: wanted.text("path").unwrap_or(before.path),
        response: wanted.text("response").unwrap_or(before.response),
        status_codes: wanted.texts("status_codes").unwrap_or(before.status_codes),
        tls: wanted.flag("tls").unwrap_or(before.tls),
    };
    outer.take_problems(wanted);
    http
}
