//! The `providerSpec` of a class for Docker. Pure.

use std::collections::BTreeMap;

use machinist_instance::{Error, ErrorKind};
use serde_json::{Map, Value};

use crate::options::Privileges;

/// A parsed `providerSpec`.
///
/// | Field | | |
/// |---|---|---|
/// | `image` | required | image of the node, for example `kindest/node:v1.33.0` |
/// | `imageMode` | optional | `kind` (the default) if kind's tools built the image, else `plain` |
/// | `role` | optional | `worker` (the default) or `control-plane` |
/// | `cluster` | optional | name of the Kubernetes cluster; if absent, the installation |
/// | `failureDomain` | optional | stored as a label, and shown as the zone |
/// | `network` | optional | network of the container; if absent, the driver's |
/// | `ipFamily` | optional | `ipv4` (the default), `ipv6` or `dual` |
/// | `extraMounts` | optional | list of `containerPath`, `hostPath`, `readOnly` |
/// | `preLoadImages` | optional | images that are loaded into the container's runtime |
/// | `privileges` | optional | `full`, `caps` or `none`; if absent, the driver's |
/// | `apiServerPort` | optional | port of the host for the API server of a control plane; if absent, the engine chooses |
/// | `resources` | optional | limits: `cpus` (number), `memory` (bytes) |
/// | `env` | optional | environment variables by name |
/// | `labels` | optional | labels of the container by name |
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderSpec {
    /// Image of the container.
    pub image: String,
    /// The sort of node image.
    pub image_mode: ImageMode,
    /// Role of the Node.
    pub role: Role,
    /// Name of the Kubernetes cluster.
    pub cluster: Option<String>,
    /// Failure domain of the Node.
    pub failure_domain: Option<String>,
    /// Network of the container.
    pub network: Option<String>,
    /// Address families of the container.
    pub ip_family: IpFamily,
    /// Folders of the host that the container sees.
    pub extra_mounts: Vec<Mount>,
    /// Images that are loaded before the bootstrap.
    pub pre_load_images: Vec<String>,
    /// How much of the host the container may use.
    pub privileges: Option<Privileges>,
    /// Port of the host at which a control plane publishes its API server.
    pub api_server_port: Option<u16>,
    /// Limits of the container.
    pub resources: Resources,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Labels of the container.
    pub labels: BTreeMap<String, String>,
}

/// The sort of a node image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImageMode {
    /// Built with kind's tools: the entrypoint prepares a cgroup `/kubelet`.
    Kind,
    /// Another image with systemd, containerd and the kubelet.
    Plain,
}

/// The role of a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A member of the control plane.
    ControlPlane,
    /// Any other Node.
    Worker,
}

/// The address families of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpFamily {
    /// Only IPv4.
    Ipv4,
    /// Only IPv6.
    Ipv6,
    /// IPv4 and IPv6.
    Dual,
}

impl IpFamily {
    /// Parses `ipv4`, `ipv6` or `dual`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "ipv4" => Some(Self::Ipv4),
            "ipv6" => Some(Self::Ipv6),
            "dual" => Some(Self::Dual),
            _ => None,
        }
    }

    /// Whether the container has an IPv6 address.
    pub(crate) fn has_ipv6(self) -> bool {
        match self {
            Self::Ipv4 => false,
            Self::Ipv6 | Self::Dual => true,
        }
    }
}

/// A folder or file of the host that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mount {
    /// Path in the container.
    pub container_path: String,
    /// Path on the host of the engine.
    pub host_path: String,
    /// Whether the container may only read.
    pub read_only: bool,
}

/// Limits of a container.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Resources {
    /// Number of processors.
    pub cpus: Option<f64>,
    /// Memory in bytes.
    pub memory: Option<u64>,
}

const KNOWN_FIELDS: &[&str] = &[
    "image",
    "imageMode",
    "role",
    "cluster",
    "failureDomain",
    "network",
    "ipFamily",
    "extraMounts",
    "preLoadImages",
    "privileges",
    "apiServerPort",
    "resources",
    "env",
    "labels",
];

/// Longer names of images, networks and paths are mistakes.
const MAX_TEXT_LEN: usize = 4096;
/// More processors than any host has.
const MAX_CPUS: f64 = 4096.0;
/// The engine refuses a smaller limit.
const LEAST_MEMORY: u64 = 6 * 1024 * 1024;

