//! Converts one object to the versions that its managers used.
//!
//! A manager that used another version than the current request named its fields as in that
//! version. So the object is compared, and pruned, in each manager's version. If a version is no
//! longer served, its managers own nothing.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use crate::schema::conversion::in_version;
use crate::schema::crd::schema::{Schema, Zero};
use crate::schema::fields::merge::{joined, problems};
use crate::schema::fields::place::Place;
use crate::schema::fields::set::FieldSet;
use crate::schema::kinds::rows::BUILT_INS;
use crate::schema::kinds::{Part, notation};
use crate::schema::resource::{Registry, Served, split_api_version};

/// The versions of a resource, as seen from the version of a request.
#[derive(Clone)]
pub(crate) struct Versions<'a> {
    registry: Arc<Registry>,
    served: &'a Served,
}

impl<'a> Versions<'a> {
    pub(crate) fn new(registry: Arc<Registry>, served: &'a Served) -> Self {
        Versions { registry, served }
    }

    /// Returns the request's version.
    pub(crate) fn own(&self) -> &'a Served {
        self.served
    }

    /// Returns the resource in the version `api_version`.
    pub(crate) fn named(&self, api_version: &str) -> Option<Served> {
        if api_version == self.served.api_version() {
            return Some(self.served.clone());
        }
        let (group, version) = split_api_version(api_version);
        // Another group may serve the same objects, but it does not know the field names of this
        // group.
        if group != self.served.resource.group {
            return None;
        }
        let found = self.registry.find(group, version, &self.served.resource.plural)?;
        // Another resource with that name is not a version of this one.
        (found.resource.collection == self.served.resource.collection).then(|| found.clone())
    }

    /// Converts an object from the request's version to `api_version`. Also returns that version.
    ///
    /// # Errors
    /// Fails if the version does not exist, or does not define a field of the object.
    pub(crate) fn converted<'v>(
        &self,
        value: &'v Value,
        api_version: &str,
    ) -> Result<(Cow<'v, Value>, Served), String> {
        let Some(to) = self.named(api_version) else {
            return Err(format!("request to convert CR to an invalid group/version: {api_version}"));
        };
        let converted = convert(value, self.served, &to);
        if to.is_custom() && matches!(converted, Cow::Owned(_)) {
            let found = problems(&converted, place(&to));
            if !found.is_empty() {
                return Err(joined(&found));
            }
        }
        Ok((converted, to))
    }

    /// Converts an object from another version to the request's version.
    pub(crate) fn convert_back(&self, value: Value, from: &Served) -> Value {
        match convert(&value, from, self.served) {
            Cow::Borrowed(_) => value,
            Cow::Owned(converted) => converted,
        }
    }
}

/// Converts an object from one version to another.
pub(crate) fn convert<'v>(value: &'v Value, from: &Served, to: &Served) -> Cow<'v, Value> {
    if from.api_version() == to.api_version() {
        return Cow::Borrowed(value);
    }
    let mut stored = value.clone();
    if from.is_custom() {
        // The versions of a definition share their fields. A field that one version does not define
        // stays, and `converted` detects it.
        stored["apiVersion"] = json!(to.api_version());
        return Cow::Owned(stored);
    }
    from.rules().make_stored(&mut stored);
    Cow::Owned(in_version(&stored, to))
}

/// Returns the place of a whole object of a resource.
pub(crate) fn place(served: &Served) -> Place<'_> {
    let schema = &served.version().schema;
    if served.is_custom() { Place::of_custom(schema) } else { Place::of_built_in(schema) }
}

/// Returns the fields that have no owner: those that the server sets, and those that identify the
/// object.
pub(crate) fn never_owned() -> &'static FieldSet {
    static SET: LazyLock<FieldSet> = LazyLock::new(|| {
        let of_metadata = [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ];
        let mut set = FieldSet::of_fields(&[&["apiVersion"], &["kind"], &["metadata"]]);
        for name in of_metadata {
            set.unite(&FieldSet::of_fields(&[&["metadata", name]]));
        }
        set
    });
    &SET
}

