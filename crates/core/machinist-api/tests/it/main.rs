//! The crate seen from outside: what it reads, writes and renders is what other programs read, write and render.

mod checked_in_crds;
mod fixtures;
mod kube_traits;
mod types_and_schemas;
mod wire;
