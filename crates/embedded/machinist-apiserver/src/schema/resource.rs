//! The served resources with their versions, and the registry in which routes find them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::schema::crd::schema::Schema;
use crate::schema::kinds::built_in::BuiltIn;
use crate::schema::kinds::notation;
use crate::schema::kinds::{Plain, Rules};
use crate::schema::table::custom::PrinterColumn;
use crate::store::selector::{FieldLabels, RefusedAs};
use crate::values::meta::NameRule;
use crate::values::status::{ApiError, Target};

/// One resource with all its versions.
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Table of the store that contains the objects.
    pub(crate) collection: Arc<str>,
    /// Version in which objects are stored.
    pub(crate) storage_version: String,
    /// The served versions, preferred one first.
    pub(crate) versions: Vec<Version>,
    pub(crate) behaviour: Behaviour,
}

/// One served version of a resource.
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) schema: Arc<Schema>,
    pub(crate) has_status: bool,
    pub(crate) scale: Option<ScalePaths>,
    /// Supported field selectors and their paths, in addition to name and namespace.
    pub(crate) fields: Vec<(String, String)>,
    /// Printer columns of a custom resource. Built-in kinds have their own printers.
    pub(crate) columns: Vec<PrinterColumn>,
    /// Schema of a custom resource, as in its definition.
    pub(crate) declared: Option<Arc<Value>>,
}

/// Paths of the fields that the scale subresource shows.
#[derive(Debug, Clone)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: Vec<String>,
    pub(crate) status_replicas: Vec<String>,
    pub(crate) selector: ScaleSelector,
}

/// Place of the selector for the counted pods.
#[derive(Debug, Clone)]
pub(crate) enum ScaleSelector {
    None,
    /// A selector as text.
    Text(Vec<String>),
    /// The label selector of a built-in kind.
    Labels,
}

impl ScalePaths {
    /// Paths that all built-in kinds use.
    fn built_in() -> Self {
        let path = |above: &str| vec![above.to_owned(), "replicas".to_owned()];
        Self { spec_replicas: path("spec"), status_replicas: path("status"), selector: ScaleSelector::Labels }
    }
}

/// Source of a resource's rules.
#[derive(Clone, Copy)]
pub(crate) enum Behaviour {
    BuiltIn(&'static BuiltIn),
    Custom,
}

/// A resource in one of its versions, as a path names it.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) resource: Arc<Resource>,
    version: usize,
}

impl Served {
    pub(crate) fn version(&self) -> &Version {
        &self.resource.versions[self.version]
    }

    /// `group/version`, or the version alone for the core group.
    pub(crate) fn api_version(&self) -> String {
        join_group_version(&self.resource.group, &self.version().name)
    }

    pub(crate) fn storage_api_version(&self) -> String {
        join_group_version(&self.resource.group, &self.resource.storage_version)
    }

    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.resource.behaviour, Behaviour::Custom)
    }

    pub(crate) fn built_in(&self) -> Option<&'static BuiltIn> {
        match self.resource.behaviour {
            Behaviour::BuiltIn(row) => Some(row),
            Behaviour::Custom => None,
        }
    }

    /// Reports whether objects are stored as another built-in type and converted on input and
    /// output.
    pub(crate) fn is_converted(&self) -> bool {
        self.built_in().is_some_and(|row| row.converted)
    }

    pub(crate) fn rules(&self) -> &'static dyn Rules {
        self.built_in().map_or(&Plain as &'static dyn Rules, |row| row.rules)
    }

    pub(crate) fn name_rule(&self) -> NameRule {
        self.built_in().map_or(NameRule::Subdomain, |row| row.names)
    }

    pub(crate) fn has_status(&self) -> bool {
        self.version().has_status
    }

    /// Reports whether the server maintains `metadata.generation`.
    pub(crate) fn counts_generations(&self) -> bool {
        self.built_in().is_none_or(|row| row.generation)
    }

    pub(crate) fn allows_unconditional_update(&self) -> bool {
        self.built_in().is_some_and(|row| row.unconditional_update)
    }

    pub(crate) fn allows_create_on_update(&self) -> bool {
        self.built_in().is_some_and(|row| row.create_on_update)
    }

    /// Reports whether objects can only be created, and are answered without being stored.
    pub(crate) fn is_only_created(&self) -> bool {
        self.built_in().is_some_and(|row| row.only_created)
    }

    /// Reports whether one request can delete all objects.
    pub(crate) fn deletes_collections(&self) -> bool {
        self.built_in().is_none_or(|row| row.deletes_collections)
    }

    pub(crate) fn returns_deleted(&self) -> bool {
        self.built_in().is_some_and(|row| row.returns_deleted)
    }

    pub(crate) fn target<'a>(&'a self, name: &'a str) -> Target<'a> {
        Target { group: &self.resource.group, resource: &self.resource.plural, name }
    }

    pub(crate) fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.target(name))
    }

    pub(crate) fn field_labels(&self) -> FieldLabels<'_> {
        let plain = self.built_in().is_some_and(|row| row.fields.is_empty());
        let mut labels = vec![("metadata.name", "metadata.name")];
        if self.resource.namespaced || plain {
            labels.push(("metadata.namespace", "metadata.namespace"));
        }
        labels.extend(self.version().fields.iter().map(|(label, path)| (label.as_str(), path.as_str())));
        FieldLabels { labels, refused_as: if plain { RefusedAs::NotKnown } else { RefusedAs::NotSupported } }
    }

    /// Lists the subresources of this version, with the kind of their bodies.
    pub(crate) fn subresources(&self) -> Vec<Subresource> {
        let own = |name: &str| Subresource {
            name: name.to_owned(),
            group: self.resource.group.clone(),
            version: self.version().name.clone(),
            kind: self.resource.kind.clone(),
        };
        let mut list = Vec::new();
        if self.has_status() {
            list.push(own("status"));
        }
        if self.version().scale.is_some() {
            list.push(Subresource {
                name: "scale".into(),
                group: "autoscaling".into(),
                version: "v1".into(),
                kind: "Scale".into(),
            });
        }
        for (name, gvk) in self.built_in().map_or(&[][..], |row| row.subresources) {
            let mut parts = gvk.rsplitn(3, '/');
            let (kind, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            list.push(Subresource {
                name: (*name).to_owned(),
                group: parts.next().unwrap_or_default().to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
            });
        }
        list
    }
}

