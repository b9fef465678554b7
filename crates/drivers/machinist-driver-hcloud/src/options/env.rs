//! Reads the options from environment variables. The caller passes the variables as a function, so
//! nothing here touches the environment or a file.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use machinist_driver_http::Endpoint;

use super::{AddressFamily, Algorithm, BalancerDefaults, HcloudOptions, TokenSource};
use crate::{cidr, go_syntax};

const TOKEN: &str = "HCLOUD_TOKEN";

/// All invalid variables, each with the expected value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct OptionsError {
    /// One message per invalid variable, which begins with the name of the variable.
    pub problems: Vec<String>,
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("; "))
    }
}

impl HcloudOptions {
    /// Reads the `HCLOUD_*` variables, except the token. An empty variable counts as absent.
    ///
    /// # Errors
    /// All invalid variables together, so that one attempt shows all mistakes.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Result<Self, OptionsError> {
        let mut reader = VariableReader::new(&variable);
        let options = reader.options();
        reader.finish(options)
    }

    /// Reads the `HCLOUD_*` variables, and the source of the token: `HCLOUD_TOKEN`, or a file named
    /// by `HCLOUD_TOKEN_FILE`.
    ///
    /// # Errors
    /// As [`Self::from_env`], and if both or none of the variables of the token are set.
    pub fn from_env_with_token(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(Self, TokenSource), OptionsError> {
        let mut reader = VariableReader::new(&variable);
        let token = reader.token();
        let options = reader.options();
        let options = reader.finish(options)?;
        token.map(|token| (options, token)).ok_or(OptionsError { problems: Vec::new() })
    }
}

/// Reads variables and collects the problems.
struct VariableReader<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    problems: Vec<String>,
}

impl<'a> VariableReader<'a> {
    fn new(variable: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { variable, problems: Vec::new() }
    }

    fn finish<T>(self, value: T) -> Result<T, OptionsError> {
        if self.problems.is_empty() { Ok(value) } else { Err(OptionsError { problems: self.problems }) }
    }

    fn token(&mut self) -> Option<TokenSource> {
        let file = format!("{TOKEN}_FILE");
        match (self.text(TOKEN), self.text(&file)) {
            (Some(token), None) => Some(TokenSource::Token(token)),
            (None, Some(path)) => Some(TokenSource::File(path.into())),
            (Some(_), Some(_)) => {
                self.problem(&file, &format!("expected only one of {TOKEN} and {file}"));
                None
            }
            (None, None) => {
                self.problem(TOKEN, &format!("expected the API token, or its file in {file}"));
                None
            }
        }
    }

    fn options(&mut self) -> HcloudOptions {
        self.check_cache_mode();
        self.check_robot();
        let _ = self.boolean("HCLOUD_DEBUG");
        let family =
            self.parsed("HCLOUD_INSTANCES_ADDRESS_FAMILY", "ipv4, ipv6 or dualstack", |text| match text {
                "ipv4" => Some(AddressFamily::Ipv4),
                "ipv6" => Some(AddressFamily::Ipv6),
                "dualstack" => Some(AddressFamily::DualStack),
                _ => None,
            });
        let expected_endpoint = "http://HOST/PATH or https://HOST/PATH";
        HcloudOptions {
            endpoint: self
                .parsed("HCLOUD_ENDPOINT", expected_endpoint, |text| Endpoint::parse(text).ok())
                .unwrap_or_else(super::public),
            network: self.text("HCLOUD_NETWORK"),
            address_family: family.unwrap_or(AddressFamily::Ipv4),
            zone_label: self.boolean("HCLOUD_INSTANCES_ZONE_LABEL_ENABLED").unwrap_or(true),
            balancers_enabled: self.boolean("HCLOUD_LOAD_BALANCERS_ENABLED").unwrap_or(true),
            routes_enabled: self.boolean("HCLOUD_NETWORK_ROUTES_ENABLED").unwrap_or(true),
            balancer_defaults: self.balancer_defaults(),
            server_list_max_age: self.duration("HCLOUD_SERVER_CACHE_MAX_AGE"),
        }
    }

