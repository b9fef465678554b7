//! Builds the requests for servers, ports and volumes. Pure functions.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use machinist_instance::{Error, ErrorKind, InstanceKey, InstanceSpec};
use serde_json::{Value, json};

use crate::client::call::{Call, Service};
use crate::model::{AddressPair, Port};
use crate::spec::{Networks, ProviderSpec, RootDisk};
use crate::tag::{self, CLUSTER, KEY, MAX_TAG_LEN, Metadata};

/// Largest user data in base64 characters, by the schema of Nova.
const MAX_USER_DATA_LEN: usize = 65_535;
/// Longest key: it must fit into the description of a port, which has 255 characters.
const MAX_KEY_LEN: usize = 200;

/// Base64 as Go's library reads it: the last letter may have unused bits.
const AS_GO: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// A creation whose requests need some ids of the cloud.
pub(crate) struct Creation {
    pub(crate) class: ProviderSpec,
    pub(crate) key: InstanceKey,
    pub(crate) name: String,
    /// The metadata of the server.
    pub(crate) metadata: Metadata,
    cluster: String,
    user_data: String,
}

/// The ids that the cloud gave to the objects of a class.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) flavor: String,
    pub(crate) image: String,
    /// The networks in which Nova makes ports.
    pub(crate) networks: Vec<String>,
    /// The security groups of a port of our own.
    pub(crate) groups: Vec<String>,
    pub(crate) port: Option<String>,
    pub(crate) volume: Option<String>,
}

impl Creation {
    /// Checks everything that can be checked without the cloud.
    ///
    /// # Errors
    /// `InvalidSpec` names the field.
    pub(crate) fn of(spec: &InstanceSpec, region: &str) -> Result<Self, Error> {
        let class = ProviderSpec::parse(&spec.provider_spec)?;
        if class.region != region {
            let text = format!("providerSpec.spec.region: expected {region}, got {}", class.region);
            return Err(Error::new(ErrorKind::InvalidSpec, text));
        }
        check_class(&class)?;
        Ok(Self {
            key: spec.key.clone(),
            name: spec.name.as_str().to_owned(),
            metadata: metadata(spec, &class.tags)?,
            cluster: spec.cluster.clone(),
            user_data: user_data(spec)?,
            class,
        })
    }

    /// The request that creates the server.
    pub(crate) fn server(&self, ids: &Resolved) -> Call {
        let class = &self.class;
        let mut server = json!({
            "name": self.name,
            "flavorRef": ids.flavor,
            "availability_zone": class.zone,
            "key_name": class.key_name,
            "metadata": self.metadata,
            "user_data": self.user_data,
        });
        server["networks"] = match &ids.port {
            Some(port) => json!([{"port": port}]),
            None => ids.networks.iter().map(|network| json!({"uuid": network})).collect(),
        };
        // The groups of a port of our own are on the port.
        if ids.port.is_none() && !class.security_groups.is_empty() {
            server["security_groups"] =
                class.security_groups.iter().map(|group| json!({"name": group})).collect();
        }
        if let Some(has_config_drive) = class.config_drive {
            server["config_drive"] = has_config_drive.into();
        }
        // Nova deletes the volume with the server, so no call has to wait until it is detached.
        let volume = |source: &str, id: &str| {
            json!({
                "boot_index": 0, "source_type": source, "uuid": id, "destination_type": "volume",
                "delete_on_termination": true,
            })
        };
        match (&class.root_disk, &ids.volume) {
            (RootDisk::OfNova { size }, _) => {
                let mut disk = volume("image", &ids.image);
                disk["volume_size"] = (*size).into();
                server["block_device_mapping_v2"] = json!([disk]);
            }
            (RootDisk::Own { .. }, Some(id)) => {
                server["block_device_mapping_v2"] = json!([volume("volume", id)]);
            }
            (RootDisk::OfFlavor, _) | (RootDisk::Own { .. }, None) => {
                server["imageRef"] = ids.image.as_str().into();
            }
        }
        let mut body = json!({"server": server});
        if let Some(group) = &class.server_group {
            body["os:scheduler_hints"] = json!({"group": group});
        }
        Call::post(Service::Compute, "/servers", body)
    }