/// One subresource, for discovery.
pub(crate) struct Subresource {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

pub(crate) fn join_group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Splits an `apiVersion` into group (empty for the core group) and version.
pub(crate) fn split_api_version(text: &str) -> (&str, &str) {
    text.rsplit_once('/').unwrap_or(("", text))
}

/// All served resources by group, version and plural. A changed CRD replaces the whole registry.
#[derive(Clone)]
pub(crate) struct Registry {
    groups: BTreeMap<String, Group>,
}

#[derive(Clone, Default)]
struct Group {
    /// Version name → plural → resource.
    versions: BTreeMap<String, BTreeMap<String, Served>>,
}

impl Registry {
    /// Creates a registry with only the kinds of these rows, and nothing else.
    pub(crate) fn of(rows: &'static [BuiltIn]) -> Self {
        let mut registry = Registry { groups: BTreeMap::new() };
        for row in rows {
            registry.add(Arc::new(Resource {
                group: row.group.into(),
                kind: row.kind.into(),
                list_kind: format!("{}List", row.kind),
                plural: row.plural.into(),
                singular: row.singular.into(),
                short_names: row.short_names.iter().map(ToString::to_string).collect(),
                categories: row.categories.iter().map(ToString::to_string).collect(),
                namespaced: row.namespaced,
                collection: row.collection.into(),
                storage_version: row.version.into(),
                versions: vec![Version {
                    name: row.version.into(),
                    schema: notation::schema(row.type_name),
                    has_status: row.has_status,
                    scale: row.has_scale.then(ScalePaths::built_in),
                    fields: row.fields.iter().map(|(l, p)| ((*l).into(), (*p).into())).collect(),
                    columns: Vec::new(),
                    declared: None,
                }],
                behaviour: Behaviour::BuiltIn(row),
            }));
        }
        registry
    }

    /// Reports whether a built-in kind has this name. As in kube-apiserver, a definition with the
    /// same name becomes established and is never served.
    pub(crate) fn is_built_in(&self, group: &str, plural: &str) -> bool {
        self.find_any(group, plural).is_some_and(|served| !served.is_custom())
    }

    pub(crate) fn add(&mut self, resource: Arc<Resource>) {
        let group = self.groups.entry(resource.group.clone()).or_default();
        for (index, version) in resource.versions.iter().enumerate() {
            let served = Served { resource: resource.clone(), version: index };
            group.versions.entry(version.name.clone()).or_default().insert(resource.plural.clone(), served);
        }
    }

    pub(crate) fn remove(&mut self, group_name: &str, plural: &str) {
        if let Some(group) = self.groups.get_mut(group_name) {
            group.versions.values_mut().for_each(|resources| {
                resources.remove(plural);
            });
            group.versions.retain(|_, resources| !resources.is_empty());
            if group.versions.is_empty() {
                self.groups.remove(group_name);
            }
        }
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Served> {
        self.groups.get(group)?.versions.get(version)?.get(plural)
    }

    /// Finds a resource in its preferred version.
    pub(crate) fn find_any(&self, group: &str, plural: &str) -> Option<&Served> {
        self.versions(group).into_iter().find_map(|v| self.find(group, v, plural))
    }

    /// Lists all groups except the core group.
    pub(crate) fn named_groups(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(String::as_str).filter(|g| !g.is_empty())
    }

    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// Lists the versions of a group, preferred one first: GA before beta before alpha, higher
    /// numbers first.
    pub(crate) fn versions(&self, group: &str) -> Vec<&str> {
        let mut versions: Vec<&str> = self
            .groups
            .get(group)
            .map(|g| g.versions.keys().map(String::as_str).collect())
            .unwrap_or_default();
        versions.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
        versions
    }

    pub(crate) fn resources(&self, group: &str, version: &str) -> Option<impl Iterator<Item = &Served>> {
        Some(self.groups.get(group)?.versions.get(version)?.values())
    }
}

/// Sort key of Kubernetes version names.
fn version_rank(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let Ok(major) = rest[..digits].parse::<u32>() else { return (0, 0, 0) };
    match &rest[digits..] {
        "" => (3, major, 0),
        tail => match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
            (Some(minor), _) => (2, major, minor.parse().unwrap_or_default()),
            (None, Some(minor)) => (1, major, minor.parse().unwrap_or_default()),
            (None, None) => (0, 0, 0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first() {
        let mut versions = ["v1alpha1", "v2", "v1beta1", "v1", "v1beta2", "foo"];
        versions.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
        assert_eq!(versions, ["v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo"]);
    }
}
