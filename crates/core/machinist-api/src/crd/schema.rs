//! Helper functions that build a structural schema.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// Pattern of a resource quantity: a signed decimal with a binary, decimal or exponent suffix.
const QUANTITY_PATTERN: &str = concat!(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
);

fn typed(type_: &str) -> JSONSchemaProps {
    JSONSchemaProps { type_: Some(type_.to_owned()), ..Default::default() }
}

fn formatted(type_: &str, format: &str) -> JSONSchemaProps {
    JSONSchemaProps { format: Some(format.to_owned()), ..typed(type_) }
}

pub(super) fn string() -> JSONSchemaProps {
    typed("string")
}

pub(super) fn boolean() -> JSONSchemaProps {
    typed("boolean")
}

pub(super) fn int32() -> JSONSchemaProps {
    formatted("integer", "int32")
}

pub(super) fn int64() -> JSONSchemaProps {
    formatted("integer", "int64")
}

pub(super) fn time() -> JSONSchemaProps {
    formatted("string", "date-time")
}

/// A count or a percentage.
pub(super) fn int_or_string() -> JSONSchemaProps {
    JSONSchemaProps {
        any_of: Some(vec![typed("integer"), typed("string")]),
        x_kubernetes_int_or_string: Some(true),
        ..Default::default()
    }
}

/// A map from resource names to quantities.
pub(super) fn resource_list() -> JSONSchemaProps {
    map_of(JSONSchemaProps { pattern: Some(QUANTITY_PATTERN.to_owned()), ..int_or_string() })
}

pub(super) fn map_of(values: JSONSchemaProps) -> JSONSchemaProps {
    let values = JSONSchemaPropsOrBool::Schema(Box::new(values));
    JSONSchemaProps { additional_properties: Some(values), ..typed("object") }
}

pub(super) fn array_of(items: JSONSchemaProps) -> JSONSchemaProps {
    JSONSchemaProps { items: Some(JSONSchemaPropsOrArray::Schema(Box::new(items))), ..typed("array") }
}

pub(super) fn object<const N: usize>(properties: [(&str, JSONSchemaProps); N]) -> JSONSchemaProps {
    let properties: BTreeMap<_, _> =
        properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    JSONSchemaProps { properties: Some(properties), ..typed("object") }
}

/// An object without any further rules; unknown fields are not kept.
pub(super) fn any_object() -> JSONSchemaProps {
    typed("object")
}

/// Adds properties to a schema besides its type.
pub(super) trait Refine: Sized {
    fn describe(self, description: &str) -> Self;
    fn required(self, names: &[&str]) -> Self;
    fn keep_unknown(self) -> Self;
    fn list_type(self, list_type: &str) -> Self;
    fn atomic_map(self) -> Self;
}

impl Refine for JSONSchemaProps {
    fn describe(mut self, description: &str) -> Self {
        self.description = Some(description.to_owned());
        self
    }

    fn required(mut self, names: &[&str]) -> Self {
        self.required = Some(names.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    fn keep_unknown(mut self) -> Self {
        self.x_kubernetes_preserve_unknown_fields = Some(true);
        self
    }

    fn list_type(mut self, list_type: &str) -> Self {
        self.x_kubernetes_list_type = Some(list_type.to_owned());
        self
    }

    fn atomic_map(mut self) -> Self {
        self.x_kubernetes_map_type = Some("atomic".to_owned());
        self
    }
}

/// Returns the schema of the `metadata` fields that a manifest may contain. The API server knows
/// these fields, and a CRD must not repeat them.
pub(crate) fn manifest_metadata() -> JSONSchemaProps {
    let owner = object([
        ("apiVersion", string()),
        ("kind", string()),
        ("name", string()),
        ("uid", string()),
        ("controller", boolean()),
        ("blockOwnerDeletion", boolean()),
    ])
    .required(&["apiVersion", "kind", "name", "uid"]);
    object([
        ("name", string()),
        ("generateName", string()),
        ("namespace", string()),
        ("labels", map_of(string())),
        ("annotations", map_of(string())),
        ("finalizers", array_of(string())),
        ("ownerReferences", array_of(owner)),
        // A manifest may be the output of `kubectl get -o yaml`, so fields that the server writes
        // are ignored, not rejected.
        ("creationTimestamp", time()),
        ("deletionTimestamp", time()),
        ("deletionGracePeriodSeconds", int64()),
        ("generation", int64()),
        ("managedFields", array_of(any_object().keep_unknown())),
        ("resourceVersion", string()),
        ("selfLink", string()),
        ("uid", string()),
    ])
}
