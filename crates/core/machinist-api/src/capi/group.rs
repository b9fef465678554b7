//! The group and version of the kinds of our providers.

/// The API group of the kinds of our providers.
pub const GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// The stored version.
pub const VERSION: &str = "v1beta2";
/// Group and stored version, as in the field `apiVersion`.
pub const API_VERSION: &str = "infrastructure.cluster.x-k8s.io/v1beta2";
