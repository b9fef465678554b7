//! Which kind of the machine API decides about which key.

use super::contract::Mcm;
use super::key::Key;
use super::lost_owner::LostOwners;
use super::machine::Machines;
use super::machine_class::{Classes, Secrets};
use super::machine_deployment::Deployments;
use super::machine_set::Sets;
use super::orphan::Orphans;
use super::orphaned_node::OrphanedNodes;
use super::orphaned_token::OrphanedTokens;
use super::replacement::Replacements;

machinist_runtime::kinds! {
    Key of Mcm {
        Machine(id) => Machines,
        Class(id) => Classes,
        Secret(id) => Secrets,
        Replacement(uid) => Replacements,
        Owner(id) => LostOwners,
        Node(name) => OrphanedNodes,
        Orphans(class) => Orphans,
        Token(id) => OrphanedTokens,
        Set(id) => Sets,
        Deployment(id) => Deployments,
    }
}
