//! Builds the requests for servers. Pure functions.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_instance::{Error, ErrorKind, InstanceSpec};
use serde_json::{Value, json};

use crate::client::call::Call;
use crate::gardener::GardenerClass;
use crate::label::{self, CLUSTER, KEY, Labels};
use crate::spec::ProviderSpec;

const SERVERS: &str = "/servers";
const SERVER: &str = "/servers/-";

/// The cloud rejects longer user data.
const MAX_USER_DATA_LEN: usize = 32 * 1024;

/// The ids of the objects that a class of 23technologies' provider names otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) image: i64,
    pub(crate) ssh_key: i64,
    pub(crate) network: Option<i64>,
}

/// The request that creates the server of a class of 23technologies' provider, without the ids that
/// must be found first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unresolved(Value);

impl Unresolved {
    /// Builds the request with the labels and the user data that a server has there.
    ///
    /// # Errors
    /// `InvalidSpec` names the part that the cloud would reject.
    pub(crate) fn of(spec: &InstanceSpec, class: &GardenerClass) -> Result<Self, Error> {
        let mut body = json!({
            "name": spec.name.as_str(),
            "server_type": class.server_type,
            "location": class.location(),
            "labels": labels(spec, class.labels())?,
        });
        if let Some(user_data) = encoded_user_data(spec)? {
            body["user_data"] = user_data.into();
        }
        if let Some(group) = class.placement_group {
            body["placement_group"] = group.into();
        }
        Ok(Self(body))
    }

    /// Adds the ids.
    pub(crate) fn resolved(self, ids: &Resolved) -> Call {
        let Self(mut body) = self;
        body["image"] = ids.image.into();
        body["ssh_keys"] = json!([ids.ssh_key]);
        if let Some(network) = ids.network {
            body["networks"] = json!([network]);
        }
        Call::create(SERVERS, body)
    }
}

/// The user data as base64 text, which cloud-init decodes. The limit of the cloud applies to the
/// text.
///
/// # Errors
/// `InvalidSpec` if the text is too long.
fn encoded_user_data(spec: &InstanceSpec) -> Result<Option<String>, Error> {
    let text = STANDARD.encode(spec.user_data.expose());
    if MAX_USER_DATA_LEN < text.len() {
        let expected = format!("at most {MAX_USER_DATA_LEN} bytes of base64 text, got {}", text.len());
        return Err(Error::new(ErrorKind::InvalidSpec, format!("user data: expected {expected}")));
    }
    Ok((!text.is_empty()).then_some(text))
}

/// The images of a name, one per architecture, also those that no new class should use.
pub(crate) fn images(name: &str) -> Call {
    Call::list("/images").with("name", name).with("include_deprecated", "true")
}

/// The server types of a name.
pub(crate) fn server_types(name: &str) -> Call {
    Call::list("/server_types").with("name", name)
}

/// The SSH keys of a fingerprint.
pub(crate) fn ssh_keys(fingerprint: &str) -> Call {
    Call::list("/ssh_keys").with("fingerprint", fingerprint)
}

/// The networks of a name.
pub(crate) fn networks(name: &str) -> Call {
    Call::list("/networks").with("name", name)
}

/// Switches a server on.
pub(crate) fn power_on(id: i64) -> Call {
    Call::act("/servers/-/actions/poweron", id, json!({}))
}

/// Creates the server of a spec with its labels and its user data.
///
/// # Errors
/// `InvalidSpec` names the part that the cloud would reject.
pub(crate) fn create(spec: &InstanceSpec) -> Result<Call, Error> {
    let provider_spec = ProviderSpec::parse(&spec.provider_spec)?;
    let labels = labels(spec, provider_spec.labels)?;
    let mut body = json!({
        "name": spec.name.as_str(),
        "server_type": provider_spec.server_type,
        "image": provider_spec.image,
        "labels": labels,
        "public_net": {
            "enable_ipv4": provider_spec.has_ipv4,
            "enable_ipv6": provider_spec.has_ipv6,
        },
    });
    if let Some(user_data) = user_data(spec)? {
        body["user_data"] = user_data.into();
    }
    if let Some(location) = provider_spec.location {
        body["location"] = location.into();
    }
    if let Some(group) = provider_spec.placement_group {
        body["placement_group"] = group.into();
    }
    if !provider_spec.networks.is_empty() {
        body["networks"] = provider_spec.networks.into();
    }
    if !provider_spec.ssh_keys.is_empty() {
        body["ssh_keys"] = provider_spec.ssh_keys.into();
    }
    if !provider_spec.firewalls.is_empty() {
        body["firewalls"] = provider_spec.firewalls.into_iter().map(|id| json!({ "firewall": id })).collect();
    }
    Ok(Call::create(SERVERS, body))
}

