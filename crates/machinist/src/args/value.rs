//! Parsers of flag values. Each error says which value was expected.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use machinist_api::GoDuration;

/// Parses a duration in Go's format and rejects negative ones.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: GoDuration = text.parse().map_err(|error| {
        let message = format!("{error}");
        // clap has already quoted the value.
        message.strip_prefix(&format!("{text:?} is ")).unwrap_or(&message).to_owned()
    })?;
    parsed.to_std().ok_or_else(|| "expected a duration that is not negative, such as \"20m\"".to_owned())
}

/// Parses a duration above zero.
pub(crate) fn some_duration(text: &str) -> Result<Duration, String> {
    let parsed = duration(text)?;
    if parsed.is_zero() { Err("expected a duration of more than 0s".to_owned()) } else { Ok(parsed) }
}

/// Parses a boolean in the forms that Go's flags accept: `--leader-elect=false` and
/// `--leader-elect=0` are equal.
pub(crate) fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Parses a number of requests per second above zero.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && 0.0 < rate => Ok(rate),
        _ => Err("expected a number of requests per second above 0".to_owned()),
    }
}

/// Parses an IP address and a port.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:6443".to_owned())
}

/// Parses a port, or an IP address and a port. Go's form of an address on every interface has no
/// host.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let with_host = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    with_host.parse().map_err(|_| "expected :PORT or IP:PORT, such as :9440".to_owned())
}

/// Parses a domain of mail addresses. Users may put a space after each comma of a list.
pub(crate) fn domain(text: &str) -> Result<String, String> {
    let domain = text.trim();
    if domain.is_empty() || domain.contains('@') || domain.contains(char::is_whitespace) {
        Err("expected a domain, such as example.com".to_owned())
    } else {
        Ok(domain.to_owned())
    }
}

/// Parses the name of an image, in which `{version}` stands for a version.
pub(crate) fn image_template(text: &str) -> Result<String, String> {
    let is_name = |name: &str| {
        let mut letters = name.chars();
        letters.next().is_some_and(|letter| letter.is_ascii_alphanumeric())
            && letters.all(|letter| letter.is_ascii_alphanumeric() || "._-/:@".contains(letter))
    };
    if is_name(&text.replace("{version}", "v1")) {
        Ok(text.to_owned())
    } else {
        Err("expected the name of an image, such as kindest/node:{version}".to_owned())
    }
}

/// Parses a loopback address and a port. The simulated cloud accepts no other address.
pub(crate) fn loopback(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        _ => Err(
            "expected a loopback address and a port, such as 127.0.0.1:7070; the simulated cloud has no TLS"
                .to_owned(),
        ),
    }
}

/// Value of `--target-kubeconfig` or `--control-kubeconfig`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClusterFlag {
    /// The flag is absent or empty.
    Unset,
    /// `inClusterConfig`: the cluster of this pod, with its service account.
    InCluster,
    /// `none`: no cluster.
    None,
    /// Path of a kubeconfig file.
    File(PathBuf),
}

impl FromStr for ClusterFlag {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "" => Self::Unset,
            "inClusterConfig" => Self::InCluster,
            "none" => Self::None,
            path => Self::File(PathBuf::from(path)),
        })
    }
}

/// One `module=level` of `--vmodule`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModuleLevel {
    /// Path of a Rust module, for example `machinist_controllers`.
    pub module: String,
    /// Log level, on the same scale as `--v`.
    pub level: u8,
}

impl FromStr for ModuleLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || "expected MODULE=LEVEL, such as machinist_controllers=4".to_owned();
        let (module, level) = text.split_once('=').ok_or_else(wrong)?;
        let is_module_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if module.is_empty() || !module.chars().all(is_module_name) {
            return Err(wrong());
        }
        Ok(Self { module: module.to_owned(), level: level.parse().map_err(|_| wrong())? })
    }
}

/// Object that `why` explains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectArg {
    pub kind: ExplainedKind,
    pub name: String,
}

/// Kinds of Cluster API providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InfrastructureKind {
    DockerCluster,
    DockerMachine,
    MailgunCluster,
    MailgunMachine,
}

/// Kinds that `why` explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExplainedKind {
    Machine,
    MachineSet,
    MachineDeployment,
    Node,
    Service,
    Infrastructure(InfrastructureKind),
}

impl ExplainedKind {
    /// The kind as written in `kind/name`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::MachineSet => "machineset",
            Self::MachineDeployment => "machinedeployment",
            Self::Node => "node",
            Self::Service => "service",
            Self::Infrastructure(InfrastructureKind::DockerCluster) => "dockercluster",
            Self::Infrastructure(InfrastructureKind::DockerMachine) => "dockermachine",
            Self::Infrastructure(InfrastructureKind::MailgunCluster) => "mailguncluster",
            Self::Infrastructure(InfrastructureKind::MailgunMachine) => "mailgunmachine",
        }
    }
}