impl ProviderSpec {
    /// Parses and validates a `providerSpec`.
    ///
    /// # Errors
    /// `InvalidSpec`, with the field and the expected value. A field that is not in the table is an
    /// error, because a misspelt field would be ignored silently.
    pub fn parse(spec: &Value) -> Result<Self, Error> {
        let Value::Object(fields) = spec else {
            return Err(invalid("providerSpec", "an object"));
        };
        check_fields("providerSpec", fields, KNOWN_FIELDS)?;
        let image = text(fields, "image")?
            .ok_or_else(|| invalid("providerSpec.image", "an image, for example \"kindest/node:v1.33.0\""))?;
        Ok(Self {
            image,
            image_mode: word(fields, "imageMode", "kind or plain", |text| match text {
                "kind" => Some(ImageMode::Kind),
                "plain" => Some(ImageMode::Plain),
                _ => None,
            })?
            .unwrap_or(ImageMode::Kind),
            role: word(fields, "role", "worker or control-plane", |text| match text {
                "worker" => Some(Role::Worker),
                "control-plane" => Some(Role::ControlPlane),
                _ => None,
            })?
            .unwrap_or(Role::Worker),
            cluster: text(fields, "cluster")?,
            failure_domain: text(fields, "failureDomain")?,
            network: text(fields, "network")?,
            ip_family: word(fields, "ipFamily", "ipv4, ipv6 or dual", IpFamily::parse)?
                .unwrap_or(IpFamily::Ipv4),
            extra_mounts: mounts(fields.get("extraMounts"))?,
            pre_load_images: texts(fields, "preLoadImages")?,
            privileges: word(fields, "privileges", "full, caps or none", |text| text.parse().ok())?,
            api_server_port: port(fields.get("apiServerPort"))?,
            resources: resources(fields.get("resources"))?,
            env: map(fields, "env")?,
            labels: map(fields, "labels")?,
        })
    }
}

fn port(value: Option<&Value>) -> Result<Option<u16>, Error> {
    let parse =
        |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| 0 < *port);
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match parse(value) {
            Some(port) => Ok(Some(port)),
            None => Err(invalid("providerSpec.apiServerPort", "a port, for example 26443")),
        },
    }
}

fn check_fields(path: &str, fields: &Map<String, Value>, known: &[&str]) -> Result<(), Error> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => {
            Err(invalid(&format!("{path}.{unknown}"), &format!("one of the fields {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, Error> {
    text_at(&format!("providerSpec.{name}"), fields.get(name))
}

fn text_at(path: &str, value: Option<&Value>) -> Result<Option<String>, Error> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if !text.trim().is_empty() && text.len() <= MAX_TEXT_LEN => {
            Ok(Some(text.clone()))
        }
        Some(_) => Err(invalid(path, &format!("text of at most {MAX_TEXT_LEN} bytes"))),
    }
}

/// Parses a word of a small set.
fn word<T>(
    fields: &Map<String, Value>,
    name: &str,
    expected: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let Some(text) = text(fields, name)? else { return Ok(None) };
    parse(&text).map(Some).ok_or_else(|| invalid(&format!("providerSpec.{name}"), expected))
}

fn list<'f>(path: &str, value: Option<&'f Value>) -> Result<&'f [Value], Error> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(invalid(path, "a list")),
    }
}

fn texts(fields: &Map<String, Value>, name: &str) -> Result<Vec<String>, Error> {
    let path = format!("providerSpec.{name}");
    let mut texts = Vec::new();
    for (index, item) in list(&path, fields.get(name))?.iter().enumerate() {
        let path = format!("{path}[{index}]");
        texts.push(text_at(&path, Some(item))?.ok_or_else(|| invalid(&path, "text that is not empty"))?);
    }
    Ok(texts)
}

fn map(fields: &Map<String, Value>, name: &str) -> Result<BTreeMap<String, String>, Error> {
    let path = format!("providerSpec.{name}");
    match fields.get(name) {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(entries)) => entries
            .iter()
            .map(|(name, value)| match value {
                Value::String(value) if !name.is_empty() && !name.contains(['=', '\0']) => {
                    Ok((name.clone(), value.clone()))
                }
                _ => Err(invalid(&format!("{path}.{name}"), "a name without = and a text")),
            })
            .collect(),
        Some(_) => Err(invalid(&path, "an object with texts")),
    }
}

fn mounts(value: Option<&Value>) -> Result<Vec<Mount>, Error> {
    let mut mounts = Vec::new();
    for (index, item) in list("providerSpec.extraMounts", value)?.iter().enumerate() {
        let path = format!("providerSpec.extraMounts[{index}]");
        let Value::Object(fields) = item else { return Err(invalid(&path, "an object")) };
        check_fields(&path, fields, &["containerPath", "hostPath", "readOnly"])?;
        let absolute = |name: &str| {
            let path = format!("{path}.{name}");
            match text_at(&path, fields.get(name))? {
                Some(text) if text.starts_with('/') && !text.split('/').any(|part| part == "..") => Ok(text),
                _ => Err(invalid(&path, "an absolute path without ..")),
            }
        };
        let read_only = match fields.get("readOnly") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(read_only)) => *read_only,
            Some(_) => return Err(invalid(&format!("{path}.readOnly"), "true or false")),
        };
        let (container_path, host_path) = (absolute("containerPath")?, absolute("hostPath")?);
        mounts.push(Mount { container_path, host_path, read_only });
    }
    Ok(mounts)
}