/// The labels of a server: the labels of the class, the tags, the key and the installation. On a
/// conflict, the later one wins.
///
/// # Errors
/// `InvalidSpec` names the label that the cloud would reject.
pub(crate) fn labels(spec: &InstanceSpec, of_class: Labels) -> Result<Labels, Error> {
    let mut labels = of_class;
    label::check_syntax("tags", &spec.tags)?;
    labels.extend(spec.tags.clone());
    for (name, field, value) in [(KEY, "key", spec.key.as_str()), (CLUSTER, "cluster", spec.cluster.as_str())]
    {
        label::check_value(field, value)?;
        labels.insert(name.to_owned(), value.to_owned());
    }
    Ok(labels)
}

fn user_data(spec: &InstanceSpec) -> Result<Option<&str>, Error> {
    let invalid =
        |expected: String| Error::new(ErrorKind::InvalidSpec, format!("user data: expected {expected}"));
    let bytes = spec.user_data.expose();
    if MAX_USER_DATA_LEN < bytes.len() {
        return Err(invalid(format!("at most {MAX_USER_DATA_LEN} bytes, got {}", bytes.len())));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("UTF-8 text".to_owned()))?;
    Ok((!text.is_empty()).then_some(text))
}

pub(crate) fn get(id: i64) -> Call {
    Call::get(SERVER, id)
}

pub(crate) fn by_label(name: &str, value: &str) -> Call {
    Call::list(SERVERS).with("label_selector", &label::selector(name, value))
}

pub(crate) fn by_name(name: &str) -> Call {
    Call::list(SERVERS).with("name", name)
}

pub(crate) fn all() -> Call {
    Call::list(SERVERS)
}

pub(crate) fn delete(id: i64) -> Call {
    Call::delete(SERVER, id)
}

