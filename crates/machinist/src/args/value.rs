//! Parsers of flag values. Each error says which value was expected.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
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
        // An infinite rate means no limit, as in Go.
        Ok(rate) if 0.0 < rate => Ok(rate),
        _ => Err("expected a number of requests per second above 0".to_owned()),
    }
}

/// Parses a number as Go's flags do: decimal, or with the prefix 0x, 0o, 0b or 0, and with `_`
/// between digits.
fn go_number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let prefixes = [("0x", 16), ("0o", 8), ("0b", 2), ("0", 8)];
    let prefixed = prefixes.iter().find_map(|(prefix, radix)| Some((lower.strip_prefix(prefix)?, *radix)));
    let (digits, radix) = match prefixed {
        Some((rest, radix)) if !rest.is_empty() => (rest.strip_prefix('_').unwrap_or(rest), radix),
        _ => (lower.as_str(), 10),
    };
    if digits.starts_with('_') || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    let digits = digits.replace('_', "");
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let number = i64::from_str_radix(&digits, radix).ok()?;
    Some(if negative { -number } else { number })
}

/// Parses a list of texts that are separated by commas.
#[expect(clippy::unnecessary_wraps, reason = "the interface of a parser")]
pub(crate) fn list(text: &str) -> Result<Vec<String>, String> {
    Ok(text.split(',').map(|part| part.trim().to_owned()).collect())
}

/// Parses a number from 0. As in Go, the largest one has 31 bits.
pub(crate) fn count(text: &str) -> Result<u32, String> {
    let number = go_number(text).filter(|number| (0..=i64::from(i32::MAX)).contains(number));
    number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| "expected a number from 0".to_owned())
}

/// Parses a port.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    let port = go_number(text).and_then(|number| u16::try_from(number).ok()).filter(|port| *port != 0);
    port.ok_or_else(|| "expected a port from 1 to 65535".to_owned())
}

/// Parses a number of workers above zero. More than 65535 work like 65535.
pub(crate) fn workers(text: &str) -> Result<u16, String> {
    let number = go_number(text).filter(|number| (1..=i64::from(i32::MAX)).contains(number));
    let number = number.ok_or_else(|| "expected a number above 0".to_owned())?;
    Ok(u16::try_from(number).unwrap_or(u16::MAX))
}

/// Parses a log level. As in Go, a level below 0 works like 0.
pub(crate) fn verbosity(text: &str) -> Result<u8, String> {
    let level: i32 = text.parse().map_err(|_| "expected a log level, such as 2".to_owned())?;
    Ok(u8::try_from(level.max(0)).unwrap_or(u8::MAX))
}

/// Checks a content type, such as `application/json`.
pub(crate) fn media_type(text: &str) -> Result<String, String> {
    let is_token = |part: &str| {
        !part.is_empty()
            && part.chars().all(|letter| letter.is_ascii_alphanumeric() || "!#$&-^_.+".contains(letter))
    };
    let kind = text.split(';').next().unwrap_or_default().trim();
    match kind.split_once('/') {
        Some((first, second)) if is_token(first) && is_token(second) => Ok(text.to_owned()),
        None if is_token(kind) => Ok(text.to_owned()),
        _ => Err("expected a content type, such as application/json".to_owned()),
    }
}

/// Checks a list of feature gates, such as `A=true,B=false`.
pub(crate) fn feature_gates(text: &str) -> Result<String, String> {
    let is_gate = |gate: &str| {
        gate.split_once('=')
            .is_some_and(|(name, value)| !name.trim().is_empty() && go_bool(value.trim()).is_ok())
    };
    if text.split(',').filter(|gate| !gate.is_empty()).all(is_gate) {
        Ok(text.to_owned())
    } else {
        Err("expected NAME=true or NAME=false, separated by commas".to_owned())
    }
}

/// Checks a severity of Go's log library: a name or a number.
pub(crate) fn severity(text: &str) -> Result<String, String> {
    let is_name = ["INFO", "WARNING", "ERROR", "FATAL"].contains(&text.to_ascii_uppercase().as_str());
    if is_name || text.parse::<i32>().is_ok() {
        Ok(text.to_owned())
    } else {
        Err("expected INFO, WARNING, ERROR, FATAL or a number from 0 to 3".to_owned())
    }
}

