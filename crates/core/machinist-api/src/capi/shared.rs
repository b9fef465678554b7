//! Parts that several kinds have.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::condition::one_of_each_type;
use super::limits::{MAX_FAILURE_DOMAINS, MAX_ID_LEN, MAX_NAME_LEN};
use crate::absent::null_as_default;
use crate::text_enum::text_enum;

/// The address of the API servers of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// IP address or host name.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = MAX_ID_LEN))]
    pub host: String,
    /// Port. The contract v1beta1 spells an unset port as 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl Endpoint {
    /// Whether the endpoint has a host and a port.
    pub fn is_valid(&self) -> bool {
        !self.host.is_empty() && self.port().is_some()
    }

    /// Returns the port, unless it is unset.
    pub fn port(&self) -> Option<u16> {
        self.port.filter(|port| 0 < *port)
    }
}

/// A failure domain of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FailureDomain {
    /// Name, unique in the cluster.
    pub name: String,
    /// Whether machines of the control plane may be in it.
    pub control_plane: bool,
    /// Further properties.
    pub attributes: BTreeMap<String, String>,
}

impl FailureDomain {
    /// Reads the failure domains from a list (contract v1beta2) or a map (v1beta1), sorted by name.
    /// Entries of another form are ignored.
    pub fn list(value: Option<&Value>) -> Vec<Self> {
        let named = |name: &str, entry: &Value| -> Self {
            let attributes = entry["attributes"].as_object().into_iter().flatten();
            let attributes = attributes
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect();
            let control_plane = entry["controlPlane"].as_bool().unwrap_or_default();
            Self { name: name.to_owned(), control_plane, attributes }
        };
        let mut all: Vec<Self> = match value {
            Some(Value::Array(entries)) => entries
                .iter()
                .filter_map(|entry| entry["name"].as_str().map(|name| named(name, entry)))
                .collect(),
            Some(Value::Object(entries)) => entries.iter().map(|(name, entry)| named(name, entry)).collect(),
            Some(_) | None => Vec::new(),
        };
        all.sort();
        all.dedup_by(|a, b| a.name == b.name);
        all
    }

    /// Writes failure domains as a list; absent if there are none.
    pub fn to_list(all: &[Self]) -> Option<Value> {
        let entry = |domain: &Self| {
            let mut entry = domain.entry();
            entry.insert("name".to_owned(), json!(domain.name));
            Value::Object(entry)
        };
        (!all.is_empty()).then(|| Value::Array(all.iter().map(entry).collect()))
    }

    /// Writes failure domains as a map, for a core that knows only the contract v1beta1; absent if
    /// there are none.
    pub fn to_map(all: &[Self]) -> Option<Value> {
        let entry = |domain: &Self| (domain.name.clone(), Value::Object(domain.entry()));
        (!all.is_empty()).then(|| Value::Object(all.iter().map(entry).collect()))
    }

    fn entry(&self) -> Map<String, Value> {
        let mut entry = Map::from_iter([("controlPlane".to_owned(), json!(self.control_plane))]);
        if !self.attributes.is_empty() {
            entry.insert("attributes".to_owned(), json!(self.attributes));
        }
        entry
    }
}

/// A step that was completed once. The value never becomes false again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Initialization {
    /// Whether the infrastructure is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
}

/// An address of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct MachineAddress {
    /// `Hostname`, `InternalIP`, `ExternalIP`, `InternalDNS` or `ExternalDNS`.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"]))]
    pub type_: String,
    /// The address.
    #[schemars(length(min = 1, max = MAX_NAME_LEN))]
    pub address: String,
}

/// The schema of failure domains, which accepts both forms: no schema can say "a list or a map".
pub(super) fn failure_domains(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"maxItems": MAX_FAILURE_DOMAINS, "x-kubernetes-preserve-unknown-fields": true})
}

/// Labels and annotations of the objects that a template creates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// Priorities of a request by mail.
pub(super) const PRIORITIES: [&str; 3] = ["Urgent", "ExtremelyUrgent", "BusinessCritical"];

text_enum! {
    /// Handling of a mail whose outcome is unknown.
    pub enum OnUncertain {
        /// Look the mail up. Send it again only if the look-up proves that it was not accepted.
        Verify = "Verify",
        /// Never send it again. A user decides.
        Hold = "Hold",
        /// Send it again, with the same Message-Id. It may arrive twice.
        Resend = "Resend",
    }
}

/// Status of an object that requests something by mail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MailStatus {
    /// Whether the request is fulfilled (contract v1beta1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Whether the request is fulfilled (contract v1beta2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Message-Id of the mail, as in the spec.
    #[serde(default, rename = "messageID", skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// `Sending`, `Sent`, `Rejected`, `Throttled`, `Unavailable` or `Uncertain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_state: Option<String>,
    /// When the mail was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<String>,
    /// The last error of the mail service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The last event that the mail service reports about the mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// Conditions.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = one_of_each_type)]
    pub conditions: Vec<super::Condition>,
    /// Fields of older contracts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<super::Deprecated>,
}

/// An event of the mail service about a mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Name of the event, for example `delivered`.
    #[serde(default)]
    pub event: String,
    /// When the mail service recorded the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_domains_are_read_from_both_contracts() {
        let list = json!([{"name": "b"}, {"name": "a", "controlPlane": true, "attributes": {"k": "v"}}]);
        let map = json!({"a": {"controlPlane": true, "attributes": {"k": "v"}}, "b": {}});
        let read = FailureDomain::list(Some(&list));
        assert_eq!(read, FailureDomain::list(Some(&map)));
        assert_eq!(read.iter().map(|domain| domain.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(FailureDomain::list(FailureDomain::to_list(&read).as_ref()), read);
        assert_eq!(FailureDomain::list(FailureDomain::to_map(&read).as_ref()), read);
        assert_eq!(FailureDomain::to_list(&[]), None);
    }
}
