//! The scenarios that every world plays, one function each.
//!
//! A scenario sends the requests of users and waits for the results that they expect. The world
//! injects faults and checks the invariants. `world.begin` marks the beginning of the part of
//! interest.

mod accounts;
mod adoption;
mod binding;
mod chosen;
mod drain;
mod edits;
mod heal;
mod in_place;
mod initialization;
mod life;
mod names;
mod orphans;
mod overshoot;
mod preservation;
mod recreation;
mod rollout;
mod shared_cluster;
mod silent_server;
mod strays;
mod undecided;
mod volumes;

use std::fmt;

pub use self::accounts::{exchanged_secret, moved_class, moved_zone, renewed_token, restored};
pub use self::adoption::heal_after_adoption;
pub use self::binding::bound_before_the_cordon;
pub use self::chosen::scale_by_choice;
pub use self::drain::{drain, drain_of_a_crowd};
pub use self::edits::{edited, exchanged_id, lost_tokens};
pub use self::heal::{heal, heal_many, heal_with_a_pod};
pub use self::in_place::{update_in_place, update_in_place_by_hand};
pub use self::initialization::initialized;
pub use self::life::{burst, create_one, delete, delete_one, delete_while_creating, flap, orphan, scale};
pub use self::names::{foreign_instance, foreign_node, same_name_again};
pub use self::orphans::{orphans, young_orphan};
pub use self::overshoot::overshoot;
pub use self::preservation::preserved;
pub use self::recreation::recreated;
pub use self::rollout::{change_of_mind, roll};
pub use self::shared_cluster::shared_cluster;
pub use self::silent_server::{silent_control, silent_target};
pub use self::strays::relabelled;
pub use self::undecided::{force_deletion, short_creation_timeout, undecided};
pub use self::volumes::volumes;
use crate::faults::LongKind;
use crate::world::{Ability, MachineWorld, Played};

