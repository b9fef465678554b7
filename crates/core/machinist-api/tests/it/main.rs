//! Tests of the crate's public API: the JSON and YAML that other programs exchange with it.

mod crd_fields;
mod crds;
mod fixtures;
mod go_crds;
mod kube_traits;
mod types_and_schemas;
mod wire;
