//! The group and version of the four kinds.

/// The API group of the four kinds.
pub const GROUP: &str = "machine.sapcloud.io";
/// The only version, served and stored.
pub const VERSION: &str = "v1alpha1";
/// Group and version, as in the field `apiVersion`.
pub const API_VERSION: &str = "machine.sapcloud.io/v1alpha1";