    /// The request that creates the port. Its description has the key, so that a port whose tags
    /// were not written yet is found.
    pub(crate) fn port(&self, network: &str, subnets: &[String], groups: &[String]) -> Call {
        let mut port = json!({
            "name": self.name,
            "network_id": network,
            "fixed_ips": subnets.iter().map(|subnet| json!({"subnet_id": subnet})).collect::<Value>(),
            "allowed_address_pairs": self.pairs(),
            "description": description(&self.key),
        });
        if !groups.is_empty() {
            port["security_groups"] = groups.into();
        }
        Call::post(Service::Network, "/ports", json!({"port": port}))
    }

    /// The address pairs of the ports that packets of pods pass.
    pub(crate) fn pairs(&self) -> Vec<AddressPair> {
        pairs(&self.class.network.pod_ranges)
    }

    /// The tags of the port: the marks of Gardener's provider, and the key.
    pub(crate) fn port_tags(&self) -> Vec<String> {
        let marks = tag::marks_of_class(&self.class.tags).into_iter().map(str::to_owned);
        marks.chain([tag::of_key(&self.key)]).collect()
    }

    /// The request that creates the root volume.
    pub(crate) fn volume(&self, size: u32, volume_type: &str, image: &str) -> Call {
        let mut metadata = self.class.tags.clone();
        metadata.insert(KEY.to_owned(), self.key.as_str().to_owned());
        metadata.insert(CLUSTER.to_owned(), self.cluster.clone());
        let volume = json!({
            "name": self.name,
            "availability_zone": self.class.zone,
            "imageRef": image,
            "size": size,
            "volume_type": volume_type,
            "metadata": metadata,
        });
        Call::post(Service::Volume, "/volumes", json!({"volume": volume}))
    }
}

/// Checks what only the requests of a class can show.
///
/// # Errors
/// `InvalidSpec`.
pub(crate) fn check_class(class: &ProviderSpec) -> Result<(), Error> {
    let has_port = matches!(class.network.networks, Networks::OwnPort { .. });
    if has_port { check_marks(&class.tags) } else { Ok(()) }
}

/// A port has the marks of the class as tags, whose limits are narrower.
fn check_marks(of_class: &Metadata) -> Result<(), Error> {
    let Some(long) = tag::marks_of_class(of_class).into_iter().find(|mark| MAX_TAG_LEN < mark.len()) else {
        return Ok(());
    };
    let text = format!(
        "providerSpec.spec.tags.{long}: expected a key of at most {MAX_TAG_LEN} characters, because it is \
         a tag of a port"
    );
    Err(Error::new(ErrorKind::InvalidSpec, text))
}

/// The metadata of a server: the tags of the class, the tags of the controller, the key and the
/// installation. On a conflict, the later one wins.
fn metadata(spec: &InstanceSpec, of_class: &Metadata) -> Result<Metadata, Error> {
    check_key(&spec.key)?;
    let mut metadata = of_class.clone();
    metadata.extend(marks_of(spec));
    tag::check("tags", &metadata)?;
    Ok(metadata)
}

/// The metadata by which an instance of the controller is found. The tags of the class are on an
/// adopted server already.
pub(crate) fn marks_of(spec: &InstanceSpec) -> Metadata {
    let mut metadata: Metadata =
        spec.tags.iter().map(|(tag, value)| (tag::name_of(tag), value.clone())).collect();
    metadata.insert(KEY.to_owned(), spec.key.as_str().to_owned());
    metadata.insert(CLUSTER.to_owned(), spec.cluster.clone());
    metadata
}

/// Checks that a key fits into all places that store it.
///
/// # Errors
/// `InvalidSpec` if the key is empty or too long.
pub(crate) fn check_key(key: &InstanceKey) -> Result<(), Error> {
    if (1..=MAX_KEY_LEN).contains(&key.as_str().chars().count()) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidSpec, format!("key: expected 1 to {MAX_KEY_LEN} characters")))
}

/// The user data in base64. Data that already is base64 is sent unchanged, as Go's library does.
fn user_data(spec: &InstanceSpec) -> Result<String, Error> {
    let bytes = spec.user_data.expose();
    let expected =
        |expected: String| Error::new(ErrorKind::InvalidSpec, format!("userData: expected {expected}"));
    if bytes.is_empty() {
        return Err(expected("data, because an instance without it does not join".to_owned()));
    }
    let in_base64 = match std::str::from_utf8(bytes) {
        // Go ignores line breaks in base64.
        Ok(text) if AS_GO.decode(text.replace(['\r', '\n'], "")).is_ok() => text.to_owned(),
        Ok(_) | Err(_) => STANDARD.encode(bytes),
    };
    match in_base64.len() {
        len if MAX_USER_DATA_LEN < len => {
            Err(expected(format!("at most {MAX_USER_DATA_LEN} characters in base64, got {len}")))
        }
        _ => Ok(in_base64),
    }
}

