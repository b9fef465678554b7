//! Taints on Nodes.

/// Key: nodes of an outdated MachineSet during a rollout; value [`PREFER_NO_SCHEDULE_VALUE`], effect
/// [`EFFECT_PREFER_NO_SCHEDULE`].
pub const PREFER_NO_SCHEDULE: &str = "deployment.machine.sapcloud.io/prefer-no-schedule";
/// Value of [`PREFER_NO_SCHEDULE`].
pub const PREFER_NO_SCHEDULE_VALUE: &str = "True";
/// Key: the node's critical components are not ready; a healthy Pending Machine stays Pending while it is there. Effect
/// [`EFFECT_NO_SCHEDULE`].
pub const CRITICAL_COMPONENTS_NOT_READY: &str = "node.gardener.cloud/critical-components-not-ready";
/// Key: node of a preserved Failed Machine, in place of a cordon. Effect [`EFFECT_NO_SCHEDULE`], with `timeAdded`.
pub const PRESERVED: &str = "node.machine.sapcloud.io/preserved";

/// Effect.
pub const EFFECT_NO_SCHEDULE: &str = "NoSchedule";
/// Effect.
pub const EFFECT_PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
