//! The controllers beside the embedded API server, under paused time; and once, on request, beside a real one.

mod certificates;
mod disruption;
mod garbage_collector;
mod lifetime;
mod node_lifecycle;
mod real;
mod world;
