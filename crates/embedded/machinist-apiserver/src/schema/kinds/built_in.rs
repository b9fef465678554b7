//! How one built-in kind is described: its names, its subresources, and the switches that the verbs read.

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
    /// Where the objects lie; two kinds may share a store.
    pub(crate) table: &'static str,
    /// Stored as the core kind of that table, converted by the rules.
    pub(crate) converted: bool,
    pub(crate) names: NameRule,
    pub(crate) has_status: bool,
    /// Its replicas can be set without knowing the kind.
    pub(crate) has_scale: bool,
    /// Subresources besides `status` and `scale`, with the kind each takes (group/version/kind).
    pub(crate) subresources: &'static [(&'static str, &'static str)],
    pub(crate) generation: bool,
    /// PUT without a resourceVersion is taken.
    pub(crate) unconditional_update: bool,
    /// PUT of an absent object creates it.
    pub(crate) create_on_update: bool,
    /// DELETE answers the object instead of a Status.
    pub(crate) returns_deleted: bool,
    /// DELETE leaves what the object owns, unless it says otherwise.
    pub(crate) orphans: bool,
    /// DELETE of the whole collection is taken.
    pub(crate) deletes_collections: bool,
    /// Asked and answered with one POST, and never kept.
    pub(crate) only_created: bool,
    /// Field labels besides `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    pub(crate) rules: &'static dyn Rules,
}

/// What a row says when it says nothing.
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
    table: "",
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
