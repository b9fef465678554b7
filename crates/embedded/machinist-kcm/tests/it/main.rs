//! Tests of the controllers with the embedded API server, under paused time.

mod certificates;
mod disruption;
mod garbage_collector;
mod lifetime;
mod namespaces;
mod node_lifecycle;
#[path = "../objects/mod.rs"]
mod objects;
mod volume_protection;
mod world;