/// Replaces all labels of a server.
pub(crate) fn set_labels(id: i64, labels: &BTreeMap<String, String>) -> Call {
    Call::update(SERVER, id, json!({ "labels": labels }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinist_instance::{InstanceKey, NodeName, UserData};

    fn spec(provider_spec: Value) -> InstanceSpec {
        InstanceSpec {
            key: InstanceKey::new("uid-1"),
            name: NodeName::new("workers-1").expect("not empty"),
            cluster: "default".to_owned(),
            provider_spec,
            user_data: UserData::new(*b"#cloud-config"),
            tags: BTreeMap::from([("purpose".to_owned(), "test".to_owned())]),
            annotations: BTreeMap::new(),
            adopt_made_since: None,
            last_known_state: None,
        }
    }

    #[test]
    fn a_create_request_contains_the_whole_spec() {
        let all = spec(json!({
            "serverType": "cx22", "image": "ubuntu-24.04", "location": "fsn1", "networks": [1],
            "sshKeys": ["admin"], "firewalls": [3], "placementGroup": 4, "publicNet": {"ipv4": false},
            "labels": {"env": "prod", "purpose": "overridden"},
        }));
        let call = create(&all).expect("valid");
        assert_eq!(call.label(), "POST /servers");
        let expected = json!({
            "name": "workers-1", "server_type": "cx22", "image": "ubuntu-24.04", "location": "fsn1",
            "networks": [1], "ssh_keys": ["admin"], "firewalls": [{"firewall": 3}], "placement_group": 4,
            "public_net": {"enable_ipv4": false, "enable_ipv6": true}, "user_data": "#cloud-config",
            "labels": {
                "env": "prod", "purpose": "test", "machinist.dev/key": "uid-1",
                "machinist.dev/cluster": "default",
            },
        });
        assert_eq!(call.body, Some(expected));
    }

    #[test]
    fn a_request_of_the_other_provider_has_its_labels() {
        let class = json!({
            "cluster": "shoot--a", "zone": "hel1-dc2", "serverType": "cx22", "imageName": "debian-12",
            "sshFingerprint": "00", "placementGroupID": "4",
        });
        let spec = spec(class.clone());
        let class = GardenerClass::parse(&class).expect("valid").expect("a class of the provider");
        let resolved = Resolved { image: 1, ssh_key: 2, network: Some(3) };
        let expected = json!({
            "name": "workers-1", "server_type": "cx22", "image": 1, "location": "hel1", "networks": [3],
            "ssh_keys": [2], "placement_group": 4, "user_data": "I2Nsb3VkLWNvbmZpZw==",
            "labels": {
                "purpose": "test", "machinist.dev/key": "uid-1", "machinist.dev/cluster": "default",
                "mcm.gardener.cloud/cluster": "shoot--a", "mcm.gardener.cloud/role": "node",
                "topology.kubernetes.io/region": "hel1", "topology.kubernetes.io/zone": "hel1-dc2",
            },
        });
        let call = Unresolved::of(&spec, &class).expect("valid").resolved(&resolved);
        assert_eq!(call.body, Some(expected));
        // 32 KiB of text are 24 KiB of data.
        let data =
            |bytes: usize| InstanceSpec { user_data: UserData::new(vec![b'a'; bytes]), ..spec.clone() };
        assert!(Unresolved::of(&data(24 * 1024), &class).is_ok());
        let error = Unresolved::of(&data(24 * 1024 + 1), &class).expect_err("the text is too long");
        assert!(error.message.starts_with("user data: expected at most 32768 bytes of base64"), "{error}");
    }

    #[test]
    fn absent_fields_are_not_sent() {
        let minimal = spec(json!({"serverType": "cx22", "image": "ubuntu-24.04"}));
        let minimal = InstanceSpec { user_data: UserData::default(), ..minimal };
        let body = create(&minimal).expect("valid").body.expect("a body");
        for name in ["location", "networks", "ssh_keys", "firewalls", "placement_group", "user_data"] {
            assert_eq!(body.get(name), None, "{name}");
        }
    }

    #[test]
    fn a_controller_may_give_tags_of_this_project() {
        let tags = BTreeMap::from([("machinist.dev/namespace-uid".to_owned(), "uid-ns".to_owned())]);
        let spec = spec(json!({"serverType": "cx22", "image": "ubuntu-24.04"}));
        let labels = labels(&InstanceSpec { tags, ..spec }, Labels::new()).expect("valid labels");
        assert_eq!(labels["machinist.dev/namespace-uid"], "uid-ns");
    }

    #[test]
    fn values_that_the_cloud_would_reject_name_their_field() {
        let valid = || spec(json!({"serverType": "cx22", "image": "ubuntu-24.04"}));
        let tags = BTreeMap::from([("a/b/c".to_owned(), "1".to_owned())]);
        let cases = [
            (InstanceSpec { cluster: "a b".to_owned(), ..valid() }, "cluster: expected"),
            (InstanceSpec { key: InstanceKey::new("-"), ..valid() }, "key: expected"),
            (InstanceSpec { tags, ..valid() }, "tags.a/b/c: expected"),
            (InstanceSpec { user_data: UserData::new(vec![0xff]), ..valid() }, "user data: expected UTF-8"),
            (
                InstanceSpec { user_data: UserData::new(vec![b'a'; 32_769]), ..valid() },
                "user data: expected at most",
            ),
        ];
        for (spec, expected) in cases {
            let Err(error) = create(&spec) else { panic!("{expected}") };
            assert_eq!(error.kind, ErrorKind::InvalidSpec);
            assert!(error.message.starts_with(expected), "{error}");
        }
    }
}
