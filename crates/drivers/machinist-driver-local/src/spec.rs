//! The `providerSpec` of a class, as Gardener's provider local defines it.
//!
//! Decoded as Go's `encoding/json` decodes it: names match in any letter case, and the exact
//! spelling wins. `null` is an absent field, unknown fields have no effect, and a value of another
//! type is an error. Finding, listing and deleting instances reads only the namespace, so no other
//! mistake in a class blocks a deletion.

use machinist_driver::unknown_fields;
use machinist_instance::Error;
use serde_json::{Map, Value};

use crate::name;

const ROOT: &str = "providerSpec";
const API_VERSION: &str = "apiVersion";
const IMAGE: &str = "image";
const IP_POOL_V4: &str = "ipPoolNameV4";
const IP_POOL_V6: &str = "ipPoolNameV6";
const NAMESPACE: &str = "namespace";

/// Every field.
const KNOWN: [&str; 5] = [API_VERSION, IMAGE, IP_POOL_V4, IP_POOL_V6, NAMESPACE];

/// A parsed `providerSpec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderSpec {
    /// The image of the container.
    pub(crate) image: String,
    /// The pool of Calico from which the pod gets its IPv4 address.
    pub(crate) ip_pool_v4: Option<String>,
    /// The pool of Calico from which the pod gets its IPv6 address.
    pub(crate) ip_pool_v6: Option<String>,
    /// The namespace of the pod, if it is not the namespace of the Machine.
    pub(crate) namespace: Option<String>,
}

impl ProviderSpec {
    /// Parses and validates a `providerSpec`.
    ///
    /// # Errors
    /// `InvalidSpec`, with the field, the expected and the found value.
    pub(crate) fn parse(spec: &Value) -> Result<Self, Error> {
        let fields = Fields::of(spec)?;
        fields.text(API_VERSION)?;
        Ok(Self {
            image: image(&fields)?,
            ip_pool_v4: fields.text(IP_POOL_V4)?,
            ip_pool_v6: fields.text(IP_POOL_V6)?,
            namespace: namespace_of(&fields)?,
        })
    }
}

/// The namespace that a class names. No other field is read.
///
/// # Errors
/// `InvalidSpec` if the text cannot be the name of a namespace.
pub(crate) fn namespace(spec: &Value) -> Result<Option<String>, Error> {
    namespace_of(&Fields::of(spec)?)
}

/// The unknown fields, with their paths.
pub(crate) fn fields_without_effect(spec: &Value) -> Vec<String> {
    unknown_fields(spec, &KNOWN)
}

/// The error for a class of another namespace than the account.
pub(crate) fn of_another_namespace(expected: &str, got: &str) -> Error {
    wrong(NAMESPACE, &format!("{expected:?}, the namespace of this account"), &Value::from(got))
}

/// The error for a namespace that the API server does not have.
pub(crate) fn no_namespace(namespace: &str) -> Error {
    wrong(NAMESPACE, "a namespace that exists", &Value::from(namespace))
}

fn image(fields: &Fields<'_>) -> Result<String, Error> {
    let expected = "the image of a machine, for example \"registry.example/machine:v1\"";
    let image = fields.text(IMAGE)?.filter(|image| !image.contains(char::is_whitespace));
    image.ok_or_else(|| fields.wrong(IMAGE, expected))
}

fn namespace_of(fields: &Fields<'_>) -> Result<Option<String>, Error> {
    match fields.text(NAMESPACE)? {
        Some(namespace) if !name::is_label(&namespace) => {
            Err(fields.wrong(NAMESPACE, "the name of a namespace: lower-case letters, digits and hyphens"))
        }
        namespace => Ok(namespace),
    }
}

/// The fields of the object; none for `null`.
struct Fields<'a>(Option<&'a Map<String, Value>>);

