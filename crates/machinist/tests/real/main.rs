//! The cloud controller manager as a process on a real cluster, with exactly the roles of
//! `deploy/ccm`, and with the stand-in for Hetzner Cloud. `cargo xtask real --lane ccm` provides
//! the cluster.
//!
//! ```text
//! world         the cluster, the cloud, and the kubelets' part of a Node
//! program       the process under test
//! nodes, doubts, balancer, routes, webhook, leadership    the scenarios
//! permissions   compares the requests of the whole run with the rules of the roles
//! ```
//!
//! All scenarios share one cluster, and run in order. The first failure ends the run, because the
//! following scenarios would start from an unknown state. No scenario waits for a fixed time: what
//! must not happen is checked after the process has asked the cloud again.
//!
//! A separate program instead of a test harness, so that each result is printed as soon as it is
//! known.

#![expect(clippy::print_stdout, reason = "this program prints a report")]

mod balancer;
#[path = "../clusters/mod.rs"]
mod clusters;
mod doubts;
mod leadership;
mod nodes;
mod permissions;
mod program;
mod routes;
mod webhook;
mod world;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use world::World;

macro_rules! scenarios {
    ($($function:path),* $(,)?) => {
        /// Runs the scenarios in order, up to the first failure.
        async fn play(world: &mut World) -> Result<()> {
            $(
                let started = Instant::now();
                let name = stringify!($function).replace(' ', "");
                match $function(world).await {
                    Ok(()) => println!("PASSED  {name} ({:.0?})", started.elapsed()),
                    Err(error) => return Err(error.context(name)),
                }
            )*
            Ok(())
        }
    };
}

scenarios! {
    doubts::a_silent_cloud_at_the_start_is_waited_for,
    nodes::fresh_nodes_are_initialised,
    nodes::a_renamed_server_keeps_its_node,
    nodes::a_resized_server_changes_one_label,
    nodes::a_stopped_server_has_the_shutdown_taint,
    nodes::nodes_of_others_are_left_alone,
    nodes::a_node_goes_after_its_server,
    balancer::a_load_balancer_follows_its_service,
    balancer::a_frozen_action_blocks_nothing_else,
    routes::pods_have_routes_while_their_nodes_exist,
    doubts::errors_of_the_cloud_delete_no_node,
    doubts::a_rate_limit_is_kept,
    doubts::a_revoked_token_deletes_no_node,
    doubts::a_token_of_another_project_deletes_no_node,
    webhook::unanswered_writes_are_read_and_repeated,
    leadership::a_killed_leader_is_replaced,
    leadership::a_stopped_leader_releases_its_lease,
    permissions::metrics_need_a_permission,
    permissions::each_rule_is_used_and_none_is_missing,
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut world = match World::new().await {
        Ok(world) => world,
        Err(error) => {
            println!("FAILED  {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let Err(error) = play(&mut world).await else { return ExitCode::SUCCESS };
    println!("FAILED  {error:#}\n{}", world.report());
    ExitCode::FAILURE
}
