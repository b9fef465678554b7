//! The `providerSpec` of a class for Hetzner Cloud.

use std::collections::BTreeMap;

use machinist_instance::{Error, ErrorKind};
use serde_json::{Map, Value};

use crate::label::{self, Labels};

/// A parsed `providerSpec`.
///
/// | Field | | |
/// |---|---|---|
/// | `serverType` (or `type`) | required | for example `cx22` |
/// | `image` (or `imageName`) | required | name or id, for example `ubuntu-24.04` |
/// | `location` (or `region`) | optional | for example `fsn1`; if absent, the cloud chooses |
/// | `networks` | optional | ids of the networks to which the server is attached |
/// | `sshKeys` | optional | names or ids of SSH keys |
/// | `firewalls` | optional | ids of firewalls |
/// | `placementGroup` | optional | id of a placement group |
/// | `publicNet.ipv4`, `publicNet.ipv6` | optional | whether the server has that public address; both are on |
/// | `labels` | optional | labels of the server |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSpec {
    /// Type of the server.
    pub server_type: String,
    /// Name or id of the image.
    pub image: String,
    /// Location of the server.
    pub location: Option<String>,
    /// Ids of the networks to which the server is attached.
    pub networks: Vec<i64>,
    /// Names or ids of SSH keys.
    pub ssh_keys: Vec<String>,
    /// Ids of firewalls.
    pub firewalls: Vec<i64>,
    /// Id of the placement group.
    pub placement_group: Option<i64>,
    /// Whether the server has a public IPv4 address.
    pub has_ipv4: bool,
    /// Whether the server has a public IPv6 network.
    pub has_ipv6: bool,
    /// Labels of the server.
    pub labels: BTreeMap<String, String>,
}

impl ProviderSpec {
    /// Parses and validates a `providerSpec`.
    ///
    /// # Errors
    /// `InvalidSpec`, with the field and the expected value. A field that is not in the table is an
    /// error, because a misspelt field would be ignored silently.
    pub fn parse(spec: &Value) -> Result<Self, Error> {
        let fields = Fields::of("providerSpec", spec, KNOWN_FIELDS)?;
        let public_net = match fields.value("publicNet") {
            None => Fields::empty("providerSpec.publicNet"),
            Some(value) => Fields::of("providerSpec.publicNet", value, &["ipv4", "ipv6"])?,
        };
        let (has_ipv4, has_ipv6) = (public_net.boolean("ipv4")?, public_net.boolean("ipv6")?);
        let parsed = Self {
            server_type: fields.required(["serverType", "type"], "a server type, for example \"cx22\"")?,
            image: fields.required(["image", "imageName"], "an image, for example \"ubuntu-24.04\"")?,
            location: fields.either(["location", "region"])?,
            networks: fields.list("networks", ID, id)?,
            ssh_keys: fields.list("sshKeys", TEXT, name_or_id)?,
            firewalls: fields.list("firewalls", ID, id)?,
            placement_group: fields.parsed("placementGroup", ID, id)?,
            has_ipv4: has_ipv4.unwrap_or(true),
            has_ipv6: has_ipv6.unwrap_or(true),
            labels: fields.labels()?,
        };
        if !parsed.has_ipv4 && !parsed.has_ipv6 && parsed.networks.is_empty() {
            let expected = "a network, because the server has no public address";
            return Err(invalid("providerSpec.networks", expected));
        }
        Ok(parsed)
    }
}

const KNOWN_FIELDS: &[&str] = &[
    "serverType",
    "type",
    "image",
    "imageName",
    "location",
    "region",
    "networks",
    "sshKeys",
    "firewalls",
    "placementGroup",
    "publicNet",
    "labels",
];

const ID: &str = "the id of the object, a number";
const TEXT: &str = "text that is not empty, of at most 255 bytes";
const MAX_TEXT_LEN: usize = 255;
/// The cloud accepts at most this number of entries in each list.
const MAX_ENTRIES: usize = 50;

/// The fields of one object of the spec.
struct Fields<'a> {
    path: &'static str,
    fields: Option<&'a Map<String, Value>>,
}

impl<'a> Fields<'a> {
    fn empty(path: &'static str) -> Self {
        Self { path, fields: None }
    }

    fn of(path: &'static str, value: &'a Value, known: &[&str]) -> Result<Self, Error> {
        let Value::Object(fields) = value else { return Err(invalid(path, "an object")) };
        if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            let expected = format!("one of the fields {}", known.join(", "));
            return Err(invalid(&format!("{path}.{unknown}"), &expected));
        }
        Ok(Self { path, fields: Some(fields) })
    }

    fn value(&self, name: &str) -> Option<&'a Value> {
        self.fields?.get(name).filter(|value| !value.is_null())
    }

    fn parsed<T>(
        &self,
        name: &str,
        expected: &str,
        parse: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.value(name) else { return Ok(None) };
        parse(value).map(Some).ok_or_else(|| invalid(&self.path_of(name), expected))
    }

    fn list<T>(
        &self,
        name: &str,
        expected: &str,
        parse: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let parse_all = |entries: &Vec<Value>| entries.iter().map(&parse).collect::<Option<Vec<T>>>();
        let parsed = value.as_array().filter(|entries| entries.len() <= MAX_ENTRIES).and_then(parse_all);
        let expected = || format!("a list of at most {MAX_ENTRIES} entries, each {expected}");
        parsed.ok_or_else(|| invalid(&self.path_of(name), &expected()))
    }

    fn boolean(&self, name: &str) -> Result<Option<bool>, Error> {
        self.parsed(name, "true or false", Value::as_bool)
    }

    /// A field that has two names, of which a spec may use one.
    fn either(&self, names: [&str; 2]) -> Result<Option<String>, Error> {
        let [first, second] = names;
        match (self.parsed(first, TEXT, name_or_id)?, self.parsed(second, TEXT, name_or_id)?) {
            (Some(_), Some(_)) => {
                let expected = format!("only one of {first} and {second}, because they mean the same");
                Err(invalid(&self.path_of(second), &expected))
            }
            (first, second) => Ok(first.or(second)),
        }
    }

    fn required(&self, names: [&str; 2], expected: &str) -> Result<String, Error> {
        self.either(names)?.ok_or_else(|| invalid(&self.path_of(names[0]), expected))
    }

    fn labels(&self) -> Result<Labels, Error> {
        let parse = |value: &Value| -> Option<Labels> {
            let entry = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
            value.as_object()?.iter().map(entry).collect()
        };
        let labels = self.parsed("labels", "an object with texts as values", parse)?.unwrap_or_default();
        label::check_all(&self.path_of("labels"), &labels)?;
        Ok(labels)
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }
}