    fn balancer_defaults(&mut self) -> BalancerDefaults {
        let location = self.text("HCLOUD_LOAD_BALANCERS_LOCATION");
        let network_zone = self.text("HCLOUD_LOAD_BALANCERS_NETWORK_ZONE");
        if location.is_some() && network_zone.is_some() {
            let text = "expected only one of HCLOUD_LOAD_BALANCERS_LOCATION and \
                        HCLOUD_LOAD_BALANCERS_NETWORK_ZONE";
            self.problem("HCLOUD_LOAD_BALANCERS_NETWORK_ZONE", text);
        }
        let is_on = |value: Option<bool>| value.unwrap_or(false);
        BalancerDefaults {
            location,
            network_zone,
            balancer_type: self.text("HCLOUD_LOAD_BALANCERS_TYPE"),
            algorithm: self.parsed(
                "HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE",
                Algorithm::EXPECTED,
                Algorithm::parse,
            ),
            disable_public_network: self.boolean("HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK"),
            disable_private_ingress: is_on(self.boolean("HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS")),
            disable_ipv6: is_on(self.boolean("HCLOUD_LOAD_BALANCERS_DISABLE_IPV6")),
            use_private_ip: is_on(self.boolean("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP")),
            uses_proxyprotocol: self.boolean("HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL"),
            private_subnet_ip_range: self.parsed(
                "HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE",
                cidr::EXPECTED,
                |text| cidr::parse(text).map(|_| text.to_owned()),
            ),
            health_check_interval: self.duration("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL"),
            health_check_timeout: self.duration("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT"),
            health_check_retries: self.parsed(
                "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES",
                "a whole number",
                |text| u32::from_str(text).ok(),
            ),
        }
    }

    /// The mode has no effect: one shared list of servers replaces the three modes. A wrong value
    /// is an error, because the user expects an effect.
    fn check_cache_mode(&mut self) {
        let known = |text: &str| matches!(text, "all" | "one" | "off").then_some(());
        let _ = self.parsed("HCLOUD_SERVER_CACHE_MODE", "all, one or off", known);
    }