/// A scenario with its name and requirements.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Name of the scenario.
    pub name: &'static str,
    /// The function that plays the scenario.
    pub play: for<'w> fn(&'w dyn MachineWorld) -> Played<'w>,
    /// The abilities that the world must have.
    pub needs: &'static [Ability],
    /// The long faults that the scenario is about.
    pub is_about: &'static [LongKind],
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A scenario that every world can play.
const fn everywhere(name: &'static str, play: for<'w> fn(&'w dyn MachineWorld) -> Played<'w>) -> Scenario {
    Scenario { name, play, needs: &[], is_about: &[] }
}

/// A scenario that takes hours of simulated time.
const fn patient(name: &'static str, play: for<'w> fn(&'w dyn MachineWorld) -> Played<'w>) -> Scenario {
    Scenario { name, play, needs: &[Ability::SkipTime], is_about: &[] }
}

/// The scenarios of every test.
pub const ALL: &[Scenario] = EVERY.split_at(EVERY.len() - 1).0;

/// All scenarios. Only `cargo xtask sim` plays the last one.
pub const EVERY: &[Scenario] = &[
    everywhere("create-one", |w| Box::pin(create_one(w))),
    everywhere("delete-one", |w| Box::pin(delete_one(w))),
    everywhere("burst", |w| Box::pin(burst(w))),
    everywhere("rollout", |w| Box::pin(roll(w))),
    everywhere("scale", |w| Box::pin(scale(w))),
    everywhere("delete", |w| Box::pin(delete(w))),
    everywhere("heal", |w| Box::pin(heal(w))),
    everywhere("heal-with-a-pod", |w| Box::pin(heal_with_a_pod(w))),
    everywhere("drain", |w| Box::pin(drain(w))),
    everywhere("drain-of-a-crowd", |w| Box::pin(drain_of_a_crowd(w))),
    everywhere("bound-before-the-cordon", |w| Box::pin(bound_before_the_cordon(w))),
    everywhere("delete-while-creating", |w| Box::pin(delete_while_creating(w))),
    everywhere("flap", |w| Box::pin(flap(w))),
    everywhere("change-of-mind", |w| Box::pin(change_of_mind(w))),
    everywhere("scale-by-choice", |w| Box::pin(scale_by_choice(w))),
    everywhere("same-name-again", |w| Box::pin(same_name_again(w))),
    everywhere("foreign-node", |w| Box::pin(foreign_node(w))),
    everywhere("foreign-instance", |w| Box::pin(foreign_instance(w))),
    patient("heal-many", |w| Box::pin(heal_many(w))),
    patient("heal-after-adoption", |w| Box::pin(heal_after_adoption(w))),
    patient("exchanged-secret", |w| Box::pin(exchanged_secret(w))),
    everywhere("renewed-token", |w| Box::pin(renewed_token(w))),
    Scenario {
        name: "restored",
        play: |w| Box::pin(restored(w)),
        needs: &[Ability::StoreVerbatim],
        is_about: &[],
    },
    Scenario {
        name: "orphan",
        play: |w| Box::pin(orphan(w)),
        needs: &[Ability::JudgeCommits],
        is_about: &[],
    },
];

/// Scenarios about some of the long faults. Only `cargo xtask sim` plays them.
pub const FURTHER: &[Scenario] = &[
    Scenario { is_about: &[LongKind::LateWrites], ..patient("undecided", |w| Box::pin(undecided(w))) },
    Scenario {
        is_about: &[LongKind::ServerAway],
        ..patient("force-deletion", |w| Box::pin(force_deletion(w)))
    },
    patient("short-creation-timeout", |w| Box::pin(short_creation_timeout(w))),
];

/// Scenarios that no seed draws: the seeds that catch mutants were recorded without them.
pub const UNDRAWN: &[Scenario] = &[
    everywhere("volumes", |w| Box::pin(volumes(w))),
    patient("overshoot", |w| Box::pin(overshoot(w))),
    patient(ORPHANS, |w| Box::pin(orphans(w))),
    patient("young-orphan", |w| Box::pin(young_orphan(w))),
    patient(SHARED_CLUSTER, |w| Box::pin(shared_cluster(w))),
    Scenario {
        needs: &[Ability::SkipTime, Ability::InjectFaults],
        ..patient("silent-control", |w| Box::pin(silent_control(w)))
    },
    Scenario {
        needs: &[Ability::SkipTime, Ability::InjectFaults],
        ..patient("silent-target", |w| Box::pin(silent_target(w)))
    },
    everywhere("initialized", |w| Box::pin(initialized(w))),
    patient("preserved", |w| Box::pin(preserved(w))),
    everywhere("recreated", |w| Box::pin(recreated(w))),
    everywhere("edited", |w| Box::pin(edited(w))),
    everywhere("exchanged-id", |w| Box::pin(exchanged_id(w))),
    patient("lost-tokens", |w| Box::pin(lost_tokens(w))),
    everywhere("in-place", |w| Box::pin(update_in_place(w))),
    everywhere("in-place-by-hand", |w| Box::pin(update_in_place_by_hand(w))),
    patient("moved-class", |w| Box::pin(moved_class(w))),
    patient("moved-zone", |w| Box::pin(moved_zone(w))),
    patient("relabelled", |w| Box::pin(relabelled(w))),
];

/// The scenario with orphans of every kind.
pub const ORPHANS: &str = "orphans";
/// The scenario in which another installation uses the cluster of the Nodes.
pub const SHARED_CLUSTER: &str = "shared-cluster";
/// The scenarios that make an API server silent themselves.
pub const SILENT: [&str; 2] = ["silent-control", "silent-target"];
/// The scenarios in which the machine controller has its safety options: it collects orphans,
/// annotates Nodes without a Machine, and is frozen while an API server does not answer.
pub const WITH_SAFETY: [&str; 5] = [ORPHANS, "young-orphan", SHARED_CLUSTER, SILENT[0], SILENT[1]];

/// The scenarios with Machines that no set replaces.
pub const WITHOUT_SETS: [&str; 3] = ["same-name-again", "foreign-node", "foreign-instance"];

/// The scenarios in which the user repeats each lost request after a restore of the cluster: all
/// of them are about the deployment, its classes and the Secret.
pub const RESTORABLE: [&str; 13] = [
    "create-one",
    "delete-one",
    "burst",
    "rollout",
    "scale",
    "delete",
    "heal",
    "heal-many",
    "heal-after-adoption",
    "delete-while-creating",
    "flap",
    "change-of-mind",
    "renewed-token",
];

/// The scenario of that name.
pub fn by_name(name: &str) -> Option<Scenario> {
    ALL.iter().chain(UNDRAWN).find(|scenario| scenario.name == name).copied()
}
