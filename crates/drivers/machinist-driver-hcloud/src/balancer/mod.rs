//! Load balancers: compare a balancer with the wanted state, and perform the differences.
//!
//! `settings` parses the options, `wanted` and `service` build the wanted state, `plan` and
//! `targets` list the differences as `step`s, `create` builds the one request that creates a
//! balancer, and `show` converts the cloud's answer. All of these are pure. `driver` awaits: it
//! performs the steps one by one and returns as soon as an action takes longer than a moment. A
//! later call plans again from the state of the cloud, so no step is remembered.
//!
//! Deliberately absent: Services, Nodes and their selection, which are the controller's. Managed
//! certificates are created and never deleted, as users may share them.

mod attachment;
mod converge;
mod create;
mod driver;
mod existing;
mod plan;
mod reach;
mod service;
mod settings;
mod show;
mod step;
mod targets;
mod wanted;

pub(crate) use reach::Reach;
pub(crate) use targets::{RefusedTurn, Turned};

/// The label that stores the key of a balancer. hcloud-cloud-controller-manager writes the same.
const SERVICE_UID: &str = "hcloud-ccm/service-uid";