fn id(value: &Value) -> Option<i64> {
    let number = value.as_i64().or_else(|| value.as_str()?.parse().ok())?;
    (0 < number).then_some(number)
}

/// The cloud accepts a name or an id as text.
fn name_or_id(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) => id(value)?.to_string(),
        _ => return None,
    };
    (!text.trim().is_empty() && text.len() <= MAX_TEXT_LEN).then_some(text)
}

fn invalid(field: &str, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("{field}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_with_a_type_and_an_image_is_parsed() {
        let expected = ProviderSpec {
            server_type: "cx22".to_owned(),
            image: "ubuntu-24.04".to_owned(),
            location: None,
            networks: Vec::new(),
            ssh_keys: Vec::new(),
            firewalls: Vec::new(),
            placement_group: None,
            has_ipv4: true,
            has_ipv6: true,
            labels: BTreeMap::new(),
        };
        let spec = json!({"serverType": "cx22", "image": "ubuntu-24.04"});
        assert_eq!(ProviderSpec::parse(&spec), Ok(expected.clone()));
        let other_names = json!({"type": "cx22", "imageName": "ubuntu-24.04", "region": null});
        assert_eq!(ProviderSpec::parse(&other_names), Ok(expected));
    }

    #[test]
    fn every_field_is_parsed() {
        let spec = json!({
            "serverType": "cx22", "image": 114_690_387, "location": "fsn1", "networks": [1, "2"],
            "sshKeys": ["admin", 7], "firewalls": [3], "placementGroup": 4,
            "publicNet": {"ipv4": false, "ipv6": true}, "labels": {"env": "prod"},
        });
        let parsed = ProviderSpec::parse(&spec).expect("valid");
        assert_eq!((parsed.image.as_str(), parsed.location.as_deref()), ("114690387", Some("fsn1")));
        assert_eq!(
            (parsed.networks, parsed.firewalls, parsed.placement_group),
            (vec![1, 2], vec![3], Some(4))
        );
        assert_eq!((parsed.has_ipv4, parsed.has_ipv6), (false, true));
        assert_eq!(parsed.ssh_keys, ["admin", "7"]);
        assert_eq!(parsed.labels.get("env").map(String::as_str), Some("prod"));
    }

    #[test]
    fn every_error_names_the_field_and_the_expected_value() {
        let with = |name: &str, value: Value| {
            let mut spec = json!({"serverType": "cx22", "image": "ubuntu-24.04"});
            spec[name] = value;
            spec
        };
        let cases = [
            (json!("cx22"), "providerSpec: expected an object"),
            (json!({"image": "a"}), "providerSpec.serverType: expected a server type"),
            (json!({"type": "a"}), "providerSpec.image: expected an image"),
            (with("serverTyp", json!("a")), "providerSpec.serverTyp: expected one of the fields serverType"),
            (with("type", json!("a")), "providerSpec.type: expected only one of serverType and type"),
            (with("image", json!(" ")), "providerSpec.image: expected text"),
            (with("location", json!(["fsn1"])), "providerSpec.location: expected text"),
            (with("networks", json!(["a"])), "providerSpec.networks: expected a list"),
            (with("networks", json!([1.5])), "providerSpec.networks: expected a list"),
            (with("firewalls", json!(1)), "providerSpec.firewalls: expected a list"),
            (with("placementGroup", json!(0)), "providerSpec.placementGroup: expected the id"),
            (with("publicNet", json!(false)), "providerSpec.publicNet: expected an object"),
            (with("publicNet", json!({"ipv4": 1})), "providerSpec.publicNet.ipv4: expected true or false"),
            (with("publicNet", json!({"v4": true})), "providerSpec.publicNet.v4: expected one of the fields"),
            (with("publicNet", json!({"ipv4": false, "ipv6": false})), "providerSpec.networks: expected a"),
            (with("labels", json!({"a": 1})), "providerSpec.labels: expected an object with texts"),
            (with("labels", json!({"a b": "c"})), "providerSpec.labels.a b: expected a label name"),
        ];
        for (spec, expected) in cases {
            let error = ProviderSpec::parse(&spec).expect_err(expected);
            assert_eq!(error.kind, ErrorKind::InvalidSpec);
            assert!(error.message.starts_with(expected), "{}", error.message);
        }
    }
}
