//! Classes of 23technologies' provider of machine-controller-manager for Hetzner Cloud.
//!
//! That provider decodes a class with Go's `encoding/json`: names match in any letter case, `null`
//! is an absent field, and unknown fields are ignored (its own chart writes `extraConfig` and
//! `tags`). A class is one of these if it has the field `cluster`, which that provider requires.
//!
//! | Field | | |
//! |---|---|---|
//! | `cluster` | required | value of the label `mcm.gardener.cloud/cluster` |
//! | `zone` | required | for example `hel1-dc2`; its beginning is the location |
//! | `serverType` | required | for example `cx22` |
//! | `imageName` | required | name of an image, also of a deprecated one |
//! | `sshFingerprint` | required | fingerprint of an SSH key of the project |
//! | `networkName` | optional | name of the network to which the server is attached |
//! | `placementGroupID` | optional | id of a placement group; the empty text means none |
//! | `floatingPoolName` | optional | pool of a floating address, which is created for the server |
//!
//! Differences: the placement group is also used without a floating address, and the server is
//! started by its creation, before its floating address exists.

use machinist_driver::unknown_fields;
use machinist_instance::{Error, ErrorKind};
use serde_json::{Map, Value};

use crate::label::{self, Labels, MCM_CLUSTER, MCM_ROLE, REGION, ZONE};

/// A parsed class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GardenerClass {
    pub(crate) cluster: String,
    pub(crate) zone: String,
    pub(crate) server_type: String,
    pub(crate) image: String,
    pub(crate) ssh_fingerprint: String,
    pub(crate) network: Option<String>,
    pub(crate) placement_group: Option<i64>,
    /// The pool of the floating address.
    pub(crate) floating_pool: Option<String>,
}

impl GardenerClass {
    /// Parses a `providerSpec`; `None` if it is not a class of that provider.
    ///
    /// # Errors
    /// `InvalidSpec`, with the field and the expected value.
    pub(crate) fn parse(spec: &Value) -> Result<Option<Self>, Error> {
        let Value::Object(fields) = spec else { return Ok(None) };
        if field(fields, "cluster").is_none() {
            return Ok(None);
        }
        let class = Self {
            cluster: required(fields, "cluster", "the name of the cluster")?,
            zone: required(fields, "zone", "a zone, for example \"hel1-dc2\"")?,
            server_type: required(fields, "serverType", "a server type, for example \"cx22\"")?,
            image: required(fields, "imageName", "the name of an image, for example \"ubuntu-24.04\"")?,
            ssh_fingerprint: required(fields, "sshFingerprint", "the fingerprint of an SSH key")?,
            network: text(fields, "networkName")?,
            placement_group: placement_group(fields)?,
            floating_pool: text(fields, "floatingPoolName")?,
        };
        let pool = class.floating_pool.as_ref().map(|pool| ("floatingPoolName", pool));
        for (name, value) in [("cluster", &class.cluster), ("zone", &class.zone)].into_iter().chain(pool) {
            label::check_value(&format!("providerSpec.{name}"), value)?;
        }
        Ok(Some(class))
    }

    /// The location: the zone up to the first hyphen. The API no longer has data centers.
    pub(crate) fn location(&self) -> &str {
        self.zone.split_once('-').map_or(&self.zone, |(location, _)| location)
    }

    /// The labels with which that provider finds its servers.
    pub(crate) fn labels(&self) -> Labels {
        let labels =
            [(MCM_CLUSTER, self.cluster.as_str()), MCM_ROLE, (REGION, self.location()), (ZONE, &self.zone)];
        labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }
}

/// The fields of a class of that provider, and two that the chart of that provider always writes,
/// although the provider does not read them.
const KNOWN: [&str; 10] = [
    "cluster",
    "zone",
    "serverType",
    "imageName",
    "sshFingerprint",
    "networkName",
    "placementGroupID",
    "floatingPoolName",
    "extraConfig",
    "tags",
];

/// The fields that have no effect, with their paths: the unknown fields of a class of that
/// provider. In other classes, an unknown field is an error.
pub(crate) fn fields_without_effect(spec: &Value) -> Vec<String> {
    let is_one = spec.as_object().is_some_and(|fields| field(fields, "cluster").is_some());
    if is_one { unknown_fields(spec, &KNOWN) } else { Vec::new() }
}

/// The cluster that a class names. No other field is read: a mistake in another field must not hide
/// an instance.
pub(crate) fn cluster_of(spec: &Value) -> Option<&str> {
    spec.as_object().and_then(|fields| field(fields, "cluster")).and_then(Value::as_str)
}