/// Checks a size in bytes, such as `1Mi`.
pub(crate) fn size(text: &str) -> Result<String, String> {
    let units = ["", "k", "K", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    if digits.parse::<f64>().is_ok_and(|size| 0.0 <= size) && units.contains(&unit) {
        Ok(text.to_owned())
    } else {
        Err("expected a size, such as 0, 4096 or 1Mi".to_owned())
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

/// Format of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// Value of `--vmodule`: the log levels of single modules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ModuleLevels(Vec<ModuleLevel>);

/// One `pattern=level` of `--vmodule`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ModuleLevel {
    /// Path of a Rust module, or its last part. `*` stands for any letters, and `?` for one.
    pattern: String,
    /// Log level, on the same scale as `--v`.
    level: u8,
}

impl ModuleLevels {
    /// The level of a module; the first pattern that matches the path of the module or of a module
    /// above it, or the last part of its path, decides.
    pub(crate) fn of(&self, module: &str) -> Option<u8> {
        let last = module.rsplit("::").next().unwrap_or(module);
        let above = module.match_indices("::").map(|(end, _)| &module[..end]);
        let paths: Vec<&str> = above.chain([module, last]).collect();
        let matches = |pattern: &str| {
            // Go's patterns may name a file with its folder.
            let pattern = pattern.replace('/', "::");
            paths.iter().any(|path| matches_pattern(&pattern, path))
        };
        self.0.iter().find(|entry| matches(&entry.pattern)).map(|entry| entry.level)
    }

    /// The highest level of any module.
    pub(crate) fn highest(&self) -> Option<u8> {
        self.0.iter().map(|entry| entry.level).max()
    }
}

impl FromStr for ModuleLevels {
    type Err = String;

    /// As in Go, empty entries are skipped. A pattern for a module that does not exist matches
    /// nothing, so a value for Go's file names is accepted.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |entry: &str| {
            let (pattern, level) = entry.split_once('=')?;
            let level = level.parse::<i32>().ok().filter(|level| 0 <= *level)?;
            let level = u8::try_from(level).unwrap_or(u8::MAX);
            let pattern = pattern.to_owned();
            (!pattern.is_empty()).then_some(ModuleLevel { pattern, level })
        };
        let entries = text.split(',').filter(|entry| !entry.is_empty());
        let levels: Option<Vec<ModuleLevel>> = entries.map(parse).collect();
        let expected = "expected MODULE=LEVEL, such as machinist_controllers=4, separated by commas";
        levels.map(Self).ok_or_else(|| expected.to_owned())
    }
}

/// Whether a text has the form of a pattern with `*` and `?`.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // The place after the last `*`, and the place in the text that it was tried for.
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, read));
                at += 1;
            }
            Some(letter) if *letter == '?' || *letter == text[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((after, tried)) = star else { return false };
                star = Some((after, tried + 1));
                at = after;
                read = tried + 1;
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
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
    MachineClass,
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
            Self::MachineClass => "machineclass",
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
        let expected = "expected machine/NAME, machineset/NAME, machinedeployment/NAME, machineclass/NAME, node/NAME, \
                        service/NAME, dockercluster/NAME, dockermachine/NAME, mailguncluster/NAME or mailgunmachine/NAME, \
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
            "machineclass" | "machineclasses" | "mcc" => ExplainedKind::MachineClass,
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
    fn module_levels_are_patterns_as_in_go() {
        let levels =
            |text: &str| text.parse::<ModuleLevels>().unwrap_or_else(|error| panic!("{text}: {error}"));
        let some = levels("machine_set=3,,machinist_plan::mcm*=4,controller*=5,re?order=6");
        assert_eq!(some.of("machinist_controllers::mcm::machine_set"), Some(3), "the last part");
        assert_eq!(some.of("machinist_plan::mcm::drain"), Some(4), "a path");
        assert_eq!(some.of("machinist_kube::recorder"), Some(6), "? is one letter");
        assert_eq!(some.of("machinist_kube::lease"), None);
        assert_eq!(some.highest(), Some(6));
        assert_eq!(levels("lease=2,*=1").of("machinist_kube::lease"), Some(2), "the first match decides");
        assert_eq!(levels("machinist_kube/*=1").of("machinist_kube::lease"), Some(1), "a folder and a file");
        assert_eq!(levels("machinist_plan=4").of("machinist_plan::mcm::drain"), Some(4), "a crate");
        assert_eq!(levels("").highest(), None);
        for wrong in ["machinist_plan", "=4", "a=x", "a=-1", "a=1,b"] {
            assert!(wrong.parse::<ModuleLevels>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_have_the_forms_of_go() {
        for (text, expected) in [
            ("7", 7),
            ("+7", 7),
            ("0x1F", 31),
            ("0o17", 15),
            ("017", 15),
            ("0b1_01", 5),
            ("1_000", 1000),
            ("0", 0),
        ] {
            assert_eq!(count(text), Ok(expected), "{text}");
        }
        for text in ["", "-1", "1.5", "x", "2147483648", "08", "1__0", "_1"] {
            assert!(count(text).is_err(), "{text}");
        }
        assert_eq!(workers("100000"), Ok(u16::MAX));
        assert!(port("0").is_err() && port("65536").is_err() && port("65535").is_ok());
        assert_eq!((verbosity("-1"), verbosity("10"), verbosity("300")), (Ok(0), Ok(10), Ok(u8::MAX)));
    }
}