impl<'a> Fields<'a> {
    fn of(spec: &'a Value) -> Result<Self, Error> {
        match spec {
            Value::Object(fields) => Ok(Self(Some(fields))),
            Value::Null => Ok(Self(None)),
            other => Err(Error::wrong_field(ROOT, "an object", other)),
        }
    }

    fn value(&self, name: &str) -> Option<&'a Value> {
        let fields = self.0?;
        let in_any_case = || fields.iter().find(|(spelled, _)| spelled.eq_ignore_ascii_case(name));
        let value = fields.get(name).or_else(|| in_any_case().map(|(_, value)| value));
        value.filter(|value| !value.is_null())
    }

    /// A text that counts as absent if it is empty.
    fn text(&self, name: &str) -> Result<Option<String>, Error> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.wrong(name, "text")),
        }
    }

    fn wrong(&self, name: &str, expected: &str) -> Error {
        wrong(name, expected, self.value(name).unwrap_or(&Value::Null))
    }
}

fn path_of(name: &str) -> String {
    format!("{ROOT}.{name}")
}

fn wrong(name: &str, expected: &str, found: &Value) -> Error {
    Error::wrong_field(&path_of(name), expected, found)
}

#[cfg(test)]
mod tests {
    use machinist_instance::ErrorKind;
    use serde_json::json;

    use super::*;

    fn message(spec: &Value) -> String {
        let error = ProviderSpec::parse(spec).expect_err("wrong");
        assert_eq!(error.kind, ErrorKind::InvalidSpec);
        error.message
    }

    /// As Gardener's extension writes it, without `apiVersion`.
    #[test]
    fn the_class_of_gardener_is_parsed() {
        let spec = json!({
            "image": "local-skaffold/machine:v1", "namespace": "shoot--local--local",
            "ipPoolNameV4": "shoot-machine-pods-shoot--local--local-ipv4",
        });
        let parsed = ProviderSpec::parse(&spec).expect("valid");
        assert_eq!(parsed.image, "local-skaffold/machine:v1");
        assert_eq!(parsed.namespace.as_deref(), Some("shoot--local--local"));
        assert_eq!(parsed.ip_pool_v4.as_deref(), Some("shoot-machine-pods-shoot--local--local-ipv4"));
        assert_eq!(parsed.ip_pool_v6, None);
        assert_eq!(fields_without_effect(&spec), Vec::<String>::new());
    }

    #[test]
    fn names_match_in_any_case_and_null_is_absent() {
        let spec = json!({"IMAGE": "a", "image": "b", "ippoolnamev6": "p", "namespace": null, "tags": {}, "x": null});
        let parsed = ProviderSpec::parse(&spec).expect("valid");
        assert_eq!((parsed.image.as_str(), parsed.ip_pool_v6.as_deref()), ("b", Some("p")));
        assert_eq!(parsed.namespace, None);
        assert_eq!(fields_without_effect(&spec), ["providerSpec.tags"]);
    }

    #[test]
    fn an_error_names_field_expectation_and_value() {
        assert!(message(&Value::Null).starts_with("providerSpec.image: expected the image of a machine"));
        assert!(message(&json!({"image": ""})).ends_with("got \"\""));
        assert!(message(&json!({"image": "a b"})).ends_with("got \"a b\""));
        assert_eq!(message(&json!({"image": 1})), "providerSpec.image: expected text, got 1");
        assert_eq!(
            message(&json!({"image": "a", "apiVersion": 1})),
            "providerSpec.apiVersion: expected text, got 1"
        );
        assert_eq!(message(&json!([])), "providerSpec: expected an object, got a list");
        let wrong = message(&json!({"image": "a", "namespace": "A_b"}));
        assert!(wrong.starts_with("providerSpec.namespace: expected the name of a namespace"), "{wrong}");
    }

    #[test]
    fn the_namespace_needs_no_other_field() {
        assert_eq!(namespace(&json!({"namespace": "n", "image": 1})), Ok(Some("n".to_owned())));
        assert_eq!(namespace(&Value::Null), Ok(None));
    }
}