    /// Robot is not supported. The variables are read, so that a user who relies on them gets an
    /// error at the start.
    fn check_robot(&mut self) {
        if self.boolean("ROBOT_ENABLED") == Some(true) {
            self.problem(
                "ROBOT_ENABLED",
                "expected false, because servers of Hetzner Robot are not supported",
            );
        }
        let is_set = |name: &str| {
            [name.to_owned(), format!("{name}_FILE")].iter().any(|variable| self.text(variable).is_some())
        };
        if is_set("ROBOT_USER") != is_set("ROBOT_PASSWORD") {
            self.problem("ROBOT_USER", "expected both or none of ROBOT_USER and ROBOT_PASSWORD");
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn boolean(&mut self, name: &str) -> Option<bool> {
        self.parsed(name, "true or false", go_syntax::boolean)
    }

    fn duration(&mut self, name: &str) -> Option<Duration> {
        self.parsed(name, "a duration, for example 15s", go_syntax::duration)
    }

    fn parsed<T>(&mut self, name: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text(name)?;
        let parsed = parse(&text);
        if parsed.is_none() {
            self.problem(name, &format!("expected {expected}"));
        }
        parsed
    }

    fn problem(&mut self, name: &str, text: &str) {
        self.problems.push(format!("{name}: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<(HcloudOptions, TokenSource), OptionsError> {
        let variables: BTreeMap<_, _> = pairs.iter().copied().collect();
        HcloudOptions::from_env_with_token(|name| variables.get(name).map(|text| (*text).to_owned()))
    }

    #[test]
    fn only_the_token_is_required() {
        let (options, token) = read(&[("HCLOUD_TOKEN", "secret"), ("HCLOUD_NETWORK", "")]).expect("valid");
        assert_eq!(options, HcloudOptions::default());
        assert_eq!(token, TokenSource::Token("secret".to_owned()));
        assert_eq!(format!("{token:?}"), "Token(6 bytes)");
        let (_, token) = read(&[("HCLOUD_TOKEN_FILE", "token")]).expect("valid");
        assert_eq!(token, TokenSource::File("token".into()));
        assert!(HcloudOptions::from_env(|_| None).is_ok());
    }

    #[test]
    fn every_variable_reaches_its_option() {
        let (options, _) = read(&[
            ("HCLOUD_TOKEN", "secret"),
            ("HCLOUD_ENDPOINT", "http://127.0.0.1:1/v1"),
            ("HCLOUD_NETWORK", "7"),
            ("HCLOUD_INSTANCES_ADDRESS_FAMILY", "ipv6"),
            ("HCLOUD_INSTANCES_ZONE_LABEL_ENABLED", "f"),
            ("HCLOUD_NETWORK_ROUTES_ENABLED", "0"),
            ("HCLOUD_SERVER_CACHE_MAX_AGE", "1m"),
            ("HCLOUD_SERVER_CACHE_MODE", "one"),
            ("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"),
            ("HCLOUD_LOAD_BALANCERS_TYPE", "lb21"),
            ("HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE", "least_connections"),
            ("HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK", "false"),
            ("HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS", "true"),
            ("HCLOUD_LOAD_BALANCERS_DISABLE_IPV6", "true"),
            ("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", "true"),
            ("HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL", "true"),
            ("HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE", "10.0.1.0/24"),
            ("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL", "20s"),
            ("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT", "5"),
            ("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES", "4"),
        ])
        .expect("valid");
        assert_eq!(
            options,
            HcloudOptions {
                endpoint: Endpoint::parse("http://127.0.0.1:1/v1").expect("valid"),
                network: Some("7".to_owned()),
                address_family: AddressFamily::Ipv6,
                zone_label: false,
                balancers_enabled: true,
                routes_enabled: false,
                balancer_defaults: BalancerDefaults {
                    location: Some("fsn1".to_owned()),
                    network_zone: None,
                    balancer_type: Some("lb21".to_owned()),
                    algorithm: Some(Algorithm::LeastConnections),
                    disable_public_network: Some(false),
                    disable_private_ingress: true,
                    disable_ipv6: true,
                    use_private_ip: true,
                    uses_proxyprotocol: Some(true),
                    private_subnet_ip_range: Some("10.0.1.0/24".to_owned()),
                    health_check_interval: Some(Duration::from_secs(20)),
                    health_check_timeout: Some(Duration::from_secs(5)),
                    health_check_retries: Some(4),
                },
                server_list_max_age: Some(Duration::from_secs(60)),
            }
        );
    }

    /// A user can then correct all of them at once.
    #[test]
    fn one_error_names_every_wrong_variable() {
        let wrong = [
            ("HCLOUD_ENDPOINT", "api.hetzner.cloud"),
            ("HCLOUD_DEBUG", "yes"),
            ("HCLOUD_INSTANCES_ADDRESS_FAMILY", "ipv5"),
            ("HCLOUD_INSTANCES_ZONE_LABEL_ENABLED", "on"),
            ("HCLOUD_SERVER_CACHE_MODE", "some"),
            ("HCLOUD_SERVER_CACHE_MAX_AGE", "-1s"),
            ("HCLOUD_LOAD_BALANCERS_NETWORK_ZONE", "eu-central"),
            ("HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE", "random"),
            ("HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE", "10.0.1.0"),
            ("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES", "many"),
            ("ROBOT_USER", "user"),
            ("ROBOT_ENABLED", "true"),
        ];
        let mut all = wrong.to_vec();
        all.push(("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"));
        let error = read(&all).expect_err("many are wrong");
        for name in wrong.iter().map(|(name, _)| *name).chain(["HCLOUD_TOKEN"]) {
            let count = error
                .problems
                .iter()
                .filter(|problem| problem.starts_with(&format!("{name}: expected")))
                .count();
            assert_eq!(count, 1, "{name} in {error}");
        }
        assert_eq!(error.problems.len(), wrong.len() + 1, "{error}");
    }

    #[test]
    fn a_token_must_not_come_from_two_places() {
        let both = [("HCLOUD_TOKEN", "secret"), ("HCLOUD_TOKEN_FILE", "token")];
        let error = read(&both).expect_err("two places").to_string();
        assert!(error.starts_with("HCLOUD_TOKEN_FILE: expected only one"), "{error}");
        assert!(!error.contains("secret"));
    }
}