fn resources(value: Option<&Value>) -> Result<Resources, Error> {
    let path = "providerSpec.resources";
    let fields = match value {
        None | Some(Value::Null) => return Ok(Resources::default()),
        Some(Value::Object(fields)) => fields,
        Some(_) => return Err(invalid(path, "an object")),
    };
    check_fields(path, fields, &["cpus", "memory"])?;
    let cpus = fields.get("cpus").map(|value| {
        let cpus = value.as_f64().filter(|cpus| 0.0 < *cpus && *cpus <= MAX_CPUS);
        cpus.ok_or_else(|| invalid(&format!("{path}.cpus"), "a positive number, for example 1.5"))
    });
    let memory = fields.get("memory").map(|value| {
        let memory = value.as_u64().filter(|memory| LEAST_MEMORY <= *memory);
        memory.ok_or_else(|| {
            invalid(&format!("{path}.memory"), &format!("a number of bytes, at least {LEAST_MEMORY}"))
        })
    });
    Ok(Resources { cpus: cpus.transpose()?, memory: memory.transpose()? })
}

pub(crate) fn invalid(field: &str, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("{field}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_with_only_an_image_is_a_worker() {
        let spec = ProviderSpec::parse(&json!({"image": "kindest/node:v1.33.0"})).expect("valid");
        assert_eq!(
            (spec.role, spec.image_mode, spec.ip_family),
            (Role::Worker, ImageMode::Kind, IpFamily::Ipv4)
        );
        assert_eq!((spec.cluster, spec.network, spec.privileges), (None, None, None));
    }

    #[test]
    fn all_fields_are_parsed() {
        let spec = ProviderSpec::parse(&json!({
            "image": "i", "imageMode": "plain", "role": "control-plane", "cluster": "c1", "failureDomain": "fd1",
            "network": "n", "ipFamily": "dual", "preLoadImages": ["a", "b"], "privileges": "caps",
            "extraMounts": [{"containerPath": "/c", "hostPath": "/h", "readOnly": true}],
            "resources": {"cpus": 1.5, "memory": 1_073_741_824_u64}, "env": {"A": "b"}, "labels": {"l": "m"},
        }))
        .expect("valid");
        assert_eq!(spec.role, Role::ControlPlane);
        assert_eq!(spec.failure_domain.as_deref(), Some("fd1"));
        let mount = Mount { container_path: "/c".to_owned(), host_path: "/h".to_owned(), read_only: true };
        assert_eq!(spec.extra_mounts, [mount]);
        assert_eq!(spec.privileges, Some(Privileges::Capabilities));
        assert_eq!(spec.resources, Resources { cpus: Some(1.5), memory: Some(1 << 30) });
    }

    #[test]
    fn every_error_names_the_field_and_the_expected_value() {
        let with = |name: &str, value: Value| {
            let mut spec = json!({"image": "i"});
            spec[name] = value;
            spec
        };
        let mount = |mount: Value| with("extraMounts", json!([mount]));
        let cases = [
            (json!("i"), "providerSpec: expected an object"),
            (json!({}), "providerSpec.image: expected an image"),
            (with("iamge", json!(1)), "providerSpec.iamge: expected one of the fields"),
            (with("image", json!(1.5)), "providerSpec.image: expected text"),
            (with("role", json!("master")), "providerSpec.role: expected worker or control-plane"),
            (with("imageMode", json!("x")), "providerSpec.imageMode: expected kind or plain"),
            (with("ipFamily", json!("IPv4")), "providerSpec.ipFamily: expected ipv4, ipv6 or dual"),
            (with("privileges", json!("all")), "providerSpec.privileges: expected full, caps or none"),
            (with("preLoadImages", json!("a")), "providerSpec.preLoadImages: expected a list"),
            (with("preLoadImages", json!([""])), "providerSpec.preLoadImages[0]: expected text"),
            (
                mount(json!({"hostPath": "/h"})),
                "providerSpec.extraMounts[0].containerPath: expected an absolute",
            ),
            (
                mount(json!({"containerPath": "/c", "hostPath": "/a/../b"})),
                "providerSpec.extraMounts[0].hostPath: expected an absolute",
            ),
            (with("resources", json!({"cpus": 0})), "providerSpec.resources.cpus: expected a positive"),
            (with("resources", json!({"memory": 1})), "providerSpec.resources.memory: expected a number"),
            (with("env", json!({"A=B": "c"})), "providerSpec.env.A=B: expected a name"),
        ];
        for (spec, expected) in cases {
            let error = ProviderSpec::parse(&spec).expect_err(expected);
            assert_eq!(error.kind, ErrorKind::InvalidSpec);
            assert!(error.message.starts_with(expected), "{}", error.message);
        }
    }
}
