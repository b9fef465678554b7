//! How one built-in kind is described: its names, its subresources, and the switches that the verbs
//! read.

use crate::schema::kinds::{Plain, Rules};
use crate::values::meta::NameRule;

/// One built-in kind.
pub(crate) struct BuiltIn {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    /// Name in `types/*.txt`.
    pub(crate) type_name: &'static str,
    /// Collection of the objects in the store. Two kinds may share one.
    pub(crate) collection: &'static str,
    /// The objects are stored as the core kind of that collection, and the rules convert them.
    pub(crate) converted: bool,
    pub(crate) names: NameRule,
    pub(crate) has_status: bool,
    /// The kind has a scale subresource, so clients can set its replicas without knowing the kind.
    pub(crate) has_scale: bool,
    /// Subresources except `status` and `scale`, with the kind that each takes
    /// (group/version/kind).
    pub(crate) subresources: &'static [(&'static str, &'static str)],
    pub(crate) generation: bool,
    /// PUT without a resourceVersion is accepted.
    pub(crate) unconditional_update: bool,
    /// PUT of an absent object creates it.
    pub(crate) create_on_update: bool,
    /// DELETE returns the object instead of a Status.
    pub(crate) returns_deleted: bool,
    /// DELETE orphans the dependents, unless the request says otherwise.
    pub(crate) orphans: bool,
    /// DELETE of the whole collection is accepted.
    pub(crate) deletes_collections: bool,
    /// A POST returns the answer, and the object is never stored.
    pub(crate) only_created: bool,
    /// Field labels except `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    pub(crate) rules: &'static dyn Rules,
}

/// Default values of a row.
pub(crate) const ROW: BuiltIn = BuiltIn {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    type_name: "",
    collection: "",
    converted: false,
    names: NameRule::Subdomain,
    has_status: false,
    has_scale: false,
    subresources: &[],
    generation: false,
    unconditional_update: true,
    create_on_update: false,
    returns_deleted: false,
    orphans: false,
    deletes_collections: true,
    only_created: false,
    fields: &[],
    rules: &Plain,
};
