//! Facts of a MachineClass and of its Secrets.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Secret, SecretReference};
use machinist_api::MachineClass;
use machinist_api::constants::finalizers;
use machinist_api::validation::validate_machine_class;
use serde_json::Value;

use super::machine::has_finalizer;
use crate::facts::Version;

/// Placeholder for the bootstrap token in user data.
pub const TOKEN_PLACEHOLDER: &str = "<<BOOTSTRAP_TOKEN>>";
/// URL-encoded placeholder for the bootstrap token in user data.
pub const TOKEN_PLACEHOLDER_ENCODED: &str = "%3C%3CBOOTSTRAP_TOKEN%3E%3E";
/// The entry of a Secret that contains the user data of instances.
pub const USER_DATA: &str = "userData";

/// Planner facts of a MachineClass.
#[derive(Debug, Clone)]
pub struct ClassFacts {
    /// Version of the object.
    pub version: Version,
    /// Namespace of the MachineClass.
    pub namespace: String,
    /// Name of the MachineClass.
    pub name: String,
    /// UID of the MachineClass.
    pub uid: String,
    /// Deletion timestamp; absent unless the object is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// Whether the MachineClass has our finalizer.
    pub has_finalizer: bool,
    /// All finalizers, raw; absent if there are none.
    pub finalizers: Option<Vec<String>>,
    /// The first validation error that does not depend on the provider: the field, and the expected
    /// value.
    pub invalid: Option<String>,
    /// The provider that the class names.
    pub provider: Option<String>,
    /// The provider-specific description of an instance.
    pub provider_spec: Arc<Value>,
    /// Fingerprint of all fields that determine an instance.
    pub fingerprint: u64,
    /// The Secrets that provide data for instances and drivers: first `secretRef`, then
    /// `credentialsSecretRef`, which takes precedence. Each is `(namespace, name)`; an empty
    /// namespace means the class's namespace.
    pub secrets: Vec<(String, String)>,
    /// `nodeTemplate.instanceType`, for metrics; absent without a template.
    pub instance_type: Option<String>,
    /// `nodeTemplate.virtualCapacity`, which is added to the capacity of Nodes; absent without a
    /// template.
    pub virtual_capacity: Option<BTreeMap<String, String>>,
}

impl ClassFacts {
    /// Reads a MachineClass.
    pub fn parse(class: &MachineClass) -> Self {
        let metadata = &class.metadata;
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let mut secrets = Vec::new();
        for reference in [&class.secret_ref, &class.credentials_secret_ref].into_iter().flatten() {
            if let Some(secret) = named(reference, &namespace)
                && !secrets.contains(&secret)
            {
                secrets.push(secret);
            }
        }
        let made_from = format!("{:?} {} {secrets:?}", class.provider, class.provider_spec);
        Self {
            version: Version::of(metadata),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            fingerprint: crate::generated::hash_of_bytes(made_from.as_bytes()),
            has_finalizer: has_finalizer(metadata, finalizers::MACHINE_CONTROLLER_MANAGER),
            finalizers: metadata.finalizers.clone(),
            invalid: validate_machine_class(class).first().map(ToString::to_string),
            provider: class.provider.clone(),
            provider_spec: Arc::new(class.provider_spec.clone()),
            secrets,
            instance_type: class.node_template.as_ref().map(|template| template.instance_type.clone()),
            virtual_capacity: class.node_template.as_ref().map(|template| {
                let all = template.virtual_capacity.iter().flatten();
                all.map(|(key, value)| (key.clone(), value.0.clone())).collect()
            }),
            namespace,
        }
    }
}

impl ClassFacts {
    /// Returns the Secret that opens the account: `(namespace, name)`. Later Secrets take
    /// precedence, so it is the last.
    pub fn opened_by(&self) -> Option<&(String, String)> {
        self.secrets.last()
    }
}

fn named(reference: &SecretReference, own_namespace: &str) -> Option<(String, String)> {
    let name = reference.name.clone().filter(|name| !name.is_empty())?;
    let namespace = reference.namespace.clone().filter(|namespace| !namespace.is_empty());
    Some((namespace.unwrap_or_else(|| own_namespace.to_owned()), name))
}

/// Planner facts of a Secret: which entries exist, never their content.
#[derive(Debug, Clone)]
pub struct SecretFacts {
    /// Version of the object.
    pub version: Version,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// UID of the Secret.
    pub uid: String,
    /// Deletion timestamp; absent unless the object is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// Whether the Secret has our finalizer.
    pub has_finalizer: bool,
    /// All finalizers, raw; absent if there are none.
    pub finalizers: Option<Vec<String>>,
    /// Whether the Secret has an entry `userData`.
    pub has_user_data: bool,
    /// Whether the entry `userData` contains a placeholder for a bootstrap token.
    pub wants_token: bool,
}

impl SecretFacts {
    /// Reads a Secret without keeping its content.
    pub fn parse(secret: &Secret) -> Self {
        let metadata = &secret.metadata;
        let user_data = secret.data.as_ref().and_then(|data| data.get(USER_DATA));
        let mentions = |placeholder: &str| {
            user_data.is_some_and(|data| {
                data.0.windows(placeholder.len()).any(|window| window == placeholder.as_bytes())
            })
        };
        Self {
            version: Version::of(metadata),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            has_finalizer: has_finalizer(metadata, finalizers::SECRET),
            finalizers: metadata.finalizers.clone(),
            has_user_data: user_data.is_some(),
            wants_token: mentions(TOKEN_PLACEHOLDER) || mentions(TOKEN_PLACEHOLDER_ENCODED),
        }
    }
}
