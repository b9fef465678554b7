//! Builds the requests for servers. Pure functions.

use std::collections::BTreeMap;

use machinist_instance::{Error, ErrorKind, InstanceSpec};
use serde_json::json;

use crate::client::call::Call;
use crate::label::{self, CLUSTER, KEY, Labels};
use crate::spec::ProviderSpec;

const SERVERS: &str = "/servers";
const SERVER: &str = "/servers/-";

/// The cloud rejects longer user data.
const MAX_USER_DATA_LEN: usize = 32 * 1024;

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
    use machinist_instance::{InstanceKey, NodeName, UserData};
    use serde_json::Value;

    use super::*;

    fn spec(provider_spec: Value) -> InstanceSpec {
        InstanceSpec {
            key: InstanceKey::new("uid-1"),
            name: NodeName::new("workers-1").expect("not empty"),
            cluster: "default".to_owned(),
            provider_spec,
            user_data: UserData::new(*b"#cloud-config"),
            tags: BTreeMap::from([("purpose".to_owned(), "test".to_owned())]),
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