/// The description of a port of a key.
pub(crate) fn description(key: &InstanceKey) -> String {
    format!("{KEY}={key}")
}

/// Address pairs of ranges.
pub(crate) fn pairs(ranges: &[String]) -> Vec<AddressPair> {
    let pair = |range: &String| AddressPair { ip_address: range.clone(), others: Default::default() };
    ranges.iter().map(pair).collect()
}

/// The request that adds address pairs to a port, unless it has all of them. Other pairs stay, and
/// the cloud refuses the request if another program changed the port since it was read.
pub(crate) fn add_pairs(port: &Port, wanted: &[AddressPair]) -> Option<Call> {
    let has =
        |pair: &&AddressPair| port.allowed_address_pairs.iter().any(|one| one.ip_address == pair.ip_address);
    let missing: Vec<&AddressPair> = wanted.iter().filter(|pair| !has(pair)).collect();
    if missing.is_empty() {
        return None;
    }
    let union: Vec<&AddressPair> = port.allowed_address_pairs.iter().chain(missing).collect();
    let body = json!({"port": {"allowed_address_pairs": union}});
    let call = Call::put(Service::Network, "/ports/-", body).of(&port.id);
    Some(call.if_revision(port.revision_number))
}

/// Servers of a name. Nova takes the name as a regular expression.
pub(crate) fn servers_named(name: &str) -> Call {
    let mut pattern = String::from("^");
    for letter in name.chars() {
        if !letter.is_alphanumeric() && !matches!(letter, '-' | '_') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.push('$');
    servers().with("name", &pattern)
}

/// All servers of the project.
pub(crate) fn servers() -> Call {
    Call::get(Service::Compute, "/servers/detail")
}

pub(crate) fn server(id: &str) -> Call {
    Call::get(Service::Compute, "/servers/-").of(id)
}

pub(crate) fn delete_server(id: &str) -> Call {
    Call::delete(Service::Compute, "/servers/-").of(id)
}

/// Sets metadata of a server. Other metadata stays.
pub(crate) fn set_server_metadata(id: &str, metadata: &Metadata) -> Call {
    Call::post(Service::Compute, "/servers/-/metadata", json!({"metadata": metadata})).of(id)
}

pub(crate) fn ports(by: &str, value: &str) -> Call {
    Call::get(Service::Network, "/ports").with(by, value)
}

pub(crate) fn delete_port(id: &str) -> Call {
    Call::delete(Service::Network, "/ports/-").of(id)
}

pub(crate) fn set_port_tags(id: &str, tags: &[String]) -> Call {
    Call::put(Service::Network, "/ports/-/tags", json!({"tags": tags})).of(id)
}

pub(crate) fn set_port_description(id: &str, key: &InstanceKey) -> Call {
    Call::put(Service::Network, "/ports/-", json!({"port": {"description": description(key)}})).of(id)
}

pub(crate) fn volumes_named(name: &str) -> Call {
    Call::get(Service::Volume, "/volumes/detail").with("name", name)
}

/// Volumes of a key. Cinder reads the filter as a literal of Python, which JSON text is.
pub(crate) fn volumes_of_key(key: &InstanceKey) -> Call {
    let filter = json!({KEY: key.as_str()});
    Call::get(Service::Volume, "/volumes/detail").with("metadata", &filter.to_string())
}

pub(crate) fn delete_volume(id: &str) -> Call {
    Call::delete(Service::Volume, "/volumes/-").of(id)
}

/// Stores a key at a volume. Other metadata stays.
pub(crate) fn set_volume_key(id: &str, key: &InstanceKey) -> Call {
    let body = json!({"metadata": {KEY: key.as_str()}});
    Call::post(Service::Volume, "/volumes/-/metadata", body).of(id)
}

/// Images of a name, through Nova: its answer needs no endpoint of Glance, and Gardener's provider
/// asks it as well.
pub(crate) fn images_named(name: &str) -> Call {
    Call::get(Service::Compute, "/images").with("name", name)
}

pub(crate) fn flavors() -> Call {
    Call::get(Service::Compute, "/flavors/detail")
}

pub(crate) fn networks_named(name: &str) -> Call {
    Call::get(Service::Network, "/networks").with("name", name)
}

/// Security groups of these names, with one request.
pub(crate) fn security_groups(names: &[String]) -> Call {
    let call = Call::get(Service::Network, "/security-groups");
    names.iter().fold(call, |call, name| call.with("name", name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use machinist_instance::{NodeName, UserData};

    use super::*;
    use crate::spec::tests::{class, with};

    fn spec(provider_spec: Value, user_data: &[u8]) -> InstanceSpec {
        InstanceSpec {
            key: InstanceKey::new("uid-1"),
            name: NodeName::new("w-1").expect("not empty"),
            cluster: "default".to_owned(),
            provider_spec,
            user_data: UserData::new(user_data),
            tags: BTreeMap::from([("machinist.dev/namespace-uid".to_owned(), "n1".to_owned())]),
            annotations: BTreeMap::new(),
            adopt_made_since: None,
            last_known_state: None,
        }
    }

    fn creation(provider_spec: Value) -> Creation {
        Creation::of(&spec(provider_spec, b"#!/bin/bash\necho hello\n"), "eu-nl-1").expect("valid")
    }

    fn body(call: &Call) -> &Value {
        call.body.as_ref().expect("a body")
    }

    /// The recorded request of Go's provider, without the parts that Nova ignores for a port.
    #[test]
    fn a_server_is_requested_as_go_does() {
        let creation = creation(class());
        let port = Some("22222222".to_owned());
        let ids = Resolved { flavor: "f1".to_owned(), image: "i1".to_owned(), port, ..Resolved::default() };
        let call = creation.server(&ids);
        assert_eq!(call.path, "/servers");
        let expected = json!({"server": {
            "availability_zone": "eu-nl-1b", "flavorRef": "f1", "imageRef": "i1",
            "key_name": "shoot--foo--os", "name": "w-1", "networks": [{"port": "22222222"}],
            "metadata": {
                "kubernetes.io-cluster-shoot--foo--os": "1", "kubernetes.io-role-node": "1",
                "machinist.dev-key": "uid-1", "machinist.dev-cluster": "default",
                "machinist.dev-namespace-uid": "n1",
            },
            "user_data": "IyEvYmluL2Jhc2gKZWNobyBoZWxsbwo=",
        }});
        assert_eq!(*body(&call), expected);
    }

    #[test]
    fn every_field_of_a_class_is_sent() {
        let mut class = with("networkID", Value::Null);
        class["spec"]["networks"] = json!([{"id": "n1"}, {"name": "n2"}]);
        class["spec"]["useConfigDrive"] = json!(true);
        class["spec"]["serverGroupID"] = json!("g1");
        class["spec"]["rootDiskSize"] = json!(50);
        let networks = vec!["n1".to_owned(), "n2-id".to_owned()];
        let ids = Resolved { image: "i1".to_owned(), networks, ..Resolved::default() };
        let call = creation(class.clone()).server(&ids);
        let server = &body(&call)["server"];
        assert_eq!(server["networks"], json!([{"uuid": "n1"}, {"uuid": "n2-id"}]));
        assert_eq!(server["security_groups"], json!([{"name": "shoot--foo--os"}]));
        assert_eq!(server["config_drive"], json!(true));
        assert_eq!(body(&call)["os:scheduler_hints"], json!({"group": "g1"}));
        let disk = json!({
            "boot_index": 0, "source_type": "image", "uuid": "i1", "destination_type": "volume",
            "delete_on_termination": true, "volume_size": 50,
        });
        assert_eq!(server["block_device_mapping_v2"], json!([disk]));

        class["spec"]["rootDiskType"] = json!("ssd");
        let creation = creation(class);
        let call = creation.volume(50, "ssd", "i1");
        let volume = &body(&call)["volume"];
        assert_eq!(volume["metadata"]["machinist.dev-key"], json!("uid-1"));
        assert_eq!((&volume["imageRef"], &volume["size"]), (&json!("i1"), &json!(50)));
        let ids = Resolved { volume: Some("v1".to_owned()), ..ids };
        let call = creation.server(&ids);
        let server = &body(&call)["server"];
        assert_eq!(server["block_device_mapping_v2"][0]["uuid"], json!("v1"));
        assert_eq!(server["block_device_mapping_v2"][0]["delete_on_termination"], json!(true));
        assert_eq!(server.get("imageRef"), None);
    }

    #[test]
    fn a_port_has_pairs_marks_and_the_key() {
        let creation = creation(class());
        let call = creation.port("net-1", &["sub-1".to_owned()], &["g1".to_owned()]);
        let expected = json!({"port": {
            "name": "w-1", "network_id": "net-1", "fixed_ips": [{"subnet_id": "sub-1"}],
            "security_groups": ["g1"], "allowed_address_pairs": [{"ip_address": "100.96.0.0/11"}],
            "description": "machinist.dev-key=uid-1",
        }});
        assert_eq!(*body(&call), expected);
        let tags =
            ["kubernetes.io-cluster-shoot--foo--os", "kubernetes.io-role-node", "machinist.dev-key=uid-1"];
        assert_eq!(creation.port_tags(), tags);
        let long = format!("kubernetes.io-cluster-{}", "x".repeat(40));
        let class = with("tags", json!({long.as_str(): "1", "kubernetes.io-role-node": "1"}));
        let error = Creation::of(&spec(class, b"x"), "eu-nl-1").err().expect("too long");
        assert!(error.message.contains("at most 60 characters"), "{error}");
    }

    #[test]
    fn user_data_in_base64_is_sent_unchanged() {
        let sent = |data: &[u8]| user_data(&spec(class(), data)).map_err(|error| error.message);
        assert_eq!(sent(b"IyEvYmluL2Jhc2gK").as_deref(), Ok("IyEvYmluL2Jhc2gK"));
        assert_eq!(sent(b"IyEvYmlu\nL2Jhc2gK\n").as_deref(), Ok("IyEvYmlu\nL2Jhc2gK\n"));
        assert_eq!(sent(b"IyF=").as_deref(), Ok("IyF="), "with unused bits");
        assert_eq!(sent(b"#!/bin/bash\n").as_deref(), Ok("IyEvYmluL2Jhc2gK"));
        assert_eq!(sent(&[0xff, 0xfe]).as_deref(), Ok("//4="));
        assert!(sent(b"").is_err_and(|error| error.starts_with("userData: expected data")));
        assert!(sent(&[b'!'; 49_149]).is_ok());
        let error = sent(&[b'!'; 49_150]).expect_err("too long");
        assert_eq!(error, "userData: expected at most 65535 characters in base64, got 65536");
    }

    #[test]
    fn o_3_pairs_are_added_to_those_that_exist() {
        let port = json!({
            "id": "p1", "revision_number": 7,
            "allowed_address_pairs": [{"ip_address": "10.0.0.9", "mac_address": "fa:16:3e:00:00:01"}],
        });
        let port: Port = serde_json::from_value(port).expect("a port");
        let ranges = ["10.1.0.0/16", "fd00::/64"].map(str::to_owned);
        let call = add_pairs(&port, &pairs(&ranges)).expect("a change");
        let expected = json!({"port": {"allowed_address_pairs": [
            {"ip_address": "10.0.0.9", "mac_address": "fa:16:3e:00:00:01"},
            {"ip_address": "10.1.0.0/16"}, {"ip_address": "fd00::/64"},
        ]}});
        assert_eq!((body(&call), call.revision), (&expected, Some(7)));
        let complete = Port { allowed_address_pairs: pairs(&ranges), ..port };
        assert!(add_pairs(&complete, &pairs(&ranges)).is_none());
    }

    #[test]
    fn names_are_searched_literally() {
        let call = servers_named("w-1.example");
        assert_eq!(call.path, "/servers/detail?name=%5Ew-1%5C.example%24");
        let groups = security_groups(&["a".to_owned(), "b c".to_owned()]);
        assert_eq!(groups.path, "/security-groups?name=a&name=b%20c");
        let volumes = volumes_of_key(&InstanceKey::new("k'\""));
        assert!(volumes.path.ends_with("metadata=%7B%22machinist.dev-key%22%3A%22k%27%5C%22%22%7D"));
    }
}
