//! The `providerSpec` of a class for this cloud.

use machinist_instance::{Error, ErrorKind, KeyScope, Place};
use serde_json::{Map, Value};

/// Maximum of `bootSeconds`: longer than any creation timeout, and short enough to reject most
/// typing errors.
const MAX_BOOT_SECONDS: u64 = 24 * 60 * 60;

/// A parsed `providerSpec`.
///
/// | Field | | |
/// |---|---|---|
/// | `instanceType` (or `size`) | required | for example `m5.large` |
/// | `region`, `zone` | optional | if absent, the cloud chooses |
/// | `image` | optional | stored, and shown in the ledger |
/// | `bootSeconds` | optional | boot time of the instance; if absent, the cloud's setting |
/// | `initialize` | optional | `true` if the instance is initialized after its creation |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSpec {
    /// Size of the instance, in the cloud's words.
    pub instance_type: String,
    /// Region of the instance.
    pub region: Option<String>,
    /// Zone of the instance.
    pub zone: Option<String>,
    /// Image that the instance runs.
    pub image: Option<String>,
    /// Boot time of the instance in seconds.
    pub boot_seconds: Option<u64>,
    /// Whether the instance is initialized after its creation.
    pub initialize: bool,
}

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
        if let Some(unknown) = fields.keys().find(|name| !KNOWN_FIELDS.contains(&name.as_str())) {
            let known = KNOWN_FIELDS.join(", ");
            return Err(invalid(&format!("providerSpec.{unknown}"), &format!("one of the fields {known}")));
        }
        Ok(Self {
            instance_type: instance_type(fields)?,
            region: text(fields, "region")?,
            zone: text(fields, "zone")?,
            image: text(fields, "image")?,
            boot_seconds: boot_seconds(fields)?,
            initialize: switch(fields, "initialize")?,
        })
    }
}

/// The place of instances in the default region of the cloud.
pub(crate) const DEFAULT_REGION: &str = "default";

/// Reads the place of a class's instances: its region, or the default region of the cloud.
///
/// # Errors
/// `InvalidSpec` if the region is not a text.
pub(crate) fn place(spec: &Value) -> Result<Place, Error> {
    let Value::Object(fields) = spec else { return Err(invalid("providerSpec", "an object")) };
    Ok(Place::new(text(fields, "region")?.unwrap_or_else(|| DEFAULT_REGION.to_owned())))
}

/// Reads within which zone the cloud recognises a key, if its setting `keysPerZone` says so. For a
/// class without a zone, the cloud chooses the zone.
pub(crate) fn key_scope(spec: &Value) -> KeyScope {
    let zone = spec.as_object().and_then(|fields| text(fields, "zone").ok().flatten());
    zone.map_or(KeyScope::WHOLE, KeyScope::new)
}

/// In every cloud, names of sizes, zones and images are shorter.
const MAX_TEXT_LEN: usize = 255;

const KNOWN_FIELDS: &[&str] =
    &["instanceType", "size", "region", "zone", "image", "bootSeconds", "initialize"];

fn instance_type(fields: &Map<String, Value>) -> Result<String, Error> {
    match (text(fields, "instanceType")?, text(fields, "size")?) {
        (Some(instance_type), None) | (None, Some(instance_type)) => Ok(instance_type),
        (Some(_), Some(_)) => {
            Err(invalid("providerSpec.size", "only one of size and instanceType, because they mean the same"))
        }
        (None, None) => {
            Err(invalid("providerSpec.instanceType", "an instance type, for example \"m5.large\""))
        }
    }
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, Error> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.trim().is_empty() && text.len() <= MAX_TEXT_LEN => {
            Ok(Some(text.clone()))
        }
        Some(_) => {
            let expected = format!("text that is not empty, of at most {MAX_TEXT_LEN} bytes");
            Err(invalid(&format!("providerSpec.{name}"), &expected))
        }
    }
}

fn boot_seconds(fields: &Map<String, Value>) -> Result<Option<u64>, Error> {
    match fields.get("bootSeconds") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(seconds) if seconds <= MAX_BOOT_SECONDS => Ok(Some(seconds)),
            _ => Err(invalid(
                "providerSpec.bootSeconds",
                &format!("a whole number of seconds, at most {MAX_BOOT_SECONDS}"),
            )),
        },
    }
}

fn switch(fields: &Map<String, Value>, name: &str) -> Result<bool, Error> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => Err(invalid(&format!("providerSpec.{name}"), "true or false")),
    }
}

fn invalid(field: &str, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("{field}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_with_only_a_size_is_parsed() {
        let spec = ProviderSpec::parse(&json!({"size": "m5.large"})).expect("valid");
        assert_eq!(spec.instance_type, "m5.large");
        assert_eq!((spec.zone, spec.region, spec.image, spec.boot_seconds), (None, None, None, None));
    }

    #[test]
    fn every_error_names_the_field_and_the_expected_value() {
        let cases = [
            (json!("m5.large"), "providerSpec: expected an object"),
            (json!({}), "providerSpec.instanceType: expected an instance type"),
            (json!({"size": "a", "sise": 1}), "providerSpec.sise: expected one of the fields"),
            (
                json!({"size": "a", "instanceType": "b"}),
                "providerSpec.size: expected only one of size and instanceType",
            ),
            (json!({"size": 7}), "providerSpec.size: expected text"),
            (json!({"size": " "}), "providerSpec.size: expected text"),
            (
                json!({"size": "m".repeat(256)}),
                "providerSpec.size: expected text that is not empty, of at most 255 bytes",
            ),
            (json!({"size": "a", "zone": []}), "providerSpec.zone: expected text"),
            (json!({"size": "a", "bootSeconds": -1}), "providerSpec.bootSeconds: expected a whole number"),
            (json!({"size": "a", "initialize": "yes"}), "providerSpec.initialize: expected true or false"),
            (json!({"size": "a", "bootSeconds": 1e9}), "providerSpec.bootSeconds: expected a whole number"),
        ];
        for (spec, expected) in cases {
            let error = ProviderSpec::parse(&spec).expect_err(expected);
            assert_eq!(error.kind, ErrorKind::InvalidSpec);
            assert!(error.message.starts_with(expected), "{}", error.message);
        }
    }
}