/// Returns the fields that a write to `part` resets. The writer does not become their owner.
pub(crate) fn put_back(served: &Served, part: Part) -> &'static FieldSet {
    type LazyFieldSet = LazyLock<FieldSet>;
    static NOTHING: LazyFieldSet = LazyLock::new(FieldSet::default);
    static SPEC: LazyFieldSet = LazyLock::new(|| FieldSet::of_fields(&[&["spec"]]));
    static STATUS: LazyFieldSet = LazyLock::new(|| FieldSet::of_fields(&[&["status"]]));
    static ALL_BUT_STATUS: LazyFieldSet = LazyLock::new(|| FieldSet::of_fields(&[&["metadata"], &["spec"]]));
    static REQUEST: LazyFieldSet = LazyLock::new(|| FieldSet::of_fields(&[&["spec"], &["status"]]));
    static VERDICT: LazyFieldSet =
        LazyLock::new(|| FieldSet::of_fields(&[&["spec"], &["status", "conditions"]]));
    static CERTIFICATE: LazyFieldSet =
        LazyLock::new(|| FieldSet::of_fields(&[&["spec"], &["status", "certificate"]]));
    static POD_SPEC: LazyFieldSet = LazyLock::new(|| {
        FieldSet::of_fields(&[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ])
    });
    static SPEC_AND_LABELS: LazyFieldSet =
        LazyLock::new(|| FieldSet::of_fields(&[&["spec"], &["metadata", "labels"]]));
    let kind = served.built_in().map_or("", |row| row.type_name);
    match (kind, part) {
        ("", Part::Status) => &ALL_BUT_STATUS,
        ("CertificateSigningRequest", Part::Main) => &REQUEST,
        ("CertificateSigningRequest", Part::Status) => &VERDICT,
        ("CertificateSigningRequest", Part::Approval) => &CERTIFICATE,
        ("Pod", Part::Status) => &POD_SPEC,
        ("Deployment", Part::Status) => &SPEC_AND_LABELS,
        (_, Part::Status) => &SPEC,
        (_, Part::Main | Part::Approval | Part::Finalize) if served.has_status() => &STATUS,
        (_, Part::Main | Part::Approval | Part::Finalize) => &NOTHING,
    }
}

/// Returns the object before its creation. For a custom resource it is empty. For a built-in kind
/// it has the fields that exist even without content. A writer that leaves these fields unchanged
/// does not become their owner.
pub(crate) fn unmade(served: &Served) -> Value {
    if served.is_custom() {
        return json!({"apiVersion": served.api_version(), "kind": served.resource.kind});
    }
    let kind = served.built_in();
    // A kind that is stored as another kind has the fields of that other kind.
    let stored =
        BUILT_INS.iter().find(|row| kind.is_some_and(|k| k.collection == row.collection) && !row.converted);
    let schema =
        stored.map_or_else(|| served.version().schema.clone(), |row| notation::schema(row.type_name));
    let mut value = without_content(&schema);
    value["metadata"] = json!({});
    if served.is_converted() {
        served.rules().show_stored(&mut value);
    }
    value
}

fn without_content(schema: &Schema) -> Value {
    let mut value = json!({});
    for (name, below) in &schema.properties {
        let is_struct = !below.name.is_empty();
        let field = match &below.default {
            Some(default) if below.pointer || !is_zero(default) => None,
            Some(_) if is_struct => Some(without_content(below)),
            Some(default) => Some(default.clone()),
            None => (below.zero == Zero::Null).then_some(Value::Null),
        };
        if let Some(field) = field {
            value[name.as_str()] = field;
        }
    }
    value
}

/// Whether a default is the zero value.
fn is_zero(default: &Value) -> bool {
    match default {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_zero),
    }
}