/// Whether a class wants a floating address.
pub(crate) fn has_pool(spec: &Value) -> bool {
    GardenerClass::parse(spec).is_ok_and(|class| class.is_some_and(|class| class.floating_pool.is_some()))
}

fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let exact = fields.get(name);
    let in_any_case = || fields.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
    exact.or_else(|| in_any_case().map(|(_, value)| value)).filter(|value| !value.is_null())
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, Error> {
    match field(fields, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => Err(invalid(name, "a text")),
    }
}

fn required(fields: &Map<String, Value>, name: &str, expected: &str) -> Result<String, Error> {
    text(fields, name)?.ok_or_else(|| invalid(name, expected))
}

fn placement_group(fields: &Map<String, Value>) -> Result<Option<i64>, Error> {
    let Some(id) = text(fields, "placementGroupID")? else { return Ok(None) };
    let parsed = id.parse().ok().filter(|id| 0 < *id);
    parsed.map(Some).ok_or_else(|| invalid("placementGroupID", "the id of the object as text, or \"\""))
}

fn invalid(field: &str, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("providerSpec.{field}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As the chart of the provider writes it.
    fn chart() -> Value {
        json!({
            "cluster": "shoot--foo--hc", "extraConfig": {}, "floatingPoolName": "",
            "imageName": "ubuntu-22.04", "networkName": "shoot--foo--hc-workers", "placementGroupID": "",
            "serverType": "cx23", "sshFingerprint": "00:01", "zone": "hel1-dc2",
            "tags": {"mcm.gardener.cloud/cluster": "shoot--foo--hc", "mcm.gardener.cloud/role": "node"},
        })
    }

    #[test]
    fn a_class_of_the_chart_is_parsed() {
        let class = GardenerClass::parse(&chart()).expect("valid").expect("a class of the provider");
        assert_eq!((class.location(), class.network.as_deref()), ("hel1", Some("shoot--foo--hc-workers")));
        assert_eq!((class.placement_group, class.ssh_fingerprint.as_str()), (None, "00:01"));
        let labels = [
            ("mcm.gardener.cloud/cluster", "shoot--foo--hc"),
            ("mcm.gardener.cloud/role", "node"),
            ("topology.kubernetes.io/region", "hel1"),
            ("topology.kubernetes.io/zone", "hel1-dc2"),
        ];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(class.labels(), labels.into());
        assert_eq!(cluster_of(&chart()), Some("shoot--foo--hc"));
    }

    #[test]
    fn names_match_in_any_letter_case_and_null_is_absent() {
        let spec = json!({
            "Cluster": "a", "ZONE": "fsn1-dc14", "servertype": "cx22", "imagename": "debian-12",
            "SSHFingerprint": "00", "networkName": null, "placementgroupid": "7",
        });
        let class = GardenerClass::parse(&spec).expect("valid").expect("a class of the provider");
        assert_eq!((class.network, class.placement_group), (None, Some(7)));
    }

    #[test]
    fn unknown_fields_have_no_effect() {
        assert!(fields_without_effect(&chart()).is_empty());
        let misspelt = json!({"cluster": "a", "networkname": "n", "networkNmae": "n", "region": null});
        assert_eq!(fields_without_effect(&misspelt), ["providerSpec.networkNmae"]);
        assert!(fields_without_effect(&json!({"serverType": "cx22", "other": 1})).is_empty());
    }

    #[test]
    fn every_error_names_the_field() {
        let with = |name: &str, value: Value| {
            let mut spec = chart();
            spec[name] = value;
            spec
        };
        let cases = [
            (with("zone", json!("")), "providerSpec.zone: expected a zone"),
            (with("zone", json!(1)), "providerSpec.zone: expected a text"),
            (with("cluster", json!("a b")), "providerSpec.cluster: expected at most"),
            (with("imageName", Value::Null), "providerSpec.imageName: expected the name"),
            (with("sshFingerprint", json!("")), "providerSpec.sshFingerprint: expected the fingerprint"),
            (with("placementGroupID", json!("a")), "providerSpec.placementGroupID: expected the id"),
            (with("floatingPoolName", json!("a b")), "providerSpec.floatingPoolName: expected at most"),
        ];
        for (spec, expected) in cases {
            let error = GardenerClass::parse(&spec).expect_err(expected);
            assert!(error.message.starts_with(expected), "{}", error.message);
        }
        assert_eq!(GardenerClass::parse(&json!({"serverType": "cx22"})), Ok(None));
    }
}