impl FromStr for ObjectArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected machine/NAME, machineset/NAME, machinedeployment/NAME, node/NAME, service/NAME, \
                        dockercluster/NAME, dockermachine/NAME, mailguncluster/NAME or mailgunmachine/NAME, \
                        or a short form: mc/, mcs/, mcd/ or md/, no/ or svc/";
        let (kind, name) = text.split_once('/').ok_or(expected)?;
        // `kubectl get -o name` prints machines.machine.sapcloud.io/NAME. kubectl's short names are
        // accepted too.
        let kind = kind.strip_suffix(".machine.sapcloud.io").unwrap_or(kind);
        let kind = kind.strip_suffix(".infrastructure.cluster.x-k8s.io").unwrap_or(kind).to_ascii_lowercase();
        let kind = match kind.as_str() {
            "machine" | "machines" | "mc" => ExplainedKind::Machine,
            "machineset" | "machinesets" | "mcs" | "ms" => ExplainedKind::MachineSet,
            // kubectl knows the short name `mcd`; `md` is common too.
            "machinedeployment" | "machinedeployments" | "mcd" | "md" => ExplainedKind::MachineDeployment,
            "node" | "nodes" | "no" => ExplainedKind::Node,
            "service" | "services" | "svc" => ExplainedKind::Service,
            "dockercluster" | "dockerclusters" => {
                ExplainedKind::Infrastructure(InfrastructureKind::DockerCluster)
            }
            "dockermachine" | "dockermachines" => {
                ExplainedKind::Infrastructure(InfrastructureKind::DockerMachine)
            }
            "mailguncluster" | "mailgunclusters" => {
                ExplainedKind::Infrastructure(InfrastructureKind::MailgunCluster)
            }
            "mailgunmachine" | "mailgunmachines" => {
                ExplainedKind::Infrastructure(InfrastructureKind::MailgunMachine)
            }
            _ => return Err(expected.to_owned()),
        };
        if name.is_empty() || name.contains('/') {
            return Err(expected.to_owned());
        }
        Ok(Self { kind, name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_format_of_go_and_are_not_negative() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert!(duration("-1s").expect_err("negative").contains("not negative"));
        let message = duration("20").expect_err("no unit");
        assert!(
            message.starts_with("not a duration such as \"20m\" or \"1h30m\": a unit is missing"),
            "{message}"
        );
        assert!(some_duration("0s").expect_err("zero").contains("more than 0s"));
    }

    #[test]
    fn a_domain_has_no_spaces_around_it() {
        assert_eq!(domain(" example.com "), Ok("example.com".to_owned()));
        for text in ["", " ", "a b", "ops@example.com"] {
            assert!(domain(text).expect_err(text).contains("example.com"), "{text}");
        }
    }

    #[test]
    fn an_image_template_is_the_name_of_an_image() {
        for text in ["kindest/node:{version}", "localhost:5000/a_b@sha256:0f", "node"] {
            assert_eq!(image_template(text), Ok(text.to_owned()));
        }
        for text in ["", "a b", "kindest/node:{v}", "-x"] {
            assert!(image_template(text).expect_err(text).contains("{version}"), "{text}");
        }
    }

    #[test]
    fn cluster_flags_take_the_values_of_go_mcm() {
        let parse = |text: &str| text.parse::<ClusterFlag>().expect("never fails");
        assert_eq!(parse(""), ClusterFlag::Unset);
        assert_eq!(parse("none"), ClusterFlag::None);
        assert_eq!(parse("inClusterConfig"), ClusterFlag::InCluster);
        assert_eq!(parse("kube/config"), ClusterFlag::File("kube/config".into()));
    }

    #[test]
    fn objects_are_parsed_in_all_forms_of_kubectl() {
        for text in ["machine/a", "mc/a", "machines.machine.sapcloud.io/a", "Machine/a"] {
            let parsed = text.parse::<ObjectArg>();
            assert_eq!(
                parsed,
                Ok(ObjectArg { kind: ExplainedKind::Machine, name: "a".to_owned() }),
                "{text}"
            );
        }
        for text in ["machineset/a", "mcs/a", "ms/a"] {
            assert_eq!(
                text.parse::<ObjectArg>().map(|object| object.kind),
                Ok(ExplainedKind::MachineSet),
                "{text}"
            );
        }
        for text in ["machinedeployments.machine.sapcloud.io/a", "mcd/a", "md/a", "MD/a"] {
            let kind = text.parse::<ObjectArg>().map(|object| object.kind);
            assert_eq!(kind, Ok(ExplainedKind::MachineDeployment), "{text}");
        }
        for text in ["node/a", "nodes/a", "no/a"] {
            assert_eq!(
                text.parse::<ObjectArg>().map(|object| object.kind),
                Ok(ExplainedKind::Node),
                "{text}"
            );
        }
        for text in ["service/a", "services/a", "svc/a"] {
            assert_eq!(
                text.parse::<ObjectArg>().map(|object| object.kind),
                Ok(ExplainedKind::Service),
                "{text}"
            );
        }
        for text in ["a", "pod/a", "machine/", "machine/a/b", "node/", "service/default/a"] {
            assert!(text.parse::<ObjectArg>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_module_level_needs_a_module_and_a_number() {
        assert!("machinist_plan::mcm=4".parse::<ModuleLevel>().is_ok());
        for wrong in ["machinist_plan", "=4", "machine*=4", "a=x"] {
            assert!(wrong.parse::<ModuleLevel>().is_err(), "{wrong}");
        }
    }
}
